#!/usr/bin/env bash
# What is printed fits the page: help at any width, and on a terminal the start of a run, which names what was given. A
# file gets whole lines and all options.
# labels: small noasan
. "$(dirname "$0")/lib.sh"

# too_wide COLUMNS FILE: its lines that are longer, in characters
too_wide() { python3 -c 'import sys
for line in open(sys.argv[2], encoding="utf-8"):
    if len(line.rstrip("\r\n")) > int(sys.argv[1]): print(line, end="")' "$@"; }

commands=$("$WEFT" --help | sed -n 's/^  \([a-z][a-z]*\)  .*/\1/p')
[ "$(wc -w <<<"$commands")" -ge 8 ] || fail "--help names too few commands: $commands"
for columns in 40 80 200 none; do
  at=$columns
  if [ $columns = none ]; then unset COLUMNS; at=80; else export COLUMNS=$columns; fi
  : >"$tmp/all"
  for command in "" $commands; do
    good $command --help
    cat "$tmp/stdout" >>"$tmp/all"
  done
  [ "$(wc -l <"$tmp/all")" -gt 300 ] || fail "COLUMNS=$columns: help lacks options"
  [ -z "$(too_wide $at "$tmp/all")" ] || fail "COLUMNS=$columns: $(too_wide $at "$tmp/all")"
done
for columns in junk -3 0; do
  COLUMNS=$columns good train --help
  [ -z "$(too_wide 80 "$tmp/stdout")" ] || fail "COLUMNS=$columns is taken"
done
good sim --cp 3 --cp-head-size 3 --seq-length 1001 --hidden-size 64 --num-attention-heads 4
grep -q refused "$tmp/stdout" || fail "nothing is refused: $(cat "$tmp/stdout")"
[ -z "$(too_wide 80 "$tmp/stdout")" ] || fail "weft sim: $(too_wide 80 "$tmp/stdout")"

seq 2000 >"$tmp/a-text-whose-name-is-long-enough-for-two-lines-of-a-terminal.txt"
words="train --data a-text-whose-name-is-long-enough-for-two-lines-of-a-terminal.txt --seq-length 65 --steps 1
  --hidden-size 32
  --num-layers 1 --cp 2 --valid-fraction 0.2 --sample-tokens 150 --overwrite --name wide"
for columns in 40 80; do
  on_terminal $columns $words
  tr -d '\r' <"$tmp/stdout" | grep -v '^step' >"$tmp/lines" # progress writes over itself, in colours
  [ -z "$(too_wide $columns "$tmp/lines")" ] || fail "$columns columns: $(too_wide $columns "$tmp/lines")"
  grep -q '^\* model.layers' "$tmp/lines" || fail "what was given is not shown: $(head -20 "$tmp/lines")"
  ! grep -q 'optim.beta1' "$tmp/lines" || fail "what was not given is shown"
  grep -q 'config.yaml' "$tmp/lines" || fail "nothing says where all options are"
done
good $words
grep -q '^  optim.beta1 *0.9$' "$tmp/stdout" || fail "a file does not get all options"
grep -q '^\* data.path *a-text.*txt$' "$tmp/stdout" || fail "a file does not get whole lines"
on_terminal 60 attention "$WEFT_GOLDEN/attention/docs_window.safetensors" --cp 3 --cp-strategy dcp --cp-layout balanced
[ -z "$(grep '^plan\|^buffers' "$tmp/stdout" | tr -d '\r' | too_wide 60 /dev/stdin)" ] ||
  fail "weft attention: $(head -3 "$tmp/stdout")"
# sizes and checksums of a checkpoint are never cut in two
folder=runs/wide/step-00000001
on_terminal 60 checkpoint inspect $folder
tr -d '\r' <"$tmp/stdout" >"$tmp/lines"
[ -z "$(too_wide 60 "$tmp/lines")" ] || fail "checkpoint inspect: $(too_wide 60 "$tmp/lines")"
grep -qE '^  xxh3 [0-9a-f]{32}$' "$tmp/lines" && grep -A1 '^  model.layers.0.mlp.down_proj.weight$' "$tmp/lines" |
  grep -qE '^    fp32  \[32, [0-9]*\] +[0-9.]+ KiB$' || fail "checkpoint inspect: $(head -20 "$tmp/lines")"
good checkpoint inspect $folder
grep -qE '^  model.layers.0.mlp.down_proj.weight +fp32  \[32, [0-9]*\] +[0-9.]+ KiB$' "$tmp/stdout" ||
  fail "checkpoint inspect into a file: $(head -20 "$tmp/stdout")"
finish
