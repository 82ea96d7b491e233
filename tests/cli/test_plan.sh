#!/usr/bin/env bash
# labels: small noasan
# timeout: 120
# `weft bench profile` measures and writes what --profile reads; `weft info --plan` prints the plan and why others lost.
. "$(dirname "$0")/lib.sh"
good bench profile --cp 2 --threads 1 --repeats 1 --out "$tmp/profile.json"
for word in 'fp64' 'fp32' 'bf16' 'fp16' 'latency' 'to one rank' 'to all ranks' 'copy in memory' 'backward'; do
  grep -q "$word" "$tmp/stdout" || fail "bench profile prints no $word"
done
grep -q latency_seconds "$tmp/profile.json" || fail "bench profile wrote no profile"
for word in '^products, bf16' '^a product  ' '^a call of attention' '^norms, gates, AdamW' '^memory of a rank'; do
  grep -q "$word" "$tmp/stdout" || fail "bench profile prints no $word"
done
# programs read what was written; a machine that computes and remembers
good bench profile --cp 3 --threads 1 --repeats 1 --format jsonl --out "$tmp/three.json"
python3 - "$tmp/stdout" "$tmp/three.json" <<'PY' || fail "bench profile: $(cat "$tmp/stdout")"
import json, sys
rows = [json.loads(line) for line in open(sys.argv[1])]
none = {"attention_row_keys", "attention_edge_keys", "product_bytes_per_second", "unhidden_share"}  # 0: there is none
p = json.load(open(sys.argv[2]))
for r in rows:
    value = p[r["key"]][r["precision"]] if r["precision"] else p[r["key"]]
    assert abs(r["value"] - value) <= 1e-8 * abs(value), (r, value)
    assert r["value"] > 0 or r["key"] in none or r["key"].endswith("_seconds"), r
assert len(rows) == 4 + 4 + 2 + 1 + 4 + 11 and p["sources"]["name"].startswith("3 ranks"), rows
assert p["product_seconds"] < 0.1 and p["attention_seconds"] < 0.1, p
PY
refused 'did you mean "profile"' bench profil
refused 'There is: attention, gemm, step, profile, comm, cp' bench
# one rank has nobody to send to: the file says so of its messages, and a step on one rank is predicted by it
good bench profile --cp 1 --threads 1 --repeats 1 --out "$tmp/one.json"
grep -q 'latency of a message' "$tmp/stdout" && fail "bench profile prints messages that it did not measure"
grep -q '"latency_seconds": "assumed' "$tmp/one.json" || fail "one rank's messages are not said to be assumed"

good info --plan --cp 4 --seq-length 64K --precision bf16 --profile "$tmp/profile.json"
grep -q "^rates   of $tmp/profile.json" "$tmp/stdout" || fail "info --plan does not name its profile"
[ "$(grep -c '^\*' "$tmp/stdout")" = 1 ] || fail "info --plan marks not one strategy"
name=$(sed -n 's/^\* \([a-z-]*\) .*/\1/p' "$tmp/stdout")
grep -Eq "^plan    \((heads .*)?" "$tmp/stdout" || fail "info --plan prints no plan"
# what it prints is what runs: the plan of a run with these options begins in the same way
good info --plan --cp 3 --seq-length 96 --num-attention-heads 4 --kv-channels 8 --hidden-size 32
want=$(sed -n 's/^plan    //p' "$tmp/stdout")
good attention --make "T=96 H=4 D=8 causal" --cp 3
grep -qF "$want" "$tmp/stdout" || fail "info --plan says $want, the run says $(grep plan "$tmp/stdout")"
# so are the buffers, of every line of the table: what a run takes where blocks are copied
shape='--seq-length 96 --num-attention-heads 4 --num-query-groups 2 --kv-channels 8 --hidden-size 32'
turn=0
for flags in '' '--cp-comm-dtype bf16' '--fp8-enabled --cp-grad-dtype bf16'; do
  good info --plan --cp 4 $shape $flags
  cp "$tmp/stdout" "$tmp/table"
  for strategy in pcp ring pairwise dcp ulysses dcp-ring; do
    turn=$((turn + 1))
    [ -z "$flags" ] || [ $((turn % 3)) = 0 ] || continue # what the options change is the width of elements
    want=$(sed -n "s/^[ *] $strategy  .*  \([0-9.]* [KMG]*i*B\)$/\1/p" "$tmp/table")
    good attention --make 'T=96 H=4/2 D=8 causal' --cp 4 --cp-strategy $strategy --no-peer-memory $flags
    grep -qF "buffers   $want for the exchange" "$tmp/stdout" ||
      fail "info --plan $flags says '$want' of $strategy, the run: $(grep buffers "$tmp/stdout")"
  done
done
# strategies that cannot run say why
good info --plan --cp 2
grep -Eq '^  none +needs one rank' "$tmp/stdout" || fail "info --plan does not say why none cannot be"
awk 'length > 80' "$tmp/stdout" | grep -vq '^plan' && fail "info --plan prints lines above 80 columns"
# a window of a part of the layers has a plan of its own
good info --plan --cp 2 --family mistral --sliding-window 64 --cp-strategy pairwise
grep -q '63 keys before each query' "$tmp/stdout" || fail "info --plan hides the window"
refused 'none' info --plan --cp 2 --cp-strategy none

sed 's/"latency_seconds"/"latency_secs"/' "$tmp/profile.json" >"$tmp/bad.json"
refused 'did you mean latency_seconds' info --profile "$tmp/bad.json"
refused 'did you mean latency_seconds' attention "$WEFT_GOLDEN/attention/sinks.safetensors" --cp 2 \
  --profile "$tmp/bad.json"
refused 'did you mean latency_seconds' verify x y --profile "$tmp/bad.json"
refused 'did you mean latency_seconds' eval x --profile "$tmp/bad.json"
refused 'did you mean latency_seconds' train --profile "$tmp/bad.json"
# machines by name
good info --plan --cp 4 --seq-length 64K --precision bf16 --profile h100-ib
grep -q "^rates   of h100-ib" "$tmp/stdout" || fail "info --plan does not name the machine"
refused 'did you mean "h100-ib"' info --plan --cp 2 --profile h100ib
finish
