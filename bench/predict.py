#!/usr/bin/env python3
"""Does the model of a step's time hold on this machine? Predicted beside measured times, and the order of strategies.

    bench/predict.py [--rounds N] [--quick] [--write FILE]

Calibrates in the same run: `weft bench profile` on as many ranks and threads as the steps that follow have. Then it
measures steps of a fixed list of layouts on one and two ranks (`weft bench step --profile`, which predicts the step
that it measures), in turns, and counts how many lie within 10 %. Last, the order of six strategies on two and four
ranks: the six that are predicted to be fastest, by Kendall's tau-b; measured times that are closer than they scatter
from round to round are ties. --quick: small sizes and one round, to see that it works. --write FILE puts the tables
into a document.
"""

import argparse
import itertools
import math
import os
import statistics
import sys
import tempfile

import harness

MODEL = "--hidden-size 256 --num-layers 4 --num-attention-heads 8 --num-query-groups 4".split()
QUICK = "--hidden-size 64 --num-layers 2 --num-attention-heads 4 --num-query-groups 2".split()
LIMIT = 0.10
TAU = 0.8

# Name, ranks, options beside the model; T is replaced by the length.
LAYOUTS = [
    ("one rank", 1, "--seq-length T"),
    ("one rank, bf16", 1, "--seq-length T --precision bf16"),
    ("one rank, half the length, 2 sequences", 1, "--seq-length T/2 --micro-batch-size 2"),
    ("one rank, full recomputation", 1, "--seq-length T --recompute full"),
    ("one rank, 2 micro-batches", 1, "--seq-length T/2 --global-batch-size 2"),
    ("cp 2, ring", 2, "--seq-length T --cp 2 --cp-strategy ring"),
    ("cp 2, pcp", 2, "--seq-length T --cp 2 --cp-strategy pcp"),
    ("cp 2, ulysses", 2, "--seq-length T --cp 2 --cp-strategy ulysses"),
    ("cp 2, pairwise, contiguous", 2, "--seq-length T --cp 2 --cp-strategy pairwise --cp-layout contiguous"),
    ("tp 2", 2, "--seq-length T --tp 2"),
    ("tp 2, sequence parallel", 2, "--seq-length T --tp 2 --sequence-parallel"),
    ("dp 2", 2, "--seq-length T/2 --dp 2"),
    ("pp 2, 4 micro-batches", 2, "--seq-length T/2 --pp 2 --global-batch-size 4"),
]
STRATEGIES = ("pcp", "ring", "pairwise", "ulysses", "dcp", "dcp-ring", "dcp-pairwise")
CP_LAYOUTS = ("zigzag", "contiguous", "striped")
BEST = 6


def words(text, length):
    return [str(length // 2) if x == "T/2" else str(length) if x == "T" else x for x in text.split()]


def calibrate(folder, ranks, threads):
    """Two ranks at least: messages need them. One rank then computes as it does beside another."""
    ranks = max(2, ranks)
    path = os.path.join(folder, f"profile-{ranks}-{threads}.json")
    harness.run([harness.program(), "bench", "profile", "--cp", ranks, "--threads", threads, "--out", path])
    return path


def step(model, options, threads, profile):
    r = harness.weft(["step", *model, *options, "--profile", profile], threads)[0]
    if not harness.positive(r.get("planned_seconds")):
        sys.exit(f"{' '.join(options)}: the step has no predicted time")
    return r["planned_seconds"], r["seconds"]


def measure(rows, rounds):
    """rows: name -> a call that gives predicted and measured seconds; in turns. name -> predicted, measured [rounds]"""
    found = {name: (0.0, []) for name in rows}
    for _ in range(rounds):
        for name, call in rows.items():
            predicted, seconds = call()
            found[name] = (predicted, [*found[name][1], seconds])
    return found


def tau_b(a, b, tie):
    """Kendall's tau-b of two lists; tie(i, j): the measured values i and j are not to be told apart."""
    same = {"a": 0, "b": 0}
    score = pairs = 0
    for i, j in itertools.combinations(range(len(a)), 2):
        x = (a[i] > a[j]) - (a[i] < a[j])
        y = 0 if tie(i, j) else (b[i] > b[j]) - (b[i] < b[j])
        same["a"] += x == 0
        same["b"] += y == 0
        score += x * y
        pairs += 1
    below = math.sqrt((pairs - same["a"]) * (pairs - same["b"]))
    return score / below if below else 1.0


def closer_than_scatter(values):
    """Whether the medians of two rows are closer than the rows scatter from round to round."""
    middle = [statistics.median(v) for v in values]
    scatter = [max(v) - min(v) for v in values]
    return lambda i, j: abs(middle[i] - middle[j]) <= max(scatter[i], scatter[j])


def times(o, folder, out):
    cores = len(os.sched_getaffinity(0))
    profiles, rows = {}, {}
    for name, ranks, text in LAYOUTS:
        if ranks > cores:
            out.append(f"- {name}: left out, {ranks} ranks do not fit on {cores} core{'s' if cores > 1 else ''}")
            continue
        threads = max(1, cores // 2)
        if threads not in profiles:
            profiles[threads] = calibrate(folder, 2, threads)
        rows[name] = lambda t=text, n=threads, p=profiles[threads]: step(o.model, words(t, o.length), n, p)
    found = measure(rows, o.rounds)
    out += ["| layout | predicted, ms | measured, ms | predicted / measured | within 10 % |",
            "|---|---:|---:|---:|---|"]
    good = 0
    for name, (predicted, seconds) in found.items():
        measured = statistics.median(seconds)
        ratio = predicted / measured
        holds = abs(ratio - 1) <= LIMIT
        good += holds
        out.append(f"| {name} | {1e3 * predicted:.2f} | {1e3 * measured:.2f} | {ratio:.3f} | "
                   f"{'yes' if holds else 'no'} |")
    out.append("")
    out.append(f"{good} of {len(found)} layouts are predicted within {LIMIT:.0%}.")
    return good, len(found)


def order(o, folder, ranks, out):
    """The six best strategies, with layouts, by prediction."""
    threads = max(1, len(os.sched_getaffinity(0)) // ranks)
    profile = calibrate(folder, ranks, threads)
    rows = {}
    for strategy, layout in itertools.product(STRATEGIES, CP_LAYOUTS):
        options = words(f"--seq-length T --cp {ranks} --cp-strategy {strategy} --cp-layout {layout}", o.length)
        plan = harness.run_or_none([harness.program(), "bench", "step", *o.model, *options, "--profile", profile,
                                    "--threads", threads, "--repeats", 1, "--format", "jsonl"])
        if plan:
            rows[f"{strategy}, {layout}"] = (plan["planned_seconds"],
                                             lambda x=options: step(o.model, x, threads, profile))
    best = dict(sorted(rows.items(), key=lambda x: x[1][0])[:BEST])
    found = measure({name: call for name, (_, call) in best.items()}, o.rounds)
    values = [seconds for _, seconds in found.values()]
    tau = tau_b([p for p, _ in found.values()], [statistics.median(v) for v in values], closer_than_scatter(values))
    out += ["", f"Order on {ranks} ranks, {threads} thread{'s' if threads > 1 else ''} each:", "",
            "| strategy | predicted, ms | measured, ms | spread |", "|---|---:|---:|---:|"]
    for name, (predicted, seconds) in found.items():
        out.append(f"| {name} | {1e3 * predicted:.2f} | {1e3 * statistics.median(seconds):.2f} | "
                   f"{harness.spread(seconds):.1%} |")
    out += ["", f"Kendall's tau-b {tau:.2f}, {'holds' if tau >= TAU else 'does not hold'} (0.8 asked for)."]
    return tau


def document(o, lines):
    head = ["# Predicted and measured", "",
            "Made by `bench/predict.py --write docs/predicted.md`: the machine is calibrated, then steps are measured,",
            "in one run. How the time is predicted: [plan.md](maths/plan.md).", "",
            f"Measured on: {harness.cpu()}, {len(os.sched_getaffinity(0))} cores; {o.rounds} rounds, {o.length} "
            "tokens.", ""]
    with open(o.write, "w") as f:
        f.write("\n".join([*head, *lines]) + "\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--write", metavar="FILE")
    o = parser.parse_args()
    o.model, o.length = (QUICK, 256) if o.quick else (MODEL, 4096)
    if o.quick:
        o.rounds = 1
    if o.rounds < 1:
        parser.error("--rounds: at least 1")
    out = []
    with tempfile.TemporaryDirectory() as folder:
        times(o, folder, out)
        for ranks in (2, 4):
            order(o, folder, ranks, out)
    print("\n".join(out))
    if o.write:
        document(o, out)


if __name__ == "__main__":
    main()
