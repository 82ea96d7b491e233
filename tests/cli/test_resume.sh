#!/usr/bin/env bash
# labels: small
# timeout: 300
# A run goes on from its checkpoints: the same bits under the same layout, the same losses and samples under others, and
# refusals of what would be another run. Dropout is on.
. "$(dirname "$0")/resume_lib.sh"
good train $short --name full --dp 2 --cp 2 --save-interval 3
four=$(at full 4)

# the same layout: the same bits
fresh same
good train $short --name same --dp 2 --cp 2 --resume auto
[ "$(losses same)" = "$(losses full)" ] || fail "the same layout gave other losses: $(losses same)"
same_tensors same/step-00000006 full/step-00000006 || fail "the same layout gave other weights or moments"
[ "$(readlink "$tmp/runs/same/latest")" = step-00000006 ] || fail "latest is $(readlink "$tmp/runs/same/latest")"

# other layouts: the same samples, and losses within rounding; from a path into another run (more: test_resume_long.sh)
g22_another_layout_goes_on() {
  matrix 1e-6 --cp 3 --cp-strategy ring --cp-layout striped
  matrix 1e-6 --precision fp64
  warned 'run.precision is "fp64", was "fp32"'
}
g22_another_layout_goes_on
# accumulation 4, micro-batch 1, dp 2: after step 3 comes sequence 24
g23_data_goes_on_by_sequences() {
  good train ${short/--global-batch-size 4/--global-batch-size 8} --name eight --dp 2 --save-interval 3 --steps 3
  [ "$(next eight 3)" = 24 ] || fail "after 3 steps of 8 the next sequence is $(next eight 3)"
  good train $short --name eight --dp 2 --resume auto --steps 4 # a batch of 4 from now on
  [ "$(next eight 4)" = 28 ] || fail "4 more: the next sequence is $(next eight 4)"
  warned "train.global_batch_size is 4, was 8"
}
g23_data_goes_on_by_sequences

# narrower files of the model: masters beside them
good train $short --name narrow --save-dtype bf16 --save-interval 3 --steps 3 --dp 2 --cp 2
good train $short --name narrow --dp 2 --cp 2 --resume auto --steps 4
[ "$(at narrow 4)" = "$four" ] || fail "from bf16 files with masters: $(at narrow 4), not $four"

# what would be another run is refused, and nothing is changed
fresh kept
before=$(cd "$tmp/runs/kept" && find . -type f -exec cksum {} + | sort)
kept="train $short --runs $tmp/runs --name kept --resume auto --data"
sed 's/line 7 /line 8 /' "$tmp/data.txt" >"$tmp/other.txt"
refused "was trained on other data" $kept "$tmp/other.txt"
refused "run.seed is 2, was 1" $kept "$tmp/data.txt" --seed 2
refused "train.seq_length is 32, was 64" $kept "$tmp/data.txt" --seq-length 32
refused 'it has "intermediate_size": 96, this run "intermediate_size": 80' $kept "$tmp/data.txt" --ffn-hidden-size 80
refused "exists already" train $short --runs "$tmp/runs" --name kept --data "$tmp/data.txt"
refused "needs --name" train $short --data "$tmp/data.txt" --resume auto
refused "leave one out" $kept "$tmp/data.txt" --overwrite
refused "there is no checkpoint in it" train $short --data "$tmp/data.txt" --resume "$tmp/runs"
refused "--compare-one-rank runs the first steps again" $kept "$tmp/data.txt" --compare-one-rank 2
after=$(cd "$tmp/runs/kept" && find . -type f -exec cksum {} + | sort)
[ "$before" = "$after" ] || fail "a refusal changed the folder"

# done already; no checkpoint yet
good train $short --name full --dp 2 --cp 2 --resume auto
grep -q "nothing to do" "$tmp/stdout" || fail "a run that is done: $(cat "$tmp/stdout")"
good train $short --name new --resume auto --steps 1
finish
