/* local_threads.c — ranks as threads of one process: the same mailboxes as between processes, so that tests
 * (and the thread sanitizer) see the code that users run. */
#include "comm/local_map.h"
#include "comm/world.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

typedef struct thread_rank {
    pthread_t thread;
    weft_ctx ctx;
    weft_local *map;
    int rank;
    weft_rank_fn fn;
    void *ud;
} thread_rank;

/* A rank that fails before it has a world, or without telling, must not leave the others waiting. */
static void *thread_main(void *arg)
{
    thread_rank *t = arg;
    weft_world *world = NULL;
    weft_status st = weft_world_local(&world, &t->ctx, t->map, t->rank);
    if (st == WEFT_OK) st = t->fn(&t->ctx, world, t->ud);
    if (st < 0 && world) weft_world_abort(world, st, weft_last_error());
    else if (st < 0) weft_local_abort(t->map, t->rank, st, weft_last_error());
    weft_world_close(world);
    return NULL;
}

static weft_status start_all(thread_rank *t, weft_local *map, int ranks, weft_rank_fn fn, void *ud)
{
    int started = 0, error = 0;
    for (; started < ranks; started++) {
        thread_rank *r = &t[started];
        weft_ctx_init(&r->ctx);
        r->ctx.rank = r->rank = started;
        r->ctx.world = ranks;
        r->map = map;
        r->fn = fn;
        r->ud = ud;
        error = pthread_create(&r->thread, NULL, thread_main, r);
        if (error) break;
    }
    if (error) {
        weft_fail(WEFT_ERR_LIBRARY, "starting thread %d of %d ranks: %s", started, ranks, strerror(error));
        weft_local_abort(map, started, WEFT_ERR_LIBRARY, weft_last_error());
    }
    while (started-- > 0) pthread_join(t[started].thread, NULL);
    return weft_local_failed(map) ? weft_local_fail_with(map, (weft_status)map->header->failed_status) : WEFT_OK;
}

weft_status weft_run_threads(int ranks, weft_rank_fn fn, void *ud)
{
    weft_local *map;
    WEFT_TRY(weft_local_create(&map, ranks));
    weft_status st;
    thread_rank *t = calloc((size_t)ranks, sizeof *t);
    if (t) st = start_all(t, map, ranks, fn, ud);
    else st = weft_fail(WEFT_ERR_MEMORY, "no memory for %d ranks as threads", ranks);
    free(t);
    weft_local_destroy(map);
    return st;
}
