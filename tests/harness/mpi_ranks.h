/* mpi_ranks.h — a body on P ranks: threads of this process, or, when mpirun started the test, the first P of its
 * processes. Then all processes run the same tests in step, and each has the result of every rank. */
#ifndef WEFT_TEST_MPI_RANKS_H
#define WEFT_TEST_MPI_RANKS_H

#include "comm/comm.h"

bool test_under_mpi(void);
/* Ranks that there can be: processes of mpirun, else as many as one machine takes. */
int test_run_most(void);

/* As weft_run_threads; fails the test when P ranks are more than there are. Afterwards ud[bytes] is the same in all
 * processes: what a rank has changed in it is taken from that rank. */
weft_status test_run(int P, weft_rank_fn fn, void *ud, size_t bytes);
/* Worlds are kept from one run to the next under mpirun; after this call the next runs have new ones. For bodies that
 * leave theirs in another state than they found it. */
void test_run_renew(void);
/* New worlds, in which MPI's messages have so many bytes at most; 0: the usual. */
void test_run_limit(size_t bytes);
/* What test_run does for ud, for memory that it points to: `before` is what it held before the ranks ran. Nothing under
 * threads. */
void test_run_merge(int P, void *data, const void *before, size_t bytes);

#endif
