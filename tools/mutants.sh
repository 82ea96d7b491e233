#!/usr/bin/env bash
# mutants.sh [NAME...] — plants one fault at a time and runs the small tests until one fails: prints which test caught it.
# Exit status 1 when a fault was not caught, or when the unharmed build fails. The list is src/base/plant_list.inc.
set -u
cd "$(dirname "$0")/.."
build=${BUILD_MUTANTS:-build-mutants} jobs=${JOBS:-2}
tools/setup.sh build test || exit 1
mapfile -t all < <(sed -n 's/^PLANT(\([a-z0-9_]*\), "\(.*\)")$/\1|\2/p' src/base/plant_list.inc)
wanted=("$@")
log=$(mktemp)
trap 'rm -f "$log"' EXIT

if ! { tools/configure.sh "$build" -DWEFT_PLANTS=ON && cmake "$build" -DWEFT_TESTS=ON >/dev/null &&
  cmake --build "$build" -j "$jobs" >"$log" 2>&1; }; then
  tail -20 "$log" >&2
  echo "mutants: the build failed" >&2
  exit 1
fi

# The rooms in which a numerical fault shows first; what finds nothing there is looked for in all small tests.
likely='^(shard|cp|comm|model|train|optim)\.'
first_failure() { # WEFT_PLANT PATTERN...
  local plant=$1
  shift
  WEFT_PLANT=$plant ctest --test-dir "$build" -j "$jobs" -L small --stop-on-failure "$@" >"$log" 2>&1
  sed -n 's/^ *[0-9]* - \([a-z0-9_.]*\) (.*$/\1/p' "$log" | head -1
}

failed=0
printf '%-20s %-26s %s\n' fault 'caught by' 'what is wrong'
if [ "${#wanted[@]}" -eq 0 ]; then
  caught=$(first_failure none)
  [ -z "$caught" ] || { echo "mutants: $caught fails without a fault" >&2; exit 1; }
  printf '%-20s %-26s %s\n' '(none)' - 'all small tests hold'
fi
for row in "${all[@]}"; do
  name=${row%%|*} what=${row#*|}
  if [ "${#wanted[@]}" -gt 0 ] && [[ " ${wanted[*]} " != *" $name "* ]]; then continue; fi
  caught=$(first_failure "$name" -R "$likely")
  [ -n "$caught" ] || caught=$(first_failure "$name")
  [ -n "$caught" ] || { caught='NOT CAUGHT'; failed=1; }
  printf '%-20s %-26s %s\n' "$name" "$caught" "$what"
done
exit $failed
