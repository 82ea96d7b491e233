#!/usr/bin/env bash
# labels: small
# timeout: 60
# weft checkpoint: what a checkpoint is, whether it is whole, its model in other files; words that mean nothing.
. "$(dirname "$0")/train_lib.sh"
good train $model --data data.txt --seq-length 64 --steps 2 --threads 1 --eval-sequences 0 --name one --dp 2
good checkpoint inspect runs/one/latest
for part in "step 2, 4 files" "tp 1 x cp 1 x dp 2 x pp 1" "next sequence 4, 256 tokens" "exp_avg_sq.model.norm.weight" \
  "config.json"; do
  grep -qF "$part" "$tmp/stdout" || fail "inspect lacks '$part': $(head -5 "$tmp/stdout")"
done
good checkpoint verify runs/one/step-00000002
good checkpoint reshard runs/one/latest shards --save-shard-size 40K
[ "$(ls "$tmp/shards"/model-*.safetensors | wc -l)" -gt 2 ] && [ -s "$tmp/shards/model.safetensors.index.json" ] ||
  fail "reshard: $(ls "$tmp/shards")"
good checkpoint verify shards
loss() { good eval "$1" --data data.txt --seq-length 64 --eval-sequences 3; cut -d' ' -f2 "$tmp/stdout"; }
[ "$(loss shards)" = "$(loss runs/one/latest)" ] || fail "the same model in other files has another loss"
good checkpoint reshard shards half --save-dtype bf16
good checkpoint inspect half
grep -q 'norm.weight .*bf16' "$tmp/stdout" && grep -q 'a model without a run' "$tmp/stdout" ||
  fail "bf16: $(head -8 "$tmp/stdout")"
refused "holds a model without the state of an optimizer" train $model --data "$tmp/data.txt" --seq-length 64 \
  --resume "$tmp/half" --steps 3 --threads 1
refused "exists already" checkpoint reshard "$tmp/runs/one/latest" "$tmp/half"
refused "use inspect, verify or reshard" checkpoint look "$tmp/half"
refused "takes two folders" checkpoint reshard "$tmp/half"
refused "takes one folder" checkpoint verify "$tmp/half" "$tmp/shards"
refused "needs a file or folder" checkpoint verify
refused "does nothing for weft checkpoint verify" checkpoint verify "$tmp/half" --save-dtype bf16
refused "no complete checkpoint" checkpoint inspect "$tmp"
for verb in inspect verify; do
  refused "cannot look into $tmp/nowhere: No such file" checkpoint $verb "$tmp/nowhere"
  refused "is no folder" checkpoint $verb "$tmp/data.txt"
done
finish
