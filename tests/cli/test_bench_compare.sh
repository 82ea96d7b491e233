#!/usr/bin/env bash
# labels: small noasan
# timeout: 120
# `weft bench cp` without a strategy: all that apply, with every layout, overlapped and not; bytes are the strategies'
# own, one row is the fastest, and what cannot run is said.
. "$(dirname "$0")/lib.sh"
case='T=120 H=2/2 D=8 causal'

good bench cp --cp 2 --threads 1 --make "$case" --repeats 1 --layouts zigzag,contiguous --format jsonl --profile laptop
python3 - "$tmp/stdout" <<'PY' || fail "bench cp: the comparison's numbers do not agree"
import json, sys
rows = [json.loads(line) for line in open(sys.argv[1])]
ways = {(r["strategy"], r["layout"], r["overlap"]) for r in rows}
assert len(ways) == len(rows) and ways == {(s, l, o) for s in {r["strategy"] for r in rows}
                                           for l in ("zigzag", "contiguous") for o in ("on", "off")}, ways
assert {"pcp", "ring", "pairwise", "ulysses"} <= {r["strategy"] for r in rows}, ways
best = [r for r in rows if r["best"]]
assert len(best) == 1 and best[0]["ratio"] == 1 and best[0]["seconds"] == min(r["seconds"] for r in rows), rows
row = 2 * 8 * 4  # bytes of K or V of a token: heads, elements, fp32
half = 60 * 2 * row  # K,V of a rank, or the sums of their gradients
for r in rows:
    assert 0 < r["planned_seconds"] < 1, r
    assert r["ranks"] == 2 and abs(r["ratio"] - r["seconds"] / best[0]["seconds"]) < 1e-3, r
    assert 0 <= r["exposed"] <= r["seconds"] and abs(r["exposed_share"] - r["exposed"] / r["seconds"]) < 1e-4, r
    if r["strategy"] in ("pcp", "ring"):  # K,V forward and again backward, sums home; of both ranks
        assert r["bytes"] == 2 * 3 * half, (r["bytes"], half)
    # contiguous: the first rank sees nothing of the second's, so half of it does not travel
    if r["strategy"] == "pairwise" and r["layout"] == "contiguous":
        assert r["bytes"] == 3 * half, (r["bytes"], half)
PY
# what a profile says is read in place is sent where ranks are told not to
sed 's/"node_ranks": 0/&, "in_place_share": 1/' "$WEFT_SRC/src/mesh/profiles/laptop.json" >"$tmp/near.json"
for memory in peer-memory no-peer-memory; do
  good bench cp --cp 2 --threads 1 --make "$case" --repeats 1 --strategies ring --format jsonl \
    --profile "$tmp/near.json" --"$memory"
  cp "$tmp/stdout" "$tmp/$memory"
done
python3 - "$tmp/peer-memory" "$tmp/no-peer-memory" <<'PY' || fail "--no-peer-memory and in_place_share"
import json, sys
near, sent = (json.loads(next(open(path)))["planned_seconds"] for path in sys.argv[1:])
assert near < sent, (near, sent)
PY
good bench cp --cp 3 --threads 1 --make "$case" --repeats 1 --strategies ring,ulysses --no-async-cp-comm
[ "$(grep -c 'zigzag *off' "$tmp/stdout")" = 1 ] && ! grep -q 'zigzag *on' "$tmp/stdout" ||
  fail "--no-async-cp-comm: $(cat "$tmp/stdout")"
grep -Eq '^\* ring +zigzag +off +[0-9.]+ +- ' "$tmp/stdout" || fail "planned without a profile: $(cat "$tmp/stdout")"
grep -q '^\* *ring ' "$tmp/stdout" && grep -q '^ulysses, zigzag: refused: ' "$tmp/stdout" ||
  fail "a strategy that cannot run is not said: $(cat "$tmp/stdout")"
for format in md csv; do
  good bench cp --cp 2 --threads 1 --make "$case" --repeats 1 --strategies ring --format $format
  [ "$(grep -c 'ring' "$tmp/stdout")" = 2 ] || fail "bench cp --format $format: $(cat "$tmp/stdout")"
done
refused 'give one of them' bench cp --cp 2 --cp-layout zigzag --layouts striped
refused 'where no strategy is named' bench cp --cp 2 --cp-strategy ring --layouts striped
refused 'did you mean "ring"' bench cp --cp 2 --strategies pcp,rign
refused 'ring is named twice' bench cp --cp 2 --strategies ring,pcp,ring
refused 'zigzag is named twice' bench cp --cp 2 --layouts zigzag,zigzag
refused 'a name is empty' bench cp --cp 2 --strategies ring,
refused 'none of the strategies can do this' bench cp --cp 3 --make 'T=8 H=2 D=8' --strategies ulysses
refused 'name others' bench cp --cp 2 --strategies none
refused 'bench profile has no use for the option sim.layouts' bench profile --layouts zigzag
finish
