"""Runs the program as a person would, and looks at what it leaves behind. Python's standard library only."""

import json
import os
import pathlib
import subprocess
import sys
import time

MOELANE = os.environ["MOELANE"]
SOURCE = pathlib.Path(os.environ.get("MOELANE_SOURCE_DIR", pathlib.Path(__file__).parents[3]))
TRACE = SOURCE / "tests/data/trace.safetensors"  # 256 tokens, top-8, made by scripts/make-trace
SKIP = 77

_code = pathlib.Path(MOELANE).read_bytes()
SANITIZED = b"__tsan_init" in _code or b"__asan_init" in _code
SLOWER = 6 if SANITIZED else 1  # sanitizers take their time
del _code

# Variables of launchers that may be set where the tests run would make every run one rank of theirs.
_LAUNCHER = ("RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "MOELANE_WORLD")


def environment(**more):
    env = {k: v for k, v in os.environ.items() if k not in _LAUNCHER}
    env["MOELANE_TEST"] = str(os.getpid())
    env.update({k: str(v) for k, v in more.items()})
    return env


class Result:
    def __init__(self, args, code, out, err, seconds):
        self.args, self.code, self.out, self.err, self.seconds = args, code, out, err, seconds

    def __str__(self):
        return (f"moelane {' '.join(map(str, self.args))}: exit code {self.code} after {self.seconds:.1f} s\n"
                f"stdout: {self.out[-2000:]}\nstderr: {self.err[-2000:]}")


def start(*args, **env):
    return subprocess.Popen([MOELANE, *map(os.fsencode, map(str, args))], env=environment(**env), text=True,
                            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                            encoding="utf-8", errors="surrogateescape")


def finish(process, args, begin, limit):
    try:
        out, err = process.communicate(timeout=limit * SLOWER)
    except subprocess.TimeoutExpired:
        process.kill()
        out, err = process.communicate()
        raise AssertionError(f"did not end within {limit * SLOWER} s: "
                             f"{Result(args, 'none', out, err, time.monotonic() - begin)}") from None
    return Result(args, process.returncode, out, err, time.monotonic() - begin)


def run(*args, limit=100, **env):
    begin = time.monotonic()
    return finish(start(*args, **env), args, begin, limit)


def result_of(*args, code=0, **env):
    """The JSON that `moelane ... --json -` prints; nothing else may be printed."""
    result = run(*args, "--json", "-", **env)
    assert result.code == code, result
    return json.loads(result.out)


def processes():
    """The processes that this test has started, and what they have started."""
    mark, found = f"MOELANE_TEST={os.getpid()}".encode(), set()
    for entry in pathlib.Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and mark in (entry / "environ").read_bytes().split(b"\0"):
                found.add(int(entry.name))
        except OSError:
            continue  # ended meanwhile, or somebody else's
    return found


def memory_files(pid):
    """[(name, bytes)] of the anonymous memory files that a process has mapped."""
    found = []
    for line in pathlib.Path(f"/proc/{pid}/maps").read_text().splitlines():
        if "/memfd:" in line:
            begin, end = (int(part, 16) for part in line.split()[0].split("-"))
            found.append((line.split("/memfd:")[1].split()[0], end - begin))
    return found


def wait_until(what, condition, seconds=10):
    end = time.monotonic() + seconds * SLOWER
    while time.monotonic() < end:
        value = condition()
        if value:
            return value
        time.sleep(0.02)
    raise AssertionError(f"not within {seconds * SLOWER} s: {what}")


def named_memory():
    """What the program could have left where named shared memory lies."""
    return [name for name in os.listdir("/dev/shm") if "moelane" in name] if os.path.isdir("/dev/shm") else []


def traces():
    """The folder of the shared traces; None where there is none, which ends the test if they are required."""
    folder = pathlib.Path(os.environ.get("MOELANE_TRACES") or SOURCE.parent / "shared/traces")
    if folder.is_dir():
        return folder
    if "traces" in os.environ.get("MOELANE_REQUIRE", "").split(","):
        sys.exit(f"MOELANE_REQUIRE asks for traces, but {folder} is not a folder")
    return None
