"""Builds for the card that is there, and runs the tests that need it."""

import os
import re
import shutil
import subprocess

from .bounded import ROOT, Stop


def build(part):
    """The preset's release build for this card, warnings being no errors with a compiler that is not CI's."""
    folder = part.options.build
    prefixes = [os.path.abspath(path) for path in os.environ.get("CMAKE_PREFIX_PATH", "").split(":") if path]
    part.must("cmake", "--preset", "cuda", "-B", folder, "-DCMAKE_CUDA_ARCHITECTURES=native", "-DMOELANE_WERROR=OFF",
              limit=120, CMAKE_PREFIX_PATH=":".join(prefixes))
    part.must("cmake", "--build", folder, "--parallel", os.cpu_count(), limit=450)
    part.summary = card()


def card():
    query = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    try:
        lines = subprocess.run(query, stdout=subprocess.PIPE, text=True, timeout=30, check=True).stdout.splitlines()
    except (OSError, subprocess.SubprocessError) as error:
        raise Stop(f"no NVIDIA GPU is found here: {error}") from None
    return f"{len(lines)} x {lines[0].replace(', ', ', driver ')}"


def tests(part):
    """ctest's label gpu, and the program's own test; cases that skip themselves are counted."""
    log = part.options.build / "Testing/Temporary/LastTest.log"
    said = ""
    for selection in (("--label-regex", "^gpu$"), ("--tests-regex", "^cli_gpu$")):
        log.unlink(missing_ok=True)
        result = part.run("ctest", "--test-dir", part.options.build, *selection, "--no-tests=error",
                          "--output-on-failure", limit=460)
        said += log.read_text(errors="replace") if log.exists() else ""
        if result.code != 0:
            part.fail(result)
    count = {word: len(re.findall(rf"^\[ +{word} +\] .* ms\)$", said, re.M)) for word in ("OK", "FAILED", "SKIPPED")}
    part.failures += [f"test {name}" for name in re.findall(r"^\[ +FAILED +\] (\S+) .* ms\)$", said, re.M)]
    if count["OK"] == 0:
        part.fail("no test of GoogleTest has run to its end")
    part.results = {"cases": count, "skipped": sorted(set(re.findall(r"Skipped\n(.+)", said)))}
    part.summary = "{OK} passed, {FAILED} failed, {SKIPPED} skipped".format(**count)


def carry(folder):
    """Copies what a machine without Debian's packages lacks to `folder`, for its CMAKE_PREFIX_PATH."""
    if shutil.which("dpkg") is None:
        raise Stop("--carry takes files of Debian's packages, and this is no Debian machine")
    wanted = {"librapidcheck-dev": "", "libxxhash-dev": "/include/"}  # of xxHash only the header is used
    for package, piece in wanted.items():
        found = subprocess.run(["dpkg", "-L", package], stdout=subprocess.PIPE, text=True)
        files = [name for name in found.stdout.split("\n") if re.match("/usr/(include|lib)/", name) and piece in name]
        if found.returncode != 0 or not files:
            raise Stop(f"the Debian package {package} is not installed here; scripts/test installs it")
        for name in files:
            if os.path.isfile(name):
                target = folder / os.path.relpath(name, "/usr")
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(name, target)
    print(f"on the other machine: CMAKE_PREFIX_PATH={folder} scripts/gpu-check")
