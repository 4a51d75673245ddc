"""Real routing traces: what the program counts in them agrees with a count of our own."""

import json
import sys
import unittest
from collections import Counter

from support.program import SANITIZED, SKIP, result_of, run, traces

FOLDER = traces()
if FOLDER is None:
    print("skipped: there is no folder of traces (MOELANE_TRACES, or shared/traces beside the repository)")
    sys.exit(SKIP)

LAW = FOLDER / "esft_deepseek_v2_lite/law/expert_weights_13.txt"
COUNTS = FOLDER / "olmoe_mixtral/expert_counts.json"
TOPK, EXPERTS, RANKS, TOKENS = 6, 64, 8, 128


def esft(path):
    """[tokens][topk] expert ids: a line is a prompt, its ids by tab, two tabs, its weights."""
    tokens = []
    for line in path.read_text().splitlines():
        ids = [int(field) for field in line.split("\t\t")[0].split("\t")]
        tokens += [ids[i:i + TOPK] for i in range(0, len(ids), TOPK)]
    return tokens


def imbalance(loads):
    return max(loads) * len(loads) / sum(loads)


class Esft(unittest.TestCase):
    def agrees(self, steps, *args):
        options = ("--routing", LAW, "--experts", EXPERTS, "--topk", TOPK, "--steps", steps, *args)
        report = result_of("run", *options)
        self.assertEqual(report["verdict"], "verified")
        available = esft(LAW)
        # Step after step and group after group, from the start again at the end.
        used = [available[i % len(available)] for i in range(steps * RANKS * TOKENS)]
        experts = Counter(e for token in used for e in token)
        ranks = Counter(e // (EXPERTS // RANKS) for token in used for e in token)
        self.assertEqual(report["rows_dispatched"], len(used) * TOPK)
        self.assertAlmostEqual(report["imbalance"]["expert"], imbalance([experts[e] for e in range(EXPERTS)]), 9)
        self.assertAlmostEqual(report["imbalance"]["rank"], imbalance([ranks[r] for r in range(RANKS)]), 9)
        visits = sum(len({e // (EXPERTS // RANKS) for e in token}) for token in used)
        self.assertAlmostEqual(report["ranks_per_token"], visits / len(used), 9)
        self.assertEqual(report["routing_wraps"], len(used) > len(available))

        plan = result_of("plan", *options)
        self.assertEqual(plan["steps_counted"], steps)
        self.assertAlmostEqual(plan["ranks_per_token"], visits / len(used), 9)
        self.assertAlmostEqual(plan["load"]["most"] * steps, max(ranks.values()), 6)
        self.assertEqual(plan["load"]["rank"], max(range(RANKS), key=lambda r: ranks[r]))
        return report

    def test_as_in_the_issue(self):
        self.agrees(3, "--hidden", 300 if SANITIZED else 2048)

    def test_wraps_around_and_says_so(self):
        self.agrees(10, "--hidden", 32)
        result = run("run", "--routing", LAW, "--experts", EXPERTS, "--topk", TOPK, "--hidden", 32, "--steps", 10)
        self.assertIn("used again from its start", result.out)

    def test_put_way(self):
        self.agrees(2, "--hidden", 32, "--calls", "split")

    def test_all_traces_are_read(self):
        for path in sorted(FOLDER.glob("esft_*/*/expert_weights_*.txt")):
            result = run("run", "--routing", path, "--experts", EXPERTS, "--topk", TOPK, "--hidden", 16, "--steps", 1)
            self.assertEqual(result.code, 0, result)

    def test_topk_that_the_trace_has_not(self):
        result = run("run", "--routing", LAW, "--experts", EXPERTS, "--topk", 8)
        self.assertEqual((result.code, result.out), (2, ""), result)
        self.assertIn("topk is 8", result.err)


class Counts(unittest.TestCase):
    def test_drawn_from_counts(self):
        counts = json.loads(COUNTS.read_text())
        model = next(name for name in counts if "olmoe" in name.lower())
        kind = "expert_counts"
        domain = next(iter(counts[model][kind]))
        selector = f"{COUNTS}#{model}/{kind}/{domain}/1"
        report = result_of("run", "--routing", selector, "--experts", 64, "--hidden", 16, "--steps", 4)
        self.assertEqual(report["verdict"], "verified")
        loads = [counts[model][kind][domain]["1"].get(str(e), 0) for e in range(64)]
        # Drawn without replacement, so near the file's own imbalance and not above it by much.
        self.assertLess(abs(report["imbalance"]["expert"] / imbalance(loads) - 1), 0.35)

    def test_choice_is_asked_for(self):
        result = run("run", "--routing", COUNTS, "--experts", 64)
        self.assertEqual((result.code, result.out), (2, ""), result)
        self.assertIn("choose one", result.err)


if __name__ == "__main__":
    unittest.main()
