"""What the scripts of this folder share: the peer, threads, alternating runs, ratios of medians.

Nothing of Weft depends on them. Without PyTorch they say so and end with 0, as a skipped test does.
"""

import json
import os
import resource
import statistics
import subprocess
import sys
import time


def torch_or_skip():
    try:
        import torch
    except ImportError as error:
        print(f"skipped: PyTorch cannot be imported ({error}); in a virtual environment: pip install torch")
        sys.exit(0)
    return torch


def weft(arguments, threads):
    """One line of JSON per result of `weft bench`."""
    program = os.environ.get("WEFT", "build/weft")
    run = subprocess.run([program, "bench", *arguments, "--format", "jsonl", "--threads", str(threads)],
                         capture_output=True, text=True)
    if run.returncode != 0:
        sys.exit(f"{program}: {run.stderr.strip()}")
    return [json.loads(line) for line in run.stdout.splitlines() if line.startswith("{")]


def timed(function, seconds=0.3, least=3):
    """Median time of a call; at least `least` calls after one that does not count."""
    function()
    times, begin = [], time.perf_counter()
    while len(times) < least or time.perf_counter() - begin < seconds:
        start = time.perf_counter()
        function()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def alternate(ours, theirs, rounds=3):
    """Both in turn, so that a machine that drifts meets both alike; the ratio of the medians is theirs to ours."""
    a, b = [], []
    for _ in range(rounds):
        a.append(ours())
        b.append(theirs())
    return statistics.median(a), statistics.median(b)


def peak_bytes():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def resident_bytes():
    with open("/proc/self/statm") as f:
        return int(f.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
