#include "harness/ranks.h"

#include <stdlib.h>
#include <string.h>

weft_status test_comm_all(weft_comm **out, weft_world *world, const char *name)
{
    enum { MOST = 128 };
    int ranks[MOST], P = weft_world_size(world);
    if (P > MOST) return weft_fail(WEFT_ERR_INTERNAL, "%d ranks; test_comm_all takes %d", P, MOST);
    for (int i = 0; i < P; i++) ranks[i] = i;
    return weft_comm_create(out, world, ranks, P, name);
}

typedef struct call { const test_body *body; const char *arg; } call;

static weft_status play(weft_ctx *ctx, weft_world *world, void *ud)
{
    const call *c = ud;
    WEFT_TRY(weft_fault_parse(&ctx->fault, getenv("WEFT_FAULT")));
    return c->body->fn(ctx, world, c->arg);
}

static weft_status play_process(weft_local *map, int rank, call *c)
{
    weft_ctx ctx;
    weft_world *world;
    weft_ctx_init(&ctx);
    ctx.rank = rank;
    ctx.world = weft_local_ranks(map);
    WEFT_TRY(weft_world_local(&world, &ctx, map, rank));
    weft_status st = play(&ctx, world, c);
    if (st < 0) weft_world_abort(world, st, weft_last_error());
    weft_world_close(world);
    return st;
}

bool test_ranks_child(int argc, char **argv, const test_body *bodies, int n, int *code)
{
    weft_local *map;
    int rank;
    *code = 2;
    if (weft_local_from_env(&map, &rank) != WEFT_OK) return true;
    if (!map) return false;
    for (int i = 0; i < n && argc >= 3; i++)
        if (!strcmp(argv[1], bodies[i].name))
            *code = weft_exit_code(play_process(map, rank, &(call){&bodies[i], argv[2]}));
    weft_local_destroy(map); /* on every path: a leak under a sanitizer changes the exit code */
    return true;
}

weft_status test_ranks(test_way way, int ranks, const test_body *body, const char *arg)
{
    call c = {body, arg};
    if (way == TEST_THREADS) return weft_run_threads(ranks, play, &c);
    int code;
    char *argv[] = {"rank", (char *)(uintptr_t)body->name, (char *)(uintptr_t)arg, NULL};
    return weft_local_supervise(&(weft_spawn){.ranks = ranks, .argv = argv, .grace_seconds = 0.3}, &code);
}
