#!/usr/bin/env bash
# weft under mpirun: every row with every MPI.
# labels: long mpi noasan
# timeout: 300
. "$WEFT_SRC/tests/cli/mpi_lib.sh"
all=$(installed)
found "$all"
for mpi in $all; do
  for row in golden_ring golden_pcp g37_short_messages other_limits pipeline bench bench_step \
    g36_crowded_threads_are_said other_number unknown_flag one_rank_command unknown_command other_layouts \
    other_seeds other_data other_benches threads_that_do_not_fit unknown_mpi no_plugin no_plugin_on_one_rank \
    bad_limit_on_one_rank bad_fault_on_one_rank \
    unknown_mpi_on_one_rank missing_rank failing_rank failing_rank_that_frees stuck_rank killed_rank leaving_rank \
    other_nodes a_signal; do $row; done
done
finish
