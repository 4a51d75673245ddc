"""--trace writes what each rank did when, as Chrome trace events that Perfetto opens."""

import json
import pathlib
import tempfile
import unittest
from collections import defaultdict

from support.program import result_of, run

SMALL = ("run", "--hidden", "64", "--experts", "16", "--ranks", "4", "--tokens", "16", "--steps", "4")
WHOLE = {"direct": {"dispatch", "combine"}, "put": {"dispatch_send", "dispatch_recv", "combine_send", "combine_recv"}}


class Trace(unittest.TestCase):
    def trace(self, *args):
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder) / "trace.json"
            result = run(*SMALL, "--trace", file, *args)
            self.assertEqual(result.code, 0, result)
            trace = json.loads(file.read_text())
        events = [e for e in trace["traceEvents"] if e["ph"] == "X"]
        names = {e["pid"]: e["args"]["name"] for e in trace["traceEvents"] if e["ph"] == "M"}
        self.assertEqual(names, {r: f"rank {r}" for r in range(4)})
        self.assertEqual(len(events) + len(names), len(trace["traceEvents"]))
        return events

    def check(self, events, phases, lanes):
        by_thread = defaultdict(list)
        for event in events:
            self.assertIn(event["pid"], range(4))
            self.assertIn(event["tid"], range(lanes))
            self.assertGreaterEqual(event["ts"], 0)
            self.assertGreaterEqual(event["dur"], 0)
            self.assertIn(event["args"]["step"], range(1, 5))
            if event["cat"] == "phase":
                self.assertIn(event["name"], phases)
                self.assertGreaterEqual(event["args"]["bytes"], 0)
            else:
                self.assertEqual(event["name"], f"wait for rank {event['args']['peer']}")
            by_thread[event["pid"], event["tid"]].append(event)
        self.assertEqual(set(by_thread), {(r, lane) for r in range(4) for lane in range(lanes)})
        for thread in by_thread.values():
            self.nested(thread)
            seen = defaultdict(int)
            for event in thread:
                seen[event["name"]] += event["cat"] == "phase"
            self.assertEqual({name: seen[name] for name in phases}, {name: 4 // lanes for name in phases})

    def nested(self, events):
        """Two events of a thread lie one after the other or one inside the other."""
        open_until = []
        for event in sorted(events, key=lambda e: (e["ts"], -e["dur"])):
            begin, end = event["ts"], event["ts"] + event["dur"]
            while open_until and open_until[-1] <= begin + 1e-3:
                open_until.pop()
            if open_until:
                self.assertLessEqual(end, open_until[-1] + 1e-3)
            open_until.append(end)

    def test_every_way(self):
        for transport in ("threads", "shm"):
            for way in ("put", "direct"):
                with self.subTest(transport=transport, way=way):
                    self.check(self.trace("--transport", transport, "--way", way), WHOLE[way], 2)
            self.check(self.trace("--transport", transport, "--calls", "split", "--in-flight", "1"), WHOLE["put"], 1)

    def test_waits_for_a_slow_rank_are_seen(self):
        events = self.trace("--inject", "stall:2@3:0.4", "--transport", "shm")
        waits = [e for e in events if e["cat"] == "wait" and e["args"]["peer"] == 2 and e["dur"] > 200_000]
        self.assertEqual({e["pid"] for e in waits}, {0, 1, 3})
        self.assertEqual({e["args"]["step"] for e in waits}, {3})

    def test_standard_output(self):
        result = run(*SMALL, "--trace", "-")
        self.assertTrue(json.loads(result.out)["traceEvents"])

    def test_digest_does_not_change(self):
        plain = result_of(*SMALL)["digest"]
        with tempfile.TemporaryDirectory() as folder:
            self.assertEqual(result_of(*SMALL, "--trace", f"{folder}/trace.json")["digest"], plain)


if __name__ == "__main__":
    unittest.main()
