#!/usr/bin/env bash
# labels: small noasan
# Precision fp16, numerics guard and loss spikes as a user meets them: words, exit codes, records.
. "$(dirname "$0")/train_lib.sh"
key() { python3 - "$tmp/runs/$1/metrics.jsonl" "$2" <<'P'
import json, sys
print(*[json.loads(line).get(sys.argv[2]) for line in open(sys.argv[1])])
P
}
shows() { cat "$tmp/stdout" "$tmp/stderr" | grep -qF -- "$1" ||
  fail "lacks '$1': $(tail -n 3 "$tmp/stdout" "$tmp/stderr")"; }

small="--hidden-size 8 --num-layers 2 --num-attention-heads 2 --data data.txt --seq-length 33 --steps 4 --threads 1"
small="$small --micro-batch-size 4 --eval-sequences 0 --cp 2" # v is looked at twice a step

export WEFT_FAULT=large:rank=1:site=guard.v:hit=3:row=3:column=2
what="numerics guard: rank 1, step 2: v of layer 0 is 100000, beyond the limit 10000 at position "
good train $small --name warn; shows "weft: warning: $what"
[ "$(key warn skipped)" = "False False False False" ] || fail "--guard warn left steps out"
[ "$(key warn guard_ranks)" = "0 1 0 0" ] || fail "guard_ranks: $(key warn guard_ranks)"
good train $small --name skip --guard skip; shows "$what"; shows "skipped: guard"; shows "1 left out"
[ "$(key skip skip_reason)" = "None guard None None" ] || fail "--guard skip: $(key skip skip_reason)"
( cd "$tmp" && "$WEFT" train $small --name stop --guard stop >stdout 2>stderr ); code=$?
[ $code = 3 ] || fail "--guard stop: exit $code"
shows "$what"
export WEFT_FAULT=inf:rank=0:site=guard.gradient:hit=2:row=1:column=7
good train $small --name scaled --precision fp16; shows "skipped: overflow"; shows "scale 32768"; shows "1 left out"
[ "$(key scaled loss_scale)" = "65536.0 65536.0 32768.0 32768.0" ] || fail "scale: $(key scaled loss_scale)"
unset WEFT_FAULT
refused 'no power of two' train --data x --loss-scale 1000
refused 'could not act' train --data x --guard off --guard-limit 1e3
good bench step $model --seq-length 33 --repeats 1; shows "guard  "
finish
