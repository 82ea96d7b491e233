# crash_lib.sh — runs that are killed while they save, and a disk that fills up; sourced.
. "$(dirname "$0")/resume_lib.sh"
layout="--cp 2 --save-interval 2"
good train $short --name full $layout
want=$(losses full)

# Goes on under another layout where the first one was killed, and must come to the end that was wanted.
goes_on() { # WHAT
  local newest
  newest=$(ls -d "$tmp/runs/crash"/step-???????? 2>/dev/null | tail -1)
  good train $short --name crash $layout --resume auto
  [ "$(losses crash)" = "$want" ] || fail "$1: other losses after it: $(losses crash | tr '\n' ' ')"
  [ "$(next crash 6)" = 24 ] || fail "$1: the next sequence is $(next crash 6)"
  if [ -n "$newest" ] && [ "${newest##*-}" -lt 6 ]; then
    grep -q "goes on .*${newest##*/}" "$tmp/stdout" || fail "$1: did not go on from ${newest##*/}"
  fi
  good checkpoint verify runs/crash/latest
  left=$(ls -d "$tmp/runs/crash"/*.tmp-* 2>/dev/null)
  [ -z "$left" ] || fail "$1: it is still there: $left"
}
# crash FAULT: the fault kills a rank, and the job with it
crash() {
  rm -rf "$tmp/runs/crash"
  ( cd "$tmp" && WEFT_FAULT=$1 timeout 60 "$WEFT" train $short --name crash $layout >stdout 2>stderr </dev/null )
  local code=$?
  [ $code != 0 ] || fail "$1 did not act"
  goes_on "$1"
}
# A disk too small for two checkpoints: the run ends, or warns and goes on, and the first one stays whole.
full_disk() {
  unshare -m true 2>/dev/null || { echo "no mount namespace here: the full disk is left out"; return; }
  local how
  for how in stop warn; do
    cat >"$tmp/fill.sh" <<S
mkdir -p "$tmp/small" && mount -t tmpfs -o size=700k none "$tmp/small" || exit 77
cd "$tmp" && "$WEFT" train $short --name crash --runs small $layout --save-failure $how >stdout 2>stderr
code=\$?
"$WEFT" checkpoint verify small/crash/step-00000002 >>stdout 2>&1 || code="\$code, and the first is damaged"
ls small/crash >left
echo "\$code" >code
S
    unshare -m bash "$tmp/fill.sh"
    [ $? = 77 ] && { echo "no tmpfs here: the full disk is left out"; return; }
    [ "$(cat "$tmp/code")" = 3 ] || fail "full disk, $how: exit $(cat "$tmp/code"): $(tail -2 "$tmp/stderr")"
    grep -q 'cannot write small/crash/step-.*No space left on device' "$tmp/stderr" ||
      fail "full disk, $how: $(tail -2 "$tmp/stderr")"
    ! grep -q tmp- "$tmp/left" || fail "full disk, $how: it left $(cat "$tmp/left")"
    # the last one has no later one to make up for it: with either policy the run must not end as if all were well
    [ $how = stop ] || grep -q 'training goes on' "$tmp/stderr" || fail "full disk, warn: $(cat "$tmp/stderr")"
  done
}
