#!/usr/bin/env python3
"""Whether kernels are as fast as they were: compares them with the figures recorded in bench/recorded.

    bench/check.py [shares | instructions] [--record] [--recorded FOLDER]

shares: of the roof, for every attention kernel that this machine can run; a share below 0.85 of the recorded one fails.
instructions: that the ref and AVX2 kernels of a training step execute, counted by callgrind; more than 1.05 times as
many as recorded fail. Both without a word. --record measures and keeps the figures of this processor, or this compiler,
in place of the old ones. Where none are recorded nothing can fail, and a line says so.
"""

import argparse
import collections
import glob
import json
import os
import re
import shutil
import sys
import tempfile

import harness

HERE = os.path.dirname(os.path.abspath(__file__))

# Whatever else a machine does takes time from a run or from the roof beside it, and gives none: so the fastest run of
# a few attempts is held against the highest roof. 0.85 leaves room for what differs between two such figures.
LEAST_SHARE, ATTEMPTS = 0.85, 5
# The same build gives the same count to the instruction, but for looks at the clock; another libc has another memset,
# and its exp or log may come out of another branch: one or two per cent of the kernels that call them.
MOST_INSTRUCTIONS = 1.05


# ---- records ------------------------------------------------------------------------------------------------------


def read(path, fields):
    return harness.records(path, fields) if os.path.exists(path) else []


def keep(path, rows, same, fields):
    """rows instead of what is recorded for the same key."""
    keys = {same(r) for r in rows}
    os.makedirs(os.path.dirname(path), exist_ok=True)
    kept = [r for r in read(path, fields) if same(r) not in keys] + rows
    with open(path, "w") as f:
        for r in sorted(kept, key=lambda r: (same(r), json.dumps(r))):
            f.write(json.dumps(r) + "\n")
    print(f"{path}: {len(rows)} of {len(kept)} lines are new")


# ---- shares of the roof ---------------------------------------------------------------------------------------------

SHAPES = ("H4/2 D128 T2K causal", "H4/2 D64 T2K causal", "H2 D64 T4K causal window=255", "H2 D64 T4K causal docs=each:300")
SHARE = {"cpu": harness.text, "isa": harness.text, "case": harness.text, "direction": harness.text,
         "share": harness.positive}


def share_cases():
    for isa in harness.isas():
        if isa == "ref":
            continue  # no roof: instructions are counted
        for precision in ("fp32", "bf16", "fp16"):
            for shape in SHAPES[:4 if precision == "fp32" or isa == "amx" else 2]:
                yield isa, f"{precision} {shape}"


def shares_of(isa, case):
    found = harness.weft(["attention", case, "--isa", isa, "--repeats", 5], 1)
    return {r["direction"]: r["best"] for r in found if r["direction"] != "fwd+bwd"}


def record_shares(path):
    rows, cpu = [], harness.cpu()
    for isa, case in share_cases():
        tries = [shares_of(isa, case) for _ in range(ATTEMPTS)]
        for direction in tries[0]:
            share = round(max(t[direction] for t in tries), 4)
            rows.append({"cpu": cpu, "isa": isa, "case": case, "direction": direction, "share": share})
            print(f"{isa:8} {case:40} {direction}  {100 * share:5.1f} %", flush=True)
    keep(path, rows, lambda r: (r["cpu"], r["isa"]), SHARE)


def check_shares(path):
    """Number of kernels that are slower; None where nothing is recorded."""
    cpu, slower, known = harness.cpu(), 0, {}
    for r in read(path, SHARE):
        if r["cpu"] == cpu:
            known.setdefault((r["isa"], r["case"]), {})[r["direction"]] = r["share"]
    for isa, case in share_cases():
        recorded = known.get((isa, case))
        if not recorded:
            print(f"{isa:8} {case:40} no figures of this processor ({cpu}); make bench-record keeps them")
            continue
        best = collections.Counter()
        for _ in range(ATTEMPTS):
            best |= collections.Counter(shares_of(isa, case))  # the greater of each
            if all(best[d] >= LEAST_SHARE * recorded[d] for d in recorded):
                break
        for direction, share in recorded.items():
            bad = best[direction] < LEAST_SHARE * share
            slower += bad
            print(f"{isa:8} {case:40} {direction}  {100 * best[direction]:5.1f} % recorded {100 * share:5.1f} %  "
                  f"{best[direction] / share:.3f}{'  SLOWER' if bad else ''}", flush=True)
    return slower


# ---- instructions ---------------------------------------------------------------------------------------------------

MODEL = ("--hidden-size 64 --num-layers 1 --num-attention-heads 2 --vocab-size 100 --seq-length 130 --repeats 1 "
         "--threads 1").split()
LEAST = 10000  # instructions: below, start and end of a call are most of it
PROBLEMS = {
    "ref llama fp32": ["--isa", "ref", "--precision", "fp32", "--num-query-groups", "1"],
    "avx2 llama bf16": ["--isa", "avx2", "--precision", "bf16", "--num-query-groups", "1"],
    "avx2 gpt2 fp32": ["--isa", "avx2", "--precision", "fp32", "--family", "gpt2"],
}
COUNT = {"compiler": harness.text, "problem": harness.text,
         "kernels": lambda x: isinstance(x, dict) and all(map(harness.positive, x.values()))}
KERNEL = re.compile(r"weft_(\w+_(?:ref|avx2)|cp_forward|cp_backward)$")


def compiler(build):
    """Name and version, from what CMake found; None when the build is not what users get."""
    cache = os.path.join(build, "CMakeCache.txt")
    if not os.path.exists(cache):
        return None
    with open(cache) as f:
        kind = re.search(r"^CMAKE_BUILD_TYPE:\w+=(.*)$", f.read(), re.M)
    if not kind or kind.group(1) != "Release":
        return None
    with open(glob.glob(os.path.join(build, "CMakeFiles", "*", "CMakeCCompiler.cmake"))[0]) as f:
        text = f.read()
    found = [re.search(rf'set\(CMAKE_C_COMPILER_{key} "(.*)"\)', text).group(1) for key in ("ID", "VERSION")]
    return " ".join(found)


def inclusive(path):
    """Instructions of every kernel with all that it calls, from callgrind's file: there the line after calls= is what a
    call cost, and names are given once, as (number) name. What one kernel calls of another is the caller's."""
    names, caller, callee, cost = {}, "", "", collections.Counter()
    called = False

    def name_of(text):
        number, _, name = text.partition(" ")
        if name:
            names[number] = name
        return names[number]

    with open(path) as f:
        for line in f:
            line = line.rstrip("\n")
            if called:
                called = False
                if KERNEL.match(callee) and not KERNEL.match(caller.split(".")[0]):
                    cost[KERNEL.match(callee).group(1)] += int(line.split()[1])
            elif line.startswith("fn="):
                caller = name_of(line[3:])
            elif line.startswith("cfn="):
                callee = name_of(line[4:])
            elif line.startswith("calls="):
                called = True
    return {kernel: n for kernel, n in sorted(cost.items()) if n >= LEAST}


def count(problem):
    with tempfile.TemporaryDirectory() as folder:
        out = os.path.join(folder, "callgrind")
        harness.run(["valgrind", "--tool=callgrind", f"--callgrind-out-file={out}", harness.program(), "bench", "step",
                     *MODEL, *PROBLEMS[problem]])
        return inclusive(out)


def record_instructions(path, key):
    rows = [{"compiler": key, "problem": p, "kernels": count(p)} for p in PROBLEMS]
    keep(path, rows, lambda r: (r["compiler"], r["problem"]), COUNT)


def check_instructions(path, key):
    known, more = {r["problem"]: r["kernels"] for r in read(path, COUNT) if r["compiler"] == key}, 0
    for problem in PROBLEMS:
        recorded = known.get(problem)
        if not recorded:
            print(f"{problem}: no counts by {key}; make bench-record keeps them")
            continue
        found = count(problem)
        for kernel, now in found.items():
            before = recorded.get(kernel)
            bad = before is not None and now > MOST_INSTRUCTIONS * before
            more += bad
            was = f"recorded {before:11,}  {now / before:.3f}" if before else "not recorded"
            print(f"{problem:16} {kernel:28} {now:11,} instructions  {was}{'  MORE' if bad else ''}")
        for kernel in sorted(set(recorded) - set(found)):
            print(f"{problem:16} {kernel:28} is not called any more")
    return more


# ---- both -----------------------------------------------------------------------------------------------------------


def instructions(o):
    if not shutil.which("valgrind"):
        print("skipped: no valgrind here, instructions are not counted (apt-get install valgrind)")
        return 0
    key = compiler(os.path.dirname(harness.program()))
    if not key:
        print("skipped: this is no Release build, instructions are not counted")
        return 0
    path = os.path.join(o.recorded, "instructions.jsonl")
    return record_instructions(path, key) if o.record else check_instructions(path, key)


def shares(o):
    path = os.path.join(o.recorded, "shares.jsonl")
    return record_shares(path) if o.record else check_shares(path)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("what", nargs="*", metavar="shares | instructions")
    p.add_argument("--record", action="store_true")
    p.add_argument("--recorded", default=os.path.join(HERE, "recorded"))
    o = p.parse_args()
    parts = {"shares": shares, "instructions": instructions}
    unknown = [w for w in o.what if w not in parts]
    if unknown:
        p.error(f"'{unknown[0]}' is none of {', '.join(parts)}")
    bad = {w: parts[w](o) or 0 for w in o.what or parts}
    if not o.record:
        print("; ".join(f"{w}: {n} worse than recorded" for w, n in bad.items()))
    sys.exit(1 if any(bad.values()) else 0)


if __name__ == "__main__":
    main()
