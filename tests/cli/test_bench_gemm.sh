#!/usr/bin/env bash
# labels: small noasan
# timeout: 120
# `weft bench gemm`: the products are those of the model, or those of the words, and what makes no sense is refused.
. "$(dirname "$0")/lib.sh"
model='--hidden-size 32 --num-layers 2 --num-attention-heads 2 --seq-length 64'
good bench gemm $model --micro-batch-size 2 --threads 1 --repeats 1 --precision bf16 --format jsonl
python3 - "$tmp/stdout" <<'PY' || fail "bench gemm: not the products of the model: $(cat "$tmp/stdout")"
import json, sys
rows = [json.loads(line) for line in open(sys.argv[1])]
assert len(rows) == 15 and len({r["product"] for r in rows}) == 15, rows
T, C, F, V = 2 * 64, 32, 96, 259  # 8/3 of 32, to a multiple of 16
shapes = {"qkv": (3 * C, C), "o": (C, C), "up": (2 * F, C), "down": (C, F), "head": (V, C)}
for r in rows:
    name, kind = r["product"].split()
    out, into = shapes[name]
    want = {"forward": (T, out, into, "nt"), "data": (T, into, out, "nn"), "weights": (out, into, T, "tn")}[kind]
    assert (r["M"], r["N"], r["K"], r["layout"]) == want, r
    assert abs(r["flops"] * r["seconds"] / (2 * r["M"] * r["N"] * r["K"]) - 1) < 1e-3 and r["precision"] == "bf16", r
    assert r["calls"] == (1 if name == "head" else 2) and r["roof"] >= 0, r
PY
good bench gemm 'bf16 M64 N=1K K33' 'M8 N8 K8 tn sum fp64' --threads 1 --repeats 1 --format csv
[ "$(cut -d, -f1,3-7 "$tmp/stdout" | tail -2 | paste -sd';')" = \
  'bf16 M64 N=1K K33,bf16,64,1024,33,nt;M8 N8 K8 tn sum fp64,fp64,8,8,8,tn' ] || fail "bench gemm: $(cat "$tmp/stdout")"
good bench gemm $model --threads 1 --repeats 1
grep -Eq '^of a step: [0-9.]+ ms, ' "$tmp/stdout" || fail "bench gemm prints no sum: $(cat "$tmp/stdout")"
refused '"M0" is no size' bench gemm 'M0 N1 K1'
refused 'M, N and K are needed' bench gemm 'M1 N1'
refused '"M2" is said twice' bench gemm 'M1 M2 N1 K1'
refused '"L4" is not known' bench gemm 'M1 N1 K1' 'L4 M1 N1 K1'
refused 'did you mean bf16;' bench gemm 'bf15 M1 N1 K1'
refused 'give smaller ones' bench gemm 'M1024G N1024G K1024G'
refused 'is no size' bench gemm 'M99999999999999999999 N1 K1'
refused 'products of one rank' bench gemm --cp 2
refused 'no use for the option parallel.cp_strategy' bench gemm --cp-strategy ring
finish
