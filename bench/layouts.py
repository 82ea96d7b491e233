#!/usr/bin/env python3
"""What a layout costs and saves: time of a step, memory of a rank by kind, and the largest batch within a limit.

    bench/layouts.py [GROUP ...] [--steps N] [--limit SIZE] [-- OPTION ...]

Groups: layouts (4 ranks in five ways), recompute, cp (1, 2, 4, 8 ranks), accumulation (1, 2, 4, 8 micro-batches); all
of them without any. Options behind -- go to every run. Runs of a group take turns, --steps steps each after one that
warms up; the time is the median of the steps, memory that of the rank that held most. The text is made here: what it
says does not matter.
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile

import harness

SHAPE = "--num-layers 4 --hidden-size 256 --num-attention-heads 8 --num-query-groups 4 --precision bf16".split()
KINDS = ("weights", "gradients", "moments", "activations", "attention", "exchange", "scratch", "logits", "data")

GROUPS = {
    "layouts": {
        "tp 4": "--tp 4",
        "tp 4, sequence-parallel": "--tp 4 --sequence-parallel",
        "tp 2, cp 2": "--tp 2 --cp 2",
        "tp 2, cp 2, sequence-parallel": "--tp 2 --cp 2 --sequence-parallel",
        "cp 4": "--cp 4",
    },
    "recompute": {
        "none": "",
        "attention": "--recompute attention",
        "attention, its output kept": "--recompute attention --recompute-keep-attention",
        "block": "--recompute block",
        "block, attention's output kept": "--recompute block --recompute-keep-attention",
        "full": "--recompute full",
        "full, attention's output kept": "--recompute full --recompute-keep-attention",
        "the same, 2K rows of the feed-forward": "--recompute full --recompute-keep-attention --mlp-rows 2048",
    },
    "cp": {f"cp {n}": f"--cp {n}" for n in (1, 2, 4, 8)},
    "accumulation": {f"{n} micro-batches": f"--global-batch-size {n}" for n in (1, 2, 4, 8)},
}
# A group's own sequence length and threads of each rank.
LENGTH = {"layouts": "16K", "recompute": "16K", "cp": "16K", "accumulation": "4K"}
THREADS = {"layouts": "1", "recompute": "2", "cp": "1", "accumulation": "2"}


def planned(options):
    """Bytes by kind of the rank that needs most, by `weft info --memory`."""
    rows = [json.loads(x) for x in harness.run([harness.program(), "info", "--memory", "--format", "jsonl", *options])]
    return max(rows, key=lambda row: row["sum"])


def largest_batch(options, limit):
    """The largest --micro-batch-size that is planned to fit; doubling, then halving the gap."""
    fits = lambda n: planned([*options, "--micro-batch-size", n])["sum"] <= limit
    low, high = 0, 1
    while fits(high):
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


def held(text):
    """Bytes by kind of the table that a run ends with: of the rank that held most, and what was planned for it."""
    unit = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}
    rows = {}
    for line in text.splitlines():
        cells = line.split()
        if len(cells) >= 4 and cells[0] in KINDS and cells[2] in unit:
            rows[cells[0]] = (float(cells[1]) * unit[cells[2]],
                              float(cells[3]) * unit[cells[4]] if cells[3] != "-" else 0.0)
    return rows


class Runs:
    """Training runs in one folder."""

    def __init__(self, folder):
        self.folder = folder
        self.data = os.path.join(folder, "text.txt")
        with open(self.data, "w") as f:
            f.writelines(f"line {i} of a text that says nothing: {i * i % 9973}\n" for i in range(40000))

    def run(self, options, steps):
        """Seconds of the steps after the first, and memory by kind."""
        done = subprocess.run([harness.program(), "train", "--data", self.data, "--runs", self.folder, "--name", "run",
                               "--overwrite", "--steps", str(steps + 1), "--eval-sequences", "0", "--warmup-steps", "1",
                               "--timeout", "1200", *options], capture_output=True, text=True)
        if done.returncode:
            sys.exit(f"weft train {' '.join(options)}: {done.stderr.strip().splitlines()[-1:]}")
        with open(os.path.join(self.folder, "run", "metrics.jsonl")) as f:
            seconds = [json.loads(line)["seconds"] for line in f]
        return seconds[1:], held(done.stdout)


MIB = 1 << 20


def last(options, name):
    return options[len(options) - options[::-1].index(name)]


def report(group, rows, limit):
    first = next(iter(rows.values()))
    kinds = [k for k in KINDS if any(row["memory"].get(k, (0, 0))[0] >= MIB / 4 for row in rows.values())]
    length, threads = (last(first["options"], name) for name in ("--seq-length", "--threads"))
    print(f"\n{group}: T = {length}, {threads} thread{'' if threads == '1' else 's'} a rank; MiB\n")
    columns = [group, "step s", "of first", *kinds, "held", "planned", "of first", f"batch in {limit / MIB:.0f} MiB"]
    print("| " + " | ".join(columns) + " |\n|" + "---|" * len(columns))
    sums = lambda row: tuple(sum(row["memory"].get(k, (0, 0))[i] for k in kinds) for i in (0, 1))
    for name, row in rows.items():
        seconds, (now, plan) = statistics.median(row["seconds"]), sums(row)
        cells = [name, f"{seconds:.2f}", f"{seconds / statistics.median(first['seconds']):.2f}"]
        cells += [f"{row['memory'].get(k, (0, 0))[0] / MIB:.1f}" for k in kinds]
        cells += [f"{now / MIB:.1f}", f"{plan / MIB:.1f}", f"{now / sums(first)[0]:.2f}", str(row["batch"])]
        print("| " + " | ".join(cells) + " |", flush=True)


def measure(group, runs, a):
    common = [*SHAPE, "--seq-length", LENGTH[group], "--threads", THREADS[group], *a.options]
    rows = {name: {"seconds": [], "options": [*common, *text.split()]} for name, text in GROUPS[group].items()}
    for _ in range(a.rounds):
        for row in rows.values():
            seconds, row["memory"] = runs.run(row["options"], a.steps)
            row["seconds"] += seconds
    for row in rows.values():
        row["batch"] = "-" if group == "accumulation" else largest_batch(row["options"], a.limit)
    report(group, rows, a.limit)


def size(text):
    return int(float(text.rstrip("KMG")) * {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}.get(text[-1], 1))


def main():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("groups", nargs="*", metavar="GROUP", help=" ".join(GROUPS))
    p.add_argument("--steps", type=int, default=2, help="measured steps of a run [2]")
    p.add_argument("--rounds", type=int, default=1, help="runs of each, in turn [1]")
    p.add_argument("--limit", type=size, default=size("2G"), help="bytes of a rank for the largest batch [2G]")
    argv = sys.argv[1:]
    cut = argv.index("--") if "--" in argv else len(argv)
    a = p.parse_args(argv[:cut])
    a.options = argv[cut + 1:]
    unknown = [g for g in a.groups if g not in GROUPS]
    if unknown:
        sys.exit(f"bench/layouts.py: there is no group {unknown[0]}; there are {' '.join(GROUPS)}")
    folder = tempfile.mkdtemp(prefix="weft-layouts-")
    try:
        for group in a.groups or GROUPS:
            measure(group, Runs(folder), a)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
