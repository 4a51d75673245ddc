"""docs/guide.md prints an example that is compiled and run, and names every option and every fixed key."""

import re
import unittest

from support.program import SOURCE, run

GUIDE = (SOURCE / "docs/guide.md").read_text()


class Guide(unittest.TestCase):
    def test_example_is_the_compiled_one(self):
        block = re.search(r"```cpp\n(.*?)```", GUIDE, re.DOTALL)[1]
        self.assertEqual(block, (SOURCE / "examples/two_ranks.cpp").read_text())

    def test_options(self):
        flags = set()
        for job in ("run", "bench", "plan", "doctor"):
            flags |= set(re.findall(r"--[a-z][a-z-]+", run(job, "--help").out))
        named = set(re.findall(r"--[a-z][a-z-]+", GUIDE.split("## The program")[1]))
        self.assertEqual(named, flags - {"--help", "--help-all", "--version"})

    def test_keys(self):
        for key in ("config", "transport", "verdict", "rows_dispatched", "tokens_combined", "mismatches",
                    "digest.dispatch", "digest.combine", "heap_bytes", "imbalance.expert", "imbalance.rank",
                    "ranks_per_token", "us.median", "us.p99", "us.min", "bytes", "floor_us", "baselines"):
            self.assertIn(f"`{key}`", GUIDE)


if __name__ == "__main__":
    unittest.main()
