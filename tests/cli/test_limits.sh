#!/usr/bin/env bash
# Limits on the process: what does not fit is refused in one line that names the limit, and what fits runs.
# labels: small noasan
# timeout: 60
. "$(dirname "$0")/lib.sh"
case=$WEFT_GOLDEN/attention/causal_gqa_s257.safetensors

# limited KIBIBYTES ARGS...: in so much address space; exit code in $code, outputs in $tmp.
limited() {
  local kib=$1; shift
  ( ulimit -v "$kib"; cd "$tmp" && exec timeout 60 "$WEFT" "$@" >stdout 2>stderr </dev/null ); code=$?
}

# OpenMP itself would end the process with code 1, that of a failed comparison. A stack of 64 MB each is more than fits.
export OMP_STACKSIZE=64M
for ranks in 1 3; do
  limited 4000000 attention "$case" --cp $ranks --threads 200
  [ $code = 2 ] && grep -q '^weft: .*200 threads cannot be started, [0-9]* can .*ulimit -v); --threads [0-9]* fits$' \
    "$tmp/stderr" ||
    fail "threads that do not fit, $ranks ranks: exit $code: $(cat "$tmp/stderr")"
  limited 4000000 attention "$case" --cp $ranks --threads 2
  [ $code = 0 ] || fail "threads that fit, $ranks ranks: exit $code: $(cat "$tmp/stderr")"
done
unset OMP_STACKSIZE

# simulated ranks take the addresses that they need, and no more
small="sim --cp 64 --hidden-size 64 --num-attention-heads 4 --num-layers 1 --threads 1"
limited 1000000 $small --seq-length 4096
[ $code = 0 ] || fail "a small simulation: exit $code: $(cat "$tmp/stderr")"
limited 1000000 $small --seq-length 64M
[ $code = 3 ] && grep -q '^weft: .*simulated rank .* addresses.*ulimit -v' "$tmp/stderr" ||
  fail "a large simulation: exit $code: $(cat "$tmp/stderr")"
finish
