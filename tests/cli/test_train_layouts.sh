#!/usr/bin/env bash
# labels: small noasan
# timeout: 300
# `weft train` on other layouts, in other precisions, with documents: the losses of one rank.
. "$(dirname "$0")/train_lib.sh"

# six steps amplify fp32 rounding a little; a lost label or a scaled loss is a thousand times larger
good train $common --name one
good train $common --name two --cp 2
one=$(losses one); two=$(losses two)
good train $common --name ring3 --cp 3 --cp-strategy ring --cp-layout contiguous
close "$one" "$(losses ring3)" 5e-5 "cp 1 and 3"
good train $common --name dp2 --dp 2 --cp 2 --cp-strategy pcp
close "$one" "$(losses dp2)" 5e-5 "dp 2 x cp 2"
good train $common --name micro --micro-batch-size 4
close "$one" "$(losses micro)" 5e-5 "accumulation and one micro-batch"
good train $common --name wait --cp 2 --no-async-cp-comm
[ "$two" = "$(losses wait)" ] || fail "waiting first changed bits"
good train $common --name f64a --precision fp64; good train $common --name f64b --precision fp64 --cp 3
close "$(losses f64a)" "$(losses f64b)" 1e-11 "fp64"
good train $common --name docs1 --separator $'0\n' --document-mask
good train $common --name docs2 --separator $'0\n' --document-mask --cp 2 --dp 2
close "$(losses docs1)" "$(losses docs2)" 5e-5 "documents"
good train $common --name b16 --cp 2 --precision bf16
close "$one" "$(losses b16)" 5e-2 "bf16"
good train $common --name f16 --cp 2 --precision fp16
close "$one" "$(losses f16)" 5e-2 "fp16"
finish
