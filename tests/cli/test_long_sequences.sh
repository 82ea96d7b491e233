#!/usr/bin/env bash
# labels: long
# timeout: 7200
# 128K tokens on four ranks by every strategy, the layouts in turn, against double precision: O and dQ of 64 random
# rows, all of dK and dV. Causal documents of uneven lengths, an empty one and one of one token among them.
. "$(dirname "$0")/lib.sh"
GOOD_SECONDS=1800
docs=50000,0,1,8191,40000,*
layouts=(zigzag balanced contiguous striped:128 zigzag balanced striped)
i=0
for strategy in pcp dcp ring pairwise ulysses dcp-ring dcp-pairwise; do
  begin=$SECONDS
  good attention --make "T=131072 H=4/2 D=64 causal docs=$docs" --spot 64 --cp 4 --cp-strategy $strategy \
    --cp-layout "${layouts[i]}" --timeout 1200
  grep -q 'all 5 comparisons hold' "$tmp/stdout" || fail "128K by $strategy: $(cat "$tmp/stdout")"
  echo "$strategy ${layouts[i]}: $((SECONDS - begin)) s; $(awk '$4 == "ok" { printf "%s %s  ", $1, $2 }' "$tmp/stdout")"
  i=$((i + 1))
done
finish
