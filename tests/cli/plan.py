"""`moelane plan` against formulas written down here, and against what a run really does."""

import math
import unittest

from support.program import result_of, run

ROW, ANSWER = 7168 + 4 * 56, 2 * 7168


def distinct_ranks(experts_of_ranks, topk):
    """Ranks that a token visits when it picks `topk` experts without replacement."""
    experts = sum(experts_of_ranks)
    return sum(1 - math.comb(experts - n, topk) / math.comb(experts, topk) for n in experts_of_ranks)


class Plan(unittest.TestCase):
    def test_reference_shape(self):
        plan = result_of("plan")
        ranks = distinct_ranks([32] * 8, 8)
        self.assertAlmostEqual(plan["ranks_per_token"], ranks, 9)
        put, direct = plan["ways"]["put"], plan["ways"]["direct"]
        near = lambda a, b: self.assertLess(abs(a / b - 1), 1e-9, (a, b))
        near(direct["dispatch"]["bytes"], 128 * 8 * ROW)
        near(direct["dispatch"]["bytes_link"], 128 * 8 * ROW * 7 / 8)
        near(put["dispatch"]["bytes"], 128 * ranks * ROW)
        near(put["dispatch"]["bytes_local"], 128 * ranks * ROW / 8)
        near(put["dispatch"]["rows_placed"], 128 * 8)
        near(put["combine"]["bytes"], 128 * 8 * ANSWER)
        # The floors of the design: microseconds over NVLink, and in a memory that eight ranks share.
        near(put["dispatch"]["floor_us"]["link"], 128 * ranks * 7 / 8 * ROW / 450e3)
        near(direct["combine"]["floor_us"]["link"], 128 * 8 * 7 / 8 * ANSWER / 450e3)
        card = result_of("plan", "--memory-gbs", 4300 / 8)["ways"]
        for way, phase, floor in (("direct", "dispatch", 16), ("direct", "combine", 31), ("put", "dispatch", 35),
                                  ("put", "combine", 85)):
            self.assertAlmostEqual(card[way][phase]["floor_us"]["memory"], floor, delta=0.6)
        self.assertEqual(plan["way"], "direct")
        self.assertEqual(result_of("plan", "--calls", "split")["way"], "put")

    def test_memory_adds_up(self):
        for args in ((), ("--tp", 4), ("--way", "put"), ("--way", "direct"), ("--force-puts",), ("--layout", "ranked"),
                     ("--partial-sums", "--in-flight", 5), ("--ranks", 1), ("--ranks", 1000, "--experts", 3000)):
            with self.subTest(args):
                plan = result_of("plan", "--hidden", 100, "--tokens", 9, *args)
                heap = plan["heap"]
                lane = heap["lane"]
                self.assertEqual(sum(lane.values()) - lane["total"], lane["total"])
                self.assertEqual(heap["control"] + heap["lanes"] * lane["total"], plan["mapped_bytes"])
                self.assertEqual(plan["heap_bytes"] + plan["symmetric_bytes"], plan["mapped_bytes"])
                self.assertEqual(lane["slots"] == 0, args == ("--way", "direct"))
                by_rank = "ranked" in args or "--partial-sums" in args  # a place for one sum
                self.assertEqual(lane["staging"] > 0, "--force-puts" in args or by_rank)

    def test_memory_grows_with_tokens_and_not_with_experts(self):
        def rows(*args):
            lane = result_of("plan", *args)["heap"]["lane"]
            return lane["slots"] + lane["answers"]

        page = 4096  # what follows begins on a page
        wanted = 8 * 128 * 7424 + 128 * 8 * ANSWER  # rows in whole cache lines
        for experts in (64, 256, 1024):
            self.assertLess(abs(rows("--experts", experts) - wanted), page)
        self.assertLess(abs(rows("--tokens", 256) - 2 * wanted), page)

    def test_counts_what_a_run_does(self):
        for args in (("--routing", "zipf:1.2"), ("--tokens", "0..40", "--tp", 2), ("--experts", 6, "--topk", 7)):
            with self.subTest(args):
                small = ("--hidden", 16, "--ranks", 4, "--experts", 16, "--tokens", 30, "--steps", 5)
                options = [x for k, v in zip(small[::2], small[1::2]) if k not in args for x in (k, v)] + list(args)
                plan, report = result_of("plan", *options), result_of("run", *options)
                self.assertAlmostEqual(plan["load"]["mean"] * 4 * 5, report["rows_dispatched"], 6)
                self.assertAlmostEqual(plan["load"]["imbalance"]["rank"], report["imbalance"]["rank"], 9)
                self.assertAlmostEqual(plan["load"]["imbalance"]["expert"], report["imbalance"]["expert"], 9)
                self.assertAlmostEqual(plan["ranks_per_token_counted"], report["ranks_per_token"], 9)
                for key in ("heap_bytes", "symmetric_bytes", "mapped_bytes"):
                    self.assertEqual(plan[key], report[key])

    def test_uneven_placement(self):
        plan = result_of("plan", "--ranks", 6, "--experts", 64, "--hidden", 16)
        self.assertAlmostEqual(plan["ranks_per_token"], distinct_ranks([11] * 4 + [10] * 2, 8), 9)

    def test_large_clusters_are_planned_at_once(self):
        result = run("plan", "--ranks", 1024, "--experts", 4096, "--tokens", 200, "--steps", 1000, limit=30)
        self.assertEqual((result.code, result.err), (0, ""), result)
        self.assertIn("heap of the library", result.out)


if __name__ == "__main__":
    unittest.main()
