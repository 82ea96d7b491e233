#!/usr/bin/env bash
# labels: small noasan
# timeout: 200
# The flags of the exchange: each changes what it is for, bits, bytes, messages, memory or the printed plan, and nothing
# else; values that make no sense are refused with what would.
. "$(dirname "$0")/lib.sh"
T=600 D=8 H=4 Hkv=2 P=4 n=$((T / P)) W=$((Hkv * 2 * D)) # rows of a rank; values of a K,V row
case="T=$T H=$H/$Hkv D=$D causal"

# run NAME FLAGS...: the results in $tmp/NAME
run() { local name=$1; shift; good attention --make "$case" --cp $P --out "$tmp/$name" "$@"; }
# changed A B: the tensors that differ, each with its distance (2-norm, relative), sorted by name
changed() {
  python3 - "$tmp/$1" "$tmp/$2" <<'X'
import json, math, struct, sys
def read(path):
    data = open(path, 'rb').read()
    n, = struct.unpack('<Q', data[:8])
    head = json.loads(data[8:8 + n])
    head.pop('__metadata__', None)
    return {k: (t['dtype'], data[8 + n + t['data_offsets'][0]:8 + n + t['data_offsets'][1]]) for k, t in head.items()}
a, b = read(sys.argv[1]), read(sys.argv[2])
assert a.keys() == b.keys()
for k in sorted(a):
    if a[k] == b[k]: continue
    code = {'F32': 'f', 'F64': 'd'}[a[k][0]]
    x, y = (struct.unpack('<%d%s' % (len(v) // struct.calcsize(code), code), v) for v in (a[k][1], b[k][1]))
    print(k, math.sqrt(sum((p - q) ** 2 for p, q in zip(x, y)) / sum(q * q for q in y)))
X
}
# expect_changed A B "NAMES" MOST: exactly these tensors differ, by at most so much
expect_changed() {
  local names most
  changed "$1" "$2" >"$tmp/changed" || fail "$1 and $2 cannot be compared"
  names=$(awk '{ printf "%s%s", sep, $1; sep = " " }' "$tmp/changed") \
    most=$(awk '$2 > m { m = $2 } END { print m + 0 }' "$tmp/changed")
  [ "$names" = "$3" ] || fail "$1 against $2: '$names' differ, wanted '$3'"
  awk -v e="$most" -v m="$4" 'BEGIN { exit !(e <= m) }' || fail "$1 against $2: off by $most, more than $4"
}
# sent BYTES MESSAGES FLAGS...: what all ranks send in a layer, forward and backward
sent() {
  local want
  want=$(awk -v b="$1" 'BEGIN { if (b < 1048576) printf "%.2f KiB", b / 1024; else printf "%.2f MiB", b / 1048576 }')
  want+=" in $2 messages"
  shift 2
  good bench cp --cp $P --make "$case" "$@"
  grep '^sent' "$tmp/stdout" | grep -qF " $want" || fail "$*: $(grep '^sent' "$tmp/stdout"), wanted $want"
}
plan() {
  good info --plan --cp $P --num-attention-heads $H --num-query-groups $Hkv --kv-channels $D --seq-length $T "$@"
}
printed() { grep -qE -- "$1" "$tmp/stdout" || fail "nothing like '$1' in: $(head -8 "$tmp/stdout")"; }

# A ring: K,V go P - 1 hops, forward and again backward, then the sums of their gradients.
hops=$((P * (P - 1))) kv=$((P * (P - 1) * n * W))
run ring --cp-strategy ring
sent $((3 * kv * 4)) $((3 * hops)) --cp-strategy ring

# --cp-comm-dtype: K,V alone, so o, lse and all gradients move by about the roundoff of that type
while read -r type bytes roundoff; do
  run "$type" --cp-strategy ring --cp-comm-dtype $type
  expect_changed $type ring 'dk dq dv lse o' $roundoff
  sent $((2 * bytes + kv * 4)) $((3 * hops)) --cp-strategy ring --cp-comm-dtype $type
done <<X
bf16 $((kv * 2)) 0.0040
fp16 $((kv * 2)) 0.0005
fp8 $((kv + hops * ((n + 15) / 16) * 2 * Hkv)) 0.0625
X
run fp32 --cp-strategy ring --cp-comm-dtype fp32
expect_changed fp32 ring '' 0
run wide --cp-strategy ring --precision bf16
run wider --cp-strategy ring --precision bf16 --cp-comm-dtype fp32
expect_changed wide wider '' 0
refused "none of same|fp32|bf16|fp16|fp8; did you mean 'fp32'?" attention --make "$case" --cp $P --cp-comm-dtype fp64
refused 'use bf16, fp8, or fp32' attention --make "$case" --cp $P --cp-strategy ring --precision bf16 \
  --cp-comm-dtype fp16
refused 'use fp16, fp8, or fp32' attention --make "$case" --cp $P --cp-strategy ring --precision fp16 \
  --cp-comm-dtype bf16

# --cp-grad-dtype: the travelling sums alone
run grad --cp-strategy ring --cp-grad-dtype bf16
expect_changed grad ring 'dk dv' 0.0040
sent $((2 * kv * 4 + kv * 2)) $((3 * hops)) --cp-strategy ring --cp-grad-dtype bf16
run grad32 --cp-strategy ring --cp-grad-dtype fp32
expect_changed grad32 ring '' 0
refused "none of same|fp32|bf16; did you mean 'fp32'?" attention --make "$case" --cp $P --cp-grad-dtype fp16

# --fp8-enabled: K,V travel and are kept as e4m3 with a scale per 16 rows and head, dO of the head stage as e5m2
run fp8all --cp-strategy ring --fp8-enabled
expect_changed fp8all ring 'dk dq dv lse o' 0.125
sent $((2 * (kv + hops * ((n + 15) / 16) * 2 * Hkv) + kv * 4)) $((3 * hops)) --cp-strategy ring --fp8-enabled
plan --cp-strategy ring --fp8-enabled
printed "kept per layer $(awk -v b=$((n * W + (n + 15) / 16 * 2 * Hkv)) 'BEGIN { printf "%.2f", b / 1024 }') KiB"
plan --cp-strategy ring
printed 'kept per layer 0 B'
refused 'leave the type of K,V on the wire out' attention --make "$case" --cp $P --cp-strategy ring --fp8-enabled \
  --cp-comm-dtype bf16

# --cp-head-size: U of the printed plan, and other bits and bytes with it
for U in 1 2 4; do
  run "dcp$U" --cp-strategy dcp --cp-head-size $U
  printed "^plan +\(heads U=$U \(pcp [RP]=$((P / U)) "
done
expect_changed dcp1 ring '' 0
changed dcp2 dcp1 | grep -q '^o ' || fail "a head size of 2 changes no bit"
expect_changed dcp4 dcp1 'dk dq dv lse o' 1e-6
refused 'usable head sizes: 1, 2, 4' attention --make "$case" --cp $P --cp-strategy dcp --cp-head-size 3
refused 'usable head sizes on 8 ranks: 1, 2, 4' attention --make "$case" --cp 8 --cp-strategy dcp --cp-head-size 8
refused 'outside 0..4096' attention --make "$case" --cp $P --cp-strategy dcp --cp-head-size -1
refused 'a head size asks for dcp' attention --make "$case" --cp $P --cp-strategy ring --cp-head-size 2
refused 'leave it out, or use dcp' attention --make "$case" --cp $P --cp-strategy ulysses --cp-head-size 2

# --cp-keep-heads: no bit; q, k, v, m and l of the group for the own heads are kept, and do not travel again in backward
run kept --cp-strategy dcp --cp-head-size 2 --cp-keep-heads
expect_changed kept dcp2 '' 0
printed '^plan +\(heads U=2 kept '
h=$((H / 2)) w=$((W / 2)) # of a member: query heads; values of a K,V row
again=$((n * h * (D * 4 + 8) + n * w * 4))
forward=$((n * h * D * 4 + n * w * 4 + n * h * (D * 4 + 8))) \
  backward=$((n * h * (D * 4 + 4) + n * h * D * 4 + n * w * 4))
context=$((3 * 2 * n * w * 4)) # the group's K,V to the other group, twice, and its gradients home
sent $((P * (forward + backward + again + context))) $((P * 7)) --cp-strategy dcp --cp-head-size 2
sent $((P * (forward + backward + context))) $((P * 7)) --cp-strategy dcp --cp-head-size 2 --cp-keep-heads
plan --cp-strategy dcp --cp-head-size 2
printed 'kept per layer 0 B'
plan --cp-strategy dcp --cp-head-size 2 --cp-keep-heads
least=$((2 * n * (h * (D * 4 + 8) + w * 4)))
kib=$(sed -n 's/.*kept per layer \([0-9.]*\) KiB.*/\1/p' "$tmp/stdout")
awk -v k="${kib:-0}" -v b=$least 'BEGIN { exit !(k * 1024 >= b - 6 && k * 1024 < b + 200) }' ||
  fail "$kib KiB are kept, wanted $least bytes and room to align"
refused 'keeping the head layout asks for dcp' attention --make "$case" --cp $P --cp-strategy ring --cp-keep-heads

# --cp-aggregation-buffer-size: pieces of a message, ceil(bytes / size); no bit depends on who waits for them, or on
# views
T=2048 D=64 H=2 Hkv=1 n=$((2048 / P)) W=$((2 * 64))
case="T=$T H=$H/$Hkv D=$D causal window=127"
block=$((n * W * 4))
for size in 64K 100K; do
  bytes=$((${size%K} * 1024)) pieces=$(((block + bytes - 1) / bytes))
  [ $pieces -gt 1 ] || fail "blocks of $block bytes are not cut"
  sent $((3 * P * (P - 1) * block)) $((3 * P * (P - 1) * pieces)) --cp-strategy ring --cp-aggregation-buffer-size $size
  run cut --cp-strategy ring --cp-aggregation-buffer-size $size
  run waits --cp-strategy ring --cp-aggregation-buffer-size $size --no-async-cp-comm
  run copies --cp-strategy pcp --cp-aggregation-buffer-size $size --no-peer-memory
  expect_changed waits cut '' 0
  expect_changed copies cut '' 0
done
sent $((3 * P * (P - 1) * block)) $((3 * P * (P - 1))) --cp-strategy ring --cp-aggregation-buffer-size 1M
# what a profile says of pieces acts where none are asked for
sed 's/"buffer_bytes": 0/"buffer_bytes": 65536/' "$WEFT_SRC/src/mesh/profiles/laptop.json" >"$tmp/pieces.json"
pieces=$(((block + 65535) / 65536))
sent $((3 * P * (P - 1) * block)) $((3 * P * (P - 1) * pieces)) --cp-strategy ring --profile "$tmp/pieces.json"
sent $((3 * P * (P - 1) * block)) $((3 * P * (P - 1))) --cp-strategy ring --profile "$tmp/pieces.json" \
  --cp-aggregation-buffer-size 0
refused 'give at least 64K, or 0' attention --make "$case" --cp $P --cp-aggregation-buffer-size 63K
refused 'is not a size such as 4096, 64K' attention --make "$case" --cp $P --cp-aggregation-buffer-size lots
finish
