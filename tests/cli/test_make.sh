#!/usr/bin/env bash
# labels: small
# timeout: 120
# `weft attention --make`: cases made by address, checked against double precision on some rows, and written whole.
. "$(dirname "$0")/lib.sh"
i=0
while read flags; do
  i=$((i + 1))
  eval "good attention $flags"
  grep -Eq 'all [56] comparisons hold' "$tmp/stdout" || fail "compared nothing: $flags"
done <<'END'
--make "T=1001 H=4/2 D=64 causal docs=100,0,* window=255 sinks" --spot 16 --cp 3
--make "T=257 H=3/1 D=20/7 softcap=3 alibi Tq=33 prefix=5 causal" --spot 7 --cp 2 --cp-strategy ring
--make "T=1 H=1 D=1" --spot 3 --cp 2
--make "T=200 Tq=90 H=4/2 D=8 causal docs=20,0,100,30,1,* B=2 window=25 alibi" --spot 180 \
  --cp 3 --precision fp64 --dropout 0.1
--make "T=200 Tq=90 H=4/2 D=8 docs=20,0,100,30,1,* sinks" --spot 64 --cp 4 --cp-strategy dcp-ring --cp-layout balanced
--make "T=333 H=4/2 D=16 causal docs=random:12 B=3" --spot 99 --cp 5 --cp-strategy pairwise \
  --cp-layout striped:4 --dropout 0.2
--make "T=333 H=2 D=80 window=9,30" --spot 333 --precision bf16 --cp 5
--make "T=100 H=6/2 D=8 docs=random:9 B=3" --spot 64 --cp 4 --precision fp64 --seed 7
--make "T=1000 H=4/2 D=64 causal window=0" --spot 64 --cp 2
--make "T=2 H=4/4 D=64 causal docs=1,1" --spot 64
--make "T=64 H=4 D=16 causal softcap=0.003 window=1" --spot 64 --cp 2
END
# The judge can fail. wrong NAMES ARGS...: exit 1, and exactly these tensors are above their limits.
wrong() {
  local want=$1 found code; shift
  "$WEFT" attention --make "T=200 H=4/2 D=8 causal docs=70,1,* sinks" "$@" >"$tmp/stdout" 2>"$tmp/stderr" </dev/null
  code=$?
  found=$(awk '$4 == "FAILED" { printf "%s%s", sep, $1; sep = " " }' "$tmp/stdout")
  [ $code = 1 ] && [ "$found" = "$want" ] || fail "$*: exit $code, '$found' fail, wanted '$want': $(cat "$tmp/stderr")"
  grep -q 'comparisons FAILED' "$tmp/stdout" || fail "$*: no verdict: $(tail -1 "$tmp/stdout")"
}
# coarser keys and values spoil everything, coarser sums what they are sums of
wrong 'o lse dq dk dv dsinks' --spot 64 --cp 4 --cp-strategy pcp --cp-comm-dtype bf16
wrong 'dk dv' --spot 64 --cp 4 --cp-strategy ring --cp-grad-dtype bf16
# One value of the running output, or of dQ in backward (four blocks, then four), is not a number: the judge sees its
# row and what follows from it. The row of rank 1 that it is in is token 25, which 200 spots must contain.
WEFT_FAULT=nan:rank=1:site=cp.ring:hit=2 wrong 'o dq dk dsinks' --spot 200 --cp 4 --cp-strategy ring
WEFT_FAULT=nan:rank=1:site=cp.pairwise:hit=6 wrong 'dq' --spot 200 --cp 4 --cp-strategy pairwise
WEFT_FAULT=nan:rank=3:site=cp.pcp:hit=1 wrong 'o dq dk dsinks' --spot 200 --cp 4 --cp-strategy dcp
# the whole case in a file: the fp64 results of one rank judge an fp32 run on three
good attention --make "T=129 H=4/2 D=16/24 B=2 causal docs=50,1,* window=40 sinks softcap=20" --precision fp64 \
  --out "$tmp/made.safetensors"
good attention "$tmp/made.safetensors" --cp 3 --cp-strategy ring
grep -q 'all 6 comparisons hold' "$tmp/stdout" || fail "the written case does not hold: $(cat "$tmp/stdout")"
refused 'not known' attention --make "T=10 H=2 D=4 cusal"
refused 'needs a case' attention
refused 'not both' attention "$WEFT_GOLDEN/attention/sinks.safetensors" --make "T=1 H=1 D=1"
refused 'made cases' attention "$WEFT_GOLDEN/attention/sinks.safetensors" --spot 4
refused 'add up' attention --make "T=10 H=2 D=4 docs=5,6"
refused 'both *; one takes all that is left' attention --make "T=10 H=2 D=4 docs=3,*,*"
refused 'a length is missing' attention --make "T=10 H=2 D=4 docs=3,,7"
refused 'lengths are missing' attention --make "T=10 H=2 D=4 docs"
refused 'too long for a length' attention --make "T=10 H=2 D=4 docs=0000000000000000000000003,7"
refused 'causal is given twice' attention --make "T=10 causal H=2 D=4 causal"
refused '"FP32" is not known; write T=1001' attention --make "FP32 T=10 H=2 D=4"
refused 'multiple' attention --make "T=10 H=3/2 D=4"
refused 'H=2147483648; at most 1048576' attention --make "T=8 H=2147483648 D=4"
refused 'takes no value' attention --make "T=10 H=2 D=4 causal=1"
refused 'T, H and D are needed' attention --make "H=2 D=4"
refused 'fit' attention --make "T=9000000000G H=2 D=4"
finish
