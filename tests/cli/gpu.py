"""`--transport peer`: what is refused everywhere, what is said without a GPU, and with one the CPUs' bytes."""

import contextlib
import os
import pathlib
import socket
import tempfile
import unittest

from support.program import result_of, run

SMALL = ("--hidden", 72, "--experts", 20, "--topk", 5, "--ranks", 6, "--tokens", "0..33", "--steps", 4)
GPU = result_of("doctor")["gpu"]


class Anywhere(unittest.TestCase):
    def test_refused(self):
        for job, args, words in (("run", ("--force-puts",), ("--force-puts", "CPUs", "peer")),
                                 ("bench", ("--baseline",), ("--baseline", "CPUs", "peer")),
                                 ("run", ("--num-sms", "0"), ("--num-sms", "1 to 1024"))):
            with self.subTest(args):
                result = run(job, *SMALL, "--transport", "peer", *args)
                self.assertEqual((result.code, result.out), (2, ""), result)
                self.assertRegex(result.err, r"\Amoelane: [^\n]+\n\Z")
                for word in words:
                    self.assertIn(word, result.err)

    def test_what_peer_cannot_do_is_done_by_cpus(self):
        self.assertEqual(result_of("run", *SMALL, "--force-puts")["transport"], "shm")

    def test_is_planned(self):
        plans = [result_of("plan", *SMALL, "--transport", name) for name in ("peer", "shm")]
        self.assertEqual(plans[0]["heap_bytes"], plans[1]["heap_bytes"])

    def test_doctor(self):
        self.assertEqual(len(GPU["peer_access"]), len(GPU["cards"]))
        self.assertEqual(GPU["why"] is None, len(GPU["cards"]) > 0)
        self.assertRegex(run("doctor").out, r"(?m)^  cuda .*\n(  card .*\n)*(  peer access .*\n)?  mps ")


class Mps(unittest.TestCase):
    """doctor looks whether somebody listens where MPS would."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.control = pathlib.Path(folder.name) / "control"

    def runs(self):
        mps = result_of("doctor", CUDA_MPS_PIPE_DIRECTORY=self.control.parent)["gpu"]["mps"]
        self.assertEqual(mps["folder"], str(self.control.parent))
        return mps["runs"]

    def test_nothing_there(self):
        self.assertFalse(self.runs())
        self.control.write_text("a file")
        self.assertFalse(self.runs())

    def test_socket(self):
        for kind in (socket.SOCK_STREAM, socket.SOCK_SEQPACKET):
            with contextlib.closing(socket.socket(socket.AF_UNIX, kind)) as listener:
                listener.bind(os.fspath(self.control))
                listener.listen()
                self.assertTrue(self.runs())
            self.assertFalse(self.runs())  # left behind
            self.control.unlink()

    def test_pipe(self):
        os.mkfifo(self.control)
        self.assertFalse(self.runs())
        reader = os.open(self.control, os.O_RDONLY | os.O_NONBLOCK)
        self.addCleanup(os.close, reader)
        self.assertTrue(self.runs())


@unittest.skipIf(GPU["cards"], "there is a GPU")
class Without(unittest.TestCase):
    def test_peer_says_why(self):
        for job in ("run", "bench"):
            result = run(job, *SMALL, "--transport", "peer")
            self.assertEqual((result.code, result.out), (3, ""), result)
            self.assertEqual(result.err, f"moelane: --transport peer has no GPU to use: {GPU['why']}\n")

    def test_auto_is_shm(self):
        self.assertEqual(result_of("run", *SMALL)["transport"], "shm")


@unittest.skipUnless(GPU["cards"], f"no GPU: {GPU['why']}")
class With(unittest.TestCase):
    def test_bytes_are_those_of_cpus(self):
        wanted = result_of("run", *SMALL, "--transport", "threads")["digest"]
        for args in ((), ("--graph",), ("--way", "put"), ("--calls", "split"), ("--calls", "split", "--graph"),
                     ("--num-sms", 1), ("--processes",)):
            with self.subTest(args):
                report = result_of("run", *SMALL, "--transport", "peer", *args)
                self.assertEqual((report["verdict"], report["digest"]), ("verified", wanted))

    def test_bench(self):
        report = result_of("bench", *SMALL, "--transport", "peer")
        for phase in ("dispatch", "combine"):
            for key in ("floor_us", "us_events", "launch_us"):
                if len(GPU["cards"]) == 1 or key != "floor_us":
                    self.assertGreater(report[phase][key], 0)

    def test_auto_is_peer(self):
        self.assertEqual(result_of("run", *SMALL)["transport"], "peer")

    def test_too_many_multiprocessors(self):
        result = run("run", *SMALL, "--transport", "peer", "--num-sms", 1000)
        self.assertEqual((result.code, result.out), (2, ""), result)
        self.assertIn("--num-sms", result.err)


if __name__ == "__main__":
    unittest.main()
