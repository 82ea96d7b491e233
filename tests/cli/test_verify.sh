#!/usr/bin/env bash
# labels: small
# timeout: 120
# `weft verify` on cases without expected values: against one rank, also where gradients vanish or labels are few.
. "$(dirname "$0")/lib.sh"
# write NAME B T LABELS: tokens and targets; LABELS is a Python expression of b and t that keeps a label.
write() { python3 - "$tmp/$1" "$2" "$3" "$4" <<'P'
import json, struct, sys
path, B, T, keep = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
tokens = [(7 * b + 3 * t + 1) % 100 for b in range(B) for t in range(T)]
targets = [(5 * b + 11 * t + 2) % 100 if eval(keep) else -100 for b in range(B) for t in range(T)]
head = {n: {"dtype": "I32", "shape": [B, T], "data_offsets": [i * 4 * B * T, (i + 1) * 4 * B * T]}
        for i, n in enumerate(("targets", "tokens"))}
text = json.dumps(head).encode()
text += b' ' * (-len(text) % 8)
open(path, 'wb').write(struct.pack('<Q', len(text)) + text + struct.pack('<%di' % (2 * B * T), *targets, *tokens))
P
}
# one token per sequence: it sees itself only, and the gradients of q and k are zero but for rounding
write one 3 1 True
write few 3 33 't == 32 and b == 2'
write none 2 7 False
# every model on two of the layouts, every layout with both cases
layouts=("--cp 3" "--cp 2 --dp 2 --cp-strategy ring" "--dp 3 --isa avx2")
i=0
for model in llama qwen2 qwen3 mistral gpt2; do
  good verify "$WEFT_GOLDEN/models/$model" one ${layouts[i % 3]}
  grep -q 'comparisons hold' "$tmp/stdout" || fail "verify $model ${layouts[i % 3]} compared nothing"
  i=$((i + 1))
  good verify "$WEFT_GOLDEN/models/$model" few ${layouts[i % 3]}
done
refused 'no target is valid' verify "$WEFT_GOLDEN/models/llama" "$tmp/none"
# --timeout holds here as elsewhere: a rank that stands still is named within it
begin=$SECONDS
llama=$WEFT_GOLDEN/models/llama
WEFT_FAULT=stop:rank=1:site=cp.ring:hit=2 timeout 60 "$WEFT" verify "$llama" "$llama/case.safetensors" --cp 2 \
  --cp-strategy ring --timeout 2 >"$tmp/stdout" 2>"$tmp/stderr"; code=$?
[ $code = 3 ] && grep -q 'rank 1' "$tmp/stderr" && [ $((SECONDS - begin)) -lt 30 ] ||
  fail "a stuck rank in verify: exit $code after $((SECONDS - begin)) s, $(cat "$tmp/stderr")"
finish
