"""Parts of the check and the commands that they run. Everything ends: each command has a bound, and each part."""

import functools
import os
import pathlib
import signal
import subprocess
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
PART_SECONDS = 470  # with what is still to be cleaned up, less than 8 minutes
GRACE_SECONDS = 10  # between the request to end and the end


class Stop(Exception):
    """What keeps a part from going on, in a sentence."""


class Result:
    def __init__(self, command, code, out, err, seconds):
        self.command, self.code, self.out, self.err, self.seconds = command, code, out, err, seconds
        self.timed_out = code is None

    def __str__(self):
        ended = "did not end in time" if self.timed_out else f"exit code {self.code}"
        return (f"{' '.join(self.command)}: {ended}, {self.seconds:.0f} s\n"
                f"{self.out[-3000:]}{self.err[-3000:]}").rstrip()


def end(process):
    """Asks the process and what it has started to end, then makes them."""
    for sign, seconds in ((signal.SIGTERM, GRACE_SECONDS), (signal.SIGKILL, GRACE_SECONDS)):
        try:
            os.killpg(process.pid, sign)
            process.wait(seconds)
        except ProcessLookupError:
            return
        except subprocess.TimeoutExpired:
            continue


class Part:
    def __init__(self, name, options):
        self.name, self.options = name, options
        self.begin = time.monotonic()
        self.took = 0       # seconds, in the end
        self.summary = ""   # for the last table
        self.failures = []  # sentences
        self.results = []   # for the file of this part

    def seconds(self):
        return time.monotonic() - self.begin

    def say(self, text):
        print(f"[{self.name} {self.seconds():4.0f} s] {text}", flush=True)

    def fail(self, sentence):
        self.failures.append(str(sentence))
        self.say(f"FAILED: {sentence}")

    def run(self, *command, limit, stdin="", **more):
        """Runs a command for `limit` seconds at most; `more` are environment variables."""
        command = [str(word) for word in command]
        left = min(limit, PART_SECONDS - self.seconds())
        if left < 1:
            raise Stop(f"the part's {PART_SECONDS} s were over before {' '.join(command)}")
        begin = time.monotonic()
        # Files rather than pipes: a daemon that keeps them open is not waited for.
        file = functools.partial(tempfile.TemporaryFile, "w+", errors="replace")
        with file() as text, file() as out, file() as err:
            text.write(stdin)
            text.seek(0)
            process = subprocess.Popen(command, cwd=ROOT, env={**os.environ, **{k: str(v) for k, v in more.items()}},
                                       stdin=text, stdout=out, stderr=err, start_new_session=True)
            code = None
            try:
                code = process.wait(left)
            except subprocess.TimeoutExpired:
                pass
            finally:
                if code is None:
                    end(process)
            out.seek(0)
            err.seek(0)
            return Result(command, code, out.read(), err.read(), time.monotonic() - begin)

    def must(self, *command, **more):
        result = self.run(*command, **more)
        if result.code != 0:
            raise Stop(str(result))
        return result
