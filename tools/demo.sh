#!/usr/bin/env bash
# demo.sh [BUILD] — trains a small Llama on the King James Bible with two ranks and compares with one rank.
set -euo pipefail
build=${1:-${BUILD:-build}}
text=$build/bible.txt
if ! command -v bible >/dev/null; then
  echo "demo: the program 'bible' is missing; apt-get install bible-kjv, or run:" \
    "$build/weft train examples/demo.yaml --data YOUR.txt" >&2
  exit 1
fi
bible -f "gen1:1-rev22:21" >"$text.tmp"
mv "$text.tmp" "$text"
exec "$build/weft" train examples/demo.yaml --data "$text" --name demo --overwrite --sample-tokens 300 \
  --compare-one-rank 40
