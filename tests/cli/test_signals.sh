#!/usr/bin/env bash
# labels: small
# timeout: 120
# Ctrl-C, SIGTERM and SIGUSR1: the step is finished, saved, and the run leaves with 0; a second Ctrl-C ends it now. The
# run that goes on has the losses of one that nobody stopped.
. "$(dirname "$0")/resume_lib.sh"
long=${short/--steps 6/--steps 400}
# start NAME FLAGS...: in the background, until the first steps are done
start() {
  local name=$1; shift
  (cd "$tmp" && exec "$WEFT" train $long --name "$name" "$@" >out 2>err </dev/null) & pid=$!
  for i in $(seq 400); do
    [ "$(cat "$tmp/runs/$name/metrics.jsonl" 2>/dev/null | wc -l)" -gt 2 ] && return
    sleep 0.05
  done
  fail "$name did not begin: $(cat "$tmp/err")"
}
steps() { wc -l <"$tmp/runs/$1/metrics.jsonl"; }
stopped() { # NAME SIGNAL
  kill -"$2" $pid; wait $pid; local code=$?
  [ $code = 0 ] || fail "$2, $1: exit $code: $(tail -2 "$tmp/err")"
  grep -q 'stopped  ' "$tmp/out" || fail "$2, $1: does not say that it stopped: $(tail -2 "$tmp/out")"
  # one line, and no progress to move away from in a file
  grep -qx 'weft: .*: this step is finished and saved, then the run ends.*' "$tmp/err" && ! grep -qx '' "$tmp/err" ||
    fail "$2, $1: says: $(cat "$tmp/err")"
  good checkpoint verify "runs/$1/step-$(printf %08d "$(steps "$1")")"
}
start one; stopped one INT
start two --cp 2 --dp 2; stopped two TERM
start three --dp 2; stopped three USR1
n=$(steps two)
[ "$n" -lt 400 ] || fail "nothing was left to do"
good train ${long/--steps 400/--steps $((n + 1))} --name two --cp 2 --dp 2 --resume auto
[ "$(steps two)" = $((n + 1)) ] || fail "$(steps two) steps after a stop at $n and one more"
good train ${long/--steps 400/--steps $((n + 1))} --name whole --cp 2 --dp 2
[ "$(losses two)" = "$(losses whole)" ] || fail "a run that was stopped has other losses"

# a rank that hangs in its save: Ctrl-C once is remembered, twice ends it
WEFT_FAULT=stop:rank=1:site=ckpt.begin start hung --dp 2
kill -INT $pid; sleep 0.6
running "--name hung" || fail "one Ctrl-C ended a run that was saving"
kill -INT $pid; wait $pid; code=$?
[ $code = 3 ] || fail "two Ctrl-C: exit $code"
for i in $(seq 100); do running "--name hung" || break; sleep 0.05; done
running "--name hung" && fail "ranks are left behind"
finish
