#!/usr/bin/env python3
"""The table of marks: how fast Weft is on this machine, beside what it should reach at least and what it aims at.

    bench/marks.py [GROUP ...] [--figures FILE] [--save FILE] [--write FILE]

Groups are amx fp32 avx2 cores shapes cp sdpa materialised gpt2 llama; all of them without any. Every figure is a ratio
of things that were measured in turn in the same minutes: machines drift. --save keeps the figures, one JSON object a
line, and --figures prints the table of such a file without measuring. --write puts the table between the two marker
lines of a text such as docs/performance.md. A run that is ended before prints what it has measured. PyTorch is looked
for with WEFT_PEER_PYTHON (default: python3); marks against it are skipped where it is absent.
"""

import argparse
import collections
import datetime
import json
import os
import shutil
import signal
import statistics
import sys
import textwrap
import time

import harness

HERE = os.path.dirname(os.path.abspath(__file__))
BEGIN, END = "<!-- marks: begin (make bench WRITE=1) -->", "<!-- marks: end -->"

# ---- the marks ------------------------------------------------------------------------------------------------

# unit: "%" of a roof or of a time, "x" a ratio, "" a share of 1; lower: less is better; aim None: none is set.
Mark = collections.namedtuple("Mark", "key group text must aim unit lower")


def marks():
    table = []
    add = lambda key, group, text, must, aim, unit, lower=False: table.append(
        Mark(key, group, text, must, aim, unit, lower))
    amx = [("fwd", 128, 42, 52), ("fwd", 64, 38, 46), ("bwd", 128, 36, 44), ("bwd", 64, 32, 40)]
    for tokens, less_must, less_aim in (("16K", 0, 0), ("2K", 6, 4)):
        for direction, size, must, aim in amx:
            add(f"amx-{direction}-{size}-{tokens}", "amx", f"bf16 {direction}, D{size}, T = {tokens}: of the AMX roof",
                must - less_must, aim - less_aim, "%")
    for isa, name, fwd, bwd in (("avx512", "AVX-512", (74, 83), (77, 85)), ("avx2", "AVX2", (72, 82), (75, 82))):
        group = "fp32" if isa == "avx512" else "avx2"
        add(f"{isa}-fwd", group, f"fp32 fwd by {name}, D128: of its FMA roof", *fwd, "%")
        add(f"{isa}-bwd", group, f"fp32 bwd by {name}, D128: of its FMA roof", *bwd, "%")
    add("cores-fwd", "cores", "two cores against one, one head, fwd", 1.85, 1.95, "x")
    add("cores-bwd", "cores", "two cores against one, one head, bwd", 1.85, 1.95, "x")
    add("packed", "shapes", "16 documents of 1K against one of 16K: rate by visible area", 0.70, 0.85, "x")
    add("window", "shapes", "window of 1K at 16K: time against full, over the ratio of areas", 1.35, 1.15, "x", True)
    add("odd", "shapes", "T = 1001 against T = 1008: time per token", 1.03, 1.01, "x", True)
    for precision, must, aim in (("bf16", 1.5, 2.5), ("fp32", 1.2, 1.5)):
        for size in (64, 128):
            add(f"sdpa-{precision}-{size}", "sdpa", f"PyTorch's sdpa, {precision}, D{size}, T = 8K, fwd+bwd", must, aim, "x")
    add("materialised", "materialised", "materialised attention, fp32, T = 8K, fwd+bwd", 6, 12, "x")
    add("memory", "materialised", "the same: its peak memory over Weft's", 30, 60, "x")
    add("gpt2-bf16", "gpt2", "step of GPT-2 124M, T = 1024, against PyTorch, bf16", 1.2, 1.8, "x")
    add("gpt2-fp32", "gpt2", "step of GPT-2 124M, T = 1024, against PyTorch, fp32", 1.1, 1.3, "x")
    add("llama-bf16", "llama", "step of a 110M Llama, T = 8K, against PyTorch, bf16", 1.5, 2.5, "x")
    add("outside", "llama", "the same step: outside products and attention", 20, 10, "%", True)
    add("products", "llama", "the same step: its products alone over their time in it", 0.9, 0.97, "")
    add("own-zigzag", "cp", "2 ranks, zigzag: own work over the layer's time", 0.95, 0.98, "")
    add("own-packed", "cp", "2 ranks, packed documents, balanced: the same", 0.90, 0.95, "")
    add("steps", "cp", "2 ranks, zigzag: kernels step by step over one piece", 1.03, None, "x", True)
    add("cpu-zigzag", "cp", "8 ranks (2 × 4), zigzag: processor time of one / 8 over the busiest", 0.93, None, "")
    add("cpu-packed", "cp", "8 ranks (2 × 4), packed documents, balanced: the same", 0.88, None, "")
    return table


def verdict(mark, value):
    reaches = lambda limit: value <= limit if mark.lower else value >= limit
    if mark.aim is not None and reaches(mark.aim):
        return "aim"
    return "must" if reaches(mark.must) else "MISSED"


# ---- measuring ------------------------------------------------------------------------------------------------

# value None: not measured, for the reason in note. spread: between quartiles, or extremes of few, over the median.
Figure = collections.namedtuple("Figure", "key value spread note", defaults=(None, 0.0, ""))


def kernels(case, threads=1, isa=None, repeats=0):
    """Figures by direction."""
    options = ["--isa", isa] if isa else []
    options += ["--repeats", repeats] if repeats else []
    return {r["direction"]: r for r in harness.weft(["attention", case, *options], threads)}


def ratio(key, values):
    return Figure(key, statistics.median(values), harness.spread(values))


def shares(prefix, isa, case):
    """Median of processes: which pages one gets, and who else runs, moves its share more than what a repeat does."""
    found = [kernels(case, isa=isa, repeats=1) for _ in range(5)]
    for direction in ("fwd", "bwd"):
        yield ratio(prefix.format(direction), [100 * f[direction]["share"] for f in found])


def without(group, note):
    return [Figure(m.key, None, 0.0, note) for m in marks() if m.group == group]


def measure_amx(have):
    if "amx" not in have:
        yield from without("amx", "no AMX here")
        return
    for tokens in ("16K", "2K"):
        for size in (128, 64):
            yield from shares(f"amx-{{}}-{size}-{tokens}", "amx", f"bf16 H8/2 D{size} T{tokens} causal")


def measure_fp32(have):
    if "avx512" in have:
        yield from shares("avx512-{}", "avx512", "fp32 H1 D128 T16K causal")
    else:
        yield from without("fp32", "no AVX-512 here")


def measure_avx2(have):
    if "avx2" in have:
        yield from shares("avx2-{}", "avx2", "fp32 H1 D128 T16K causal")
    else:
        yield from without("avx2", "no AVX2 here")


def measure_cores(have):
    if len(os.sched_getaffinity(0)) < 2:
        yield from without("cores", "one core here")
        return
    case = f"{'bf16' if 'amx' in have else 'fp32'} H1 D128 T16K causal"
    found = {"fwd": [], "bwd": []}
    for _ in range(2):
        one, two = (kernels(case, threads, repeats=1) for threads in (1, 2))
        for direction, values in found.items():
            values.append(one[direction]["seconds"] / two[direction]["seconds"])
    for direction, values in found.items():
        yield ratio(f"cores-{direction}", values)


def measure_shapes(have):
    """Rates as shares of the roof beside each run, where there is one: what the clock does between runs falls out."""
    precision = "bf16" if "amx" in have else "fp32"
    rate = lambda r: r["share"] or r["flops"]
    both = lambda case, repeats=0: kernels(f"{precision} {case} causal", repeats=repeats)["fwd+bwd"]
    packed, window, odd = [], [], []
    for _ in range(3):
        full = rate(both("H1 D128 T16K", 1))
        packed.append(rate(both("H1 D128 T16K docs=each:1K", 3)) / full)
        window.append(full / rate(both("H1 D128 T16K window=1023", 3)))
    yield ratio("packed", packed)
    yield ratio("window", window)
    per_token = lambda T, r: r["area"] / rate(r) / T  # area over rate is time; operations per pair are the same
    for _ in range(11):  # milliseconds each, which differ by a tenth from run to run
        odd.append(per_token(1001, both("H8 D128 T1001", 5)) / per_token(1008, both("H8 D128 T1008", 5)))
    yield ratio("odd", odd)


def peer_python():
    return os.environ.get("WEFT_PEER_PYTHON", "python3")


def peer(script, *arguments):
    """Rows of a peer script, a dictionary by column each; or the line by which it says that it skips."""
    lines = harness.run([peer_python(), os.path.join(HERE, "peers", script), *arguments])
    skipped = [line for line in lines if line.startswith("skipped")]
    if skipped:
        return skipped[0], []
    cells = [[c.strip() for c in line.strip("|").split("|")] for line in lines if line.startswith("| ")]
    return None, [dict(zip(cells[0], row)) for row in cells[1:] if not row[0].startswith("---")]


def threads():
    return min(2, len(os.sched_getaffinity(0)))


def peer_rows(group, script, arguments, pick):
    """pick: row -> key, or None."""
    skipped, rows = peer(script, *arguments)
    if skipped:
        yield from without(group, skipped)
    for row in rows:
        if pick(row):
            yield Figure(pick(row), float(row["ratio"]), float(row.get("spread %", 0)) / 100)


def measure_sdpa(have):
    for size in (64, 128):
        pick = lambda row: f"sdpa-{row['precision']}-{size}"
        yield from peer_rows("sdpa", "attention.py", ["--only", "sdpa", "--size", size, "--heads", 2, "--threads",
                                                      threads()], pick)


def measure_materialised(have):
    pick = lambda row: "memory" if "memory" in row["against"] else "materialised"
    yield from peer_rows("materialised", "attention.py", ["--only", "materialised", "--size", 64, "--heads", 4,
                                                          "--rounds", 1, "--threads", threads()], pick)


def measure_gpt2(have):
    yield from peer_rows("gpt2", "step.py", ["gpt2", "--threads", threads(), "--rounds", 1, "--repeats", 2],
                         lambda row: f"gpt2-{row['precision']}")


LLAMA = ("--family llama --hidden-size 768 --num-layers 12 --num-attention-heads 12 --num-query-groups 4 "
         "--ffn-hidden-size 2048 --vocab-size 32000 --seq-length 8192 --precision bf16 --repeats 1").split()


def measure_llama(have):
    """One round: a step takes most of a minute where there is no AMX."""
    skipped, rows = peer("step.py", "llama", "--threads", threads(), "--precision", "bf16", "--rounds", 1, "--repeats", 1)
    if rows:
        yield Figure("llama-bf16", float(rows[0]["ratio"]))
        yield Figure("outside", float(rows[0]["outside %"]))
        yield Figure("products", float(rows[0]["products"]))
        return
    yield Figure("llama-bf16", None, 0.0, skipped)
    r = harness.weft(["step", *LLAMA], threads())[0]
    parts = r["parts"]
    yield Figure("outside", 100 * (1 - (parts["products"] + parts["attention"]) / r["seconds"]))
    yield Figure("products", r["products_alone"] / parts["products"])


def layer(ranks, against, case, *options):
    words = ["cp", "--cp", ranks, "--precision", "bf16", "--against", against, "--make", case, *options]
    return harness.weft(words, 1)[0]


def measure_cp(have):
    """Documents of mixed lengths, the longest a third of the row. 8 ranks are a grid of 2 head groups, one for each
    key/value head, and 4 ranks along the sequence: pieces of it stay twice as long as with 8."""
    one = "T=16K H=8/2 D=128 causal"
    packed = one + " docs=3000,500,5500,1200,100,2500,40,*"
    few = ["--repeats", 5 if "amx" in have else 2]
    if len(os.sched_getaffinity(0)) >= 2:
        r = layer(2, "own", one, "--cp-strategy", "ring", "--cp-layout", "zigzag", *few)
        yield Figure("own-zigzag", r["share"])
        yield Figure("steps", r["steps"])
        r = layer(2, "own", packed, "--cp-strategy", "pairwise", "--cp-layout", "balanced", *few)
        yield Figure("own-packed", r["share"])
    else:
        yield from [f for f in without("cp", "one core here") if f.key in ("own-zigzag", "steps", "own-packed")]
    few = ["--repeats", 3 if "amx" in have else 1]
    r = layer(8, "whole", one, "--cp-strategy", "dcp-ring", "--cp-layout", "zigzag", *few)
    yield Figure("cpu-zigzag", r["cpu_share"])
    r = layer(8, "whole", packed, "--cp-strategy", "dcp-pairwise", "--cp-layout", "balanced", *few)
    yield Figure("cpu-packed", r["cpu_share"])


MEASURES = {"amx": measure_amx, "fp32": measure_fp32, "avx2": measure_avx2, "cores": measure_cores,
            "shapes": measure_shapes, "cp": measure_cp, "sdpa": measure_sdpa, "materialised": measure_materialised,
            "gpt2": measure_gpt2, "llama": measure_llama}

# ---- the table ------------------------------------------------------------------------------------------------


def number(value, unit):
    return f"{value:.1f} %" if unit == "%" else f"{value:.2f}×" if unit else f"{value:.3f}"


def row_of(mark, figure):
    bound = "≤ " if mark.lower else ""
    limit = lambda x: "" if x is None else bound + number(x, mark.unit)
    cells = [mark.text, limit(mark.must), limit(mark.aim)]
    if figure is None:
        return cells + ["", "", "not measured"]
    if figure.value is None:
        return cells + ["", "", figure.note]
    around = f"{100 * figure.spread:.1f} %" if figure.spread else ""
    return cells + [number(figure.value, mark.unit), around, verdict(mark, figure.value)]


HEAD = ["mark", "must", "aim", "measured", "spread", "verdict"]


def markdown(rows):
    return "\n".join(f"| {' | '.join(r)} |" for r in [HEAD, ["---"] * len(HEAD), *rows])


def aligned(rows):
    widths = [max(len(r[i]) for r in rows) for i in range(len(rows[0]))]
    return ["  ".join(c.ljust(w) for c, w in zip(r, widths)).rstrip() for r in rows]


def text(rows, columns=None):
    """One line a row, or, where these are longer than `columns`, the mark above its figures and a long reason below."""
    lines = aligned([HEAD, *rows])
    if columns is None or max(map(len, lines)) <= columns:
        return "\n".join(lines)
    short = lambda verdict: "" if len(verdict) > len("not measured") else verdict
    numbers = aligned([[*r[1:-1], short(r[-1])] for r in [HEAD, *rows]])
    fold = lambda line, margin: textwrap.fill(line, columns, initial_indent=margin, subsequent_indent=margin)
    lines = []
    for row, line in zip([HEAD, *rows], numbers):
        lines += [fold(row[0], ""), f"    {line}"] + ([] if short(row[-1]) else [fold(row[-1], "    ")])
    return "\n".join(lines)


def screen_columns():
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def summary(table, figures):
    found = [verdict(m, figures[m.key].value) for m in table if m.key in figures and figures[m.key].value is not None]
    return (f"{found.count('aim')} reach the aim, {found.count('must')} what they must, {found.count('MISSED')} miss it, "
            f"{len(table) - len(found)} not measured")


def heading():
    return (f"{datetime.date.today():%Y-%m-%d}, {harness.cpu()}, {len(os.sched_getaffinity(0))} cores, "
            f"instruction sets {' '.join(harness.isas())}")


def around_table(path):
    """What stands before and behind the table of a text; ends the program where there is none."""
    try:
        with open(path) as f:
            before, rest = f.read().split(BEGIN)
        _, after = rest.split(END)
    except (OSError, ValueError):
        sys.exit(f"--write {path}: no text with one line '{BEGIN}' and one line '{END}' behind it")
    return before, after


def write(path, body):
    before, after = around_table(path)
    with open(path, "w") as f:
        f.write(f"{before}{BEGIN}\n{body}\n{END}{after}")


FIELDS = {"key": harness.text, "value": lambda x: x is None or harness.number(x), "spread": harness.number,
          "note": harness.text}


def read_figures(path):
    try:
        rows = harness.records(path, {})
    except OSError as error:
        sys.exit(f"--figures {path}: {error.strerror}")
    if not rows or harness.misfit(rows[0], {"machine": harness.text}):
        sys.exit(f"--figures {path}: no file that --save has made")
    for row in rows[1:]:
        wrong = harness.misfit(row, FIELDS)
        if wrong:
            sys.exit(f"--figures {path}: damaged (a figure without its {wrong}): {json.dumps(row)}")
    return rows[0]["machine"], {r["key"]: Figure(*(r[name] for name in FIELDS)) for r in rows[1:]}


def keeper(path):
    """A function that keeps a dictionary as a line of the file at once."""
    def keep(row):
        try:
            f.write(json.dumps(row) + "\n")
        except OSError as error:
            sys.exit(f"--save {path}: {error.strerror}")

    f = open(path, "w", buffering=1) if path else None
    return keep if path else lambda row: None


def measure(groups, path, figures):
    """Into figures, and line by line into a file: what was measured before a failure is kept."""
    have, keep = harness.isas(), keeper(path)
    keep({"machine": heading()})
    for group in groups:
        begin = time.monotonic()
        for figure in MEASURES[group](have):
            figures[figure.key] = figure
            keep(figure._asdict())
        print(f"{group}: {time.monotonic() - begin:.0f} s", file=sys.stderr, flush=True)


def check(o):
    """What would be found wrong only after minutes of measuring."""
    unknown = [g for g in o.groups if g not in MEASURES]
    if unknown:
        return f"no group '{unknown[0]}'; there is: {', '.join(MEASURES)}"
    if o.write and o.groups and not o.figures:
        return "--write is for all groups: the table would lose the others"
    for path in filter(None, [o.save, o.write]):
        folder = os.path.dirname(path) or "."
        if os.path.isdir(path) or not os.access(path if os.path.exists(path) else folder, os.W_OK):
            return f"{path} cannot be written"
    if not o.figures and not shutil.which(peer_python()):
        return f"WEFT_PEER_PYTHON={peer_python()} is no program"
    if o.write:
        around_table(o.write)
    return None


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("groups", nargs="*", metavar="GROUP")
    p.add_argument("--figures")
    p.add_argument("--save")
    p.add_argument("--write")
    o = p.parse_args()
    wrong = check(o)
    if wrong:
        p.error(wrong)
    groups = o.groups or list(MEASURES)
    begin, machine, figures, ended = time.monotonic(), "", {}, None
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # ends what runs, too
    if o.figures:
        machine, figures = read_figures(o.figures)
    else:
        try:
            machine = heading()
            measure(groups, o.save, figures)
        except (KeyboardInterrupt, SystemExit) as reason:
            ended = reason
    table = [m for m in marks() if m.group in groups]
    rows = [row_of(m, figures.get(m.key)) for m in table]
    if figures or not ended:
        print(f"{machine}\n\n{text(rows, screen_columns())}\n\n{summary(table, figures)}; {time.monotonic() - begin:.0f} s")
    if ended:
        sys.exit(f"ended before all was measured: {str(ended) or 'a signal'}")
    if o.write:
        write(o.write, f"{machine}\n\n{markdown(rows)}\n\n{summary(table, figures)}.")


if __name__ == "__main__":
    main()
