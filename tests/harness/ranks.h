/* ranks.h — what bodies of ranks use, and one body for ranks as threads and as processes, so that a test runs as
 * both. */
#ifndef WEFT_TEST_RANKS_H
#define WEFT_TEST_RANKS_H

#include "comm/comm.h"

#define REQUIRE(cond) \
    do { \
        if (!(cond)) return weft_fail(WEFT_ERR_INTERNAL, "%s:%d: %s", __FILE__, __LINE__, #cond); \
    } while (0)

/* A communicator of all ranks of the world. COLLECTIVE */
weft_status test_comm_all(weft_comm **out, weft_world *world, const char *name);

/* `arg` is the words of the caller, the same on every rank. */
typedef weft_status (*test_body_fn)(weft_ctx *ctx, weft_world *world, const char *arg);
typedef struct test_body { const char *name; test_body_fn fn; } test_body;

/* To be called first in main: in a rank's process it plays the body that was asked for and says with which code to
 * leave (true). Bodies read the fault in WEFT_FAULT. */
bool test_ranks_child(int argc, char **argv, const test_body *bodies, int n, int *code);

typedef enum { TEST_THREADS, TEST_PROCESSES } test_way;
/* The first failure of the ranks, with its message as the last error. */
weft_status test_ranks(test_way way, int ranks, const test_body *body, const char *arg);

#endif
