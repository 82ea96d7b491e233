# lib.sh — helpers of the command-line tests; sourced. WEFT is the program, WEFT_GOLDEN the golden cases.
set -u
: "${WEFT:?run through ctest}" "${WEFT_GOLDEN:?run through ctest}"
tmp=$(mktemp -d /tmp/weft-cli-XXXXXX)
trap 'rm -rf "$tmp"' EXIT
failures=0
fail() { echo "FAILED: $*"; failures=$((failures + 1)); }

# refused PART ARGS...: exit 2, exactly one line on stderr that contains PART, nothing on stdout, no file made.
refused() {
  local part=$1; shift
  ( cd "$tmp" && mkdir -p empty && cd empty && timeout 60 "$WEFT" "$@" >../stdout 2>../stderr </dev/null )
  local code=$?
  [ $code = 2 ] || fail "weft $*: exit $code, wanted 2: $(head -3 "$tmp/stderr")"
  grep -qF -- "$part" "$tmp/stderr" || fail "weft $*: stderr lacks '$part': $(cat "$tmp/stderr")"
  [ "$(wc -l <"$tmp/stderr")" = 1 ] || fail "weft $*: not one line on stderr: $(cat "$tmp/stderr")"
  [ ! -s "$tmp/stdout" ] || fail "weft $*: wrote to stdout: $(head -2 "$tmp/stdout")"
  [ -z "$(ls -A "$tmp/empty")" ] || { fail "weft $*: left $(ls -A "$tmp/empty")"; rm -rf "$tmp/empty"; }
}
# good ARGS...: exit 0; output in $tmp/stdout.
good() {
  ( cd "$tmp" && timeout "${GOOD_SECONDS:-300}" "$WEFT" "$@" >stdout 2>stderr </dev/null ); local code=$?
  [ $code = 0 ] || fail "weft $*: exit $code: $(cat "$tmp/stdout" "$tmp/stderr" | tail -n 3)"
}
# running PATTERN: is there a process whose words match? (pgrep is not on every machine)
running() {
  local c
  for c in /proc/[0-9]*/cmdline; do
    if { tr '\0' ' ' <"$c"; } 2>/dev/null | grep -qE -- "$1"; then return 0; fi
  done
  return 1
}
finish() {
  [ $failures = 0 ] || { echo "$failures failures"; exit 1; }
  echo "all hold"
}
