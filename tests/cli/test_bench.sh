#!/usr/bin/env bash
# labels: small noasan
# timeout: 120
# `weft bench attention` and `weft bench cp`: what they print is consistent, in every format; words that make no sense
# are refused.
. "$(dirname "$0")/lib.sh"
case='fp32 B2 H4/2 D16/8 T96 causal window=40'
good bench attention "$case" 'bf16 H1 D32 T64 fwd' --threads 1
[ "$(grep -Ec 'repeats?; roof: ' "$tmp/stdout")" = 2 ] || fail "bench attention prints not one heading per case"
[ "$(grep -Ec '^  (fwd|bwd|fwd\+bwd) ' "$tmp/stdout")" = 4 ] || fail "bench attention prints not one line per direction"
# programs read the same numbers; area, time and rate agree: a query sees itself and up to 40 keys before it
good bench attention "$case" --threads 1 --format jsonl
python3 - "$tmp/stdout" <<'PY' || fail "bench attention: rates, times and areas do not agree"
import json, sys
rows = [json.loads(line) for line in open(sys.argv[1])]
assert [r["direction"] for r in rows] == ["fwd", "bwd", "fwd+bwd"], rows
area = 2 * sum(min(q, 40) + 1 for q in range(96))
for r, operations in zip(rows, (2 * (16 + 8), 2 * (3 * 16 + 2 * 8), 2 * (4 * 16 + 3 * 8))):
    assert r["area"] == area, (r, area)
    assert abs(r["flops"] * r["seconds"] / (area * 4 * operations) - 1) < 1e-4, r
    assert r["threads"] == 1 and r["precision"] == "fp32" and r["repeats"] >= 5 and r["resident_peak"] > 1e6, r
    # no kernel beats the roof; on a busy machine a share may be small
    assert r["roof"] == 0 or 0 < r["share"] < 1.05, r
PY
good bench attention "$case" --threads 1 --format jsonl --repeats 2
[ "$(grep -c '"repeats": 2,' "$tmp/stdout")" = 3 ] || fail "bench attention --repeats 2: $(cat "$tmp/stdout")"
for format in md csv; do
  good bench attention "$case" --threads 1 --format $format
  [ "$(grep -c 'causal' "$tmp/stdout")" = 3 ] || fail "bench attention --format $format prints not three rows"
done
# words with commas and bars stay one cell
good bench attention 'fp32 H1 D8 T32 docs=20,12 fwd' --threads 1 --format csv
python3 - "$tmp/stdout" <<'PY' || fail "bench attention --format csv: $(cat "$tmp/stdout")"
import csv, sys
rows = list(csv.DictReader(open(sys.argv[1])))
assert [r["case"] for r in rows] == ["fp32 H1 D8 T32 docs=20,12 fwd"] and float(rows[0]["seconds"]) > 0, rows
PY
good bench attention $'fp32\tH1 D8 T32 fwd' --threads 1 --format jsonl
python3 -c 'import json, sys; assert json.load(sys.stdin)["case"] == "fp32\tH1 D8 T32 fwd"' <"$tmp/stdout" ||
  fail "bench attention: no JSON where words are apart by a tab"
good bench attention 'fp64 H1 D8 T32 fwd' --threads 1 --format md
grep -q '| - | - |$' "$tmp/stdout" || fail "a share of no roof: $(cat "$tmp/stdout")"
good bench attention 'fp64 H1 D8 T32 fwd' --threads 1
grep -q 'roof: none' "$tmp/stdout" || fail "the reference kernels have a roof"
refused '"Q4" is not known; did you mean Tq?' bench attention 'fp32 Q4'
refused '"FP32" is not known; did you mean fp32?' bench attention 'FP32 H1 D8 T64'
refused '"bf32" is not known; did you mean fp32?' bench attention 'bf32 H1 D8 T64'
refused '"int8" is not known; write fp64 fp32 bf16 fp16 fwd bwd fwd+bwd T=1001 ' bench attention 'int8 H1 D8 T64'
refused '"fdw" is not known; did you mean fwd?' bench attention 'H1 D8 T64 fdw'
refused '"CAUSAL" is not known; did you mean causal?' bench attention 'H1 D8 T64 CAUSAL'
refused 'T is given twice, the second time as "T65"' bench attention 'H1 D8 T64 T65'
refused '"bf16" is one precision too many' bench attention 'fp32 H1 D8 T64 bf16'
refused '"fwd" is one direction too many' bench attention 'H1 D8 T64 fwd bwd fwd'
refused 'documents 2 and 3 are both *' bench attention 'H1 D8 T64 docs=3,*,*'
refused 'T, H and D are needed' bench attention 'fp32 H1 D8'
refused 'weft bench cp' bench attention --cp 2
refused 'docs' bench attention 'H1 D8 T10 docs=3,4'

# documents: the visible area is that of the documents alone
good bench attention 'fp32 H1 D8 T100 docs=each:30 fwd' --threads 1 --format jsonl
grep -q '"area": 2800,' "$tmp/stdout" ||
  fail "bench attention counts another area than 3 x 30^2 + 10^2: $(cat "$tmp/stdout")"

# a layer beside the same work without exchange: times and shares belong together
for against in own whole; do
  good bench cp --cp 3 --threads 1 --cp-strategy ring --make 'T=300 H=2/1 D=16 causal' \
    --against $against --format jsonl
  python3 - "$tmp/stdout" $against <<'PY' || fail "bench cp --against $against: the numbers do not agree"
import json, sys
r = json.loads(open(sys.argv[1]).read())
assert r["ranks"] == 3 and r["repeats"] >= 3 and r["against"] == sys.argv[2], r
assert r["messages"] == 6 + 6 + 6, r  # K,V, K,V again, sums
assert 0 < r["alone_cpu"] and 0 < r["alone"] and 0 < r["cpu_share"] < 3, r
own = sys.argv[2] == "own"
assert (0 < r["share"] <= r["share_mean"] < 3) == own and (r["steps"] > 0) == own, r
PY
done
good bench cp --threads 1 --against own --make 'T=64 H=1 D=8'
grep -q '^own work .* share' "$tmp/stdout" || fail "bench cp --against own prints no share: $(cat "$tmp/stdout")"
good bench cp --threads 1 --make 'T=64 H=1 D=8' --repeats 2 --cp-strategy auto
grep -q 'the median of 2$' "$tmp/stdout" || fail "bench cp --repeats 2: $(cat "$tmp/stdout")"
refused 'text or jsonl' bench cp --cp-strategy ring --format md
refused 'repeats' bench cp --repeats 16
refused 'none|own|whole' bench cp --against half
refused 'no use for the option bench.against' bench attention --against own
refused 'bench cp has no use for the option parallel.tp' bench cp --tp 2
refused 'bench cp has no use for the option model.layers' bench cp --num-layers 3
finish
