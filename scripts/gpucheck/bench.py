"""The table of figures: ranks as threads of one process, then as processes under a fresh MPS daemon."""

import contextlib
import json
import os
import pathlib
import shlex
import signal
import tempfile
import typing

from .bounded import ROOT, Stop
from .program import moelane, what

RANKS = 8
SLOWER = 1.15  # what processes under MPS may cost beside threads
LAUNCH = 5     # microseconds of the host for a call without a graph
OVER = " **>**"


class Job(typing.NamedTuple):
    name: str
    options: str
    wanted: tuple = ()  # of dispatch and combine: microseconds, or times the floor
    times: bool = False


JOBS = [
    Job("1", "--tokens 1 --steps 200", (12, 9)),
    Job("16", "--tokens 16 --steps 200", (13, 12)),
    Job("128", "--tokens 128 --steps 100", (30, 38)),
    Job("1024 contiguous", "--tokens 1024 --layout contiguous --capacity 9216 --steps 40", (1.35, 1.25), True),
    Job("4096 contiguous", "--tokens 4096 --layout contiguous --capacity 36864 --steps 20", (1.35, 1.25), True),
    Job("128 split", "--tokens 128 --calls split --steps 100", (55, 110)),
    Job("128 zipf:1.2", "--tokens 128 --routing zipf:1.2 --steps 100"),
    Job("1024 contiguous zipf:1.2", "--tokens 1024 --layout contiguous --routing zipf:1.2 --steps 40"),
]


def trace_jobs():
    """Real routers' choices at the shape of their models, where the traces are."""
    folder = pathlib.Path(os.environ.get("MOELANE_TRACES") or ROOT.parent / "shared/traces").absolute()
    law = folder / "esft_deepseek_v2_lite/law/expert_weights_13.txt"
    counts = folder / "olmoe_mixtral/expert_counts.json"
    found = []
    if law.exists():
        found.append(("DeepSeek-V2-Lite, law", law, 6))
    if counts.exists():
        known = json.loads(counts.read_text())
        model = next(name for name in known if "olmoe" in name.lower())
        domain = next(iter(known[model]["expert_counts"]))
        found.append((f"OLMoE, {domain}", f"{counts}#{model}/expert_counts/{domain}/1", 8))
    return [Job(f"128 {name}", f"--tokens 128 --routing {shlex.quote(str(routing))} --experts 64 --topk {topk} "
                "--hidden 2048 --steps 100") for name, routing, topk in found]


@contextlib.contextmanager
def mps(part, processes):
    """A fresh daemon, since one whose client was killed in a kernel is broken; gives its clients' environment."""
    with tempfile.TemporaryDirectory(prefix="mps") as work:
        server = {"CUDA_MPS_PIPE_DIRECTORY": f"{work}/pipe", "CUDA_MPS_LOG_DIRECTORY": f"{work}/log"}
        for folder in server.values():
            os.mkdir(folder)
        part.must("nvidia-cuda-mps-control", "-d", limit=30, **server)
        try:
            share = {"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": 100 // processes}
            yield {**server, **share, "CUDA_MODULE_LOADING": "EAGER"}
        finally:
            stopped = part.run("nvidia-cuda-mps-control", stdin="quit -t 5\n", limit=20, **server)
            if stopped.code != 0:
                part.say(f"the MPS daemon does not stop: {stopped}")
                with contextlib.suppress(OSError, ValueError):
                    os.kill(int(pathlib.Path(work, "pipe/nvidia-cuda-mps-control.pid").read_text()), signal.SIGKILL)


def measure(part, job, *more, **environment):
    command = " ".join([f"bench --transport peer --ranks {RANKS}", job.options, *more])
    result = moelane(part, *shlex.split(command), limit=150, **environment)
    if result:
        part.results.append({"name": job.name, "command": f"moelane {command}", **result})
        part.say(f"{job.name}: dispatch {result['dispatch']['us']['median']:.1f} us, "
                 f"combine {result['combine']['us']['median']:.1f} us")
    return result


def chosen(part):
    return [job for job in JOBS + trace_jobs() if not part.options.jobs or job.name in part.options.jobs]


def bench(part):
    jobs = chosen(part)
    done = sum(bool(measure(part, job)) for job in jobs)
    part.summary = f"{done} of {len(jobs)} measured"


def in_processes(part):
    jobs = chosen(part)
    done = 0
    for job in jobs:
        with mps(part, RANKS) as clients:
            done += bool(measure(part, job, "--processes", **clients))
    with mps(part, RANKS) as clients:
        options = ("run", "--ranks", RANKS, "--tokens", "0..128", "--steps", 5)
        got = what(moelane(part, *options, "--transport", "peer", "--processes", **clients))
        want = what(moelane(part, *options, "--transport", "threads"))
        if got and want and got != want:
            part.fail(f"{got} in processes on the GPU, {want} on CPU threads")
    part.summary = f"{done} of {len(jobs)} measured"


def cells(timing, job, slot):
    """The median, with a mark where more than `wanted` was taken; what was wanted; and the floor, where known."""
    us, floor = timing["us"]["median"], timing["floor_us"]
    wanted, most = "", None
    if job.wanted and not job.times:
        most = job.wanted[slot]
        wanted = f"{most}"
    elif job.wanted and floor:
        most = job.wanted[slot] * floor
        wanted = f"{most:.1f} ({job.wanted[slot]} floors)"
    return f"{us:.1f}{OVER if most and us > most else ''}", wanted, f"{floor:.1f}" if floor else ""


def table(threads, processes):
    """Of the results of both parts: for a person, and for docs/performance.md."""
    lines = ["| tokens | | median | wanted | floor | p99 | events | launch | in processes | most loaded rank |",
             "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |"]
    by_name = [{result["name"]: result for result in results} for results in (threads, processes)]
    for job in JOBS + trace_jobs():
        one, other = (results.get(job.name) for results in by_name)
        for slot, phase in enumerate(("dispatch", "combine") if one or other else ()):
            row = [job.name, phase]
            if one:
                timing = one[phase]
                row += [*cells(timing, job, slot), f"{timing['us']['p99']:.1f}"]
                launch = timing.get("launch_us")
                row += [f"{timing['us_events']:.1f}" if "us_events" in timing else "",
                        f"{launch:.1f}{OVER if launch > LAUNCH else ''}" if launch else ""]
            else:
                row += [""] * 6
            if other:
                us = other[phase]["us"]["median"]
                row.append(f"{us:.1f}{OVER if one and us > SLOWER * one[phase]['us']['median'] else ''}")
            else:
                row.append("")
            row.append(f"{(one or other)['imbalance']['rank']:.2f}")
            lines.append(f"| {' | '.join(row)} |")
    return [*lines, f"Microseconds;{OVER}: more than wanted, or in processes over {SLOWER} times what threads take."]
