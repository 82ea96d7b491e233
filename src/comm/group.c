/* group.c — include/weft/group.h over worlds: the handle that callers of the library hold. */
#include "weft/group.h"

#include "comm/comm.h"

#include <sched.h>
#include <stdlib.h>

struct weft_group {
    weft_world *world;
    weft_comm *comm;  /* every rank */
    weft_ctx *own;    /* of a group of one, which makes its own; NULL otherwise */
};

weft_world *weft_group_world(const weft_group *g) { return g->world; }
weft_comm *weft_group_comm(const weft_group *g) { return g->comm; }

int weft_group_rank(const weft_group *g) { return weft_world_rank(g->world); }
int weft_group_size(const weft_group *g) { return weft_world_size(g->world); }
void weft_group_set_timeout(weft_group *g, double seconds) { weft_world_set_timeout(g->world, seconds); }

int weft_group_default_threads(const weft_group *g)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    int cores = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1, ranks = weft_group_size(g);
    return cores > ranks ? cores / ranks : 1;
}

static weft_status open_comm(weft_group *g)
{
    int n = weft_world_size(g->world);
    int *ranks = malloc((size_t)n * sizeof *ranks);
    if (!ranks) return weft_fail(WEFT_ERR_MEMORY, "no memory for a group of %d ranks", n);
    for (int i = 0; i < n; i++) ranks[i] = i;
    weft_status st = weft_comm_create(&g->comm, g->world, ranks, n, "group");
    free(ranks);
    return st;
}

typedef struct thread_call { weft_group_fn fn; void *ud; } thread_call;

static weft_status thread_main(weft_ctx *ctx, weft_world *world, void *ud)
{
    (void)ctx;
    const thread_call *call = ud;
    weft_group g = {.world = world};
    WEFT_TRY(open_comm(&g));
    weft_status st = call->fn(&g, call->ud);
    weft_comm_destroy(g.comm);
    return st;
}

weft_status weft_group_threads(int ranks, weft_group_fn fn, void *ud)
{
    if (ranks < 1) return weft_fail(WEFT_ERR_REFUSED, "a group of %d ranks; at least 1 is needed", ranks);
    if (!fn) return weft_fail(WEFT_ERR_REFUSED, "a group needs a function to run on its ranks; it is NULL");
    thread_call call = {fn, ud};
    return weft_run_threads(ranks, thread_main, &call);
}

weft_status weft_group_self(weft_group **out)
{
    weft_group *g = calloc(1, sizeof *g);
    weft_ctx *ctx = malloc(sizeof *ctx);
    weft_status st = WEFT_ERR_MEMORY;
    if (!g || !ctx) {
        weft_fail(st, "no memory for a group of one rank");
        goto fail;
    }
    weft_ctx_init(ctx);
    g->own = ctx;
    WEFT_TRY_OR(st, weft_world_self(&g->world, ctx), fail);
    WEFT_TRY_OR(st, open_comm(g), close_world);
    *out = g;
    return WEFT_OK;
close_world:
    weft_world_close(g->world);
fail:
    free(ctx);
    free(g);
    return st;
}

void weft_group_destroy(weft_group *g)
{
    if (!g || !g->own) return;
    weft_comm_destroy(g->comm);
    weft_world_close(g->world);
    free(g->own);
    free(g);
}
