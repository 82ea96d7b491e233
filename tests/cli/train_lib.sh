# train_lib.sh — a text, a small model and its losses, for the tests of `weft train`; sourced.
. "$(dirname "$0")/lib.sh"
for i in $(seq 1 3000); do echo "line $i of a text that a small model can learn: $((i * i % 97))"; done >"$tmp/data.txt"
model="--hidden-size 32 --num-layers 2 --num-attention-heads 4 --num-query-groups 2"
common="$model --data data.txt --seq-length 257 --steps 6 --lr 3e-3 --warmup-steps 2 --global-batch-size 4 --threads 1"
losses() { python3 -c 'import json,sys
for l in open(sys.argv[1]): print(repr(json.loads(l)["loss"]))' "$tmp/runs/$1/metrics.jsonl"; }
close() { python3 - "$1" "$2" "$3" <<'P' || fail "losses of $4 differ"
import sys
a, b = [float(x) for x in sys.argv[1].split()], [float(x) for x in sys.argv[2].split()]
ok = len(a) == len(b) == 6 and max(abs(x - y) for x, y in zip(a, b)) <= float(sys.argv[3])
sys.exit(not ok)
P
}
