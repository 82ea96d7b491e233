# mpi_lib.sh — weft under mpirun, row by row; sourced by test_mpi.sh and test_mpi_long.sh. A row is a function that
# starts a job with $mpi and looks at what the user gets: lines, the first of them, and the launcher's exit code.
. "$WEFT_SRC/tests/cli/lib.sh"
attention=$WEFT_GOLDEN/attention
llama=$WEFT_GOLDEN/models/llama
case=$attention/causal_s128.safetensors
mkdir "$tmp/a" "$tmp/b"
seq 1000 4000 >"$tmp/a/data.txt" && tr 1 2 <"$tmp/a/data.txt" >"$tmp/b/data.txt"
few="train --data data.txt --dp 2 --seq-length 32 --hidden-size 8 --num-layers 1 --num-attention-heads 1 --threads 1
  --eval-sequences 0 --runs $tmp/runs --overwrite"
cp "$WEFT" "$tmp/weft-alone" # without plugins beside it

# job ARGS...: mpirun with these; exit code in $code, outputs in $tmp.
job() { timeout 60 "mpirun.$mpi" "$@" >"$tmp/stdout" 2>"$tmp/stderr" </dev/null; code=$?; }
# ranks N ARGS...: weft on N ranks
ranks() { local n=$1; shift; job -n "$n" "$WEFT" "$@"; }
# one_rank VAR=VALUE: two ranks, the second with this in its environment.
one_rank() {
  local words=(attention "$case" --cp 2 --timeout 20)
  job -n 1 "$WEFT" "${words[@]}" : -n 1 env "$1" "$WEFT" "${words[@]}"
}
# expect CODE PART WHAT: the first line on stderr holds PART, and only one line is Weft's.
expect() {
  [ "$code" = "$1" ] || fail "$mpi, $3: exit $code, wanted $1: $(head -3 "$tmp/stderr")"
  head -1 "$tmp/stderr" | grep -qF -- "$2" || fail "$mpi, $3: the first line lacks '$2': $(head -3 "$tmp/stderr")"
  [ "$(grep -c '^weft:' "$tmp/stderr")" = 1 ] || fail "$mpi, $3: not one line of weft's: $(cat "$tmp/stderr")"
}
# holds WHAT: good, with one verdict
holds() {
  [ $code = 0 ] && [ "$(grep -c 'comparisons hold' "$tmp/stdout")" = 1 ] ||
    fail "$mpi, $1: exit $code: $(cat "$tmp/stderr" "$tmp/stdout" | tail -5)"
}

# ---- what works ----------------------------------------------------------------------------------------------------

golden_ring() {
  ranks 3 attention "$attention/causal_gqa_s257.safetensors" --cp 3 --cp-strategy ring --cp-layout contiguous
  holds "a golden case"
}
golden_pcp() {
  ranks 5 attention "$attention/docs_causal.safetensors" --cp 5 --cp-strategy pcp --cp-layout zigzag
  holds "documents"
}
g37_short_messages() {
  WEFT_MPI_MAX_MESSAGE=1000 ranks 3 attention "$attention/window_causal.safetensors" --cp 3 --cp-strategy ring \
    --mpi-progress thread
  holds "short messages, helper thread"
}
# limits that differ: the least holds
other_limits() { one_rank WEFT_MPI_MAX_MESSAGE=1000; holds "limits of messages that differ"; }
pipeline() {
  ranks 4 verify "$llama" "$llama/case.safetensors" --pp 2 --cp 2 --micro-batch-size 1 --threads 1
  holds "a pipeline"
}
# Open MPI puts a terminal before each rank: a log must not be folded, or written over, for that
bench() {
  COLUMNS=40 ranks 2 bench cp --cp 2 --cp-strategy ring --make "T=96 H=2 D=8 causal"
  [ $code = 0 ] && grep -qE '^callback( +[0-9.]+){3} +1.00$' "$tmp/stdout" &&
    grep -qE '^helper thread( +[0-9.]+){4}$' "$tmp/stdout" && grep -q '^sent .* of one layer$' "$tmp/stdout" ||
    fail "$mpi: bench cp: exit $code: $(cat "$tmp/stderr" "$tmp/stdout" | tail -5)"
  ranks 2 bench comm --cp 2 --sizes 64K --repeats 1 --mpi-progress callback
  [ $code = 0 ] && grep -qE '^direct +all-to-all +64.00 KiB' "$tmp/stdout" &&
    grep -q 'the transport makes none of its own$' "$tmp/stdout" ||
    fail "$mpi: bench comm: exit $code: $(cat "$tmp/stderr" "$tmp/stdout" | tail -5)"
}
# steps on two and on three ranks: one of them prints; a sweep starts its ranks itself
bench_step() {
  local model="--hidden-size 32 --num-layers 3 --num-attention-heads 2 --seq-length 64 --threads 1 --repeats 1" words
  for words in "2 --cp 2 --cp-strategy ring" "3 --pp 3 --global-batch-size 2"; do
    ranks ${words%% *} bench step $model ${words#* } --format jsonl
    [ $code = 0 ] && [ "$(grep -c . "$tmp/stdout")" = 1 ] && grep -q "\"ranks\": ${words%% *}," "$tmp/stdout" ||
      fail "$mpi: bench step $words: exit $code: $(cat "$tmp/stderr" "$tmp/stdout" | tail -5)"
  done
  ranks 2 bench step $model --sweep cp=1,2
  expect 2 "--sweep starts the ranks of every size itself; run it without" "a sweep"
}
g36_crowded_threads_are_said() {
  local threads=$(($(nproc --all) + 1)) # of each of two ranks
  ranks 2 attention "$case" --cp 2 --threads $threads
  local warning="^weft: warning: rank 0 has $threads threads and may use [0-9]* processor.* share.*--threads [0-9]* "
  [ $code = 0 ] && grep -q "${warning}fits" "$tmp/stderr" ||
    fail "$mpi: crowded threads: exit $code: $(head -3 "$tmp/stderr")"
}

# ---- what all refuse -----------------------------------------------------------------------------------------------

other_number() {
  ranks 3 attention "$case" --cp 2
  expect 2 "started 3 ranks, the options ask for tp 1 x cp 2 x dp 1 x pp 1 = 2: mpirun -n 2" \
    "other ranks than asked for"
}
unknown_flag() { ranks 2 attention "$case" --cp 2 --cp-stratgy ring; expect 2 "did you mean '--cp-strategy'" "a flag"; }
one_rank_command() { ranks 2 info; expect 2 "weft info runs as one" "a command for one rank"; }
unknown_command() { ranks 2 nothing; expect 2 "unknown command 'nothing'" "an unknown command"; }
# ranks that were started with other options: all refuse, and both values are named
other_layouts() {
  job -n 1 "$WEFT" verify "$llama" "$llama/case.safetensors" --cp 2 : \
    -n 1 "$WEFT" verify "$llama" "$llama/case.safetensors" --dp 2
  expect 2 "rank 1: parallel.cp: 1, and rank 0 has parallel.cp: 2" "ranks of other layouts"
}
# what no exchange would notice: another seed, another file of the same size, another bench
other_seeds() {
  job -wdir "$tmp/a" -n 1 "$WEFT" $few --steps 1 --name x : -wdir "$tmp/a" -n 1 "$WEFT" $few --steps 1 --name x --seed 2
  expect 2 "rank 1: run.seed: 2, and rank 0 has run.seed: 1" "ranks with other seeds"
}
other_data() {
  job -wdir "$tmp/a" -n 1 "$WEFT" $few --steps 1 --name x : -wdir "$tmp/b" -n 1 "$WEFT" $few --steps 1 --name x
  expect 2 "rank 1 reads other data than rank 0 from data.txt" "ranks with other data"
}
other_benches() {
  job -n 1 "$WEFT" bench cp --cp 2 : -n 1 "$WEFT" bench profile --cp 2
  expect 2 "rank 1: command: bench profile, and rank 0 has command: bench cp" "ranks with other benches"
}
# Threads that cannot be started are refused by all, before OpenMP ends a process with the code of a comparison.
threads_that_do_not_fit() {
  ulimit -Sv 6000000
  OMP_STACKSIZE=256M ranks 2 attention "$case" --cp 2 --threads 40
  ulimit -Sv unlimited
  expect 2 "40 threads cannot be started" "threads that do not fit"
}

# ---- what one rank refuses, before or after it can agree with the others -------------------------------------------

unknown_mpi() {
  WEFT_MPI=lam ranks 2 attention "$case" --cp 2
  [ $code = 2 ] && head -1 "$tmp/stderr" |
    grep -qF "rank 0 on $(hostname): WEFT_MPI=lam; possible are openmpi, mpich, none" ||
    fail "$mpi, an unknown MPI: exit $code: $(head -3 "$tmp/stderr")"
}
no_plugin() {
  WEFT_PLUGIN_PATH='' job -n 2 "$tmp/weft-alone" attention "$case" --cp 2
  [ $code = 2 ] && head -1 "$tmp/stderr" |
    grep -qF "started 2 ranks; rank 0 on $(hostname): the plugin libweft_mpi_$mpi.so is not there: build Weft where" ||
    fail "$mpi, no plugin: exit $code: $(head -3 "$tmp/stderr")"
}
no_plugin_on_one_rank() {
  WEFT_PLUGIN_PATH='' job -n 1 "$WEFT" attention "$case" --cp 2 : -n 1 "$tmp/weft-alone" attention "$case" --cp 2
  expect 2 "started 2 ranks; rank 1 on $(hostname): the plugin libweft_mpi_$mpi.so is not there" "no plugin on one rank"
}
bad_limit_on_one_rank() {
  one_rank WEFT_MPI_MAX_MESSAGE=never
  expect 2 "weft: rank 1: WEFT_MPI_MAX_MESSAGE=never; give the bytes" "a limit that one rank cannot read"
}
bad_fault_on_one_rank() {
  one_rank WEFT_FAULT=earthquake
  expect 2 "weft: rank 1: " "a fault that one rank does not know"
}
unknown_mpi_on_one_rank() {
  one_rank WEFT_MPI=lam
  expect 2 "started 2 ranks; rank 1 on $(hostname): WEFT_MPI=lam" "a name that one rank does not know"
}
# a rank that never comes to MPI_Init
missing_rank() {
  job -n 1 "$WEFT" attention "$case" --cp 2 --timeout 1 : -n 1 sleep 40
  [ $code = 3 ] && grep -q '^weft: .* rank 0 on .*: MPI_Init did not return within 1 s' "$tmp/stderr" ||
    fail "$mpi: a rank that never comes: exit $code: $(head -3 "$tmp/stderr")"
}

# ---- what fails while running --------------------------------------------------------------------------------------

ring="attention $case --cp 3 --cp-strategy ring"
failing_rank() {
  WEFT_FAULT=fail:rank=1:site=cp.ring:hit=2 ranks 3 $ring
  expect 3 "weft: rank 1: injected fault at cp.ring" "a rank that fails"
}
# A rank that failed has freed its requests and buffers before the others look: with memory that goes back to the
# system.
failing_rank_that_frees() {
  MALLOC_MMAP_THRESHOLD_=65536 WEFT_FAULT=fail:rank=1:site=cp.ring:hit=2 ranks 3 $ring
  expect 3 "weft: rank 1: injected fault at cp.ring" "a rank that fails and frees"
}
# Rank 0 may wait for rank 2, which waits for rank 1: the chain is told to its end.
stuck_rank() {
  WEFT_FAULT=stop:rank=1:site=cp.ring:hit=2 ranks 3 $ring --timeout 1
  expect 3 "passed its deadline of 1 s" "a rank that is stuck"
  head -1 "$tmp/stderr" | grep -q "[;:] rank 1 is .*in cp.ring.forward, layer 0, step 1" ||
    fail "$mpi: the stuck rank's place: $(head -1 "$tmp/stderr")"
}
# dies FAULT PART WHAT: the launcher says how the rank ended, and a survivor of Weft in what it was. Where many more
# processes run than there are processors, the launcher may kill the survivors before one of them has its turn.
dies() {
  local try
  for try in 1 2 3; do
    WEFT_FAULT=$1 ranks 3 $ring
    [ "$code" != 0 ] && grep -qF "weft: $2" "$tmp/stderr" && return
  done
  fail "$mpi, $3: exit $code: no '$2': $(head -5 "$tmp/stderr")"
}
# A rank that is killed or leaves is named, with its place, before the launcher ends the others.
killed_rank() {
  dies kill:rank=1:site=cp.ring:hit=2 \
    "rank 1 was killed by signal 9 (Killed) while in cp.ring.forward, layer 0, step 1" "a rank that is killed"
}
leaving_rank() {
  dies exit:rank=2:site=cp.ring:hit=2 "rank 2 exited with code 5 while in cp.ring.forward, layer 0, step 1" \
    "a rank that exits"
}
# The same with every rank on a node of its own, as MPICH can pretend: failures and places travel by message.
other_nodes() {
  [ "$mpi" = mpich ] || return 0
  export MPIR_CVAR_NOLOCAL=1
  failing_rank
  WEFT_FAULT=stop:rank=1:site=cp.ring:hit=2 ranks 3 $ring --timeout 1
  # Ranks of several nodes whose deadlines pass together do not know of each other yet: each may have its line.
  [ $code = 3 ] && head -1 "$tmp/stderr" |
    grep -q "passed its deadline of 1 s.*[;:] rank 1 is in cp.ring.forward, layer 0, step 1 for " ||
    fail "$mpi, a rank of another node that is stuck: exit $code: $(head -1 "$tmp/stderr")"
  unset MPIR_CVAR_NOLOCAL
}
# SIGUSR1 to the launcher: the step is finished and saved. To a run without an end.
a_signal() {
  local pid i
  rm -rf "$tmp/runs"
  (cd "$tmp/a" && exec timeout 60 "mpirun.$mpi" -n 2 "$WEFT" $few --steps 1000000 --name signal) >"$tmp/stdout" \
    2>"$tmp/stderr" </dev/null & pid=$!
  for i in $(seq 200); do [ -s "$tmp/runs/signal/metrics.jsonl" ] && break; sleep 0.1; done
  kill -USR1 "$(cat "/proc/$pid/task/$pid/children")"
  wait $pid; code=$?
  [ $code = 0 ] && grep -q '^weft: .*: this step is finished and saved, then the run ends$' "$tmp/stderr" &&
    grep -q '^stopped ' "$tmp/stdout" ||
    fail "$mpi, SIGUSR1: exit $code: $(tail -3 "$tmp/stdout" "$tmp/stderr")"
}

# installed: the launchers whose plugin is built
installed() {
  local mpi
  for mpi in mpich openmpi; do
    [ -e "$WEFT_BUILD/libweft_mpi_$mpi.so" ] && command -v "mpirun.$mpi" >/dev/null && echo "$mpi"
  done
}
# found MPIS: a plugin without a launcher is a fault of the machine, and no plugin none
found() {
  [ -n "$1" ] || [ -z "$(ls "$WEFT_BUILD"/libweft_mpi_*.so 2>/dev/null)" ] ||
    fail "plugins are built, but there is no mpirun"
}
