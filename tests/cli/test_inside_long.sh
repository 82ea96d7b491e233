#!/usr/bin/env bash
# A step that takes long shows where it is, on a terminal, in time, although the rank that shows it is in one layer for
# all of that: rank 0 alone, with ranks as processes. Metrics and logs do not change.
# labels: long noasan
. "$(dirname "$0")/train_lib.sh"
words="train $common --cp 2 --cp-strategy ring --overwrite --name inside --eval-sequences 0"
# four micro-batches of two layers forward and two backward, two steps of the ring each: 32 a rank and step
for rank in 0 1; do
  WEFT_FAULT=sleep:14:rank=$rank:site=cp.ring:hit=45 on_terminal 100 $words
  tr '\r' '\n' <"$tmp/stdout" | sed 's/\x1b\[[0-9]*[mK]//g' >"$tmp/lines"
  n=$(grep -c '^step     2/6 | [0-9]* %, ~[0-9]* s left | [a-z]* layer [12]/2 | micro-batch [1-4]/4$' "$tmp/lines")
  [ "$n" -ge 2 ] && [ "$n" -le 6 ] || fail "rank $rank slept, and $n lines told of it: $(grep '^step' "$tmp/lines")"
  [ "$(grep -c '^step .* left' "$tmp/lines")" = "$n" ] || fail "other steps are told of: $(grep '^step' "$tmp/lines")"
  # what the screen keeps: the step before, and the last
  kept=$(python3 -c 'import sys
for line in open(sys.argv[1], newline="\n"):
    words = line.rstrip("\r\n").split("\r")[-1].split()
    if words[:1] == ["step"] and "loss" in words: print(words[1])' "$tmp/stdout" | tr '\n' ' ')
  [ "$kept" = "1/6 6/6 " ] || fail "these steps stay on the screen: $kept"
  [ "$(losses inside | wc -l)" = 6 ] || fail "metrics of 6 steps: $(losses inside)"
done
WEFT_FAULT=sleep:14:rank=0:site=cp.ring:hit=45 good $words
[ "$(grep -c '^step .*loss' "$tmp/stdout")" = "$(grep -c '^step .*|' "$tmp/stdout")" ] ||
  fail "a log holds more than steps: $(grep '^step' "$tmp/stdout")"
finish
