#!/usr/bin/env bash
# labels: small noasan
# bench/check.py tells slower kernels from others: by records that are made up, with a program that prints given
# figures.
. "$(dirname "$0")/lib.sh"
check=(python3 "$WEFT_SRC/bench/check.py" --recorded "$tmp/recorded")
cat >"$tmp/weft" <<'SH'
#!/bin/sh
if [ "$1" = info ]; then echo 'isa          ref yes, avx2 yes, avx512 no, amx no; best is avx2'; exit; fi
for d in fwd bwd fwd+bwd; do echo "{\"direction\": \"$d\", \"best\": $(cat "$(dirname "$0")/share")}"; done
SH
chmod +x "$tmp/weft"
export WEFT=$tmp/weft
run() { "${check[@]}" shares "$@" >"$tmp/stdout" 2>"$tmp/stderr"; }

echo 0.8 >"$tmp/share"
run || fail "without a record: $(cat "$tmp/stdout" "$tmp/stderr")"
grep -q 'no figures of this processor' "$tmp/stdout" || fail "says nothing of a missing record: $(cat "$tmp/stdout")"
run --record || fail "recording: $(cat "$tmp/stderr")"
run || fail "the same figures fail: $(grep SLOWER "$tmp/stdout")"
lines=$(wc -l <"$tmp/recorded/shares.jsonl")
run --record
[ "$(wc -l <"$tmp/recorded/shares.jsonl")" = "$lines" ] || fail "recording twice keeps the figures twice"
echo 0.69 >"$tmp/share"
run || fail "0.69 against 0.8 fails: $(tail -1 "$tmp/stdout")"
echo 0.67 >"$tmp/share"
run && fail "0.67 against 0.8 passes: $(tail -1 "$tmp/stdout")"
[ "$(grep -c SLOWER "$tmp/stdout")" = "$lines" ] || fail "not every kernel is named: $(cat "$tmp/stdout")"
cp "$tmp/recorded/shares.jsonl" "$tmp/whole"
for wrong in 0 '"0.8"' NaN; do
  sed "2s/\"share\": [0-9.]*/\"share\": $wrong/" "$tmp/whole" >"$tmp/recorded/shares.jsonl"
  run && fail "a recorded share of $wrong passes"
  grep -q 'line 2: damaged (no share)' "$tmp/stderr" || fail "a share of $wrong: $(tail -1 "$tmp/stderr")"
done
cp "$tmp/whole" "$tmp/recorded/shares.jsonl"
echo '{"cpu": "another", "isa": "av' >>"$tmp/recorded/shares.jsonl"
run && fail "a damaged record passes"
grep -q "^[^ ]*shares.jsonl, line $((lines + 1)): damaged" "$tmp/stderr" || fail "damaged: $(tail -1 "$tmp/stderr")"
finish
