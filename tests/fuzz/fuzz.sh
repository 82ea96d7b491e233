#!/usr/bin/env bash
# fuzz.sh PROGRAM CORPUS — one libFuzzer target for FUZZ_SECONDS (600): from the inputs in the tree, and from those
# that earlier runs found in the build folder. An input that breaks a promise, takes FUZZ_TIMEOUT (10) seconds or more
# memory than the limits is kept beside them, and the exit status is not 0.
set -eu
program=$1 corpus=$2
found=$(dirname "$program")/found/$(basename "$corpus")
words=$(dirname "$0")/$(basename "$corpus").dict
options=(-max_total_time="${FUZZ_SECONDS:-600}" -timeout="${FUZZ_TIMEOUT:-10}" -rss_limit_mb=1024 -malloc_limit_mb=256
  -max_len="${FUZZ_LENGTH:-8192}" -print_final_stats=1 -verbosity=0 -artifact_prefix="$found-")
if [ -e "$words" ]; then options+=(-dict="$words"); fi
mkdir -p "$found"
exec "$program" "${options[@]}" "$found" "$corpus"
