#!/usr/bin/env bash
# labels: small noasan
# `weft sim`: the table, its marks and widths, the time line as other programs read it, and refusals.
. "$(dirname "$0")/lib.sh"
shape="--seq-length 1001 --hidden-size 64 --num-attention-heads 8 --num-query-groups 4 --precision bf16"

good sim --cp 4 $shape
grep -qE '^. (ring|pcp) +zigzag +[0-9.]+ (us|ms|s) ' "$tmp/stdout" || fail "no line of a strategy: $(cat "$tmp/stdout")"
[ "$(grep -cE '^\* ' "$tmp/stdout")" = 1 ] || fail "not one strategy is marked as the fastest"
awk 'length > 80 { print; bad = 1 } END { exit bad }' "$tmp/stdout" || fail "lines of more than 80 columns"
cp "$tmp/stdout" "$tmp/first"
good sim --cp 4 $shape
cmp -s "$tmp/first" "$tmp/stdout" || fail "two runs differ: $(diff "$tmp/first" "$tmp/stdout")"

# a named list, layouts, groups, documents, layers
good sim --cp 3 --dp 2 --strategies ring,pcp --layouts contiguous,zigzag,striped --docs 100,0,1,* --sim-layers 3 $shape
[ "$(grep -cE '^. (ring|pcp) +(contiguous|zigzag|striped)' "$tmp/stdout")" = 6 ] ||
  fail "not six lines: $(cat "$tmp/stdout")"
good sim --cp 64 --cp-strategy ring --no-hardware-progress --no-async-cp-comm $shape
good sim --cp 1 $shape

# the time line: JSON with a process per rank, all that was computed and moved, by Perfetto's rules
good sim --cp 5 --strategies ring --trace line.json --trace-ranks 0,2-3 $shape
python3 - "$tmp/line.json" <<'P' || fail "the time line is not as it should be"
import json, sys
events = json.load(open(sys.argv[1]))["traceEvents"]
names = {e["args"]["name"] for e in events if e["ph"] == "M" and e["name"] == "process_name"}
assert names == {"rank 0", "rank 2", "rank 3"}, names
spans = [e for e in events if e["ph"] == "X"]
# 5 blocks forward and 5 backward on each of three ranks; 4 + 8 messages come to each, and as many leave it
assert sum(e["cat"] == "compute" and "block" in e["name"] for e in spans) == 30
assert sum(e["cat"] == "communication in" for e in spans) == 36
assert sum(e["cat"] == "communication out" for e in spans) == 36
assert {e["args"]["layer"] for e in spans if e["cat"] == "waits"} == {0}
# the ring from 2 to 3 is the one link between two of these ranks
assert sum(e["ph"] == "s" for e in events) == sum(e["ph"] == "f" for e in events) == 12
P
"$WEFT_BUILD/tests/test_metrics.chrome" "$tmp/line.json" || fail "the time line breaks Perfetto's rules"
good sim --cp 3 --dp 2 --strategies pcp --trace line.json --trace-ranks 0-5 --sim-layers 2 --no-hardware-progress $shape
"$WEFT_BUILD/tests/test_metrics.chrome" "$tmp/line.json" || fail "the time line breaks Perfetto's rules"

# what is not as it should be: its words, its cost, who waits; the same every time
good sim --cp 4 --strategies ring,pcp --slow-rank 3:2 --slow-link 0-1:3,node:2 --jitter 0.1 --seed 5 $shape
grep -q '^disturbed  kernels of rank 3 x2; link 0-1 x3;' "$tmp/stdout" || fail "no word of what disturbs"
[ "$(grep -cE '^  (ring|pcp) +zigzag .*\+[0-9.]+%  0-2 +rank [0-2] ' "$tmp/stdout")" = 2 ] ||
  fail "ranks 0 to 2 do not wait for rank 3: $(cat "$tmp/stdout")"
awk 'length > 80 { print; bad = 1 } END { exit bad }' "$tmp/stdout" || fail "lines of more than 80 columns"
cp "$tmp/stdout" "$tmp/first"
good sim --cp 4 --strategies ring,pcp --slow-rank 3:2 --slow-link 0-1:3,node:2 --jitter 0.1 --seed 5 $shape
cmp -s "$tmp/first" "$tmp/stdout" || fail "two disturbed runs differ"
refused 'there are ranks 0 to 3' sim --cp 4 --slow-rank 4:2 $shape
refused 'no factor' sim --cp 4 --slow-rank 3 $shape
refused 'give 1 to 1e6' sim --cp 4 --slow-link 2-3:0.5 $shape
refused 'all ranks are on one node' sim --cp 4 --slow-link net:2 $shape
refused 'jitter' sim --cp 4 --jitter -1 $shape

refused "did you mean \"ring\"" sim --cp 4 --strategies pcp,rign $shape
refused 'give one of them' sim --cp 4 --strategies ring --cp-strategy pcp $shape
# a flag wins over the file that it goes with
printf 'parallel: {cp: 2, cp_strategy: ring, cp_layout: balanced}\ntrain: {seq_length: 64}\n' >"$tmp/sim.yaml"
good sim sim.yaml --layouts contiguous --strategies pcp $shape
refused 'give one of them' sim --cp 4 --layouts zigzag --cp-layout zigzag $shape
refused 'layout' sim --cp 4 --layouts zigzug $shape
refused 'a name is empty' sim --cp 4 --strategies ring,,pcp $shape
refused 'there are ranks 0 to 3' sim --cp 4 --trace x.json --trace-ranks 2-4 $shape
for bad in -1:'there are ranks 0 to 3' -1-2:'there are ranks 0 to 3' x:'--trace-ranks x: "x" is not' \
  1-:'--trace-ranks 1-: "" is not' 2-1:'runs backwards'; do
  refused "${bad#*:}" sim --cp 4 --trace x.json --trace-ranks "${bad%%:*}" $shape
done
refused 'could not act without --trace' sim --cp 4 --trace-ranks 2 $shape
refused 'nowhere' sim --cp 4 --trace /nowhere/x.json $shape
refused 'more than 4096 ranks' sim --cp 4096 --dp 2 $shape
refused 'add up to more than T = 1001' sim --cp 4 --docs 1000,2 $shape
refused 'sim-layers' sim --cp 4 --sim-layers 0 $shape
finish
