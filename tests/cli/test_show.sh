#!/usr/bin/env bash
# labels: small noasan
# `weft show`: the picture read as a person reads it, its numbers against formulas of areas and bytes that are worked
# out here, colours, widths, the SVG, and refusals.
. "$(dirname "$0")/lib.sh"

# read_picture STRATEGY LAYOUT P T WINDOW(0: none) DIRECTION, of $tmp/stdout. H = Hkv = 4, D = 128, fp32.
read_picture() {
  python3 - "$tmp/stdout" "$@" <<'P'
import re, sys
path, strategy, layout, P, T, window, direction = sys.argv[1:]
P, T, window = int(P), int(T), int(window)
lines = open(path).read().split("\n")

# who owns a token, by the definition of the layout
def chunk(i): return range(i * T // (2 * P), (i + 1) * T // (2 * P))
own = {}
for r in range(P):
    mine = {"zigzag": lambda: [*chunk(r), *chunk(2 * P - 1 - r)],
            "contiguous": lambda: [*chunk(2 * r), *chunk(2 * r + 1)],
            "striped": lambda: range(r, T, P)}[layout]()
    own.update({t: r for t in mine})
rows = [sum(o == r for o in own.values()) for r in range(P)]
def visible(q, k): return k <= q and (not window or q - k < window)

# the grid: whole tokens, owners at the heads of rows and columns, a step in each cell
grid = [l for l in lines if re.match(r" *\d* *\w \|", l)]
assert len(grid) == T, (len(grid), T)
head = next(l for l in lines if l.lstrip().startswith("owner")).split()[1:]
assert [int(x, 36) for x in head] == [own[t] for t in range(T)], head
for q, line in enumerate(grid):
    left, cells = line.split("|")
    assert int(left.split()[-1], 36) == own[q], line
    cells = cells.ljust(2 * T)
    for k in range(T):
        c = cells[2 * k]
        if visible(q, k): assert int(c, 36) == (own[q] - own[k]) % P, (q, k, c)
        else: assert c == ("-" if k <= q else "."), (q, k, c)

# areas: of each rank and step, counted, and by the formulas
held = [[t for t in range(T) if own[t] == r] for r in range(P)]
def area(r, step): return sum(visible(q, k) for q in held[r] for k in held[(r - step) % P])
areas = [[area(r, i) for i in range(P)] for r in range(P)]
whole = T % (2 * P) == 0 and not window
if whole and layout == "zigzag":
    h = T // (2 * P)
    assert all(a == [h * (h + 1) + h * h] + [2 * h * h] * (P - 1) for a in areas)
if whole and layout == "contiguous":
    c = T // P
    assert [sum(a) for a in areas] == [((r + 1) ** 2 - r ** 2) * c * c // 2 + c // 2 for r in range(P)]
if whole and layout == "striped":
    c = T // P
    assert [sum(a) for a in areas] == [P * c * (c - 1) // 2 + c * (r + 1) for r in range(P)]

# tables of steps
step, seen = None, {}
sent_to = {}
for l in lines:
    m = re.match(r"step (\d+): (.*)", l)
    if m:
        step = int(m[1])
        idle = [r for r in range(P) if areas[r][step] == 0]
        names = set()
        for a, b in re.findall(r"(\d+)(?:-(\d+))?", m[2]): names |= set(range(int(a), int(b or a) + 1))
        if m[2] == "all idle": names = set(range(P))
        assert ("idle" in m[2]) and names == set(idle), (l, idle)
        continue
    m = re.match(r" +(\d+) +(\d+) +(\d+) x (\d+) +(\d+) +([\d.]+) %  (.*)", l)
    if not m or step is None: continue
    r, owner, nq, nk, pairs = map(int, m.groups()[:5])
    assert owner == (r - step) % P and nq == rows[r] and nk == rows[owner], l
    assert pairs == areas[r][step], (l, areas[r][step])
    most = max(a[step] for a in areas)
    assert abs(float(m[6]) - (100 * pairs / most if most else 0)) < 0.51, l
    s = re.match(r"(\d+) to (\d+)", m[7])
    if strategy == "ring" and step < P - 1 and rows[owner]:
        assert s and (int(s[1]), int(s[2])) == (owner, (r + 1) % P), l
    seen[r, step] = pairs
assert len(seen) == P * P, len(seen)

# sums: pairs, and bytes by the formulas; a row of K,V is 4 heads x 256 numbers of 4 bytes
row = 4 * 256 * 4
def needed(r, peer): return sum(any(visible(q, k) for q in range(T) if own[q] == peer) for k in range(T) if own[k] == r)
def kv(r):
    if strategy == "pcp": return (P - 1) * rows[r] * row
    if strategy == "ring": return (T - rows[(r + 1) % P]) * row
    return sum(needed(r, peer) for peer in range(P) if peer != r) * row
def dkv(r):
    if strategy == "pairwise": return sum(needed(peer, r) for peer in range(P) if peer != r) * row
    return (T - rows[r]) * row
at = lines.index("all steps, one layer, bytes that a rank sends " + direction)
mean = sum(map(sum, areas)) / P
for r, l in enumerate(lines[at + 2:at + 2 + P]):
    x = l.split()
    assert x[:3] == [str(r), str(rows[r]), str(sum(areas[r]))], (l, rows[r], sum(areas[r]))
    assert abs(float(x[3]) - sum(areas[r]) / mean) < 6e-4, l
    assert int(x[4]) == kv(r), (l, kv(r))
    if direction == "backward": assert int(x[5]) == dkv(r), (l, dkv(r))

# the balance
text = "\n".join(lines[at:])
worst = float(re.search(r"has ([\d.]+) times the mean", text)[1])
assert abs(worst - max(map(sum, areas)) / mean) < 6e-4, worst
busy = float(re.search(r"ranks would compute ([\d.]+) %", text)[1])
want = 100 * mean / sum(max(a[i] for a in areas) for i in range(P))
assert abs(busy - want) < 0.051, (busy, want)
turns = sum(a == 0 for x in areas for a in x)
assert ("nobody, at no step" in text) if not turns else f"{turns} of {P * P} turns" in text, text
P
}
picture() { # STRATEGY LAYOUT P T WINDOW [backward]
  local more=""
  [ "$5" = 0 ] || more="--sliding-window $5"
  [ $# -lt 6 ] || more="$more --backward"
  good show --cp "$3" --cp-strategy "$1" --cp-layout "$2" --seq-length "$4" $more
  read_picture "$1" "$2" "$3" "$4" "$5" "${6:-forward}" || fail "$*: $(tail -40 "$tmp/stdout")"
  awk 'length > 80 { print; bad = 1 } END { exit bad }' "$tmp/stdout" || fail "$*: lines of more than 80 columns"
}
picture ring zigzag 4 32 0
grep -q '^idle     nobody, at no step$' "$tmp/stdout" || fail "zigzag on 4 ranks: somebody is idle"
picture ring contiguous 4 32 0 backward
[ "$(sed -n '/^idle/,$p' "$tmp/stdout" | sed 's/^idle *//; s/^ *//' | paste -sd'|')" = \
  "6 of 16 turns of a rank|step 1: rank 0 idle|step 2: ranks 0-1 idle|step 3: ranks 0-2 idle" ] ||
  fail "contiguous on 4 ranks: $(tail -5 "$tmp/stdout")"
picture ring striped 4 32 0
picture ring zigzag 3 31 0 backward
picture pcp zigzag 5 29 0 backward
picture pairwise contiguous 4 32 0 backward
picture pairwise zigzag 3 24 7 backward
picture pcp contiguous 4 33 5
picture ring zigzag 8 5 0

# against a run: the simulator charges each block by its pairs, and its time line has every message with its tag
traced() { # STRATEGY LAYOUT P T
  local words="--cp $3 --cp-strategy $1 --cp-layout $2 --seq-length $4"
  good sim $words --kv-channels 128 --trace line.json --trace-ranks 0-$(($3 - 1))
  good show $words --backward
  python3 - "$tmp/line.json" "$tmp/stdout" <<'P' || fail "$*: the picture is not what ran"
import json, re, sys
spans = sorted((e for e in json.load(open(sys.argv[1]))["traceEvents"] if e["ph"] == "X"), key=lambda e: e["ts"])
work, kv, dkv, step, back = {}, {}, {}, None, False
def add(where, r, text):
    m = re.match(r"(\d+) from (\d+),.* ([\d.]+[BKM])$", text)
    if m: where.setdefault(r, []).append((int(m[1]), int(m[2]), m[3]))
for l in open(sys.argv[2]):
    if l.startswith("step "): step = int(l.split()[1][:-1]) if l.split()[1].endswith(":") else step
    back |= l.startswith("backward:")
    m = re.match(r" +(\d+) +(\d+) +\d+ x \d+ +(\d+) +\d+ %  (.*\S)  +(\S.*)$", l)
    if m and not back: work[int(m[1]), step] = int(m[3]); add(kv, int(m[1]), m[5])
    m = re.match(r" +(\d+) +(\d+)  (\S.*?)  +(\S.*)$", l)
    if m and back: add(dkv, int(m[2]), m[4])
def short(n): return f"{n}B" if n < 1000 else f"{n / 1024:.2f}K" if n < 9.995 * 1024 else f"{n / 1024:.1f}K"
ran = {(e["pid"], e["args"]["step"]): e["dur"] for e in spans if e["name"] == "cp.forward.block"}
busiest = max(work, key=work.get)
for at, pairs in work.items(): # durations are rounded to 0.001 us
    assert abs(ran.get(at, 0) - pairs * ran[busiest] / work[busiest]) < 0.002, (at, pairs, ran)
for r in range(max(r for r, _ in work) + 1):
    came = [(e["args"]["tag"], (e["args"]["tag"] & 0xffff, e["args"]["rank"], short(e["args"]["bytes"]))) for e in spans
            if e["pid"] == r and e["cat"] == "communication in" and e["name"].startswith("cp ")]
    blocks = [m for tag, m in came if tag >> 16 == 1]
    assert blocks == 2 * kv.get(r, []), (r, blocks, kv)     # of forward, and again of backward
    assert [m for tag, m in came if tag >> 16 == 2] == dkv.get(r, []), (r, came, dkv)
assert kv and dkv
P
}
traced ring zigzag 4 37
traced pairwise contiguous 5 43
traced ring contiguous 3 31

# the head stage: even heads, so a rank sends 8 rows of q, k, v to three, and o, m, l of 24 rows home
good show --cp 4 --cp-strategy ulysses --seq-length 32
grep -qE '^ +2 +2 +2 +32 +0-31$' "$tmp/stdout" || fail "ulysses: heads and rows: $(cat "$tmp/stdout")"
grep -qE "^ +0 +8 +528 +1.000 +$((8 * 3 * 3 * 128 * 4 + 24 * (128 * 4 + 8))) +0$" "$tmp/stdout" ||
  fail "ulysses: bytes: $(tail -5 "$tmp/stdout")"
good show --cp 8 --cp-strategy dcp-ring --num-attention-heads 6 --num-query-groups 2 --seq-length 100 --rank 3
grep -qE '^ +3 +3-5 +1 +25 +12-24, 75-86$' "$tmp/stdout" || fail "dcp-ring: heads and rows: $(cat "$tmp/stdout")"
[ "$(grep -cE '^ +[0-3] +[1357] +25 x 25' "$tmp/stdout")" = 4 ] || fail "--rank 3 does not list its four steps"
grep -q '^blank: computed by other ranks' "$tmp/stdout" || fail "--rank 3 does not say what is blank"

# a run's own configuration; ranks are those of one context-parallel group
printf '%s\n' 'parallel: {cp: 4, cp_strategy: ring, tp: 2, dp: 2}' 'train: {seq_length: 64, steps: 3}' \
  'model: {hidden_size: 64, heads: 8, kv_heads: 4}' >"$tmp/run.yaml"
good show run.yaml --cp-layout contiguous
grep -q '^attention  T 64, H 4/2, D 8, ' "$tmp/stdout" || fail "tp 2 of 8/4 heads: $(head -1 "$tmp/stdout")"
grep -q 'there are tp 2 x dp 2 x pp 1 of them' "$tmp/stdout" || fail "tp and dp are not told of"

# sizes at the ends
for words in '--cp 1 --seq-length 1' '--cp 7 --seq-length 1 --cp-strategy ring' '--cp 4 --docs 0,1,5,0,3,1 --backward' \
  '--cp 3 --cp-strategy pairwise --seq-length 20 --queries 7 --step 1' \
  '--cp 4 --cp-layout striped:2 --seq-length 1001' \
  '--cp 3 --cp-layout balanced --docs random:20 --seq-length 300 --cp-strategy pcp' \
  '--cp 512 --seq-length 2M --cp-strategy ring --sliding-window 4096' \
  '--cp 4096 --seq-length 1M --cp-strategy dcp --num-attention-heads 64 --num-query-groups 64 --precision bf16'; do
  good show $words
  awk 'length > 90 { print; bad = 1 } END { exit bad }' "$tmp/stdout" || fail "show $words: long lines"
  grep -q '^balance' "$tmp/stdout" || fail "show $words: no balance"
done
good show --docs 5,3,8 --cp 2
grep -q '^attention  T 16, .*3 documents$' "$tmp/stdout" || fail "--docs 5,3,8: $(head -1 "$tmp/stdout")"
grep -q 'd0        d1    d2' "$tmp/stdout" || fail "documents are not at their tokens"

# colours: on terminals, unless NO_COLOR; the same picture without them
esc=$(printf '\033')
good show --cp 4 --seq-length 32
! grep -q "$esc" "$tmp/stdout" || fail "colours in a file"
cp "$tmp/stdout" "$tmp/plain"
good show --cp 4 --seq-length 32 --color always
sed "s/$esc\[[0-9;]*m//g; s/ *$//" "$tmp/stdout" | cmp -s - "$tmp/plain" || fail "colours change the picture"
for columns in 40 80 200; do
  TERM=xterm NO_COLOR= on_terminal $columns show --cp 4 --seq-length 4096 --docs 1000,*
  grep -q "$esc" "$tmp/stdout" || fail "no colours on a terminal"
  sed "s/$esc\[[0-9;]*m//g" "$tmp/stdout" | tr -d '\r' |
    awk -v n=$columns 'length > n { print; bad = 1 } END { exit bad }' || fail "too wide for $columns columns"
done
TERM=xterm NO_COLOR=1 on_terminal 80 show --cp 4 --seq-length 4096
! grep -q "$esc" "$tmp/stdout" || fail "colours with NO_COLOR"

# the SVG: whole, without scripts or links, for both backgrounds, a tip on each cell; every pair in it once
good show --cp 4 --cp-strategy ring --seq-length 32 --docs 12,* --svg picture.svg
python3 - "$tmp/picture.svg" <<'P' || fail "the SVG is not as it should be"
import re, sys, xml.etree.ElementTree as xml
text = open(sys.argv[1]).read()
ns = "{http://www.w3.org/2000/svg}"
root = xml.fromstring(text)
assert root.tag == ns + "svg" and "prefers-color-scheme:dark" in text
assert not root.findall(f".//{ns}script") and "href" not in text and text.count("http") == 1
tips = [r.find(ns + "title").text for r in root.iter(ns + "rect") if r.find(ns + "title") is not None]
done = [t for t in tips if " at step " in t]
pairs = sum(int(re.search(r"(\d+) visible", t)[1]) for t in done)
assert pairs == 2 * (12 * 13 // 2 + 20 * 21 // 2), pairs  # the main panel, and the panels of four steps together
assert any("another document" in t for t in tips) and any("a later token" in t for t in tips)
words = " ".join(t.text for t in root.iter(ns + "text"))
assert all(f"step {i}: " in words for i in range(4)), words
P
rm -f "$tmp/picture.svg"

refused 'there are ranks 0 to 3' show --cp 4 --rank 4
refused 'there are steps 0 to 3' show --cp 4 --cp-strategy ring --step 4
refused 'or all' show --cp 4 --step x
refused 'or all' show --cp 4 --step -1
refused 'use dcp, with one of the head sizes' show --cp 8 --cp-strategy ulysses
refused 'add up to 8, T is 9' show --cp 2 --docs 5,3 --seq-length 9
refused 'a length is missing' show --cp 2 --docs 5,,3
refused 'at most all of them' show --cp 2 --seq-length 8 --queries 9
refused 'leave one of them out' show --cp 2 --docs 5,3 --queries 2
refused 'nowhere' show --cp 2 --svg /nowhere/x.svg
refused 'is none of auto|always|never' show --color blue
refused 'give --micro-batch-size 1' show --cp 2 --cp-layout balanced --micro-batch-size 2
finish
