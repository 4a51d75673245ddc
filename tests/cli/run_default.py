"""`moelane run` with no options: the reference shape, every byte checked; its report and its memory."""

import unittest

from support.program import result_of, run


class Default(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.report = result_of("run")

    def test_is_verified(self):
        self.assertEqual(self.report["verdict"], "verified")
        self.assertEqual(self.report["mismatches"], 0)
        self.assertEqual(self.report["rows_dispatched"], 3 * 8 * 128 * 8)
        self.assertEqual(self.report["tokens_combined"], 3 * 8 * 128)

    def test_is_the_reference_shape(self):
        config = self.report["config"]
        wanted = {"ranks": 8, "experts": 256, "topk": 8, "hidden": 7168, "tokens": [128, 128], "dtype": "fp8_e4m3",
                  "scale_columns": 56, "combine_dtype": "bf16", "steps": 3, "in_flight": 2}
        self.assertEqual({key: config[key] for key in wanted}, wanted)
        self.assertEqual(self.report["transport"], "peer" if result_of("doctor")["gpu"]["cards"] else "shm")

    def test_has_the_fixed_keys(self):
        report = self.report
        for key in ("heap_bytes", "ranks_per_token"):
            self.assertGreater(report[key], 0)
        for key in ("expert", "rank"):
            self.assertGreaterEqual(report["imbalance"][key], 1)
        for phase in ("dispatch", "combine"):
            self.assertRegex(report["digest"][phase], "^[0-9a-f]{16}$")
            us = report[phase]["us"]
            self.assertTrue(0 < us["min"] <= us["median"] <= us["p99"], us)
            self.assertGreater(report[phase]["bytes"], 0)
            self.assertGreater(report[phase]["floor_us"], 0)

    def test_heap_is_small_and_planned(self):
        self.assertLess(self.report["heap_bytes"], 64 << 20)
        plan = result_of("plan")
        for key in ("heap_bytes", "symmetric_bytes", "mapped_bytes"):
            self.assertEqual(plan[key], self.report[key], key)


class Printing(unittest.TestCase):
    small = ("run", "--transport", "shm", "--hidden", "64", "--experts", "16", "--steps", "1")

    def test_people_are_told(self):
        result = run(*self.small)
        self.assertEqual((result.code, result.err), (0, ""), result)
        for word in ("8 ranks (shm)", "dispatch", "combine", "median", "p99", "imbalance", "digests", "verified: "):
            self.assertIn(word, result.out)

    def test_quiet_says_nothing(self):
        result = run(*self.small, "--quiet")
        self.assertEqual((result.code, result.out, result.err), (0, "", ""), result)

    def test_help_names_every_option(self):
        for job in ("run", "bench", "plan"):
            result = run(job, "--help")
            self.assertEqual(result.code, 0, result)
            for flag in """ranks tp experts topk hidden tokens max-tokens dtype scale-block combine-dtype layout alignment
                           routing placement transport way calls capacity accumulate steps in-flight timeout inject
                           processes num-sms graph seed json trace quiet""".split():
                self.assertIn(f"--{flag}", result.out)
        self.assertEqual(run("--version").code, 0)


if __name__ == "__main__":
    unittest.main()
