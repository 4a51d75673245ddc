"""compute-sanitizer on small runs that take every kernel: one rank, which never waits long, and two that wait."""

import shutil

SHAPE = "--experts 6 --topk 3 --hidden 528 --tokens 0..70 --steps 2 --timeout 25"
ALONE = ["--layout padded", "--layout contiguous --alignment 4 --calls split --accumulate",
         "--layout ranked --way put --dtype bf16 --combine-dtype fp32 --num-sms 2", "--partial-sums"]
TOGETHER = "--ranks 2 --num-sms 4"
TOOLS = ["memcheck", "racecheck", "initcheck"]
FOUND = 99


def sanitizer(part):
    if shutil.which("compute-sanitizer") is None:
        part.summary = "not run: there is no compute-sanitizer"
        return
    said = []
    for tool in TOOLS:
        clean = 0
        for options in [f"--ranks 1 {line}" for line in ALONE] + [TOGETHER]:
            run = part.run("compute-sanitizer", "--tool", tool, "--error-exitcode", FOUND,
                           part.options.build / "bin/moelane", "run", "--transport", "peer", *SHAPE.split(),
                           *options.split(), limit=60)
            part.results.append({"tool": tool, "options": options, "code": run.code, "seconds": run.seconds})
            clean += run.code == 0
            # Ranks that wait for each other end late, or not at all, where a tool lets one kernel run at a time.
            if options == TOGETHER and run.code in (None, 3):
                part.say(f"{tool}, two ranks: {'no end' if run.timed_out else 'time-out'}; they do not run together")
                said.append(f"{tool} {clean} of {len(ALONE)}, 2 ranks cannot wait under it")
                break
            if run.code != 0:
                part.fail(run)
        else:
            said.append(f"{tool} {clean} of {len(ALONE) + 1}")
    part.summary = "clean: " + "; ".join(said)
