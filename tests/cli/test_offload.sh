#!/usr/bin/env bash
# labels: small
# timeout: 120
# Inputs of layers in a file: a folder that is too small for all ranks is refused by all before the first step; a run
# that is killed leaves nothing behind; a failure in the middle ends all ranks with one message; weft verify takes it.
. "$(dirname "$0")/train_lib.sh"
few="$(echo "$common" | sed 's/--num-layers 2/--num-layers 5/') --steps 2 --warmup-steps 0 --eval-sequences 0"
mkdir "$tmp/away"

# ends CODE PART FAULT
ends() {
  ( cd "$tmp" && WEFT_FAULT=$3 timeout 60 "$WEFT" train $few --cp 2 --recompute full --offload "file:$tmp/away" \
    --name killed --overwrite >stdout 2>stderr </dev/null )
  local code=$?
  [ $code = "$1" ] || fail "$3: exit $code, wanted $1: $(cat "$tmp/stderr")"
  grep -qF -- "$2" "$tmp/stderr" || fail "$3: stderr lacks '$2': $(cat "$tmp/stderr")"
  [ -z "$(ls -A "$tmp/away")" ] || fail "$3: left $(ls -A "$tmp/away")"
}
ends 3 'rank 1' kill:rank=1:site=spill.put:hit=7
ends 3 'offloaded inputs of layers, at layer' fail:rank=1:site=spill.get:hit=2
grep -q 'injected fault at spill.get' "$tmp/stderr" || fail "the cause is not named: $(cat "$tmp/stderr")"

# The second rank's file does not fit: 5 inputs of 129 rows of 32 numbers of 4 bytes, 100 KiB each.
full_disk() {
  unshare -m true 2>/dev/null || { echo "no mount namespace here: the full disk is left out"; return; }
  cat >"$tmp/fill.sh" <<S
mkdir -p "$tmp/small" && mount -t tmpfs -o size=150k none "$tmp/small" || exit 77
cd "$tmp" && "$WEFT" train $few --cp 2 --recompute full --offload file:$tmp/small --name full >stdout 2>stderr
echo \$? >code
ls -A small runs/full >left 2>/dev/null
S
  unshare -m bash "$tmp/fill.sh"
  [ $? = 77 ] && { echo "no tmpfs here: the full disk is left out"; return; }
  [ "$(cat "$tmp/code")" = 2 ] || fail "full disk: exit $(cat "$tmp/code"): $(cat "$tmp/stderr")"
  grep -q 'has no room for a file of 1[0-9]*.*KiB: No space left on device' "$tmp/stderr" ||
    fail "full disk: $(cat "$tmp/stderr")"
  ! grep -q . "$tmp/left" || [ "$(cat "$tmp/left")" = "small:" ] || fail "full disk: it left $(cat "$tmp/left")"
}
full_disk

if [ "$(stat -f -c %T /dev/shm 2>/dev/null)" = tmpfs ] && [ -w /dev/shm ]; then
  good train $few --offload file:/dev/shm --name memory
  grep -q '/dev/shm is a folder in memory' "$tmp/stdout" "$tmp/stderr" || fail "a folder in memory is not named"
fi
model=$WEFT_GOLDEN/models/stories260K
for case in "$model"/*.safetensors; do
  [ "$case" = "$model/model.safetensors" ] && continue
  good verify "$model" "$case" --recompute full --offload file --cp 2
  good verify "$model" "$case" --offload host --pp 2 --micro-batch-size 1
  break
done
finish
