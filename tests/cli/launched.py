"""Ranks that somebody's launcher starts, as torchrun does; and ranks whose program is killed."""

import json
import os
import pathlib
import signal
import tempfile
import time
import unittest
import uuid

from support.program import SLOWER, finish, memory_files, named_memory, processes, result_of, start, wait_until

SMALL = ("run", "--transport", "shm", "--hidden", "64", "--experts", "16", "--tokens", "8")


class Launched(unittest.TestCase):
    def launch(self, size, *args, ranks=None, **env):
        world = {"WORLD_SIZE": size, "MOELANE_WORLD": f"test-{uuid.uuid4()}", **env}
        begin = time.monotonic()
        started = [start(*SMALL, *args, RANK=r, **world) for r in (range(size) if ranks is None else ranks)]
        return [finish(process, args, begin, 60) for process in started]

    def test_four_ranks(self):
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder) / "report.json"
            results = self.launch(4, "--json", file)
            report = json.loads(file.read_text())
        self.assertEqual([(r.code, r.err) for r in results], [(0, "")] * 4, results[0])
        self.assertEqual([bool(r.out) for r in results], [True, False, False, False])  # rank 0 speaks for all
        self.assertEqual(report["verdict"], "verified")
        self.assertEqual(report["config"]["ranks"], 4)
        self.assertEqual(report["digest"], result_of(*SMALL, "--ranks", 4)["digest"])

    def test_world_of_torchrun(self):
        results = self.launch(2, MOELANE_WORLD="", MASTER_ADDR="localhost", MASTER_PORT=20000 + os.getpid() % 9999,
                              LOCAL_WORLD_SIZE=2)
        self.assertEqual([r.code for r in results], [0, 0], results[0])

    def test_missing_rank(self):
        timeout = 1 * SLOWER
        for r in self.launch(3, "--timeout", timeout, ranks=(0, 2)):
            self.assertEqual(r.code, 3, r)
            self.assertLess(r.seconds, timeout + 2 * SLOWER, r)
            self.assertRegex(r.err, r"^moelane: .*rank[s ].*\b1\b.*\n$", r)

    def test_rank_dies(self):
        results = self.launch(3, "--timeout", SLOWER, "--inject", "die:1@2")
        self.assertEqual([results[0].code, results[1].code, results[2].code], [3, -signal.SIGKILL, 3])
        for waiter in (0, 2):
            self.assertRegex(results[waiter].err, rf"^moelane: rank {waiter} in dispatch .*rank 1.* step 2 of the run\n$")

    def test_little_capacity(self):
        for r in self.launch(2, "--capacity", 1):
            self.assertEqual((r.code, r.out), (2, ""), r)
            self.assertRegex(r.err, r"^moelane: rank \d .*\n$", r)

    def test_wrong_environment(self):
        for env, word in (({"RANK": "2"}, "RANK"), ({"RANK": "x"}, "RANK"), ({"WORLD_SIZE": "0"}, "WORLD_SIZE"),
                          ({"WORLD_SIZE": "1e9"}, "WORLD_SIZE"), ({"MOELANE_WORLD": ""}, "MOELANE_WORLD")):
            with self.subTest(env):
                world = {"RANK": "0", "WORLD_SIZE": "2", "MOELANE_WORLD": "test", **env}
                r = finish(start(*SMALL, **world), SMALL, time.monotonic(), 20)
                self.assertEqual((r.code, r.out), (2, ""), r)
                self.assertRegex(r.err, rf"^moelane: .*{word}.*\n$", r)
        r = finish(start(*SMALL, "--ranks", "3", RANK=0, WORLD_SIZE=2), SMALL, time.monotonic(), 20)
        self.assertEqual(r.code, 2, r)
        self.assertIn("WORLD_SIZE of 2", r.err)


class Running(unittest.TestCase):
    """A stalled run, looked at from outside."""

    def setUp(self):
        self.before = named_memory()
        self.process = start(*SMALL, "--ranks", "4", "--inject", "stall:3@2:600", "--timeout", "600")
        self.addCleanup(self.process.communicate)
        self.addCleanup(self.process.kill)
        self.ranks = wait_until("four ranks run", self.four_ranks)

    def four_ranks(self):
        ranks = processes() - {self.process.pid}
        # The heaps are mapped one after the other; the board of the world comes first.
        return ranks if len(ranks) == 4 and all(len(self.mapped(r)) == 2 for r in ranks) else None

    def mapped(self, rank):
        try:
            return memory_files(rank)
        except OSError:
            return []

    def test_mapped_memory_is_what_plan_says(self):
        plan = result_of("plan", *SMALL[1:], "--ranks", "4")
        for rank in self.ranks:
            sizes = sorted(size for _, size in memory_files(rank))
            self.assertIn(4 * plan["mapped_bytes"], sizes)
            self.assertTrue(all("moelane" in name for name, _ in memory_files(rank)))

    def test_killed_program_leaves_no_ranks(self):
        self.process.send_signal(signal.SIGKILL)
        wait_until("no process is left", lambda: not processes(), 3)
        self.assertEqual(named_memory(), self.before)

    def test_killed_rank_is_noticed(self):
        os.kill(min(self.ranks), signal.SIGKILL)
        self.process.send_signal(signal.SIGTERM)
        wait_until("no process is left", lambda: not processes(), 3)


if __name__ == "__main__":
    unittest.main()
