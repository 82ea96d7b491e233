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
# on_terminal COLUMNS ARGS...: as good, with a terminal of that width for its output
on_terminal() {
  ( cd "$tmp" && timeout 120 python3 - "$@" >stdout 2>stderr <<'P'
import fcntl, os, pty, struct, subprocess, sys, termios
ours, theirs = pty.openpty()
fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, int(sys.argv[1]), 0, 0))
child = subprocess.Popen([os.environ["WEFT"]] + sys.argv[2:], stdin=subprocess.DEVNULL, stdout=theirs)
os.close(theirs)
try:
    while data := os.read(ours, 65536):
        sys.stdout.buffer.write(data)
except OSError:
    pass  # the other end is closed
sys.exit(child.wait())
P
  ) || fail "weft ${*:2} on a terminal of $1 columns: $(tail -n 3 "$tmp/stdout" "$tmp/stderr")"
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
