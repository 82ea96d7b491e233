/* group.c — include/weft/group.h over worlds: the handle that callers of the library hold. */
#define WEFT_MPI_HANDLES_ONLY
#include "weft/mpi.h"

#include "comm/comm.h"

#include <stdlib.h>
#include <string.h>

struct weft_group {
    weft_world *world;
    weft_comm *comm;  /* every rank */
    weft_ctx *own;    /* of groups that their callers destroy; NULL otherwise */
    weft_mpi *mpi;    /* the plugin of an MPI group */
};

weft_world *weft_group_world(const weft_group *g) { return g->world; }
weft_comm *weft_group_comm(const weft_group *g) { return g->comm; }

int weft_group_rank(const weft_group *g) { return weft_world_rank(g->world); }
int weft_group_size(const weft_group *g) { return weft_world_size(g->world); }
weft_status weft_group_set_timeout(weft_group *g, double seconds) { return weft_world_set_timeout(g->world, seconds); }

void weft_group_abort(weft_group *g, weft_status status, const char *message)
{
    weft_world_abort(g->world, status, message);
}

int weft_group_default_threads(const weft_group *g)
{
    int cpus, sharers;
    weft_world_cpus(g->world, &cpus, &sharers);
    return cpus > sharers ? cpus / sharers : 1;
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

/* A handle with a ctx of its own; NULL when there is no memory, and the message is written. */
static weft_group *handle_create(void)
{
    weft_group *g = calloc(1, sizeof *g);
    weft_ctx *ctx = malloc(sizeof *ctx);
    if (!g || !ctx) {
        free(g);
        free(ctx);
        weft_fail(WEFT_ERR_MEMORY, "no memory for a group");
        return NULL;
    }
    weft_ctx_init(ctx);
    g->own = ctx;
    return g;
}

static void handle_free(weft_group *g)
{
    weft_mpi_unload(g->mpi);
    free(g->own);
    free(g);
}

weft_status weft_group_self(weft_group **out)
{
    weft_status st;
    if (!out) return weft_fail(WEFT_ERR_REFUSED, "weft_group_self: the group's place is NULL");
    weft_group *g = handle_create();
    if (!g) return WEFT_ERR_MEMORY;
    WEFT_TRY_OR(st, weft_world_self(&g->world, g->own), fail);
    WEFT_TRY_OR(st, open_comm(g), close_world);
    *out = g;
    return WEFT_OK;
close_world:
    weft_world_close(g->world);
fail:
    handle_free(g);
    return st;
}

weft_status weft_group_mpi_handle(weft_group **out, const void *comm, size_t bytes, const char *mpi)
{
    weft_status st;
    if (!comm || !out)
        return weft_fail(WEFT_ERR_REFUSED, "a group from MPI needs %s; it is NULL",
                         comm ? "a place" : "a communicator");
    weft_group *g = handle_create();
    if (!g) return WEFT_ERR_MEMORY;
    WEFT_TRY_OR(st, weft_mpi_load(&g->mpi, mpi), fail);
    WEFT_TRY_OR(st, weft_world_mpi(&g->world, g->own, g->mpi, &(weft_mpi_options){.comm = comm, .comm_bytes = bytes}),
                fail);
    g->own->rank = weft_world_rank(g->world);
    g->own->world = weft_world_size(g->world);
    WEFT_TRY_OR(st, open_comm(g), close_world);
    *out = g;
    return WEFT_OK;
close_world:
    weft_world_close(g->world);
fail:
    handle_free(g);
    return st;
}

weft_status weft_group_set_progress(weft_group *g, const char *how)
{
    static const char *const names[] = {"auto", "callback", "thread"};
    for (int i = 0; how && i < 3; i++)
        if (!strcmp(how, names[i])) return weft_world_set_progress(g->world, (weft_mpi_progress)i);
    return weft_fail(WEFT_ERR_REFUSED, "MPI progress by \"%s\"; possible are auto, callback, thread",
                     how ? how : "(NULL)");
}

void weft_group_destroy(weft_group *g)
{
    if (!g || !g->own) return;
    weft_comm_destroy(g->comm);
    weft_world_close(g->world);
    handle_free(g);
}
