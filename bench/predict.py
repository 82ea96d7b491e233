#!/usr/bin/env python3
"""Does the model of a step's time hold on this machine? Predicted beside measured times, and the order of strategies.

    bench/predict.py [--rounds N] [--quick] [--write FILE]

Calibrates in the same run, anew in every round: `weft bench profile` on as many ranks and threads as what follows has.
Then it measures steps of a fixed list of layouts on one and two ranks (`weft bench step --profile`, which predicts the
step that it measures), in turns, and counts how many lie within 10 %: the medians over the rounds of predicted, of
measured, and of their ratio. Last, the order of the six strategies, each with a layout, that are predicted to be
fastest in one attention layer on two and on four ranks (`weft bench cp --profile`), under three masks, by Kendall's
tau-b. There the least of many turns counts, because a shared machine only ever adds time; two that differ by less than
1 % are ties, and so are measured ones whose order is another one in every other round.
--quick: small sizes and one round, to see that it works. --write FILE puts the tables into a document.
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
CASES = ["T={T} H=8/4 D=32 causal", "T={T} H=8/4 D=32 causal window=512", "T={half} H=8/4 D=32"]
CP_STRATEGIES = "pcp,ring,pairwise,dcp"
CP_LAYOUTS = "zigzag,contiguous,striped"
RANKS = (2, 4)
TURNS = 5  # of a round
BEST = 6
PAIRS = list(itertools.combinations(range(BEST), 2))
EQUAL = 0.01  # below what the model can tell (docs/user/plan.md), and what anybody would choose by


def words(text, length):
    return [str(length // 2) if x == "T/2" else str(length) if x == "T" else x for x in text.split()]


def calibrate(folder, ranks, threads):
    path = os.path.join(folder, f"profile-{ranks}-{threads}.json")
    harness.run([harness.program(), "bench", "profile", "--cp", ranks, "--threads", threads, "--out", path])
    return path


def step(model, options, threads, profile):
    r = harness.weft(["step", *model, *options, "--profile", profile], threads)[0]
    if not harness.positive(r.get("planned_seconds")):
        sys.exit(f"{' '.join(options)}: the step has no predicted time")
    return r["planned_seconds"], r["seconds"]


def layers(case, ranks, threads, profile):
    """name -> predicted and least measured seconds of one layer, of every strategy and layout that can be."""
    rows = harness.weft(["cp", "--cp", ranks, "--make", case, "--strategies", CP_STRATEGIES, "--layouts", CP_LAYOUTS,
                         "--async-cp-comm", "--profile", profile, "--repeats", TURNS], threads)
    return {f"{r['strategy']}, {r['layout']}": (r["planned_seconds"], r["least_seconds"]) for r in rows}


def alike(x, y, equal):
    return abs(x - y) <= equal * max(x, y)


def tau_b(a, b, tie, equal=0.0):
    """Kendall's tau-b of a predicted and a measured list. tie(i, j): the measured values i and j are not to be told
    apart; predicted ones are ties where they differ by less than `equal` of the larger. None where all are ties in
    both: there is no order; 0 where they are in one."""
    same = {"a": 0, "b": 0}
    score = pairs = 0
    for i, j in itertools.combinations(range(len(a)), 2):
        x = 0 if alike(a[i], a[j], equal) else (a[i] > a[j]) - (a[i] < a[j])
        y = 0 if tie(i, j) else (b[i] > b[j]) - (b[i] < b[j])
        same["a"] += x == 0
        same["b"] += y == 0
        score += x * y
        pairs += 1
    if same["a"] == same["b"] == pairs:
        return None
    below = math.sqrt((pairs - same["a"]) * (pairs - same["b"]))
    return score / below if below else 0.0


def undecided(values, equal=0.0):
    """tie(i, j): the least values differ by less than `equal`, or in the least of every other round the other is
    faster."""
    def tie(i, j):
        halves = [(values[i][k::2], values[j][k::2]) for k in range(min(2, len(values[i])))]
        sure = len({min(x) < min(y) for x, y in halves}) == 1
        return not sure or alike(min(values[i]), min(values[j]), equal)
    return tie


def times(o, folder, out):
    cores = len(os.sched_getaffinity(0))
    threads = max(1, cores // 2)
    here = [x for x in LAYOUTS if x[1] <= cores]
    found = {name: [] for name, _, _ in here}
    for name, ranks, _ in LAYOUTS:
        if ranks > cores:
            out.append(f"- {name}: left out, {ranks} ranks do not fit on {cores} core{'s' if cores > 1 else ''}")
    for _ in range(o.rounds):
        profile = {ranks: calibrate(folder, ranks, threads) for ranks in sorted({x[1] for x in here})}
        for name, ranks, text in here:
            found[name].append(step(o.model, words(text, o.length), threads, profile[ranks]))
    out += ["| layout | predicted, ms | measured, ms | predicted / measured | within 10 % |",
            "|---|---:|---:|---:|---|"]
    good = 0
    for name, pairs in found.items():
        predicted, measured = (statistics.median(x) for x in zip(*pairs))
        ratio = statistics.median(p / m for p, m in pairs)
        holds = abs(ratio - 1) <= LIMIT
        good += holds
        out.append(f"| {name} | {1e3 * predicted:.2f} | {1e3 * measured:.2f} | {ratio:.3f} | "
                   f"{'yes' if holds else 'no'} |")
    out.append("")
    out.append(f"{good} of {len(found)} layouts are predicted within {LIMIT:.0%}.")
    return good, len(found)


def fastest(predicted):
    """The BEST names with least seconds. A group of heads that has all ranks is one plan, whatever the layout: once."""
    kept, seen = [], set()
    for name, seconds in sorted(predicted.items(), key=lambda x: x[1]):
        plan = (name.split(",")[0] if name.startswith("dcp") else name, f"{seconds:.4g}")
        if plan not in seen:
            kept.append(name)
        seen.add(plan)
    return kept[:BEST]


def order(case, ranks, threads, rounds, out):
    """The six best strategies, each with a layout, by prediction: of rounds, each a dictionary as of layers()."""
    predicted = {name: statistics.median(r[name][0] for r in rounds) for name in rounds[0]}
    best = fastest(predicted)
    values = [[r[name][1] for r in rounds] for name in best]
    tie = undecided(values, EQUAL)
    tau = tau_b([predicted[name] for name in best], [min(v) for v in values], tie, EQUAL)
    apart = [sum(not alike(predicted[best[i]], predicted[best[j]], EQUAL) for i, j in PAIRS),
             sum(not tie(i, j) for i, j in PAIRS)]
    out += ["", f"`{case}` on {ranks} ranks, {threads} thread{'s' if threads > 1 else ''} each, one layer:", "",
            "| strategy | predicted, ms | measured, ms | median, ms | spread |", "|---|---:|---:|---:|---:|"]
    for name, seconds in zip(best, values):
        out.append(f"| {name} | {1e3 * predicted[name]:.2f} | {1e3 * min(seconds):.2f} | "
                   f"{1e3 * statistics.median(seconds):.2f} | {harness.spread(seconds):.1%} |")
    said = (f"{apart[0]} of {len(PAIRS)} pairs are predicted to differ by more than {EQUAL:.0%}, "
            f"{apart[1]} do as measured")
    verdict = "no order to tell" if tau is None else f"Kendall's tau-b {tau:.2f}"
    out += ["", f"{said}: {verdict}."]
    return tau is None or tau >= TAU


def orders(o, folder, out):
    """Each round calibrates anew, and measures all cases."""
    cores, cases = len(os.sched_getaffinity(0)), [c.format(T=o.length, half=o.length // 2) for c in CASES]
    out += ["", "## The order of strategies", "",
            f"Measured: the least of all rounds and their {TURNS} turns, because a shared machine only ever adds time. "
            f"Two that differ by less than {EQUAL:.0%} are ties, and so are measured ones whose order is another "
            "one in every other round."]
    good = 0
    for ranks in RANKS:
        threads, rounds = max(1, cores // ranks), {case: [] for case in cases}
        for _ in range(2 * o.rounds + 1):
            profile = calibrate(folder, ranks, threads)
            for case in cases:
                rounds[case].append(layers(case, ranks, threads, profile))
        for case in cases:
            good += order(case, ranks, threads, rounds[case], out)
    out += ["", f"{good} of {len(RANKS) * len(CASES)} orders have a tau-b of at least {TAU}, or nothing to tell."]


def document(o, lines):
    head = ["# Predicted and measured", "",
            "Made by `bench/predict.py --write docs/predicted.md`: the machine is calibrated, then steps are measured,",
            "in one run. How the time is predicted: [plan.md](maths/plan.md). Times are medians over the rounds,",
            "and the ratio is the median of the rounds' ratios: each round has a calibration of its own.", "",
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
        orders(o, folder, out)
    print("\n".join(out))
    if o.write:
        document(o, out)


if __name__ == "__main__":
    main()
