"""Runs of the program, and the digests that they must agree on."""

import concurrent.futures
import json
import os
import sys
import tempfile

from .bounded import ROOT

SIZES = {"--hidden": 272, "--experts": 20, "--topk": 5, "--ranks": 4, "--tokens": "0..33", "--steps": 3}
UNEVEN = [0, 0, 0, 0, 0, 0, 0, 3, 2, 2, 0, 0, 0, 0, 0, 0, 3, 3, 3, 0]  # rank 1 of 4 has no expert

# Beside the jobs of tests/cli/options.py: each layout in each way of moving rows, and what only GPU ranks have.
GRID = [f"--layout {layout} --tp {tp} {way}"
        for layout in ("padded", "contiguous --alignment 8", "ranked") for tp in (1, 2, 4)
        for way in ("--way put", "--way direct", "--calls split")]
MORE = ["--dtype bf16 --combine-dtype fp32", "--dtype fp16 --combine-dtype fp16", "--dtype fp32 --combine-dtype bf16",
        "--routing zipf:1.2", "--accumulate --calls split", "--capacity 132", "--layout contiguous --capacity 700",
        "--placement {uneven}", "--placement {uneven} --layout contiguous --calls split", "--graph --steps 9",
        "--graph --calls split --steps 9", "--num-sms 1", "--num-sms 2 --calls split --tokens 300",
        "--ranks 16 --num-sms 4", "--ranks 2 --processes", "--ranks 1"]
GPU_ONLY = {"--graph": 0, "--processes": 0, "--num-sms": 1}  # and the values that follow


def moelane(part, *words, limit=120, **environment):
    """The result that `moelane ... --json -` prints; None, and a failure of the part, when it is not verified."""
    words = [str(word) for word in words]
    run = part.run(part.options.build / "bin/moelane", *words, "--json", "-", limit=limit, **environment)
    try:
        result = json.loads(run.out)
    except ValueError:
        result = {}
    if run.code != 0 or result.get("verdict") != "verified":
        part.fail(run)
        return None
    return result


def on_cpu(words):
    """The same job without what only GPU ranks know."""
    kept, left = [], 0
    for word in words:
        if word in GPU_ONLY:
            left = GPU_ONLY[word]
        elif left > 0:
            left -= 1
        else:
            kept.append(word)
    return kept


def completed(line, sizes):
    words = line.split()
    return words + [str(word) for flag, value in sizes.items() if flag not in words for word in (flag, value)]


def jobs(program, uneven):
    """Those that every transport is tested with, but for what only CPU ranks do, and ours."""
    os.environ["MOELANE"] = str(program)
    sys.path.insert(0, str(ROOT / "tests/cli"))
    import options
    core = [(line, sizes) for text, sizes in ((options.AT_FULL_SIZE, {}),
                                              (options.SMALL, {"--hidden": 96, "--experts": 16, "--tokens": 20}))
            for line in text.strip().splitlines()
            if not any(word in line for word in ("--force-puts", "--transport", "--processes"))]
    ours = [(line.format(uneven=uneven), SIZES) for line in GRID + MORE]
    return [completed(line, sizes) for line, sizes in core + ours]


def what(result):
    return result and (result["digest"], result["rows_dispatched"], result["tokens_combined"])


def digests(part):
    """The GPU's digests are those of CPU threads, which run beside it."""
    with tempfile.NamedTemporaryFile("w", suffix=".json") as uneven, concurrent.futures.ThreadPoolExecutor(3) as pool:
        json.dump({"rank_of": UNEVEN}, uneven)
        uneven.flush()
        todo = jobs(part.options.build / "bin/moelane", uneven.name)
        wanted = [pool.submit(moelane, part, "run", "--transport", "threads", *on_cpu(words)) for words in todo]
        equal = 0
        for words, expected in zip(todo, wanted):
            got, want = what(moelane(part, "run", "--transport", "peer", *words)), what(expected.result())
            if got and want and got != want:
                part.fail(f"run {' '.join(words)}: {got} on the GPU, {want} on CPU threads")
            equal += bool(got) and got == want
            part.results.append({"job": " ".join(words), "peer": got, "threads": want})
    part.summary = f"{equal} of {len(todo)} jobs give the digests of CPU threads"
