#!/usr/bin/env bash
# weft under mpirun: every row with one MPI, one row of each kind with each; all rows with all: test_mpi_long.sh.
# labels: small mpi noasan
# timeout: 180
. "$WEFT_SRC/tests/cli/mpi_lib.sh"

# What depends on the launcher: how it forwards lines and codes, counts ranks, kills them. A job that fails takes Open
# MPI's mpirun more than a second of waiting.
each="bench other_number no_plugin_on_one_rank missing_rank failing_rank stuck_rank killed_rank"
rest="golden_pcp g37_short_messages other_limits pipeline g36_crowded_threads_are_said unknown_flag one_rank_command
  unknown_command other_layouts other_data threads_that_do_not_fit unknown_mpi no_plugin bad_fault_on_one_rank
  unknown_mpi_on_one_rank failing_rank_that_frees leaving_rank other_nodes"
all=$(installed)
found "$all"
for mpi in $all; do
  for row in $each $rest; do $row; done
  rest=golden_ring # with the others: exchanges of two ranks and three work there, too
done

SLURM_STEP_ID=1 SLURM_STEP_NUM_TASKS=4 refused "srun started 4 tasks without an MPI" attention "$case"
good bench cp --cp 3 --cp-strategy pcp --make "T=96 H=2 D=8 causal"
# Each rank sends its 32 rows to both others in forward and again in backward, and T - 32 rows of gradients: 3 x (64 +
# 64 + 64) x 128 bytes.
grep -q 'sent     72.00 KiB in 18 messages' "$tmp/stdout" || fail "bench cp: $(grep sent "$tmp/stdout")"
grep -qE '^local( +[0-9.]+){3}$' "$tmp/stdout" || fail "bench cp: no row: $(tail -4 "$tmp/stdout")"
good bench cp --pcp-size 1 --make "T=96 H=2 D=8 causal"
grep -q 'P=1\|none' "$tmp/stdout" || fail "bench cp --pcp-size 1 ran on other ranks: $(head -3 "$tmp/stdout")"
refused "bench cp has no use for the option out" bench cp --out x
refused "bench profile has no use for the option parallel.cp_strategy" bench profile --cp-strategy ring
refused "--mpi-progress is for ranks that mpirun starts" attention "$case" \
  --mpi-progress thread
finish
