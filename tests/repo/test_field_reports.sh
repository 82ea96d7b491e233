#!/usr/bin/env bash
# labels: small noasan
# The table of field reports is true: all forty rows, once; each file that a row names has a test that begins with the
# row's name and is run; and no test bears the name of a row that does not name its file.
set -u
cd "${WEFT_SRC:?run through ctest}" || exit 1
table=docs/dev/field_reports.md
failures=0
fail() { echo "FAILED: $*"; failures=$((failures + 1)); }

# has FILE ROW: cases of a C file are in its list, functions of a script are called
has() {
  case $1 in
  *.c) grep -qE "cmocka_unit_test[a-z_]*\((g[0-9]{2}_)*$2_" "$1" ;;
  *.sh) grep -qE "^(g[0-9]{2}_)*$2_[a-z0-9_]+\(\) \{" "$1" && grep -qE "^ *(g[0-9]{2}_)*$2_[a-z0-9_]+$" "$1" ;;
  esac
}

named=0
for row in $(seq -f 'G%02g' 1 40); do
  line=$(grep "^| $row | " "$table")
  [ "$(grep -c "^| $row | " "$table")" = 1 ] || fail "$row is not one row of $table"
  files=$(grep -oE 'tests/[a-z_]+/test_[a-z0-9_]+\.(c|sh)' <<<"$line")
  [ -n "$files" ] || fail "$row names no test"
  for file in $files; do
    [ -e "$file" ] || { fail "$row: no $file"; continue; }
    has "$file" "${row,}" || fail "$row: no test ${row,}_... in $file"
    named=$((named + 1))
  done
done
[ $named -ge 50 ] || fail "only $named tests are named in $table"

for file in tests/*/test_*.c tests/*/test_*.sh; do
  for row in $(grep -ohE "cmocka_unit_test[a-z_]*\((g[0-9]{2}_)+|^(g[0-9]{2}_)+[a-z0-9_]+\(\) \{" "$file" |
    grep -oE 'g[0-9]{2}_' | sort -u); do
    grep -qE "^\| G${row:1:2} \|.*$file" "$table" || fail "$file has a test of ${row%_}, which $table does not name"
  done
done
[ $failures = 0 ] || { echo "$failures failures"; exit 1; }
echo "$named tests of field reports"
