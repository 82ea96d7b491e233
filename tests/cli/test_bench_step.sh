#!/usr/bin/env bash
# labels: small noasan
# timeout: 120
# `weft bench step`: figures of one rank and of several agree with each other and with what can be worked out from the
# options, in every format; a sweep's rows are jobs of their own; what makes no sense is refused.
. "$(dirname "$0")/lib.sh"
model='--hidden-size 32 --num-layers 2 --num-attention-heads 2 --seq-length 64'

good bench step $model --threads 1
grep -Eq '^sum .* (99|100).[0-9] %' "$tmp/stdout" || fail "the parts of a step do not add up to it"
for part in embedding norm rotation activation products attention loss optimizer other; do
  grep -q "^$part " "$tmp/stdout" || fail "bench step has no part $part"
done
grep -q '% of 5)' "$tmp/stdout" || fail "bench step counts not the last five of its steps"
good bench step --family gpt2 $model --threads 1 --precision bf16 --format jsonl
python3 - "$tmp/stdout" <<'PY' || fail "bench step: the numbers do not agree"
import json, math, sys
r = json.loads(open(sys.argv[1]).read())
parts = r["parts"]
assert abs(sum(parts.values()) / r["seconds"] - 1) < 0.02, (sum(parts.values()), r["seconds"])
assert parts["other"] < 0.2 * r["seconds"], parts  # a step of a millisecond: nothing large may hide in there
assert 0 < r["loss"] < math.log(259), r["loss"]  # it has learned its one batch, a little
assert r["tokens"] == 64 and r["products_alone"] > 0 and r["ranks"] == 1 and r["bytes_sent"] == 0, r
PY

# every kind of group, and all that is said of them
good bench step $model --cp 2 --tp 2 --sequence-parallel --pp 2 --zero-stage 0 --global-batch-size 4 --threads 1 \
  --repeats 2 --format jsonl
python3 - "$tmp/stdout" <<'PY' || fail "bench step on 8 ranks: the numbers do not agree"
import json, sys
r = json.loads(open(sys.argv[1]).read())
assert (r["ranks"], r["tp"], r["cp"], r["dp"], r["pp"], r["repeats"]) == (8, 2, 2, 1, 2, 2), r
T, H, D, L, V, C, F = 64, 2, 16, 2, 259, 32, 96
tokens = 4 * T
assert r["tokens"] == tokens and abs(r["tokens_per_second"] * r["seconds"] / tokens - 1) < 1e-4, r
area = 4 * T * (T + 1) / 2  # visible pairs of four sequences
products = L * (4 * C * C + 3 * C * F) + V * C  # tied: the head's product counts, the look-up does not
assert abs(r["flops"] / (6 * products * tokens + 12 * area * H * D * L) - 1) < 1e-5, (r["flops"], products)
assert r["roof"] == 0 or abs(r["mfu"] - r["flops"] / r["seconds"] / r["roof"]) < 1e-4, r
sent = r["sent"]
assert sum(sent.values()) == r["bytes_sent"] and all(sent[k] > 0 for k in ("tp", "cp", "pp", "dp", "all")), sent
assert r["memory_least"] <= r["memory_mean"] <= r["memory_held"], r
assert abs(r["memory_spread"] - (r["memory_held"] / r["memory_mean"] - 1)) < 1e-4, r
assert 0 < r["comm_share"] <= r["comm_share_most"] <= 1 and 0 < r["exposed_share"] <= r["exposed_share_most"] <= 1, r
for parts in (r["parts"], r["parts_mean"]):  # of one rank, of all: each adds up to a step
    assert abs(sum(parts.values()) / r["seconds"] - 1) < 0.1, (sum(parts.values()), r["seconds"])
assert r["imbalance"] == 1 and r["imbalance_time"] >= 1, r  # zigzag of 64 over 2 is even
assert set(r["lights"]) == {"communication", "utilisation", "memory spread"}, r
def light(x, ok, bad): return "ok" if x <= ok else "look" if x <= bad else "bad"
assert r["lights"]["communication"] == light(r["comm_share"], 0.15, 0.4), r
PY
# dropout as in training: the same step otherwise, on one rank and on two
loss() {
  good bench step $model --threads 1 --repeats 1 --format jsonl "$@"
  loss=$(python3 -c 'import json; r = json.load(open("'"$tmp"'/stdout")); print(r["flops"], "%.4f" % r["loss"])')
}
loss && whole=$loss
loss --attention-dropout 0.3 --residual-dropout 0.3 --embedding-dropout 0.3 && dropped=$loss
[ "${dropped% *}" = "${whole% *}" ] && [ "${dropped#* }" != "${whole#* }" ] ||
  fail "bench step: dropout changes '$whole' to '$dropped'"
loss --attention-dropout 0.3 --residual-dropout 0.3 --embedding-dropout 0.3 --cp 2
[ "$loss" = "$dropped" ] || fail "bench step: dropout on two ranks: '$loss', on one '$dropped'"
# contiguous: the second of two ranks sees three times what the first sees, and the mean is two
good bench step $model --cp 2 --cp-layout contiguous --threads 1 --repeats 1 --format jsonl
python3 - "$tmp/stdout" <<'PY' || fail "bench step: the imbalance of a contiguous layout"
import json, sys
r = json.loads(open(sys.argv[1]).read())
assert abs(r["imbalance"] - 2 * (32 * 32 + 32 * 33 / 2) / (64 * 65 / 2)) < 1e-4, r["imbalance"]
PY
good bench step $model --cp 2 --threads 1 --repeats 1
for line in exchange sent imbalance 'Rank . waited' communication utilisation 'memory spread'; do
  grep -q "^$line" "$tmp/stdout" || fail "bench step --cp 2 says nothing of $line: $(cat "$tmp/stdout")"
done
grep -q $'\033' "$tmp/stdout" && fail "bench step: colours in a file"
for format in md csv; do
  good bench step $model --threads 1 --repeats 1 --format $format
  grep -q 'mfu' "$tmp/stdout" || fail "bench step --format $format has no MFU"
done
good bench step $model --threads 1 --repeats 1
grep -q 'spread 0.0 % of 1)' "$tmp/stdout" || fail "bench step --repeats 1: $(grep step "$tmp/stdout")"

# jobs of a sweep: strong scaling keeps the tokens of a step, weak scaling those of a rank; one rank has no strategy
good bench step $model --sweep cp=1,2 --cp-strategy ring --repeats 1 --format jsonl
python3 - "$tmp/stdout" <<'PY' || fail "bench step --sweep cp=1,2"
import json, sys
rows = [json.loads(line) for line in open(sys.argv[1])]
assert [(r["scaling"], r["ranks"], r["seq_length"]) for r in rows] == \
    [("strong", 1, 64), ("strong", 2, 64), ("weak", 1, 64), ("weak", 2, 128)], rows
for r in rows:
    assert abs(r["tokens_per_second"] * r["seconds"] / r["seq_length"] - 1) < 1e-3, r
    assert abs(r["efficiency"] * r["ranks"] / r["speed_up"] - 1) < 1e-3, r
assert rows[0]["speed_up"] == rows[2]["speed_up"] == 1 and rows[0] | {"scaling": "weak"} == rows[2], rows
PY
good bench step $model --sweep tp=1,2 --sequence-parallel --repeats 1 --format csv
[ "$(grep -c . "$tmp/stdout")" = 5 ] || fail "bench step --sweep tp=1,2 --format csv: $(cat "$tmp/stdout")"
good bench step $model --sweep dp=1,2 --repeats 1
grep -q '^strong  *2  *2  *64  *2 ' "$tmp/stdout" || fail "bench step --sweep dp=1,2: $(cat "$tmp/stdout")"

refused 'one of cp, tp, dp, pp' bench step --sweep xp=1,2
refused 'ascending' bench step --sweep cp=2,1
refused 'ascending' bench step --sweep cp=1,,2
refused 'give one of them' bench step --sweep cp=1,2 --cp 2
refused 'give --cp-strategy instead' bench step --sweep cp=1,2 --dcp-size 2
refused 'of 3 stages (--pp) with 2 layers; every stage needs one' bench step $model --sweep pp=3,4 --repeats 1
refused 'no use for the option bench.sweep' bench cp --sweep cp=1,2
refused 'bench step has no use for the option attention.make' bench step --make 'T=8 H=1 D=8'
refused 'one word too many' bench step x
refused 'global' bench step $model --dp 2 --global-batch-size 3
# a sweep that is ended takes its job along
mkdir -p "$tmp/swept"
( cd "$tmp/swept" && exec "$WEFT" bench step --sweep cp=1,2 --seq-length 4096 --repeats 15 >out 2>err </dev/null ) &
sweep=$!
for i in $(seq 100); do running "bench step --set bench.repeats=15 --cp=1 --seq-length=4096" && break; sleep 0.1; done
kill -TERM $sweep
wait $sweep 2>/dev/null
for i in $(seq 50); do running "bench step --set bench.repeats=15 --cp=1 --seq-length=4096" || break; sleep 0.1; done
running "bench step --set bench.repeats=15 --cp=1 --seq-length=4096" && fail "the job of a sweep outlives it"
finish
