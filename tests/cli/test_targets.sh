#!/usr/bin/env bash
# labels: small noasan
# `weft plan --target`: what is printed for another system keeps that system's rules, worked out here again from its own
# words; what it would refuse is refused by its rule, with a way out.
. "$(dirname "$0")/lib.sh"
model="--hidden-size 4096 --ffn-hidden-size 14336 --num-layers 32 --num-attention-heads 32 --num-query-groups 8"
run="--machine h100-ib --ranks 16 --global-batch-size 16 --precision bf16 --no-simulate --best 3"

# words TARGET ARGS...: the options of the best layout, each line as the system reads it, in $tmp/words
words() {
  good plan $model $run --target "$@"
  sed -n '/^the best/,/^$/p' "$tmp/stdout" | sed '1d;s/^  //' >"$tmp/words"
}
# flag NAME: the value behind it
flag() { tr ' ' '\n' <"$tmp/words" | grep -A1 -x -- "$1" | tail -1; }
key() { sed -n "s/^$1 = //p" "$tmp/words" | tr -d '"'; }
holds() { [ $(($1)) -ne 0 ] || fail "$2: not $1: $(cat "$tmp/words")"; }

for args in "--seq-length 128K" "--seq-length 64K --cp 8 --cp-strategy ulysses" \
  "--seq-length 96K --tp 4 --sequence-parallel" \
  "--seq-length 256K --cp 16 --cp-strategy dcp-ring" "--seq-length 8K --family mistral --sliding-window 1024"; do
  words megatron $args
  T=$(flag --seq-length) tp=$(flag --tensor-model-parallel-size) cp=$(flag --context-parallel-size)
  pp=$(flag --pipeline-model-parallel-size) type=$(flag --cp-comm-type)
  cp=${cp:-1}
  holds "16 % ($tp * $cp * $pp) == 0" "megatron $args"
  holds "$cp == 1 || $T % (2 * $cp) == 0" "megatron $args"
  holds "32 % $tp == 0 && 8 % $tp == 0 && 32 % $pp == 0" "megatron $args"
  holds "16 % ((16 / ($tp * $cp * $pp)) * $(flag --micro-batch-size)) == 0" "megatron $args"
  [ "$type" != a2a ] || holds "8 / $tp % $cp == 0" "megatron $args"
  levels=$(sed -n 's/.*--hierarchical-context-parallel-sizes \([0-9]*\) \([0-9]*\).*/\1*\2/p' "$tmp/words")
  [ "$type" != a2a+p2p ] || holds "$levels == $cp && 8 / $tp % ${levels%\**} == 0" "megatron $args"
  ! grep -q -- --window-size "$tmp/words" || [ "$type" = all_gather ] || [ "$type" = a2a ] || [ "$cp" = 1 ] ||
    fail "megatron $args: a window with $type"
  ! grep -q -- --sequence-parallel "$tmp/words" || holds "$T / $cp % $tp == 0" "megatron $args"
done

for args in "--seq-length 128K" "--seq-length 64K --cp 4" "--seq-length 32K --tp 4" \
  "--seq-length 96K --cp 8 --cp-layout contiguous" \
  "--seq-length 8K --family mistral --sliding-window 1024 --cp 2"; do
  words torchtitan $args
  T=$(key seq_len) tp=$(key tensor_parallel_degree) cp=$(key context_parallel_degree)
  holds "$T % ($tp * $cp * 2) == 0 && 8 % $tp == 0" "torchtitan $args"
  holds "$tp * $cp * $(key pipeline_parallel_degree) * $(key data_parallel_replicate_degree) * \
    $(key data_parallel_shard_degree) == 16" "torchtitan $args"
done
grep -q allgather "$tmp/words" || fail "torchtitan: a window that is not gathered: $(cat "$tmp/words")"
python3 -c 'import tomllib' 2>/dev/null && { python3 - "$tmp/words" <<'P' || fail "no TOML: $(cat "$tmp/words")"; }
import sys, tomllib
tomllib.load(open(sys.argv[1], "rb"))["parallelism"]["context_parallel_degree"]
P

for args in "--seq-length 128K" "--seq-length 64K --cp 4" "--seq-length 32K --cp 16" "--seq-length 8K --cp 1" \
  "--seq-length 96K --cp 8 --recompute full"; do
  words deepspeed $args
  python3 - "$tmp/words" <<'P' || fail "deepspeed $args: $(cat "$tmp/words")"
import json, sys
config, rest = open(sys.argv[1]).read().split("# in Python")
config = json.loads(config)
sp = config.get("sequence_parallel_size", 1)
assert 32 % sp == 0 and (8 % sp == 0 or sp % 8 == 0), sp
assert config["train_micro_batch_size_per_gpu"] * config["gradient_accumulation_steps"] * (16 // sp) == 16
assert sp == 1 or "sequence_parallel_size=%d" % sp in rest
P
done

plan="plan $model $run"
refused "T 131073, 2 cp 16; T 131072 or 131088 works [Megatron-LM training/arguments.py:1335-1338]" \
  $plan --target megatron --cp 8 --seq-length 131073
refused "a2a the key/value heads" $plan --target megatron --cp 16 --cp-strategy ulysses --seq-length 128K
refused "p2p and a2a+p2p have no sliding window" \
  $plan --target megatron --family mistral --sliding-window 1024 --cp 8 --cp-strategy ring --seq-length 128K
refused "--precision bf16 works" $plan --target megatron --cp 2 --seq-length 128K --precision fp32
refused "there is no dropout of attention" $plan --target torchtitan --attention-dropout 0.1 --seq-length 128K
refused "pcp works, with FlexAttention" \
  $plan --target torchtitan --family mistral --sliding-window 1024 --cp 8 --cp-strategy ring --seq-length 128K
refused "tp 1 works" $plan --target deepspeed --tp 2 --seq-length 128K
refused "ulysses works" $plan --target deepspeed --cp 4 --cp-strategy ring --seq-length 128K
refused 'did you mean "megatron"' $plan --target megatrn --seq-length 128K

[ $failures = 0 ]
