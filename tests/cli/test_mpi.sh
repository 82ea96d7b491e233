#!/usr/bin/env bash
# weft under mpirun, with each MPI that has a plugin: golden cases on several ranks, one line per refusal, the same
# exit code from the launcher, and a failure whose first line names rank and cause.
# labels: small mpi noasan
# timeout: 180
. "$WEFT_SRC/tests/cli/lib.sh"
attention=$WEFT_GOLDEN/attention
llama=$WEFT_GOLDEN/models/llama
tried=0

# ranks N ARGS...: exit code in $code, outputs in $tmp.
ranks() {
  local n=$1; shift
  timeout 60 "mpirun.$mpi" -n "$n" "$WEFT" "$@" >"$tmp/stdout" 2>"$tmp/stderr" </dev/null; code=$?
}
# expect CODE PART WHAT: the first line on stderr holds PART, and only one line is Weft's.
expect() {
  [ "$code" = "$1" ] || fail "$mpi, $3: exit $code, wanted $1: $(head -3 "$tmp/stderr")"
  head -1 "$tmp/stderr" | grep -qF -- "$2" || fail "$mpi, $3: the first line lacks '$2': $(head -3 "$tmp/stderr")"
  [ "$(grep -c '^weft:' "$tmp/stderr")" = 1 ] || fail "$mpi, $3: not one line of weft's: $(cat "$tmp/stderr")"
}

g37_short_messages() {
  WEFT_MPI_MAX_MESSAGE=1000 ranks 3 attention "$attention/window_causal.safetensors" --cp 3 --cp-strategy ring \
    --mpi-progress thread
  [ $code = 0 ] || fail "$mpi: short messages, helper thread: exit $code: $(tail -3 "$tmp/stderr")"
}
g36_crowded_threads_are_said() {
  ranks 2 attention "$case" --cp 2 --threads 700
  local warning='^weft: warning: rank 0 has 700 threads and may use [0-9]* processor.* share.*--threads [0-9]* fits'
  [ $code = 0 ] && grep -q "$warning" "$tmp/stderr" ||
    fail "$mpi: crowded threads: exit $code: $(head -3 "$tmp/stderr")"
}
# dies FAULT PART WHAT: the launcher says how the rank ended, and a survivor of Weft in what it was. Where many more
# processes run than there are processors, the launcher may kill the survivors before one of them has its turn.
dies() {
  local try
  for try in 1 2 3; do
    WEFT_FAULT=$1 ranks 3 attention "$case" --cp 3 --cp-strategy ring
    [ "$code" != 0 ] && grep -qF "weft: $2" "$tmp/stderr" && return
  done
  fail "$mpi, $3: exit $code: no '$2': $(head -5 "$tmp/stderr")"
}
# one_rank VAR=VALUE: two ranks, the second with this in its environment.
one_rank() {
  timeout 60 "mpirun.$mpi" -n 1 "$WEFT" attention "$case" --cp 2 --timeout 20 : -n 1 env "$1" "$WEFT" attention \
    "$case" --cp 2 --timeout 20 \
    >"$tmp/stdout" 2>"$tmp/stderr" </dev/null; code=$?
}

for mpi in openmpi mpich; do
  [ -e "$WEFT_BUILD/libweft_mpi_$mpi.so" ] && command -v "mpirun.$mpi" >/dev/null || continue
  tried=$((tried + 1))
  for run in "3 causal_gqa_s257 ring contiguous" "5 docs_causal pcp zigzag"; do
    read -r n case strategy layout <<<"$run"
    ranks "$n" attention "$attention/$case.safetensors" --cp "$n" --cp-strategy "$strategy" --cp-layout "$layout"
    [ $code = 0 ] || fail "$mpi: $run: exit $code: $(cat "$tmp/stderr" "$tmp/stdout" | tail -5)"
    [ "$(grep -c 'comparisons hold' "$tmp/stdout")" = 1 ] || fail "$mpi: $run: not one verdict: $(cat "$tmp/stdout")"
  done
  g37_short_messages
  ranks 4 verify "$llama" "$llama/case.safetensors" --pp 2 --cp 2 --micro-batch-size 1 --threads 1
  [ $code = 0 ] && grep -q 'all .* comparisons hold' "$tmp/stdout" ||
    fail "$mpi: a pipeline: exit $code: $(cat "$tmp/stderr" "$tmp/stdout" | tail -5)"

  # Open MPI puts a terminal before each rank: a log must not be folded, or written over, for that
  COLUMNS=40 ranks 2 bench cp --cp 2 --cp-strategy ring --make "T=96 H=2 D=8 causal"
  [ $code = 0 ] && grep -qE '^callback( +[0-9.]+){3} +1.00$' "$tmp/stdout" &&
    grep -qE '^helper thread( +[0-9.]+){4}$' "$tmp/stdout" && grep -q '^sent .* of one layer$' "$tmp/stdout" ||
    fail "$mpi: bench cp: exit $code: $(cat "$tmp/stderr" "$tmp/stdout" | tail -5)"

  case=$attention/causal_s128.safetensors
  g36_crowded_threads_are_said
  ranks 3 attention "$case" --cp 2
  expect 2 "started 3 ranks, the options ask for tp 1 x cp 2 x dp 1 x pp 1 = 2: mpirun -n 2" \
    "other ranks than asked for"
  # ranks that were started with other options: all refuse, and both values are named
  timeout 60 "mpirun.$mpi" -n 1 "$WEFT" verify "$llama" "$llama/case.safetensors" --cp 2 : \
    -n 1 "$WEFT" verify "$llama" "$llama/case.safetensors" --dp 2 >"$tmp/stdout" 2>"$tmp/stderr" </dev/null; code=$?
  expect 2 "rank 1: parallel.cp: 1, and rank 0 has parallel.cp: 2" "ranks of other layouts"
  # what no exchange would notice: another seed, another file of the same size
  rm -rf "$tmp/a" "$tmp/b" && mkdir "$tmp/a" "$tmp/b"
  seq 1000 4000 >"$tmp/a/data.txt" && tr 1 2 <"$tmp/a/data.txt" >"$tmp/b/data.txt"
  few="train --data data.txt --dp 2 --seq-length 32 --hidden-size 8 --num-layers 1 --num-attention-heads 1 --steps 1"
  few+=" --eval-sequences 0 --threads 1 --runs $tmp/runs --overwrite --name"
  timeout 60 "mpirun.$mpi" -wdir "$tmp/a" -n 1 "$WEFT" $few x : -wdir "$tmp/a" -n 1 "$WEFT" $few x --seed 2 \
    >"$tmp/stdout" 2>"$tmp/stderr" </dev/null; code=$?
  expect 2 "rank 1: run.seed: 2, and rank 0 has run.seed: 1" "ranks with other seeds"
  timeout 60 "mpirun.$mpi" -wdir "$tmp/a" -n 1 "$WEFT" $few x : -wdir "$tmp/b" -n 1 "$WEFT" $few x \
    >"$tmp/stdout" 2>"$tmp/stderr" </dev/null; code=$?
  expect 2 "rank 1 reads other data than rank 0 from data.txt" "ranks with other data"
  ranks 2 attention "$case" --cp 2 --cp-stratgy ring
  expect 2 "did you mean '--cp-strategy'" "an unknown flag"
  ranks 2 info
  expect 2 "weft info runs as one" "a command for one rank"
  ranks 2 nothing
  expect 2 "unknown command 'nothing'" "an unknown command"
  # a rank that never comes to MPI_Init
  timeout 60 "mpirun.$mpi" -n 1 "$WEFT" attention "$case" --cp 2 --timeout 1 : -n 1 sleep 40 >"$tmp/stdout" \
    2>"$tmp/stderr" </dev/null; code=$?
  [ $code = 3 ] && grep -q '^weft: .* rank 0 on .*: MPI_Init did not return within 1 s' "$tmp/stderr" ||
    fail "$mpi: a rank that never comes: exit $code: $(head -3 "$tmp/stderr")"
  WEFT_MPI=lam ranks 2 attention "$case" --cp 2
  [ $code = 2 ] && head -1 "$tmp/stderr" |
    grep -qF "rank 0 on $(hostname): WEFT_MPI=lam; possible are openmpi, mpich, none" ||
    fail "$mpi, an unknown MPI: exit $code: $(head -3 "$tmp/stderr")"
  WEFT_FAULT=fail:rank=1:site=cp.ring:hit=2 ranks 3 attention "$case" --cp 3 --cp-strategy ring
  expect 3 "weft: rank 1: injected fault at cp.ring" "a rank that fails"
  WEFT_FAULT=stop:rank=1:site=cp.ring:hit=2 ranks 3 attention "$case" --cp 3 --cp-strategy ring --timeout 1
  # Rank 0 may wait for rank 2, which waits for rank 1: the chain is told to its end.
  expect 3 "passed its deadline of 1 s" "a rank that is stuck"
  head -1 "$tmp/stderr" | grep -q "[;:] rank 1 is .*in cp.ring.forward, layer 0, step 1" ||
    fail "$mpi: the stuck rank's place: $(head -1 "$tmp/stderr")"

  # The same with every rank on a node of its own, as MPICH can pretend: failures and places travel by message.
  if [ "$mpi" = mpich ]; then
    export MPIR_CVAR_NOLOCAL=1
    WEFT_FAULT=fail:rank=1:site=cp.ring:hit=2 ranks 3 attention "$case" --cp 3 --cp-strategy ring
    expect 3 "weft: rank 1: injected fault at cp.ring" "a rank of another node that fails"
    WEFT_FAULT=stop:rank=1:site=cp.ring:hit=2 ranks 3 attention "$case" --cp 3 --cp-strategy ring --timeout 1
    # Ranks of several nodes whose deadlines pass together do not know of each other yet: each may have its line.
    [ $code = 3 ] && head -1 "$tmp/stderr" |
      grep -q "passed its deadline of 1 s.*[;:] rank 1 is in cp.ring.forward, layer 0, step 1 for " ||
      fail "$mpi, a rank of another node that is stuck: exit $code: $(head -1 "$tmp/stderr")"
    unset MPIR_CVAR_NOLOCAL
  fi

  # A rank that failed has freed its requests and buffers before the others look: with memory that goes back to the
  # system.
  MALLOC_MMAP_THRESHOLD_=65536 WEFT_FAULT=fail:rank=1:site=cp.ring:hit=2 ranks 3 attention "$case" --cp 3 \
    --cp-strategy ring
  expect 3 "weft: rank 1: injected fault at cp.ring" "a rank that fails and frees"

  # A rank that is killed or leaves is named, with its place, before the launcher ends the others.
  dies kill:rank=1:site=cp.ring:hit=2 \
    "rank 1 was killed by signal 9 (Killed) while in cp.ring.forward, layer 0, step 1" "a rank that is killed"
  dies exit:rank=2:site=cp.ring:hit=2 "rank 2 exited with code 5 while in cp.ring.forward, layer 0, step 1" \
    "a rank that exits"

  # Threads that cannot be started are refused by all, before OpenMP ends a process with the code of a comparison.
  ulimit -Sv 6000000
  OMP_STACKSIZE=64M ranks 2 attention "$case" --cp 2 --threads 300
  ulimit -Sv unlimited
  expect 2 "300 threads cannot be started" "threads that do not fit"

  # The program alone, without plugins beside it: on all ranks, and on one of them.
  cp "$WEFT" "$tmp/weft-alone"
  WEFT_PLUGIN_PATH='' timeout 60 "mpirun.$mpi" -n 2 "$tmp/weft-alone" attention "$case" --cp 2 >"$tmp/stdout" \
    2>"$tmp/stderr" </dev/null; code=$?
  [ $code = 2 ] && head -1 "$tmp/stderr" |
    grep -qF "started 2 ranks; rank 0 on $(hostname): the plugin libweft_mpi_$mpi.so is not there: build Weft where" ||
    fail "$mpi, no plugin: exit $code: $(head -3 "$tmp/stderr")"
  WEFT_PLUGIN_PATH='' timeout 60 "mpirun.$mpi" -n 1 "$WEFT" attention "$case" \
    --cp 2 : -n 1 "$tmp/weft-alone" attention "$case" --cp 2 >"$tmp/stdout" 2>"$tmp/stderr" </dev/null; code=$?
  expect 2 "started 2 ranks; rank 1 on $(hostname): the plugin libweft_mpi_$mpi.so is not there" "no plugin on one rank"

  # What only one rank refuses, all report: a bad limit, a bad fault, an MPI of another name.
  one_rank WEFT_MPI_MAX_MESSAGE=never
  expect 2 "weft: rank 1: WEFT_MPI_MAX_MESSAGE=never; give the bytes" "a limit that one rank cannot read"
  one_rank WEFT_FAULT=earthquake
  expect 2 "weft: rank 1: " "a fault that one rank does not know"
  one_rank WEFT_MPI=lam
  expect 2 "started 2 ranks; rank 1 on $(hostname): WEFT_MPI=lam" "a name that one rank does not know"
  # Limits that differ: the least holds.
  one_rank WEFT_MPI_MAX_MESSAGE=1000
  [ $code = 0 ] || fail "$mpi: limits of messages that differ: exit $code: $(tail -3 "$tmp/stderr")"
done
[ $tried -gt 0 ] || [ -z "$(ls "$WEFT_BUILD"/libweft_mpi_*.so 2>/dev/null)" ] ||
  fail "plugins are built, but there is no mpirun"

SLURM_STEP_ID=1 SLURM_STEP_NUM_TASKS=4 refused "srun started 4 tasks without an MPI" attention \
  "$attention/causal_s128.safetensors"
good bench cp --cp 3 --cp-strategy pcp --make "T=96 H=2 D=8 causal"
# Each rank sends its 32 rows to both others in forward and again in backward, and T - 32 rows of gradients: 3 x (64 +
# 64 + 64) x 128 bytes.
grep -q 'sent     72.00 KiB in 18 messages' "$tmp/stdout" || fail "bench cp: $(grep sent "$tmp/stdout")"
grep -qE '^local( +[0-9.]+){3}$' "$tmp/stdout" || fail "bench cp: no row: $(tail -4 "$tmp/stdout")"
good bench cp --pcp-size 1 --make "T=96 H=2 D=8 causal"
grep -q 'P=1\|none' "$tmp/stdout" || fail "bench cp --pcp-size 1 ran on other ranks: $(head -3 "$tmp/stdout")"
refused "bench cp has no use for the option out" bench cp --out x
refused "bench profile has no use for the option parallel.cp_strategy" bench profile --cp-strategy ring
refused "--mpi-progress is for ranks that mpirun starts" attention "$attention/causal_s128.safetensors" \
  --mpi-progress thread
finish
