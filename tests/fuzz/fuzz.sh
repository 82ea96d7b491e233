#!/usr/bin/env bash
# fuzz.sh PROGRAM CORPUS — one libFuzzer target for FUZZ_SECONDS (600): from the inputs in the tree, and from those
# that earlier runs found in the build folder. An input that breaks a promise, takes FUZZ_TIMEOUT (10) seconds or more
# memory than the limits is kept beside them, and the exit status is not 0.
set -euo pipefail
program=$1 corpus=$2
found=$(dirname "$program")/found/$(basename "$corpus")
words=$(dirname "$0")/$(basename "$corpus").dict
options=(-timeout="${FUZZ_TIMEOUT:-10}" -rss_limit_mb=1024 -malloc_limit_mb=256 -max_len="${FUZZ_LENGTH:-8192}"
  -print_final_stats=1 -verbosity=0 -artifact_prefix="$found-")
if [ -e "$words" ]; then options+=(-dict="$words"); fi
mkdir -p "$found"

# libFuzzer's clock also runs while the machine is suspended or busy elsewhere: an input that is quick when it runs
# alone was not what took the time. Then the search goes on for the seconds that are left.
is_quick() { # LOG
  local input
  input=$(grep -o "Test unit written to .*-timeout-[0-9a-f]*" "$1" | tail -1 | cut -c 22-)
  [ -n "$input" ] && "$program" "${options[@]}" "$input" && rm "$input"
}

timed_out=70 # libFuzzer's exit status for it
end=$((SECONDS + ${FUZZ_SECONDS:-600}))
log=$(mktemp)
trap 'rm -f "$log"' EXIT
while [ "$SECONDS" -lt "$end" ]; do
  status=0
  "$program" "${options[@]}" -max_total_time=$((end - SECONDS)) "$found" "$corpus" 2>&1 | tee "$log" || status=$?
  if [ "$status" = 0 ]; then exit; fi
  if [ "$status" != "$timed_out" ] || ! is_quick "$log"; then exit "$status"; fi
  echo "fuzz.sh: that input is quick when it runs alone: not a hang"
done
