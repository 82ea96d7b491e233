/* bench.h — what looking at a plan takes, for tests that run none: a world of one rank, kernels, memory. As cmocka's
 * set-up and tear-down; the state is the bench. */
#ifndef WEFT_TEST_BENCH_H
#define WEFT_TEST_BENCH_H

#include "cp/cp.h"
#include "harness/test.h"

typedef struct bench {
    weft_ctx ctx;
    weft_world *world;
    weft_comm *comm;
    weft_arena *arena;
    weft_kern kern;
} bench;

static int open_bench(void **state)
{
    static bench b;
    weft_ctx_init(&b.ctx);
    assert_ok(weft_world_self(&b.world, &b.ctx));
    assert_ok(weft_comm_create(&b.comm, b.world, (int[]){0}, 1, "all"));
    assert_ok(weft_arena_create(&b.arena, &b.ctx.mem, "test", NULL));
    assert_ok(weft_kern_init(&b.kern, WEFT_ISA_REF));
    *state = &b;
    return 0;
}

static int close_bench(void **state)
{
    bench *b = *state;
    weft_arena_destroy(b->arena);
    weft_comm_destroy(b->comm);
    weft_world_close(b->world);
    return 0;
}

#endif
