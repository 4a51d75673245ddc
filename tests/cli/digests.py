"""The same seed and options give the same bytes on every transport, way, kind of call and number of lanes."""

import itertools
import unittest

from support.program import SANITIZED, TRACE, result_of

SHAPE = ("--hidden", 72, "--experts", 20, "--topk", 5, "--ranks", 6, "--tokens", "0..33", "--steps", 4)
WAYS = (("--way", "put"), ("--way", "direct"), ("--way", "put", "--calls", "split"), ("--calls", "split"),
        ("--force-puts",), ("--force-puts", "--calls", "split"))


def digest(*args):
    report = result_of("run", *args)
    assert report["verdict"] == "verified", report
    return report["digest"]["dispatch"], report["digest"]["combine"]


class Digests(unittest.TestCase):
    def all_equal(self, *options):
        wanted = digest(*SHAPE, *options)
        for transport, way, lanes in itertools.product(("threads", "shm"), WAYS, (1, 2)):
            if SANITIZED and (transport, lanes) == ("shm", 1):
                continue  # minutes, for little: no sanitizer sees across processes
            with self.subTest(transport=transport, way=way, lanes=lanes):
                got = digest(*SHAPE, *options, "--transport", transport, "--in-flight", lanes, *way)
                self.assertEqual(got, wanted)
        return wanted

    def test_padded(self):
        first = self.all_equal()
        second = digest(*SHAPE, "--seed", 2)
        self.assertNotEqual(second[0], first[0])
        self.assertNotEqual(second[1], first[1])

    def test_contiguous(self):
        self.all_equal("--layout", "contiguous", "--alignment", 4, "--tp", 2)

    def test_ranked(self):
        self.all_equal("--layout", "ranked", "--accumulate", "--combine-dtype", "fp16")

    def test_layouts_agree_on_the_sums(self):
        self.assertEqual(digest(*SHAPE)[1], digest(*SHAPE, "--layout", "contiguous")[1])

    def test_capacity_and_sleep_do_not_show(self):
        plain = digest(*SHAPE)
        self.assertEqual(digest(*SHAPE, "--capacity", 500), plain)
        self.assertEqual(digest(*SHAPE, "--inject", "stall:2@3:0.3"), plain)

    def test_one_engine_serves_61_layers(self):
        layers = ("--routing", TRACE, "--experts", 64, "--hidden", 64, "--ranks", 4, "--tokens", 16, "--steps", 61)
        wanted = digest(*layers)
        for args in (("--calls", "split", "--transport", "threads"), ("--in-flight", 1), ("--force-puts",)):
            self.assertEqual(digest(*layers, *args), wanted)


if __name__ == "__main__":
    unittest.main()
