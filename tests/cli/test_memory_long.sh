#!/usr/bin/env bash
# labels: long
# timeout: 3600
# Memory against the operating system's numbers: a run that is planned for more than 1 GiB has a resident set within
# 10 % of the plan, and 2,000 steps of documents of all lengths leave a small run's resident set where it was.
. "$(dirname "$0")/train_lib.sh"
for i in $(seq 1 40000); do echo "line $i of a longer text: $((i * i % 9973))"; done >"$tmp/long.txt"
bytes() { awk -v n="$1" -v u="$2" \
  'BEGIN { print n * (u == "GiB" ? 2 ^ 30 : u == "MiB" ? 2 ^ 20 : u == "KiB" ? 1024 : 1) }'; }
good train --data long.txt --hidden-size 512 --num-layers 4 --num-attention-heads 8 --seq-length 16K --steps 1 \
  --warmup-steps 0 --eval-sequences 0 --name large
planned=$(bytes $(awk '/^sum/ { print $4, $5 }' "$tmp/stdout"))
resident=$(bytes $(awk '/^resident/ { print $2, $3 }' "$tmp/stdout"))
awk -v p="$planned" -v r="$resident" 'BEGIN { exit !(p > 2 ^ 30 && r / p < 1.1 && p / r < 1.1) }' ||
  fail "planned $planned bytes, resident $resident: $(grep -A20 '^memory' "$tmp/stdout")"

# Documents of 1 to some 400 bytes, another mixture in every step.
awk 'BEGIN { srand(7); for (i = 0; i < 60000; i++) { n = int(exp(rand() * 6)); s = ""
  for (j = 0; j < n; j++) s = s sprintf("%c", 97 + int(rand() * 26)); printf "%s|", s } }' >"$tmp/docs.txt"
good train $model --data docs.txt --separator '|' --document-mask --seq-length 513 --steps 2000 --warmup-steps 10 \
  --eval-sequences 0 --cp 2 --cp-layout balanced --recompute full --mlp-rows 100 --name flat
python3 - "$tmp/runs/flat/metrics.jsonl" <<'P' || fail "the resident set grows"
import json, sys
r = [json.loads(l)["resident_bytes"] for l in open(sys.argv[1])]
early, late = max(r[50:200]), max(r[-150:])
print("resident after 200 steps %.2f MiB, after %d %.2f MiB" % (early / 2**20, len(r), late / 2**20))
# a page of a stack or of the library's heap may still be touched for the first time: 1 %
sys.exit(not (len(r) == 2000 and late <= 1.01 * early))
P
finish
