#!/usr/bin/env bash
# labels: long
# timeout: 900
# What one layout saved, all kinds of others continue: the resume matrix, with dropout, in fp32 and in fp64.
. "$(dirname "$0")/resume_lib.sh"
good train $short --name full --dp 2 --cp 2 --save-interval 3
four=$(at full 4)
for layout in "" "--cp 4 --cp-strategy ring" "--dp 4" "--cp 3 --cp-layout striped --micro-batch-size 4" \
  "--tp 2" "--tp 3" "--pp 2" "--tp 2 --cp 2" "--tp 2 --sequence-parallel --dp 2" "--tp 2 --pp 2 --dp 2" \
  "--pp 2 --cp 2 --dp 2" "--cp 4 --cp-strategy ulysses" "--dp 2 --rank-order dp-tp-cp-pp --tp 2" \
  "--dp 2 --cp 2 --zero-stage 0" "--cp 5 --cp-strategy pairwise --micro-batch-size 2" \
  "--cp 4 --cp-strategy dcp --cp-layout balanced" "--cp 2 --pp 2 --recompute full --no-overlap-grad-reduce"; do
  matrix 1e-6 $layout
done
# 16-bit operands round at 2^-9 and 2^-12; dropout and samples are the same
matrix 2e-2 --precision bf16 --tp 2 --cp 2
matrix 5e-3 --precision fp16 --pp 2
# and back: saved in parts of layers and by stages
for layout in "--tp 2 --pp 2" "--tp 3" "--pp 2 --dp 2" "--tp 2 --sequence-parallel --cp 2"; do
  rm -rf "$tmp/runs/full"
  good train $short --name full $layout --save-interval 3
  four=$(at full 4)
  for back in "" "--cp 2 --dp 2" "--tp 4" "--pp 2 --tp 2"; do matrix 1e-6 $back; done
  fresh same
  good train $short --name same $layout --resume auto
  [ "$(losses same)" = "$(losses full)" ] || fail "$layout: the same layout gave other losses"
  same_tensors same/step-00000006 full/step-00000006 || fail "$layout: the same layout gave other weights or moments"
done

in_fp64_all_digits_agree() {
  local want
  good train ${short/--steps 6/--steps 4} --name wide --precision fp64 --save-interval 3 --dp 2 --cp 2
  want=$(at wide 4)
  for layout in "--cp 4" "--dp 4" "" "--tp 2 --pp 2" "--tp 3 --sequence-parallel"; do
    rm -rf "$tmp/runs/other"
    good train ${short/--steps 6/--steps 4} --name other --resume runs/wide/step-00000003 --precision fp64 $layout
    within "$(at other 1)" "$want" 1e-12 || fail "fp64, $layout: the next loss is $(at other 1), not $want"
  done
}
in_fp64_all_digits_agree

# fp64 may come back to fp32, and says that it rounds
good train ${short/--steps 6/--steps 5} --name wide --resume auto
warned "weights and moments are rounded from fp64 to fp32"
within "$(at wide 5)" "$(at full 5)" 1e-5 || fail "from fp64: $(at wide 5), not $(at full 5)"

finish
