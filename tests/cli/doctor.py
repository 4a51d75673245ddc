"""`moelane doctor` says what is here, tries the transports that can be tried, and always comes back."""

import os
import pathlib
import stat
import tempfile
import unittest

from support.program import SLOWER, processes, result_of, run


class Doctor(unittest.TestCase):
    def test_report(self):
        report = result_of("doctor")
        for name in ("threads", "shm"):
            self.assertTrue(report["transports"][name]["works"], report["transports"][name])
        for name in ("mpi", "peer", "nvshmem"):
            if name == "peer" and report["gpu"]["compiled"]:
                self.assertEqual(report["transports"][name]["works"], bool(report["gpu"]["cards"]))
                continue
            self.assertFalse(report["transports"][name]["works"])
            self.assertIn(f"this build has no {name} transport", report["transports"][name]["why"])
        self.assertEqual(report["cpu"]["cores_allowed"], len(os.sched_getaffinity(0)))
        self.assertIn(report["cpu"]["instructions"], ("avx512", "avx2", "portable"))
        self.assertEqual((report["kernel"]["memfd"], report["kernel"]["futex"]), ("works", "works"))
        self.assertGreater(report["memory"]["bytes"], report["memory"]["available"])
        self.assertEqual(report["exit_code"], 0)

    def test_people_are_told(self):
        result = run("doctor")
        self.assertEqual((result.code, result.err), (0, ""), result)
        for word in ("cpu", "cores", "memory", "kernel", "gpu", "network", "threads", "shm", "peer"):
            self.assertRegex(result.out, rf"(?m)^  {word} ")
        self.assertEqual(processes(), set())

    def test_a_launcher_that_hangs(self):
        with tempfile.TemporaryDirectory() as folder:
            fake = pathlib.Path(folder) / "mpirun"
            fake.write_text("#!/bin/sh\nexec sleep 600\n")
            fake.chmod(fake.stat().st_mode | stat.S_IXUSR)
            report = result_of("doctor", PATH=f"{folder}:{os.environ['PATH']}", limit=20 * SLOWER)
            self.assertEqual(report["software"]["mpi"][0], {"launcher": "mpirun", "path": str(fake), "version": ""})
            fake.write_text("#!/bin/sh\necho 'mpirun 1.2.3'\nexec sleep 600\n")
            report = result_of("doctor", PATH=f"{folder}:{os.environ['PATH']}")
            self.assertEqual(report["software"]["mpi"][0]["version"], "mpirun 1.2.3")
        self.assertEqual(processes(), set())

    def test_json_file(self):
        result = run("doctor", "--json", "missing/report.json")
        self.assertEqual((result.code, result.out), (2, ""), result)
        self.assertIn("--json", result.err)


if __name__ == "__main__":
    unittest.main()
