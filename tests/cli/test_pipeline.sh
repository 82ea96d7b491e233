#!/usr/bin/env bash
# labels: small noasan
# timeout: 120
# `weft train`, `eval` and `verify` with stages of a pipeline: the plan of every stage, one rank's losses, refusals.
. "$(dirname "$0")/train_lib.sh"
m="--hidden-size 12 --num-layers 5 --num-attention-heads 3 --ffn-hidden-size 20"
m="$m --data data.txt --seq-length 33 --threads 1"

good train $m --name pipe --steps 3 --global-batch-size 6 --pp 3 --precision fp64 --compare-one-rank 3
for line in 'tp 1 x cp 1 x dp 1 x pp 3' '^attention    stage 0 of 3, layers 0-0: ' \
            '^             stage 1 of 3, layers 1-2: ' 'stage 2 of 3, layers 3-4: ' 'one rank .* holds'; do
  grep -q "$line" "$tmp/stdout" || fail "no line '$line': $(cat "$tmp/stdout")"
done
held=$(sed -n 's/.*held-out loss //p' "$tmp/stdout" | tail -1)
for pp in 1 2 5; do
  good eval "$tmp/runs/pipe/step-00000003" --data data.txt --seq-length 33 --threads 1 --pp $pp --precision fp64
  grep -q "$held" "$tmp/stdout" || fail "eval with $pp stages does not find $held: $(cat "$tmp/stdout")"
done

gpt2=$WEFT_GOLDEN/models/gpt2
good verify "$gpt2" "$gpt2/case.safetensors" --pp 2 --micro-batch-size 1 --threads 1
grep -q 'all .* comparisons hold' "$tmp/stdout" || fail "verify: $(tail -1 "$tmp/stdout")"

refused 'at most --pp 5' train ${m/data.txt/$tmp/data.txt} --name deep --pp 6
refused 'run.sample_tokens with --pp 2' train ${m/data.txt/$tmp/data.txt} --name talk --pp 2 --sample-tokens 10
finish
