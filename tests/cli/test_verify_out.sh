#!/usr/bin/env bash
# labels: small
# timeout: 120
# What `weft verify --out` wrote, judged apart: read and compared with the golden numbers by a program that shares no
# code with Weft (judge_out.py), for layouts that cut every dimension.
. "$(dirname "$0")/lib.sh"
command -v python3 >/dev/null || { echo "SKIPPED: no python3 to compare what verify --out wrote"; exit 0; }
judge=$(cd "$(dirname "$0")" && pwd)/judge_out.py
# judged MODEL FLAGS...
judged() {
  local model=$WEFT_GOLDEN/models/$1; shift
  rm -f "$tmp/out"
  good verify "$model" "$model/case.safetensors" --out out --threads 1 "$@"
  python3 "$judge" "$tmp/out" "$model/case.safetensors" >"$tmp/said" || fail "${model##*/} $*: $(cat "$tmp/said")"
}
judged qwen2 --pp 2 --dp 2 --micro-batch-size 1 --zero-stage 0 --no-overlap-grad-reduce
judged gpt2 --tp 2 --pp 2 --micro-batch-size 1 --sequence-parallel --recompute full
judged qwen3 --tp 3 --cp 2 --cp-strategy pairwise --cp-layout striped --sequence-parallel

# the judge sees what is wrong: a gradient that is a thousandth too large, a tensor that is not there
python3 - "$tmp/out" "$tmp/large" "$tmp/less" <<'P'
import array, json, struct, sys
data = bytearray(open(sys.argv[1], 'rb').read())
n = struct.unpack('<Q', data[:8])[0]
head = json.loads(bytes(data[8:8 + n]))
name = 'grad.model.layers.1.mlp.up_proj.weight'
a, b = head[name]['data_offsets']
x = array.array('f', bytes(data[8 + n + a:8 + n + b]))
large = bytearray(data)
large[8 + n + a:8 + n + b] = array.array('f', (v * 1.001 for v in x)).tobytes()
open(sys.argv[2], 'wb').write(large)
open(sys.argv[3], 'wb').write(data.replace(b'layers.1.mlp.up_proj', b'layers.1.mlp.no_proj'))
P
for wrong in large less; do
  ! python3 "$judge" "$tmp/$wrong" "$WEFT_GOLDEN/models/qwen3/case.safetensors" >"$tmp/said" ||
    fail "the judge does not see what is wrong in $wrong: $(cat "$tmp/said")"
  grep -q 'mlp.up_proj' "$tmp/said" || fail "the judge does not name it: $(cat "$tmp/said")"
done
finish
