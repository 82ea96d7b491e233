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

[ "$("${marks[@]}" nonsense 2>&1 >/dev/null | grep -c nonsense)" = 1 ] || fail "an unknown group is not refused"
finish
