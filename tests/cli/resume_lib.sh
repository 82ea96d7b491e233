# resume_lib.sh — for the tests of checkpoints: short runs with dropout, their losses and their places in the data;
# sourced.
. "$(dirname "$0")/train_lib.sh"
short="$model --data data.txt --seq-length 64 --steps 6 --lr-decay-iters 6 --warmup-steps 2 --lr 3e-3"
short+=" --global-batch-size 4 --attention-dropout 0.1 --embedding-dropout 0.1 --residual-dropout 0.1"
short+=" --eval-sequences 0 --threads 1"
# at NAME STEP: the loss of that step
at() { losses "$1" | sed -n "$2p"; }
# next NAME STEP: the next sequence by that step's checkpoint
next() { values next_sequence "$tmp/runs/$1/step-0000000$2/state.json"; }
# the files of two checkpoints, but for the layout in their manifests and the record of options
same_tensors() { (cd "$tmp/runs" && for f in "$1"/*.safetensors; do cmp -s "$f" "$2/${f##*/}" || return 1; done); }
# fresh NAME: what the run `full` had when it was killed after step 3
fresh() { rm -rf "$tmp/runs/$1"; cp -r "$tmp/runs/full" "$tmp/runs/$1"
  rm -rf "$tmp/runs/$1/latest" "$tmp/runs/$1"/step-0000000[456]; }
warned() { grep -qF -- "$1" "$tmp/stderr" || fail "no warning '$1' in: $(cat "$tmp/stderr")"; }
# How a run goes on from step 3 of `full` with a step 4 whose loss is to be $four.
matrix() { # LIMIT FLAGS...
  local limit=$1; shift
  rm -rf "$tmp/runs/other"
  good train ${short/--steps 6/--steps 4} --name other --resume runs/full/step-00000003 "$@"
  within "$(at other 1)" "$four" "$limit" || fail "$*: the next loss is $(at other 1), not $four"
  [ "$(next other 4)" = 16 ] || fail "$*: the next sequence is $(next other 4), not 16"
}
