#!/usr/bin/env bash
# test.sh PART... — builds and runs tests; the last line is "N passed, N failed", over all parts.
#   release  every small test, with the flags that users get
#   asan     the same under the address and undefined-behaviour sanitizers (less what is labelled noasan)
#   tsan     what is labelled tsan, under the thread sanitizer, with ranks as threads and OpenMP off
#   long     every test of every label
#   fuzz     the libFuzzer targets, FUZZ_SECONDS (600) each; needs clang
set -u
cd "$(dirname "$0")/.."
build=${BUILD:-build} jobs=${JOBS:-2} passed=0 failed=0
tools/setup.sh build test || exit 1

# run NAME FOLDER TARGET CTEST-ARGUMENTS -- CMAKE-ARGUMENTS
run() {
  local name=$1 folder=$2 target=$3 select=() log
  shift 3
  while [ "$1" != -- ]; do select+=("$1"); shift; done
  shift
  echo "== $name: build in $folder"
  if ! { tools/configure.sh "$folder" "$@" && cmake "$folder" -DWEFT_TESTS=ON >/dev/null &&
    tools/build.sh "$folder" -j "$jobs" --target "$target"; }; then
    echo "== $name: the build failed"
    failed=$((failed + 1))
    return
  fi
  log=$(mktemp)
  echo "== $name: tests"
  ctest --test-dir "$folder" -j "$jobs" --output-on-failure --no-tests=error "${select[@]}" | tee "$log"
  local status=${PIPESTATUS[0]} bad total
  read -r bad total < <(sed -n 's/.* tests passed, \([0-9]*\) tests\{0,1\} failed out of \([0-9]*\)$/\1 \2/p' "$log")
  rm -f "$log"
  # ctest that dies or finds nothing must not count as a success.
  if [ -z "${total:-}" ] || { [ "$status" -ne 0 ] && [ "$bad" -eq 0 ]; }; then
    bad=$((${bad:-0} + 1)) total=$((${total:-0} + 1))
  fi
  passed=$((passed + total - bad)) failed=$((failed + bad))
  echo "== $name: $((total - bad)) passed, $bad failed"
}

# Tests spend their time in small cases: -O1 compiles faster and the sanitizers' reports stay readable.
quick=(-DCMAKE_BUILD_TYPE=Sanitize "-DCMAKE_C_FLAGS_SANITIZE=-O1 -g1")
export ASAN_OPTIONS=${ASAN_OPTIONS:-detect_leaks=1} UBSAN_OPTIONS=${UBSAN_OPTIONS:-print_stacktrace=1}
for part in "$@"; do
  case "$part" in
  release) run release "$build" all -L small -- ;;
  asan) run asan build-asan all -L small -LE noasan -- "${quick[@]}" -DWEFT_SANITIZE=address,undefined ;;
  tsan) run tsan build-tsan tsan_tests -L tsan -- "${quick[@]}" -DWEFT_SANITIZE=thread -DWEFT_OPENMP=OFF ;;
  fuzz)
    tools/setup.sh fuzz || exit 1
    WEFT_CC=clang run fuzz build-fuzz fuzzers -L fuzz -- "${quick[@]}" -DWEFT_FUZZ=ON -DWEFT_OPENMP=OFF \
      -DWEFT_SANITIZE=address,undefined
    ;;
  long) run long "$build" all -- ;;
  *) echo "test.sh: no part '$part'; there are release, asan, tsan, long, fuzz" >&2; exit 1 ;;
  esac
done
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
