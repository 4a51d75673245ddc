"""Every kind of job ends with exit code 0: the reference comparison found no wrong byte."""

import unittest

from support.program import SANITIZED, TRACE, result_of

# At the reference shape otherwise, except where sanitizers would take minutes.
AT_FULL_SIZE = """
--tokens 0
--tokens 1
--ranks 1
--ranks 6 --experts 64
--tp 2
--tp 4 --ranks 8
--topk 32
--hidden 7
--dtype fp32 --combine-dtype fp32
--layout contiguous --alignment 128
--routing zipf:1.5
--steps 50 --in-flight 2
--tokens 0..128
"""

SMALL = f"""
--layout ranked
--layout ranked --tp 2 --dtype bf16
--layout ranked --calls split --accumulate
--layout contiguous --calls split --in-flight 3
--layout contiguous --alignment 7 --tp 8
--partial-sums
--partial-sums --layout contiguous --calls split --combine-dtype fp32
--force-puts
--force-puts --tp 2 --calls split
--accumulate --combine-dtype fp16
--dtype fp16 --combine-dtype fp16 --way put
--dtype bf16 --hidden 1
--scale-block 0
--scale-block 1
--ranks 5 --experts 3
--ranks 3 --tp 3 --tokens 1
--experts 1 --topk 3
--topk 1
--tokens 0..5 --max-tokens 40 --calls split --in-flight 4 --steps 9
--routing {TRACE} --experts 64
--processes
--transport threads --ranks 16 --experts 16
--timeout inf --steps 1
--seed 18446744073709551615
"""


def jobs(lines):
    return [line.split() for line in lines.strip().splitlines()]


class Jobs(unittest.TestCase):
    def verified(self, *args):
        report = result_of("run", *args)
        self.assertEqual((report["verdict"], report["mismatches"], report["failures"]), ("verified", 0, []))
        return report

    def test_full_size(self):
        for args in jobs(AT_FULL_SIZE):
            with self.subTest(" ".join(args)):
                smaller = ("--hidden", 300) if SANITIZED and "--hidden" not in args else ()
                report = self.verified(*args, *smaller)
                if args == ["--tokens", "0"]:
                    self.assertEqual((report["rows_dispatched"], report["tokens_combined"]), (0, 0))
                if args == ["--tokens", "0..128"]:  # not all groups have as many
                    self.assertTrue(0 < report["tokens_combined"] < 3 * 8 * 128)

    def test_small(self):
        for args in jobs(SMALL):
            with self.subTest(" ".join(args)):
                sizes = {"--hidden": 96, "--experts": 16, "--tokens": 20}
                self.verified(*args, *(x for k, v in sizes.items() if k not in args for x in (k, v)))


if __name__ == "__main__":
    unittest.main()
