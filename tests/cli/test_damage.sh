#!/usr/bin/env bash
# labels: small
# timeout: 200
# Damaged checkpoints: --resume auto passes over them and says why, a path to one is refused, weft checkpoint verify
# finds them; what is left of them never stands in the way.
. "$(dirname "$0")/resume_lib.sh"
good train $short --name full --save-interval 3
six=runs/kept/step-00000006
keep() { rm -rf "$tmp/runs/kept"; cp -r "$tmp/runs/full" "$tmp/runs/kept"; }

# passes_over WORDS: the newest is damaged; the run goes on from step 3, and the damaged one is moved aside
passes_over() {
  ( cd "$tmp" && "$WEFT" checkpoint verify $six >stdout 2>stderr ); local code=$?
  [ $code = 1 ] && grep -qF -- "$1" "$tmp/stdout" || fail "verify, $1: exit $code: $(cat "$tmp/stdout" "$tmp/stderr")"
  refused "$1" train $short --data "$tmp/data.txt" --runs "$tmp/runs" --name again --resume "$tmp/$six"
  good train $short --name kept --resume auto --cp 2 --dp 2
  warned "resume passes over"
  warned "$1"
  within "$(at kept 6)" "$(at full 6)" 1e-5 || fail "$1: the last loss is $(at kept 6), not $(at full 6)"
  [ "$(losses kept | wc -l)" = 6 ] || fail "$1: $(losses kept | wc -l) lines of metrics"
  good checkpoint verify $six
}
flip() { python3 - "$tmp/$six/$1" "$2" <<'P'
import sys
with open(sys.argv[1], "r+b") as f:
    f.seek(0, 2); f.seek(int(f.tell() * float(sys.argv[2]))); b = f.read(1); f.seek(-1, 1); f.write(bytes([b[0] ^ 4]))
P
}
g09_damage_is_passed_over_or_refused() {
  keep; flip optimizer-00001-of-00001.safetensors 0.7; passes_over "optimizer-00001-of-00001.safetensors is damaged"
  keep; : >"$tmp/$six/state.json"; passes_over "state.json has 0 bytes"
  keep; rm "$tmp/$six/manifest.json"; passes_over "has no manifest.json"
}
g09_damage_is_passed_over_or_refused

# every byte counts, unless that is not wanted
keep; flip model.safetensors 0.5
good train $short --name kept --resume auto --no-verify-checkpoint --steps 7
warned "train.steps is 7, was 6"

# nothing good is left: no silent start anew
keep; rm -r "$tmp/runs/kept/step-00000003"; flip state.json 0.5
refused "none of the 1 checkpoint" train $short --data "$tmp/data.txt" --runs "$tmp/runs" --name kept --resume auto

# what a killed save left
keep; rm "$tmp/runs/kept/latest"; mv "$tmp/$six" "$tmp/$six.tmp-4711"; rm "$tmp/$six.tmp-4711/manifest.json"
good train $short --name kept --resume auto
[ ! -e "$tmp/$six.tmp-4711" ] || fail "what a killed save left is still there"
[ "$(losses kept)" = "$(losses full)" ] || fail "after a killed save: $(losses kept)"

# keep-last and keep-every
good train $short --name pruned --save-interval 1 --keep-last 2 --keep-every 3 --steps 6
left=$(cd "$tmp/runs/pruned" && ls -d step-* | tr '\n' ' ')
[ "$left" = "step-00000003 step-00000005 step-00000006 " ] || fail "kept $left"

finish
