"""A rank dies or stalls: all others say so in time, and nothing is left behind."""

import re
import unittest

from support.program import SANITIZED, SLOWER, named_memory, processes, run, wait_until

SMALL = ("--hidden", "64", "--experts", "16", "--tokens", "8")
TIMEOUT = 3 if SANITIZED else 1
SENTENCE = re.compile(r"moelane: rank (?P<waiter>\d+) in (?P<call>dispatch|dispatch_recv|combine|combine_recv) "
                      r"waited (?:[\d.]+ s )?for rank (?P<peer>\d+) \(phase (?P<phase>[a-z ]+), step \d+, lane \d+\)"
                      r"(?:, which failed over rank (?P<blamed>\d+))?: "
                      r"saw (?P<seen>step \d+|\d+ rows), needed (?P<needed>step \d+|\d+ rows); "
                      r"this was step (?P<step>\d+) of the run")


class Faults(unittest.TestCase):
    def fails(self, rank, step, fault, *args, ranks=8):
        before = named_memory()
        result = run("run", *SMALL, "--timeout", TIMEOUT, "--ranks", ranks, "--inject", fault, *args)
        self.assertEqual(result.code, 3, result)
        self.assertLess(result.seconds, TIMEOUT + 2 * SLOWER, result)
        said = {}
        for line in result.err.splitlines():
            found = SENTENCE.fullmatch(line)
            if found is None:  # what the program says of the rank itself
                self.assertRegex(line, rf"^moelane: rank {rank} (died|was killed|still stalled)", result)
                continue
            said[int(found["waiter"])] = found
        self.assertEqual(set(said), set(range(ranks)) - {rank}, result)
        for found in said.values():
            # Whom it waited for is the rank, or one that had given up on the rank before.
            self.assertEqual(int(found["blamed"] or found["peer"]), rank, found[0])
            self.assertEqual(int(found["step"]), step, found[0])
            self.assertNotEqual(found["seen"], found["needed"], found[0])
        wait_until("no process is left", lambda: not processes(), 2)
        self.assertEqual(named_memory(), before)
        return result

    def test_died(self):
        for transport in ("threads", "shm"):
            for way in (("--way", "direct"), ("--way", "put"), ("--calls", "split", "--in-flight", "1")):
                with self.subTest(transport=transport, way=way):
                    self.fails(3, 2, "die:3@2", "--transport", transport, *way)

    def test_stalled(self):
        for transport in ("threads", "shm"):
            for way in (("--way", "direct"), ("--force-puts",)):
                with self.subTest(transport=transport, way=way):
                    self.fails(3, 2, "stall:3@2:600", "--transport", transport, *way)

    def test_first_and_last_rank(self):
        self.fails(0, 1, "die:0@1", ranks=4)
        self.fails(3, 3, "die:3@3", ranks=4)

    def test_a_short_stall_is_no_failure(self):
        for transport in ("threads", "shm"):
            result = run("run", *SMALL, "--transport", transport, "--timeout", 5 * SLOWER, "--inject", "stall:3@2:0.5")
            self.assertEqual((result.code, result.err), (0, ""), result)
            self.assertIn("verified", result.out)

    def test_report_of_a_failure(self):
        result = run("run", *SMALL, "--timeout", TIMEOUT, "--inject", "die:1@1", "--ranks", "2")
        self.assertEqual(result.code, 3, result)
        self.assertIn("failed (first cause: died): 2 of 2 ranks", result.out)
        self.assertNotIn("median", result.out)


if __name__ == "__main__":
    unittest.main()
