# doctor_lib.sh — helpers of the tests of `weft doctor`; sourced after lib.sh.
unset OMP_NUM_THREADS GOMP_SPINCOUNT OMP_PROC_BIND GOMP_CPU_AFFINITY WEFT_ISA # as a user's shell
mkdir "$tmp/folder"

sets="--isa ref" # of kernels, which take most of the time; empty: all

# doctor CODE ARGS...: its lines as JSON in $tmp/lines; what is not fine has a command
doctor() {
  local want=$1; shift
  ( cd "$tmp" && timeout 120 "$WEFT" doctor --format jsonl $sets "$@" >lines 2>stderr </dev/null ); local code=$?
  [ $code = "$want" ] || fail "weft doctor $*: exit $code, wanted $want: $(tail -n 3 "$tmp/lines" "$tmp/stderr")"
  [ ! -s "$tmp/stderr" ] || fail "weft doctor $*: $(cat "$tmp/stderr")"
  python3 - "$tmp/lines" <<'E' || fail "weft doctor $*: lines"
import json, sys
for line in open(sys.argv[1]):
    row = json.loads(line)
    assert list(row) == ["verdict", "subject", "text", "mend"] and row["text"], row
    assert row["verdict"] in ("ok", "note", "look", "bad"), row
    assert row["mend"] or row["verdict"] in ("ok", "note"), row
    assert not (row["mend"] and row["verdict"] == "ok"), row
E
}
# line VERDICT SUBJECT PART: there is one
line() {
  grep -F "\"verdict\": \"$1\", \"subject\": \"$2\"" "$tmp/lines" | grep -qF -- "$3" ||
    fail "no line '$1 $2 ... $3': $(grep -F "\"$2\"" "$tmp/lines")"
}

# apart CODE COMMANDS ARGS...: as doctor, after these commands in mounts of its own
apart() {
  local want=$1 how=$2; shift 2
  ( cd "$tmp" && timeout 120 unshare -rm bash -c "$how; exec \"\$@\"" - "$WEFT" doctor --format jsonl $sets "$@" \
    >lines 2>stderr </dev/null ); local code=$?
  [ $code = "$want" ] ||
    fail "weft doctor $* after '$how': exit $code, wanted $want: $(tail -n 3 "$tmp/lines" "$tmp/stderr")"
}
# limited OPTIONS CODE VERDICT SUBJECT PART: with this ulimit
limited() {
  ( ulimit $1; doctor "$2" folder; line "$3" "$4" "$5"; exit $failures )
  [ $? = $failures ] || failures=$((failures + 1))
}
