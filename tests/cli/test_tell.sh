#!/usr/bin/env bash
# labels: small noasan
# timeout: 300
# What `weft train` tells beside its lines: time lines of steps, TensorBoard's files; and that rank 0 speaks for all.
. "$(dirname "$0")/train_lib.sh"
common="$model --data data.txt --seq-length 65 --steps 6 --global-batch-size 2 --threads 1"
check_line() { "$WEFT_BUILD/tests/test_metrics.chrome" "$1" >"$tmp/line" 2>&1 || fail "$1: $(cat "$tmp/line")"; }
has() { grep -q "\"cat\":\"$1\",\"name\":\"$2" "$3" || fail "$3 has no $2 on row $1"; }

# ---- time lines: of these steps and ranks, by Perfetto's rules; the run stays as it was
good train $common --cp 2 --dp 2 --name plain --tensorboard off
good train $common --cp 2 --dp 2 --name traced --trace-steps 2,4-5 --trace-ranks 0,2-3 --save-interval 4 \
  --eval-interval 4 --eval-sequences 2 --tensorboard on
[ "$(losses plain)" = "$(losses traced)" ] || fail "a time line changes the run"
for step in 1 2 3 4 5 6; do
  line="$tmp/runs/traced/trace-step-0000000$step.json"
  case $step in
    2|4|5) check_line "$line" ;;
    *) [ ! -e "$line" ] || fail "step $step was not asked for" ;;
  esac
done
line="$tmp/runs/traced/trace-step-00000002.json"
[ "$(grep -c '"process_name"' "$line")" = 3 ] || fail "not three ranks"
grep -q '"events that did not fit":0,"ends of messages without an arrow":0' "$line" ||
  fail "something is missing: $(head -1 "$line")"
for name in 'layer forward' 'layer backward' 'head and loss' cp.forward.block cp.backward.block; do
  has compute "$name" "$line"
done
for name in 'sum gradients' 'gradient norm' update; do has optimizer "$name" "$line"; done
has data 'read sequences' "$line"
has waits cp. "$line"
has 'communication in' 'cp[^"]* from [02-3]' "$line"
has 'communication out' 'cp[^"]* to [02-3]' "$line"
has checkpoint 'begin checkpoint' "$tmp/runs/traced/trace-step-00000004.json"
has compute evaluate "$tmp/runs/traced/trace-step-00000004.json"
grep -q 'time line in runs/traced/trace-step-00000004.json' "$tmp/stdout" || fail "the file is not named"

refused 'the run has steps 1 to 6' train $common --data "$tmp/data.txt" --trace-steps 7
refused 'the run has steps 1 to 6' train $common --data "$tmp/data.txt" --trace-steps 0
refused '--trace-steps 2-x' train $common --data "$tmp/data.txt" --trace-steps 2-x
refused 'there are ranks 0 to 1' train $common --data "$tmp/data.txt" --cp 2 --trace-steps 2 --trace-ranks 2
refused 'could not act without --trace-steps' train $common --data "$tmp/data.txt" --trace-ranks 0

# ---- TensorBoard: whole records with the numbers of metrics.jsonl; a run that goes on has a file of its own
board() { "$WEFT_BUILD/tests/test_metrics.tensorboard" "$tmp/runs/$1/tb/rank-0000$2"/*; }
[ ! -e "$tmp/runs/plain/tb" ] || fail "off writes for TensorBoard"
for rank in 0 1 2 3; do
  [ "$(board traced $rank | grep -c '^[0-9]* rank/exposed_share')" = 6 ] || fail "rank $rank: not six steps"
done
[ "$(board traced 1 | grep -c train/)" = 0 ] || fail "rank 1 tells of the job"
[ "$(board traced 0 | grep -c eval/loss)" = 2 ] || fail "not two evaluations"
paste -d' ' <(board traced 0 | sed -n 's/^[0-9]* train\/loss //p') <(losses traced) |
  awk '{ d = $1 - $2; n++; if (d > 1e-6 * $2 || d < -1e-6 * $2) bad = 1 } END { exit bad || n != 6 }' ||
  fail "TensorBoard's losses differ"
good train $common --cp 2 --steps 3 --name on --profile h100-ib
[ "$(board on 0 | grep -c 'train/mfu')" = 3 ] || fail "no utilisation with a profile"
[ "$(board traced 0 | grep -c 'train/mfu')" = 0 ] || fail "a utilisation without a profile"
good train $common --cp 2 --steps 6 --name on --resume auto
[ "$(ls "$tmp/runs/on/tb")" = rank-00000 ] || fail "auto is not rank 0 alone: $(ls "$tmp/runs/on/tb")"
[ "$(ls "$tmp/runs/on/tb/rank-00000" | wc -l)" = 2 ] || fail "not a file for each part of the run"
board on 0 | grep -q '^4 START' || fail "the second file does not begin at step 4"
good train $common --cp 2 --name on --overwrite --trace-steps 1
[ "$(ls "$tmp/runs/on/tb/rank-00000" | wc -l)" = 1 ] || fail "--overwrite leaves old numbers"
good train $common --cp 2 --name on --overwrite
[ ! -e "$tmp/runs/on/trace-step-00000001.json" ] || fail "--overwrite leaves an old time line"

# ---- rank 0 speaks for all; another rank only when something is wrong, and then by its number
quiet() { [ ! -s "$tmp/stderr" ] || fail "$1: on stderr: $(cat "$tmp/stderr")"; }
once() { [ "$(grep -cE -- "$2" "$tmp/stdout")" = "$3" ] || fail "$1: '$2' not $3 times: $(cat "$tmp/stdout")"; }
good train $common --cp 2 --dp 2 --name four
quiet train
once train '^ranks  ' 1
once train '^last loss' 1
once train '^step     6/6' 1
good eval runs/four/step-00000006 --data data.txt --seq-length 65 --cp 2 --dp 2 --eval-sequences 2 --threads 1
quiet eval
once eval '^loss ' 1
once eval . 1
good verify "$WEFT_GOLDEN/models/llama" "$WEFT_GOLDEN/models/llama/case.safetensors" --cp 4 --threads 1
quiet verify
once verify token_nll 1
export WEFT_FAULT=nan:rank=2:site=guard.gradient:hit=1
good train $common --cp 2 --dp 2 --name nan --guard skip
unset WEFT_FAULT
[ "$(wc -l <"$tmp/stderr")" = 1 ] && grep -q 'rank 2' "$tmp/stderr" ||
  fail "not one line that names rank 2: $(cat "$tmp/stderr")"
finish
