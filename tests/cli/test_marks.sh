#!/usr/bin/env bash
# labels: small noasan
# The table of `make bench` from figures that are given: what reaches the aim, what it must, and what misses it; what
# was not measured passes nothing. And one group that is measured for real, with a peer that is absent.
. "$(dirname "$0")/lib.sh"
marks=(python3 "$WEFT_SRC/bench/marks.py")
cat >"$tmp/figures" <<'JSON'
{"machine": "2026-01-02, a machine"}
{"key": "avx512-fwd", "value": 73.94, "spread": 0.02, "note": ""}
{"key": "avx512-bwd", "value": 77.0, "spread": 0, "note": ""}
{"key": "avx2-fwd", "value": 82.01, "spread": 0, "note": ""}
{"key": "window", "value": 1.15, "spread": 0, "note": ""}
{"key": "odd", "value": 1.031, "spread": 0, "note": ""}
{"key": "steps", "value": 1.03, "spread": 0, "note": ""}
{"key": "memory", "value": 1.0, "spread": 0, "note": ""}
{"key": "sdpa-fp32-64", "value": null, "spread": 0, "note": "skipped: no PyTorch"}
{"key": "amx-fwd-128-16K", "value": null, "spread": 0, "note": "no AMX here"}
JSON
"${marks[@]}" --figures "$tmp/figures" >"$tmp/table" 2>&1 || fail "marks.py: $(tail -3 "$tmp/table")"
# row PATTERN VERDICT: the one row whose beginning is PATTERN ends with VERDICT
row() {
  local found
  found=$(grep -c "^$1" "$tmp/table")
  [ "$found" = 1 ] || fail "$found rows begin with '$1'"
  grep "^$1" "$tmp/table" | grep -q "  $2\$" || fail "not '$2': $(grep "^$1" "$tmp/table")"
}
row 'fp32 fwd by AVX-512' MISSED
row 'fp32 bwd by AVX-512' must
row 'fp32 fwd by AVX2' aim
row 'fp32 bwd by AVX2' 'not measured'
row 'window of 1K' aim
row 'T = 1001' MISSED
row '2 ranks, zigzag: kernels' must
row 'the same: its peak memory' MISSED
row "PyTorch's sdpa, fp32, D64" 'skipped: no PyTorch'
row 'bf16 fwd, D128, T = 16K' 'no AMX here'
grep -q '^2 reach the aim, 2 what they must, 3 miss it, ' "$tmp/table" || fail "another sum: $(tail -1 "$tmp/table")"
grep -q '^2026-01-02, a machine$' "$tmp/table" || fail "the figures' machine is not named"

# a terminal of 80 columns gets lines that fit, with all that the long ones say
python3 - "$WEFT_SRC/bench" "$tmp/figures" <<'PY' || fail "the table for narrow terminals"
import sys
sys.path.insert(0, sys.argv[1])
import marks
machine, figures = marks.read_figures(sys.argv[2])
figures["memory"] = marks.Figure("memory", None, 0.0, "skipped: " + "a reason of many words " * 9)
rows = [marks.row_of(m, figures.get(m.key)) for m in marks.marks()]
narrow = marks.text(rows, 80)
assert max(map(len, narrow.splitlines())) <= 80, narrow
assert narrow.split() == [w for r in [marks.HEAD, *rows] for c in r for w in c.split()], narrow
assert marks.text(rows, 500) == marks.text(rows), "a wide one gets lines as files do"
PY

# a group alone, and its table in a text
printf 'before\n<!-- marks: begin (make bench WRITE=1) -->\nold\n<!-- marks: end -->\nafter\n' >"$tmp/text"
"${marks[@]}" fp32 --figures "$tmp/figures" --write "$tmp/text" >"$tmp/table" 2>&1 || fail "marks.py --write"
[ "$(grep -c '^| fp32' "$tmp/text")" = 2 ] || fail "not two rows: $(cat "$tmp/text")"
[ "$(sed -n '1p;$p' "$tmp/text" | tr '\n' ' ')" = 'before after ' ] || fail "the text around the table changed"
! grep -q old "$tmp/text" || fail "the old table is still there"

# without PyTorch: one line says so, and nothing fails
echo 'raise ImportError("none here")' >"$tmp/torch.py"
WEFT_PEER_PYTHON=python3 PYTHONPATH=$tmp "${marks[@]}" materialised >"$tmp/table" 2>&1 ||
  fail "without PyTorch: $(cat "$tmp/table")"
[ "$(grep -c 'skipped: PyTorch cannot be imported' "$tmp/table")" = 2 ] ||
  fail "no word of PyTorch: $(cat "$tmp/table")"

# a run that fails or is ended prints what it has, with the reason, and ends what it started
cat >"$tmp/weft" <<'SH'
#!/bin/sh
[ "$1" = info ] || . "$(dirname "$0")/then"
echo 'isa          ref yes, avx2 yes, avx512 no, amx no; best is avx2'
SH
chmod +x "$tmp/weft"
echo 'echo "out of order" >&2; exit 3' >"$tmp/then"
WEFT=$tmp/weft "${marks[@]}" fp32 avx2 >"$tmp/table" 2>"$tmp/stderr" && fail "a failing run ends well"
row 'fp32 fwd by AVX-512' 'no AVX-512 here'
row 'fp32 fwd by AVX2' 'not measured'
grep -q 'ended before all was measured: .*out of order' "$tmp/stderr" || fail "no reason: $(cat "$tmp/stderr")"
echo "exec sleep 300.$$" >"$tmp/then"
WEFT=$tmp/weft "${marks[@]}" fp32 avx2 >"$tmp/table" 2>"$tmp/stderr" &
job=$!
for _ in $(seq 100); do running "sleep 300.$$" && break; sleep 0.1; done
kill -TERM $job
wait $job && fail "a run that was ended ends well"
row 'fp32 fwd by AVX-512' 'no AVX-512 here'
! running "sleep 300.$$" || fail "what it had started goes on"

# refused before minutes of measuring, and in one line
told() { # PATTERN ARGUMENT...
  local pattern=$1
  shift
  WEFT=$tmp/weft "${marks[@]}" "$@" >"$tmp/stdout" 2>"$tmp/stderr" && fail "not refused: $*"
  grep -q "$pattern" "$tmp/stderr" || fail "no '$pattern': $(tail -2 "$tmp/stderr")"
  ! grep -q Traceback "$tmp/stderr" || fail "a traceback for $*"
}
sed 's/marks: begin/no begin/' "$tmp/text" >"$tmp/unmarked"
told 'no text with one line' --write "$tmp/unmarked"
told 'would lose the others' avx2 --write "$tmp/text"
told 'cannot be written' --save "$tmp/absent/figures"
WEFT_PEER_PYTHON=$tmp/python told 'WEFT_PEER_PYTHON=.* is no program'
head -c 150 "$tmp/figures" >"$tmp/torn"
told 'line 3: damaged' --figures "$tmp/torn"
: >"$tmp/empty"
told 'no file that --save has made' --figures "$tmp/empty"
told 'no file that --save has made' --figures <(echo '{"machine": 5}')
told 'No such file' --figures "$tmp/absent"
told 'line 1: damaged' --figures <(printf '\xff\xfe')
told 'damaged (a figure without its value)' --figures <(sed 's/73.94/"fast"/' "$tmp/figures")
told 'cannot be written' --save "$tmp"
told 'No space left' amx --save /dev/full
WEFT=$tmp/none "${marks[@]}" avx2 2>"$tmp/stderr" && fail "no program is needed"
grep -q 'make builds Weft' "$tmp/stderr" || fail "an absent program: $(tail -1 "$tmp/stderr")"

[ "$("${marks[@]}" nonsense 2>&1 >/dev/null | grep -c nonsense)" = 1 ] || fail "an unknown group is not refused"
finish
