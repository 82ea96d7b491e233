/* fake_mpi.h — an MPI library for tests, behind the plugin's interface: its ranks are threads of this process. So the
 * sanitizers see the transport over MPI, and any of MPI's calls can be made to fail on one rank.
 *
 * Messages match in order of posting and are copied at the match, by whichever rank posts second: a buffer that its
 * owner has freed meanwhile is seen. */
#ifndef WEFT_TEST_FAKE_MPI_H
#define WEFT_TEST_FAKE_MPI_H

#include "comm/comm.h"

typedef enum { FAKE_NOTHING, FAKE_SHARE, FAKE_SEND, FAKE_RECV, FAKE_POLL, FAKE_LEAST,
              FAKE_SHORT /* a receive gets a byte less */ } fake_call;

typedef struct fake_plan { /* zeros: one node, nothing fails */
    int node_ranks;  /* ranks of a node, in order; 0: all */
    fake_call fails;
    int rank, hit;   /* of the rank that fails, at its hit-th call (1 = first) */
    double timeout;  /* of opening and waiting; 0: 20 s */
    size_t limits[8]; /* of messages, by rank; 0: the usual */
    bool thread;     /* a helper thread moves the messages */
    int tag_max;     /* 0: what MPI promises */
    int late;        /* 1 + the rank that never opens its world */
    bool askew;      /* shared memory begins where no cache line does */
} fake_plan;

/* As weft_run_threads, with worlds over MPI. A rank whose world does not open fails with that. */
weft_status fake_mpi_run(int ranks, const fake_plan *plan, weft_rank_fn fn, void *ud);

#endif
