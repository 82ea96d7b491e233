#!/usr/bin/env python3
"""docs/claims.md and docs/claims.zh.md: claims.py same|figures.

`same`: both pages have the same rows with the same commands, numbers and verdicts, and the first line of their summaries
counts the verdicts right. `figures`: every figure in backticks that a row measures or predicts stands in the output of
its commands, to 0.1 %.
"""
import collections, os, pathlib, re, shlex, subprocess, sys

SRC, WEFT = pathlib.Path(os.environ["WEFT_SRC"]), os.environ["WEFT"]
VERDICTS = {"claims.md": ["holds", "holds under conditions", "does not"], "claims.zh.md": ["成立", "有条件成立", "不成立"]}

Row = collections.namedtuple("Row", "id cells commands numbers verdict")


def row_of(line, verdicts):
    cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
    verdict = re.match(r"\*\*(.+?)\*\*", cells[-1])
    if not verdict or verdict[1] not in verdicts:
        sys.exit(f"{cells[0]}: the verdict begins with none of {', '.join(f'**{v}**' for v in verdicts)}")
    return Row(cells[0], cells, re.findall(r"`([^`]+)`", cells[2]), sorted(re.findall(r"\d(?:[\d,.]*\d)?", line)),
               verdicts.index(verdict[1]))


def page(name):
    text = (SRC / "docs" / name).read_text(encoding="utf-8")
    rows = [row_of(line, VERDICTS[name]) for line in text.split("\n") if re.match(r"\| [A-Z]\d+ \|", line)]
    counts = collections.Counter(row.verdict for row in rows)
    summary = next(line for line in text.split("\n") if re.match(r"Of \d|\d+ 条", line))
    want = [len(rows)] + [counts[i] for i in range(3)]
    if [int(n) for n in re.findall(r"\d+", summary)] != want:
        sys.exit(f"{name}: the summary should count {want}: {summary}")
    return rows


def same():
    english, chinese = page("claims.md"), page("claims.zh.md")
    if [row.id for row in english] != [row.id for row in chinese]:
        sys.exit("the pages have different rows")
    good = len(english) > 40
    for one, other in zip(english, chinese):
        for what in ("commands", "numbers", "verdict"):
            a, b = getattr(one, what), getattr(other, what)
            if a != b:
                good = False
                print(f"{one.id}: {what} differ: {a} in claims.md, {b} in claims.zh.md")
    return good


def said(command, kept={}):
    """What a command of weft prints; each runs once."""
    if command not in kept:
        words = shlex.split(command)
        done = subprocess.run([WEFT] + words[1:], cwd=SRC, capture_output=True, text=True)
        if done.returncode:
            sys.exit(f"exit {done.returncode}: {command}\n{done.stderr}")
        kept[command] = done.stdout
    return kept[command]


def prints(output, figure):
    """Whether the output has the figure, or one of the same unit within 0.1 % of it."""
    if re.search(rf"(?<![\d.]){re.escape(figure)}(?![\d.])", output):
        return True
    number, unit = re.match(r"([\d.]*)(.*)", figure).groups()
    near = re.findall(rf"(?<![\d.])(\d+\.?\d*){re.escape(unit)}(?![\w.])", output) if number and unit else []
    return any(abs(float(other) - float(number)) <= 0.001 * float(number) for other in near)


def figures():
    good, checked = True, 0
    for row in page("claims.md"):
        figures = [f for f in re.findall(r"`([^`]+)`", " ".join(row.cells[3:-1])) if re.match(r"\[?\d", f)]
        if not figures:
            continue
        output = "\n".join(said(c) for c in row.commands if re.match(r"weft (sim|plan|info|show) ", c))
        for figure in figures:
            checked += 1
            if not prints(output, figure):
                good = False
                print(f"{row.id}: no command of the row prints {figure}")
    print(f"{checked} figures")
    return good and checked > 40


sys.exit(0 if {"same": same, "figures": figures}[sys.argv[1]]() else 1)
