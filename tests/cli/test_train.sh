#!/usr/bin/env bash
# labels: small
# timeout: 300
# `weft train` end to end: its folder, the same losses twice, after a kill; eval and reload. Other layouts:
# test_train_layouts.sh; ways to name a strategy: test_train_record.sh.
. "$(dirname "$0")/train_lib.sh"

good train $common --name one
good train $common --name two --cp 2
good train $common --name again --cp 2
one=$(losses one); two=$(losses two)
[ "$two" = "$(losses again)" ] || fail "the same run twice gave other bits"
# six steps amplify fp32 rounding a little; a lost label or a scaled loss is a thousand times larger
close "$one" "$two" 5e-5 "cp 1 and 2"

# what the run leaves behind
for f in config.yaml metrics.jsonl step-00000006/config.json step-00000006/model.safetensors; do
  [ -s "$tmp/runs/two/$f" ] || fail "runs/two/$f is missing"
done
# the plan beside the second step: bytes are exact, memory is what was planned but for tables
grep -A 3 '^plan  *beside step 2:' "$tmp/stdout" | grep -q 'exact on every rank' ||
  fail "no plan beside step 2"
python3 - "$tmp/runs/two/metrics.jsonl" <<'P' || fail "the plan in metrics.jsonl"
import json, sys
rows = [json.loads(line) for line in open(sys.argv[1])]
assert [r["step"] for r in rows if "plan" in r] == [2], rows
plan = rows[1]["plan"]
sent = {k: x for k, x in plan.items() if k.startswith("bytes_")}
assert plan["exact_bytes"] and all(x["planned"] == x["measured"] for x in sent.values()), plan
assert sent["bytes_cp"]["planned"] > 0 and sent["bytes_dp"]["planned"] > 0 and sent["bytes_tp"]["planned"] == 0, plan
held = plan["memory"]["measured"]
assert abs(held - plan["memory"]["planned"]) < 0.03 * held + (96 << 10), plan
P
good train runs/two/config.yaml --name from-config
[ "$two" = "$(losses from-config)" ] || fail "the resolved configuration gave another run"
g12_evaluation_is_the_same_on_any_ranks() {
  local a b c
  good eval runs/two/step-00000006 --data data.txt --seq-length 257; a=$(cut -d' ' -f2 "$tmp/stdout")
  good eval runs/two/step-00000006 --data data.txt --seq-length 257 --cp 3; b=$(cut -d' ' -f2 "$tmp/stdout")
  good eval runs/two/step-00000006 --data data.txt --seq-length 257 --dp 3; c=$(cut -d' ' -f2 "$tmp/stdout")
  within "$a" "$b" 2e-5 && within "$a" "$c" 2e-5 && within "$a" 3.5 2.5 ||
    fail "evaluation depends on the layout: $a $b $c"
}
g12_evaluation_is_the_same_on_any_ranks
good train ${common#"$model "} --name more --model runs/two/step-00000006 --steps 2 --warmup-steps 0
good train runs/more/config.yaml --name more-again
[ "$(losses more)" = "$(losses more-again)" ] ||
  fail "the resolved configuration of a run from a model gave another run"
good train $common --name compared --cp 2 --compare-one-rank 3
grep -q 'holds' "$tmp/stdout" || fail "no comparison with one rank"

# a comparison that fails is a result: exit 1, and no rank waits for another (at this rate training amplifies rounding)
( cd "$tmp" && timeout 60 "$WEFT" train $common --name apart --cp 2 --steps 40 --lr 0.3 --clip-grad 0 \
  --compare-one-rank 40 >stdout 2>stderr </dev/null ); code=$?
[ $code = 1 ] && grep -q 'DOES NOT HOLD' "$tmp/stdout" ||
  fail "a comparison that fails: exit $code, $(tail -n 1 "$tmp/stdout" "$tmp/stderr")"

short="$model --data data.txt --seq-length 64 --steps 1 --threads 1"
g36_more_threads_than_cores_are_said() {
  local threads=$(($(nproc) + 1))
  good train $short --name crowd --cp 2 --threads $threads
  grep -q "2 ranks x $threads threads" "$tmp/stderr" || fail "no warning of more threads than cores"
}
g36_more_threads_than_cores_are_said

# a closed standard output is not the next file that is opened; a full one is a failure
( cd "$tmp" && timeout 60 "$WEFT" train $common --name closed >&- 2>stderr ); code=$?
[ $code = 0 ] && [ "$one" = "$(losses closed)" ] ||
  fail "closed standard output: exit $code, $(head -n 2 "$tmp/runs/closed/metrics.jsonl")"
"$WEFT" info >/dev/full 2>"$tmp/stderr" </dev/null; code=$?
[ $code = 3 ] && grep -q 'standard output' "$tmp/stderr" ||
  fail "full standard output: exit $code, $(cat "$tmp/stderr")"

# a checkpoint that does not fit leaves nothing half-written
( cd "$tmp" && trap '' XFSZ && ulimit -f 8 &&
  timeout 60 "$WEFT" train $common --name full >stdout 2>stderr </dev/null ); code=$?
[ $code = 3 ] && [ "$(wc -l <"$tmp/stderr")" = 1 ] || fail "disk full: exit $code, $(cat "$tmp/stderr")"
[ -z "$(find "$tmp/runs/full" -name '*.tmp-*')" ] || fail "left $(find "$tmp/runs/full" -name '*.tmp-*')"

# a rank that is killed, fails or stands still ends the job, named, and leaves nobody behind
g17_a_failing_rank_ends_the_job() {
  ( cd "$tmp" && WEFT_FAULT=kill:rank=1:site=cp.ring:hit=9 timeout 60 "$WEFT" train $common --name killed-$$ --cp 3 \
    --cp-strategy ring >stdout 2>stderr ); code=$?
  [ $code = 3 ] || fail "a killed rank gave exit $code"
  grep -q 'rank 1 was killed' "$tmp/stderr" || fail "the killed rank is not named: $(cat "$tmp/stderr")"
  ( cd "$tmp" && WEFT_FAULT=fail:rank=2:site=cp.ring:hit=4 timeout 60 "$WEFT" train $common --name failed-$$ --cp 3 \
    --cp-strategy ring >stdout 2>stderr ); code=$?
  [ $code = 3 ] && grep -q 'rank 2' "$tmp/stderr" && grep -q 'injected' "$tmp/stderr" ||
    fail "a failing rank: exit $code, $(cat "$tmp/stderr")"
  ( cd "$tmp" && WEFT_FAULT=stop:rank=0:site=cp.ring:hit=4 timeout 60 "$WEFT" train $common --name stuck-$$ --cp 2 \
    --cp-strategy ring --timeout 1 >stdout 2>stderr ); code=$?
  [ $code = 3 ] && grep -q 'rank 0' "$tmp/stderr" || fail "a stuck rank: exit $code, $(cat "$tmp/stderr")"
  sleep 0.3
  if running "--name (killed|failed|stuck)-$$"; then fail "processes stay behind"; fi
}
g17_a_failing_rank_ends_the_job
finish
