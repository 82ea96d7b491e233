"""What the scripts of this folder share: the peer, threads, alternating runs, ratios of medians.

Nothing of Weft depends on them. Without PyTorch they say so and end with 0, as a skipped test does.
"""

import argparse
import os
import resource
import statistics
import sys
import time

sys.path.insert(1, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from harness import spread, weft  # noqa: E402, F401: weft is for the scripts


def torch_or_skip():
    try:
        import torch
    except ImportError as error:
        print(f"skipped: PyTorch cannot be imported ({error}); in a virtual environment: pip install torch")
        sys.exit(0)
    return torch


def count(text):
    """Type of an argument: a number of at least 1."""
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text}: at least 1")
    return number


def timed(function, seconds=0.3, least=3, warm=True):
    """Median time of a call; at least `least` calls, after one that does not count where `warm`."""
    if warm:
        function()
    times, begin = [], time.perf_counter()
    while len(times) < least or time.perf_counter() - begin < seconds:
        start = time.perf_counter()
        function()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def in_turn(ours, theirs, rounds=3):
    """Both in turn, so that a machine that drifts meets both alike: medians, and the spread of the rounds' ratios."""
    a, b = [], []
    for _ in range(rounds):
        a.append(ours())
        b.append(theirs())
    return statistics.median(a), statistics.median(b), spread([y / x for x, y in zip(a, b)])


def peak_bytes():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def resident_bytes():
    with open("/proc/self/statm") as f:
        return int(f.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
