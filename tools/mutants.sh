#!/usr/bin/env bash
# mutants.sh [NAME...] — plants one fault at a time and runs the small tests until one fails: prints which test caught
# it and what that test said. Exit status 1 when a fault was not caught, when the unharmed build fails, or when there is
# no such fault. The list is src/base/plant_list.inc.
set -u
cd "$(dirname "$0")/.."
build=${BUILD_MUTANTS:-build-mutants} jobs=${JOBS:-2}
tools/setup.sh build test || exit 1
mapfile -t all < <(sed -n 's/^PLANT(\([a-z0-9_]*\), "\(.*\)")$/\1|\2/p' src/base/plant_list.inc)
for name in "$@"; do
  [[ " ${all[*]%%|*} " == *" $name "* ]] || { echo "mutants: no fault '$name'; there are ${all[*]%%|*}" >&2; exit 1; }
done
log=$(mktemp)
trap 'rm -f "$log"' EXIT

if ! { tools/configure.sh "$build" -DWEFT_PLANTS=ON && cmake "$build" -DWEFT_TESTS=ON >/dev/null &&
  cmake --build "$build" -j "$jobs" >"$log" 2>&1; }; then
  tail -20 "$log" >&2
  echo "mutants: the build failed" >&2
  exit 1
fi

# first_failure FAULT JOBS CTEST-ARGUMENTS: sets `caught` to the first small test that fails, empty when all pass. A
# ctest that fails without a failed test shows nothing about the fault.
first_failure() {
  local fault=$1 at_once=$2
  shift 2
  caught=
  WEFT_PLANT=$fault ctest --test-dir "$build" -j "$at_once" -L small --output-on-failure --stop-on-failure \
    --no-tests=error "$@" \
    >"$log" 2>&1 && return
  caught=$(sed -n 's/^[[:space:]]*[0-9]* - \([^ ]*\) (.*)$/\1/p' "$log" | head -1)
  [ -n "$caught" ] || { tail -5 "$log" >&2; echo "mutants: ctest failed, but no test" >&2; exit 1; }
}

# What the test said first, and where: of an assertion, or of a script (tests/cli/lib.sh).
complaint() {
  local said where
  said=$(sed -n -e 's/^ERROR: //p' -e 's/^\[ *ERROR *\] --- \(\[ *LINE.*\)*//p' -e 's/^FAILED: //p' "$log" | grep -m1 .)
  where=$(sed -n 's/.*\[ *LINE *\] --- .*\/\(tests\/[^:]*:[0-9]*\): .*/\1/p' "$log" | head -1)
  printf '    %.300s%s\n' "${said:-no message}" "${where:+ ($where)}"
}

failed=0
printf '%-20s %-26s %s\n' fault 'caught by' 'what is wrong'
if [ "$#" -eq 0 ]; then
  first_failure none "$jobs"
  [ -z "$caught" ] || { cat "$log" >&2; echo "mutants: $caught fails without a fault" >&2; exit 1; }
  printf '%-20s %-26s %s\n' '(none)' - 'all small tests hold'
fi
# Every fault meets the same tests in the same order, one at a time, so that the answer is the same in every run: first
# what is quick and wide, then the rooms in which a numerical fault shows, then all.
wide='^(shard|optim)\.|^cp\.(api|pairs|properties)$|^train\.(.*step|resume_layouts)$|^ckpt\.checkpoint$|^model\.tensor_'
for row in "${all[@]}"; do
  name=${row%%|*} what=${row#*|}
  if [ "$#" -gt 0 ] && [[ " $* " != *" $name "* ]]; then continue; fi
  first_failure "$name" 1 -R "$wide"
  [ -n "$caught" ] || first_failure "$name" 1 -R '^(cp|model|train)\.'
  [ -n "$caught" ] || first_failure "$name" "$jobs"
  printf '%-20s %-26s %s\n' "$name" "${caught:-NOT CAUGHT}" "$what"
  if [ -n "$caught" ]; then complaint; else failed=1; fi
done
exit $failed
