"""Whatever is wrong on the command line or in a file: exit code 2 and one sentence that names it."""

import json
import os
import pathlib
import struct
import subprocess
import tempfile
import unittest

from support.program import MOELANE, environment, run

SMALL = ("--hidden", "64", "--experts", "16", "--topk", "4", "--tokens", "8", "--ranks", "4")

# The wrong options, and words that the sentence has.
WRONG = [
    ("--nonsense", "--nonsense"),
    ("--rank 3", "--rank"),
    ("extra", "extra"),
    ("--ranks", "--ranks"),
    *((f"{flag} {value}", flag, value) for flag in
      ("--ranks", "--tp", "--experts", "--topk", "--hidden", "--max-tokens", "--alignment", "--capacity", "--steps",
       "--in-flight", "--num-sms") for value in ("0", "-1", "x", "1e9", "1.5", "99999999999999999999")),
    *((f"{flag} {value}", flag, value) for flag in ("--tokens", "--seed", "--scale-block")
      for value in ("-1", "x", "1e9", "0x10", "99999999999999999999")),
    ("--ranks 1025", "--ranks", "1 to 1024"),
    ("--topk 33", "--topk", "1 to 32"),
    ("--ranks 2 --ranks 3", "--ranks"),
    ("--tp 3", "--tp", "3", "divisor of the 4 ranks"),
    ("--tp 8", "--tp", "8", "1 to 4"),
    ("--tokens 5..", "--tokens"),
    ("--tokens ..5", "--tokens"),
    ("--tokens 9..5", "--tokens", "9..5"),
    ("--tokens 1..2..3", "--tokens"),
    ("--tokens 8 --max-tokens 7", "--tokens", "--max-tokens of 7"),
    ("--max-tokens 4194303 --topk 32", "--max-tokens * --topk"),
    *((f"--timeout {value}", "--timeout", value) for value in ("0", "-1", "nan", "infinity", "x", "1e9", "1s")),
    ("--dtype int8", "--dtype", "int8", "bf16"),
    ("--combine-dtype fp8_e4m3", "--combine-dtype", "fp8_e4m3", "fp32"),
    ("--layout dense", "--layout", "dense", "ranked"),
    ("--alignment 8", "--alignment", "8", "contiguous"),
    ("--transport tcp", "--transport", "tcp", "shm"),
    ("--transport nvshmem", "--transport", "nvshmem", "peer"),
    ("--way both", "--way", "both", "direct"),
    ("--calls half", "--calls", "half", "split"),
    ("--way direct --calls split", "--calls", "split", "--way direct"),
    ("--way direct --force-puts", "--way", "direct", "force_puts"),
    ("--way direct --partial-sums", "--way", "direct", "partial_sums"),
    ("--layout ranked --partial-sums", "--partial-sums", "ranked"),
    ("--graph --transport shm", "--graph", "GPU"),
    ("--num-sms 4 --transport threads", "--num-sms", "GPU"),
    ("--processes --transport threads", "--processes", "threads"),
    *((f"--inject {value}", "--inject") for value in
      ("die", "die:1", "die:1@", "die:@1", "die:1@1:5", "die:1@0", "die:4@1", "die:1@4", "die:-1@1", "stall:1@1",
       "stall:1@1:", "stall:1@1:x", "stall:1@1:-1", "stall:1@1:nan", "stall:1:1@1", "sleep:1@1:1")),
    ("--routing uniform:2", "routing", "uniform:2"),
    ("--routing zipf", "routing", "zipf"),
    *((f"--routing zipf:{value}", "routing", value) for value in ("x", "-1", "nan", "inf")),
    ("--routing missing.safetensors", "routing", "missing.safetensors"),
    ("--placement missing.json", "placement", "missing.json"),
    ("--capacity 1", "--capacity is 1", "expert"),
    ("--capacity 1 --layout contiguous --transport threads", "--capacity is 1", "rows"),
    ("--capacity 2 --layout ranked --calls split", "--capacity is 2", "rows"),
    ("--capacity 2147483647 --hidden 1048576 --experts 65536", "--capacity"),
    ("--json missing/report.json", "--json", "missing/report.json", "No such file"),
    ("--json .", "--json", "directory"),
    ("--trace missing/trace.json", "--trace", "missing/trace.json"),
    ("--json same.json --trace same.json", "--trace", "--json"),
]

HEADER = {"topk_ids": ("I32", "i"), "topk_weights": ("F32", "f")}


def tensors(ids, weights, topk=4, **changes):
    header, at = {}, 0
    for name, values in (("topk_ids", ids), ("topk_weights", weights)):
        header[name] = {"dtype": HEADER[name][0], "shape": [len(values) // topk, topk],
                        "data_offsets": [at, at + 4 * len(values)], **changes.get(name, {})}
        at += 4 * len(values)
    text = json.dumps(header).encode()
    return (struct.pack("<Q", len(text)) + text + struct.pack(f"<{len(ids)}i", *ids) +
            struct.pack(f"<{len(weights)}f", *weights))


GOOD = tensors([0, 1, 2, 3] * 8, [0.25] * 32)
FILES = {  # routing: content and a word of the sentence
    "empty.safetensors": (b"", "empty"),
    "short.safetensors": (GOOD[:-5], "data_offsets"),
    "header.safetensors": (GOOD[:40], "header"),
    "huge.safetensors": (struct.pack("<Q", 1 << 60) + b"{}", "header length"),
    "nan.safetensors": (tensors([0] * 8, [0.5] * 7 + [float("nan")]), "nan"),
    "high.safetensors": (tensors([0] * 7 + [16], [0.5] * 8), "16"),
    "low.safetensors": (tensors([0] * 7 + [-2], [0.5] * 8), "-2"),
    "topk.safetensors": (tensors([0] * 6, [0.5] * 6, topk=3), "topk = 4"),
    "dtype.safetensors": (tensors([0] * 8, [0.5] * 8, topk_ids={"dtype": "F32"}), "dtype"),
    "rubbish.safetensors": (os.urandom(64), "header"),
    "rubbish.bin": (b"\xff\xfe\x00 rubbish", "begins with"),
    "trace.txt": (b"1\t2\t3\t4\t5\t6\t\t0.1\t0.1\t0.1\t0.1\t0.1\t0.1\n", "topk is 4"),
    "counts.json": (b"[1, 2, 3]", "3 experts"),
    "nested.json": (b"[" * 100000, "nests"),
}
PLACEMENTS = {
    "short.json": ("[0, 1, 2]", "3 entries"),
    "rank.json": (json.dumps([0] * 15 + [4]), "0 to 3"),
    "negative.json": (json.dumps([0] * 15 + [-1]), "-1"),
    "float.json": (json.dumps([0] * 15 + [1.5]), "1.5"),
    "text.json": ("no JSON", "not JSON"),
    "key.json": ('{"ranks": []}', "rank_of"),
    "deep.json": ("[" * 100000, "nests"),
    "void.json": ("", "empty"),
}


class BadInput(unittest.TestCase):
    def refused(self, *args, words, job="run", defaults=SMALL):
        given = {arg.split("=")[0] for arg in args}
        rest = []
        for flag, value in zip(defaults[::2], defaults[1::2]):
            if flag not in given:
                rest += [flag, value]
        result = run(job, *args, *rest, limit=20)
        self.assertEqual((result.code, result.out), (2, ""), result)
        self.assertRegex(result.err, r"\Amoelane: [^\n]+\n\Z", result)
        for word in words:
            self.assertIn(word, result.err, result)

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.addCleanup(os.chdir, os.getcwd())
        os.chdir(folder.name)

    def test_options(self):
        for line, *words in WRONG:
            with self.subTest(line):
                self.refused(*line.split(), words=words)
        for flag in ("--json", "--trace"):
            self.refused(flag, "", words=(flag, "standard output"))
        self.assertEqual(os.listdir(), [])  # nothing was written

    def test_plan_and_bench_refuse_alike(self):
        for job in ("plan", "bench"):
            for line, *words in WRONG[:30:7]:
                with self.subTest(job=job, line=line):
                    self.refused(*line.split(), words=words, job=job)
            self.refused("--inject", "die:1@1", words=("--inject", "moelane run"), job=job)
            self.refused("--trace", "trace.json", words=("--trace", "moelane run"), job=job)
        for flag in ("--memory-gbs", "--link-gbs"):
            for value in ("0", "-1", "nan", "inf", "x"):
                self.refused(flag, value, words=(flag, value), job="plan")
        self.refused("--warmup", "-1", words=("--warmup", "-1"), job="bench")
        self.refused("--memory-gbs", "5", words=("--memory-gbs",))  # run has no such option

    def test_jobs(self):
        for args in ((), ("ru",), ("--json", "x")):
            with self.subTest(args):
                result = run(*args)
                self.assertEqual((result.code, result.out), (2, ""), result)
                self.assertRegex(result.err, r"\Amoelane: [^\n]+\n\Z")
        self.refused("--ranks", "3", words=("--ranks",), job="doctor", defaults=())

    def test_strange_text_cannot_make_two_lines(self):
        for text in ("a\nb", "\x1b[2J", "\udcff\udcfe", "x" * 5000):
            for args in (("--ranks", text), (text,), ("--dtype", text), ("--routing", text), ("--json", text + "/x")):
                with self.subTest(args):
                    self.refused(*args, words=())

    def test_routing_files(self):
        for name, (content, word) in FILES.items():
            with self.subTest(name):
                pathlib.Path(name).write_bytes(content)
                self.refused("--routing", name, words=("routing", name, word))
        os.mkdir("folder.safetensors")
        os.mkfifo("fifo.safetensors")
        for name, word in (("folder.safetensors", "directory"), ("fifo.safetensors", "FIFO"), ("/dev/zero", "device")):
            self.refused("--routing", name, words=("routing", name, word))

    def test_placement_files(self):
        for name, (content, word) in PLACEMENTS.items():
            with self.subTest(name):
                pathlib.Path(name).write_text(content)
                self.refused("--placement", name, words=("placement", name, word))

    def test_standard_output_that_takes_nothing(self):
        for extra in ((), ("--json", "-")):
            with open("/dev/full", "w") as full:
                done = subprocess.run([MOELANE, "run", *SMALL, *extra], stdout=full, stderr=subprocess.PIPE, text=True,
                                      env=environment(), timeout=60)
            self.assertEqual(done.returncode, 2, done.stderr)
            self.assertRegex(done.stderr, r"^moelane: standard output is full or closed, allowed is .*\n$")

    def test_good_files_are_taken(self):
        pathlib.Path("good.safetensors").write_bytes(GOOD)
        pathlib.Path("good.json").write_text(json.dumps({"rank_of": [0, 3, 1, 1] * 4}))  # rank 2 has no expert
        result = run("run", *SMALL, "--routing", "good.safetensors", "--placement", "good.json")
        self.assertEqual((result.code, result.err), (0, ""), result)
        self.assertIn("used again from its start", result.out)


if __name__ == "__main__":
    unittest.main()
