#!/usr/bin/env bash
# labels: small
# timeout: 120
# Memory from the command line: recomputation gives the same losses bit for bit and holds less, tiles of the
# feed-forward the same within rounding; what is planned is what is held; what could not act is refused; dropout that a
# config asks for is named beside what is applied.
. "$(dirname "$0")/train_lib.sh"
# held KIND: bytes of the printed table, of the rank with most
held() { awk -v kind="$1" 'index($0, kind) == 1 { sub(kind, ""); v = $1; u = $2
  print v * (u == "GiB" ? 1073741824 : u == "MiB" ? 1048576 : u == "KiB" ? 1024 : 1) }' "$tmp/stdout"; }
few="$common --steps 2 --warmup-steps 0 --eval-sequences 0"
good train $few --name kept
kept=$(losses kept) before=$(held activations)
[ -n "$before" ] || fail "no table of memory: $(cat "$tmp/stdout")"
while read -r name flags; do
  good train $few $flags --name $name
  [ "$(losses $name)" = "$kept" ] || fail "$flags changes losses: $(losses $name), not $kept"
  awk -v a="$(held activations)" -v b="$before" 'BEGIN { exit !(a < b) }' || fail "$flags holds $(held activations)"
done <<'END'
attention --recompute attention
full --recompute full
again --recompute full --recompute-keep-attention
END
awk '/^memory$/ { on = 1; next } /^resident/ { on = 0 } on && NF == 5 && $1 != "sum" {
  if ($2 != $4 || $3 != $5) bad = bad $0 "\n" } END { printf "%s", bad; exit bad != "" }' \
  "$tmp/stdout" || fail "planned is not held"
good train $few --mlp-rows 64 --name tiles
python3 -c 'import sys; a, b = (s.split() for s in sys.argv[1:]); sys.exit(len(a) != 2 or
  any(abs(float(x) - float(y)) > 1e-5 for x, y in zip(a, b)))' "$(losses tiles)" "$kept" ||
  fail "--mlp-rows 64: $(losses tiles), not $kept"
good train $few --cp 2 --tp 2 --sequence-parallel --recompute full --mlp-rows 50 --no-peer-memory --name ranks
python3 -c 'import sys; a, b = (s.split() for s in sys.argv[1:]); sys.exit(len(a) != 2 or
  any(abs(float(x) - float(y)) > 1e-4 for x, y in zip(a, b)))' "$(losses ranks)" "$kept" ||
  fail "tp 2, cp 2, full: $(losses ranks), not $kept"
planned=$(awk '$4 == "planned" { print $2 $3 }' "$tmp/stdout")
good info --memory $common --cp 2 --tp 2 --sequence-parallel --recompute full --mlp-rows 50 --no-peer-memory
awk -v it="$planned" '$1 == "sum" && ($2 $3 == it || $4 $5 == it) { n++ } END { exit n != 1 }' "$tmp/stdout" ||
  fail "info --memory does not say what the run planned, $planned: $(cat "$tmp/stdout")"
good info --memory $common --pp 2 --tp 3 --format jsonl
[ "$(grep -c '"sum":[1-9]' "$tmp/stdout")" = 6 ] || fail "not a line per stage and part: $(cat "$tmp/stdout")"
refused 'give one of them' info --memory --plan
refused '--global-batch-size 3 is no multiple' info --memory --micro-batch-size 2 --global-batch-size 3
refused '--recompute-keep-attention could not act' train $few --data "$tmp/data.txt" --recompute-keep-attention
refused 'some' train $few --data "$tmp/data.txt" --recompute some
deep=$(echo "$few" | sed 's/--num-layers 2/--num-layers 5/') # with two layers there is nothing to offload
good train $deep --name deep --recompute full
deep_losses=$(losses deep) before=$(held activations)
for where in host "file:$tmp"; do
  good train $deep --name away --recompute full --offload "$where" --overwrite
  [ "$(losses away)" = "$deep_losses" ] || fail "--offload $where changes losses: $(losses away), not $deep_losses"
  awk -v a="$(held activations)" -v b="$before" 'BEGIN { exit !(a < b) }' || fail "--offload $where holds as much"
done
grep -q '^in a file' "$tmp/stdout" && grep -q '; [0-9.]* KiB in a file' "$tmp/stdout" ||
  fail "the file is not named: $(grep -n file "$tmp/stdout")"
refused '--offload host could not act: with 2 layers on 1 stage' train $few --data "$tmp/data.txt" --offload host
refused 'did you mean "file"' train $few --data "$tmp/data.txt" --offload fiel
refused 'names no folder' train $few --data "$tmp/data.txt" --offload file:
refused "$tmp/nowhere: No such file" train $deep --data "$tmp/data.txt" --cp 2 --offload "file:$tmp/nowhere"
refused 'embedding' train $few --data "$tmp/data.txt" --embedding-dropout 1
cat >"$tmp/config.json" <<'END'
{"model_type": "gpt2", "vocab_size": 259, "n_embd": 32, "n_layer": 1, "n_head": 4, "n_positions": 300,
 "resid_pdrop": 0.1, "embd_pdrop": 0.1, "attn_pdrop": 0.1}
END
own="--data data.txt --seq-length 257 --steps 1 --warmup-steps 0 --eval-sequences 0 --model-config config.json"
good train $own --name asked
grep -q 'asks for dropout 0.1; this run drops 0 of the embedding' "$tmp/stdout" "$tmp/stderr" ||
  fail "dropout of a config is not named: $(cat "$tmp/stderr")"
good train $own --name applied --residual-dropout 0.1 --embedding-dropout 0.1 --attention-dropout 0.1
! grep -q 'asks for dropout' "$tmp/stdout" "$tmp/stderr" || fail "applied dropout is warned of"
[ "$(losses applied)" != "$(losses asked)" ] || fail "dropout does not act"
good bench step --hidden-size 16 --num-layers 3 --num-attention-heads 2 --seq-length 32 --repeats 1 --threads 1 \
  --recompute full --offload "file:$tmp"
grep -q 'in a file 12.00 KiB' "$tmp/stdout" || fail "bench step names no file: $(grep memory "$tmp/stdout")"
good bench step --hidden-size 16 --num-layers 1 --num-attention-heads 2 --seq-length 32 --repeats 1 --threads 1 \
  --recompute full --mlp-rows 8
# a configuration with a part named as what is asked for
printf 'memory: {recompute: full}\n' >"$tmp/full.yaml"
for what in --memory --plan --groups; do good info full.yaml $what; done
# a part of tp without a head, whose products have nothing to add up
good info --memory --num-attention-heads 1 --hidden-size 8 --num-layers 1 --precision bf16 --tp 2 --seq-length 32
# work of the kernels is that of a rank's threads, not of as many as this process has
good info --memory --dp "$(nproc)" --global-batch-size "$(nproc)"
cp "$tmp/stdout" "$tmp/chosen"
good info --memory --dp "$(nproc)" --global-batch-size "$(nproc)" --threads 1
diff "$tmp/chosen" "$tmp/stdout" >&2 || fail "a rank with one thread holds what more would"
finish
