#!/usr/bin/env bash
# labels: small noasan
# `weft plan`: what it lists runs, fits and is what was given; JSON that parses and adds up; refusals with a way out.
. "$(dirname "$0")/lib.sh"
shape="--seq-length 4096 --hidden-size 256 --num-layers 4 --num-attention-heads 8 --num-query-groups 4 --precision bf16"
machine="--machine h100-ib --ranks 16 --global-batch-size 8 --mem 200M"

good plan $shape $machine
for part in '^machine  *h100-ib; nodes of 8 ranks; 200.00 MiB' '^\* ' '^the best: [0-9]* tokens/s' \
  '^  --tp [0-9]' '^  step ' '^  sum ' '^why' '^less memory for more time' '^one change of the best' \
  '^longest sequence that fits: [0-9]' \
  '^left out' '^rules of thumb' '^  recompute '; do
  grep -q "$part" "$tmp/stdout" || fail "nothing like '$part': $(cat "$tmp/stdout")"
done
[ "$(grep -c '^\* ' "$tmp/stdout")" = 1 ] || fail "not one layout is marked as the fastest"
sed -n '/^    tp /,/^$/p' "$tmp/stdout" | awk 'length > 80 { print; bad = 1 } END { exit bad }' ||
  fail "lines of the table with more than 80 columns"
on_terminal 80 plan $shape $machine
python3 - "$tmp/stdout" <<'P' || fail "lines pass the edge of a terminal"
import sys
assert all(len(line.rstrip("\r\n")) <= 80 for line in open(sys.argv[1], encoding="utf-8", newline="\n"))
P

# the options of the best one run, and weft info says the same memory (a machine without memory of its own for copies)
good plan $shape --ranks 4 --global-batch-size 4 --mem 200M --format jsonl
cp "$tmp/stdout" "$tmp/plan.jsonl"
options=$(python3 - "$tmp/plan.jsonl" <<'P'
import json, sys
best = next(x for x in map(json.loads, open(sys.argv[1])) if x["kind"] == "layout")
print(best["options"], best["memory"])
P
)
good info --memory --format jsonl $shape --global-batch-size 4 ${options% *}
python3 - "$tmp/stdout" "${options##* }" <<'P' || fail "weft info --memory has another sum: ${options##* }"
import json, sys
most = max(json.loads(line)["sum"] for line in open(sys.argv[1]))
assert abs(most - int(sys.argv[2])) <= 8192, (most, sys.argv[2])
P
seq 3000 >"$tmp/text"
good train --data text --steps 1 --eval-sequences 0 --valid-fraction 0.3 --name planned $shape --seq-length 512 \
  --global-batch-size 4 ${options% *}

python3 - "$tmp/plan.jsonl" <<'P' || fail "the lines of jsonl are not as they should be: $(head -3 "$tmp/plan.jsonl")"
import json, sys
lines = [json.loads(line) for line in open(sys.argv[1])]
kinds = [x["kind"] for x in lines]
assert kinds[0] == "plan" and {"layout", "front", "refused", "rule", "longest", "reason"} <= set(kinds), kinds
assert lines[0]["ranks"] == 4 and lines[0]["tokens"] == 4096 and lines[0]["machine"] == "plain"
found = [x for x in lines if x["kind"] == "layout"]
for x in found:
    assert x["tp"] * x["cp"] * x["dp"] * x["pp"] == 4
    assert x["memory"] <= 200 << 20
    for whole, sum_of in ("step", "seconds"), ("memory", "held"):
        parts = [v for k, v in x[sum_of].items() if k != "all"]
        assert abs(sum(parts) - x[whole]) < 1e-6 * x[whole], (x[whole], parts)
assert [x["step"] for x in found] == sorted(x["step"] for x in found)
assert {x["verdict"] for x in lines if x["kind"] == "rule"} <= {"agrees", "differs", "silent"}
assert sum(x["kind"] == "rule" for x in lines) >= 10
P

# what is given stands, whether on the line or in a file; --free gives it back
printf 'parallel: {tp: 2, cp: 4, cp_strategy: dcp-ring, cp_head_size: 2}\nmemory: {recompute: full}\n' \
  >"$tmp/fixed.yaml"
good plan fixed.yaml $shape --format jsonl --no-simulate
python3 -c 'import json, sys
x = [x for x in map(json.loads, open(sys.argv[1])) if x["kind"] == "layout"]
assert len(x) == 1, x
x = x[0]
assert (x["tp"], x["cp"], x["dp"], x["pp"]) == (2, 4, 1, 1) and x["strategy"] == "dcp-ring" and x["head_ranks"] == 2
assert x["recompute"] == "full" and not x["simulated"]' "$tmp/stdout" || fail "what was given does not stand"
good plan fixed.yaml $shape --free tp,cp,strategy --ranks 8 --format jsonl --no-simulate
[ "$(grep -c '"kind": "layout"' "$tmp/stdout")" -gt 1 ] || fail "--free frees nothing"
# the printed options say all that a configuration may have said otherwise
printf 'parallel: {tp: 2, cp: 2, pp: 2, cp_layout: contiguous, sequence_parallel: true, rank_order: pp-tp-cp-dp}
memory: {recompute: full, keep_attention: true}\noptim: {zero_stage: 0}\ntrain: {global_batch_size: 8}\n' \
  >"$tmp/all.yaml"
good plan all.yaml $shape --free all --format jsonl
python3 -c 'import json, sys
for x in map(json.loads, open(sys.argv[1])):
    if x["kind"] == "layout": print(x["memory"], x["options"])' "$tmp/stdout" >"$tmp/options"
while read -r memory options; do
  good info --memory all.yaml $shape $options --format jsonl
  python3 -c 'import json, sys
most = max(json.loads(line)["sum"] for line in open(sys.argv[1]))
assert abs(most - int(sys.argv[2])) <= 0.01 * most, (most, sys.argv[2])' "$tmp/stdout" "$memory" ||
    fail "$options beside a configuration are another layout"
done <"$tmp/options"
# where nothing divides, the copies of checkpoints are those of the rank that holds most, not of any
odd="--seq-length 512 --num-layers 3 --num-attention-heads 4 --hidden-size 96 --num-query-groups 2 --vocab-size 300"
for cut in "--tp 2 --cp 2 --pp 2" "--cp 3 --cp-strategy ulysses"; do
  good plan $odd --global-batch-size 4 $cut --best 1 --no-simulate --format jsonl
  read -r memory options < <(python3 -c 'import json, sys
x = next(x for x in map(json.loads, open(sys.argv[1])) if x["kind"] == "layout")
print(x["memory"], x["options"])' "$tmp/stdout")
  good info --memory $odd --global-batch-size 4 $options --format jsonl
  python3 -c 'import json, sys
most = max(json.loads(line)["sum"] for line in open(sys.argv[1]))
assert most == int(sys.argv[2]), (most, sys.argv[2])' "$tmp/stdout" "$memory" || fail "$cut: plan and info disagree"
done
good plan $shape --tp 2 --cp 2 --format jsonl
grep -q '"ranks": 4,' "$tmp/stdout" || fail "ranks are not those that are given"

# head groups of a given size stand, too; where tp does not divide the heads, its part with fewest can deal them out
good plan $shape --cp 4 --cp-head-size 2 --format jsonl
python3 -c 'import json, sys
x = [x for x in map(json.loads, open(sys.argv[1])) if x["kind"] in ("layout", "front")]
assert x and all(y["head_ranks"] == 2 for y in x), x' "$tmp/stdout" || fail "--cp-head-size does not stand"
uneven="--seq-length 512 --num-layers 1 --num-attention-heads 4 --num-query-groups 1 --precision fp16"
good plan $uneven --tp 3 --cp 4 --machine cpu-avx512 --format jsonl
python3 -c 'import json, sys
for x in map(json.loads, open(sys.argv[1])):
    if x["kind"] in ("layout", "front"): print(x["options"])' "$tmp/stdout" | sort -u >"$tmp/options"
while read -r options; do good info --memory $uneven $options; done <"$tmp/options"

# the pieces of a machine's file act whichever way it is named, unless a size is asked for
sed 's/"buffer_bytes": 0/"buffer_bytes": 65536/' "$WEFT_SRC/src/mesh/profiles/laptop.json" >"$tmp/pieces.json"
held() {
  good plan $shape --ranks 4 --cp 4 --cp-strategy ring --best 1 --no-simulate --format jsonl "$@"
  held=$(grep -o '"held": {[^}]*}' "$tmp/stdout" | head -1)
}
held --machine laptop && blocks=$held
held --machine "$tmp/pieces.json" && pieces=$held
[ -n "$blocks" ] && [ "$pieces" != "$blocks" ] || fail "the pieces of --machine FILE do not act: $held"
held --profile "$tmp/pieces.json"
[ "$held" = "$pieces" ] || fail "--profile FILE plans '$held', --machine FILE '$pieces'"
held --machine "$tmp/pieces.json" --cp-aggregation-buffer-size 0
[ "$held" = "$blocks" ] || fail "whole blocks that are asked for: '$held', not '$blocks'"
# other machines, other models, one rank, an odd number of them
for more in "--machine h200-ib --ranks 7" "--machine a100-eth --ranks 24 --family gpt2 --num-query-groups 8" \
  "--ranks 1" \
  "--ranks 12 --sliding-window 512 --family mistral" "--machine b200-ib --ranks 8 --micro-batch-size 2 --dp 2" \
  "--ranks 6 --cp-layout balanced --recompute full --recompute-keep-attention"; do
  good plan $shape $more
done
good plan --machine h100-ib --sources
grep -q '^product_flops_per_second ' "$tmp/stdout" || fail "no source of a rate: $(head -3 "$tmp/stdout")"

# few tokens on many ranks: slow, and all the same the best there is
good plan --ranks 7 --seq-length 7
grep -qE '^  --tp (1 --cp 7|7) ' "$tmp/stdout" || fail "7 tokens on 7 ranks: $(grep -- --tp "$tmp/stdout")"
# of a model with a table of positions, which ends before memory does
good plan $shape --family gpt2 --num-query-groups 8 --ranks 2 --mem 8G --no-simulate
grep -q '^longest sequence that fits: 4096 tokens .*; the model.s table of positions has no more$' "$tmp/stdout" ||
  fail "a table of positions reads like a limit of memory: $(grep longest "$tmp/stdout")"
# the longest sequence is one for which a layout is found, however slow its way
long="--num-attention-heads 2 --hidden-size 32 --num-layers 1 --precision bf16 --ranks 4 --mem 100M --no-simulate"
good plan $long --seq-length 2000 --format jsonl
longest=$(sed -n 's/.*"longest", "tokens": \([0-9]*\).*/\1/p' "$tmp/stdout")
good plan $long --seq-length "$longest"
refused 'no layout of 4 ranks fits' plan $long --seq-length $((longest + 1024))

refused 'no layout of 2 ranks fits into 1.00 MiB' plan $shape --ranks 2 --mem 1M
refused 'give more --ranks or --mem' plan $shape --ranks 2 --mem 1M
refused '8 ranks cannot be cut into tp 3' plan $shape --ranks 8 --tp 3
refused 'cannot be cut into tp 2 x cp 2 x dp 1 x pp 1' plan $shape --ranks 8 --tp 2 --cp 2 \
  --dp 1 --pp 1 --free strategy
refused 'did you mean "cp"' plan $shape --free cq
refused 'did you mean "megatron"' plan $shape --target megatrn
refused 'give one of them' plan $shape --machine h100-ib --profile h100-ib
refused 'neither a profile' plan $shape --machine h101-ib
refused 'text, and jsonl' plan $shape --format csv
refused '--offload host' plan $shape --offload file
refused 'name one with --machine' plan $shape --sources
refused 'host_bytes_per_second' plan $shape --offload host
refused '--best: 0 is outside' plan $shape --best 0
refused '--ranks' plan $shape --ranks -1
refused 'No such file' plan missing.yaml
finish
