/* attention_bench.c — what one attention layer costs on the ranks of a world: time, time stood still, bytes.
 *
 * The ways to be compared take turns within each repeat, so that whatever else the machine does meets all of them
 * alike; of the repeats the median counts, of the ranks the slowest, because the others wait for it. */
#include "train/attention_case.h"

#include <stdlib.h>
#include <string.h>

enum { WARM_UP = 2, REPEATS = 9, FIGURES = 3, WAYS_MAX = 2 };

typedef struct way { const char *name; weft_mpi_progress progress; double x[FIGURES][REPEATS]; } way;

typedef struct bench {
    weft_attention_case *c;
    weft_cp_plan *plan;
    weft_cp_io io;
    weft_world *world;
    bool mpi;
    int ways;
    way way[WAYS_MAX];
    int64_t sent[2]; /* bytes, messages of this rank in one repeat */
} bench;

static weft_status choose_ways(bench *b, const char *progress)
{
    static const way callback = {.name = "callback", .progress = WEFT_MPI_CALLBACK},
                     helper = {.name = "helper thread", .progress = WEFT_MPI_THREAD};
    bool only_callback = progress && !strcmp(progress, "callback"),
         only_helper = progress && !strcmp(progress, "thread");
    if (!b->mpi) {
        b->way[b->ways++] = (way){.name = weft_world_transport(b->world)};
        return WEFT_OK;
    }
    if (!only_helper) b->way[b->ways++] = callback;
    if (only_callback) return WEFT_OK;
    weft_status st = weft_world_set_progress(b->world, WEFT_MPI_THREAD);
    if (st >= 0) b->way[b->ways++] = helper;
    /* An MPI without threads has one way; only what was asked for by name is refused. */
    return st == WEFT_ERR_REFUSED && !only_helper ? WEFT_OK : st;
}

static weft_status once(bench *b, way *w, int repeat)
{
    weft_counters before, after;
    const weft_clock *clock = &b->c->ctx->clock;
    if (b->mpi) WEFT_TRY(weft_world_set_progress(b->world, w->progress));
    WEFT_TRY(weft_barrier(b->c->comm));
    weft_world_counters(b->world, &before);
    double begin = weft_now(clock);
    WEFT_TRY(weft_cp_forward(b->plan, 0, &b->io));
    WEFT_TRY(weft_cp_backward(b->plan, 0, &b->io));
    double seconds = weft_now(clock) - begin;
    weft_world_counters(b->world, &after);
    b->sent[0] = after.bytes_logical - before.bytes_logical;
    b->sent[1] = after.messages - before.messages;
    if (repeat < 0) return WEFT_OK;
    w->x[0][repeat] = seconds;
    w->x[1][repeat] = after.exposed_seconds - before.exposed_seconds;
    w->x[2][repeat] = after.flight_seconds - before.flight_seconds;
    return WEFT_OK;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static weft_status settle(bench *b, weft_layer_bench *out)
{
    int64_t pool = (int64_t)weft_cp_pool_bytes(b->plan);
    for (int i = 0; i < b->ways; i++) {
        double median[FIGURES];
        WEFT_TRY(weft_all_reduce(b->c->comm, b->way[i].x, FIGURES * REPEATS, WEFT_F64, WEFT_MAX));
        for (int f = 0; f < FIGURES; f++) {
            qsort(b->way[i].x[f], REPEATS, sizeof(double), by_value);
            median[f] = b->way[i].x[f][REPEATS / 2];
        }
        out->way[i] = (weft_layer_way){b->way[i].name, median[0], median[1], median[2]};
    }
    out->ways = b->ways;
    WEFT_TRY(weft_all_reduce(b->c->comm, b->sent, 2, WEFT_I64, WEFT_SUM));
    WEFT_TRY(weft_all_reduce(b->c->comm, &pool, 1, WEFT_I64, WEFT_MAX));
    out->bytes = b->sent[0];
    out->messages = b->sent[1];
    out->pool_bytes = (size_t)pool;
    weft_cp_describe(b->plan, &out->plan);
    return WEFT_OK;
}

static weft_status measure(bench *b, const char *progress, weft_layer_bench *out)
{
    weft_attention_case *c = b->c;
    WEFT_TRY(weft_agree(c->comm, weft_arena_alloc(c->arena, (int64_t)weft_cp_kept_bytes(b->plan), 1, "kept by heads",
                                                  &c->kept)));
    b->io = weft__case_io(c);
    WEFT_TRY(weft_cp_bind(b->plan, 0, weft__case_queries(c), &c->shard_kv));
    WEFT_TRY(choose_ways(b, progress));
    for (int repeat = -WARM_UP; repeat < REPEATS; repeat++)
        for (int i = 0; i < b->ways; i++) WEFT_TRY(once(b, &b->way[i], repeat));
    return settle(b, out);
}

static weft_status run(bench *b, const char *progress, weft_layer_bench *out)
{
    weft_attention_case *c = b->c;
    weft_kern kern;
    weft_st *file = NULL;
    WEFT_TRY(weft_agree(c->comm, weft__case_open(c, &file, NULL)));
    WEFT_TRY(weft_agree(c->comm, weft__case_prepare(c)));
    WEFT_TRY(weft_kern_init(&kern, c->run->isa));
    WEFT_TRY(weft_cp_plan_create(&b->plan, c->arena, &kern, c->comm, &c->problem, &c->run->cp));
    weft_status st = measure(b, progress, out);
    weft_cp_plan_destroy(b->plan);
    return st;
}

weft_status weft_bench_attention(weft_world *world, const weft_run *r, const char *progress, weft_layer_bench *out)
{
    uint64_t seed = (uint64_t)r->o->seed;
    weft_attention_case c = {.name = "--make", .run = r, .ctx = weft_world_ctx(world), .C = weft_prec_compute(r->prec),
                             .R = weft_prec_real(r->prec), .seed = seed,
                             .problem = {.prec = r->prec, .layout = r->layout, .need_backward = true, .slots = 1,
                                         .seed = seed}};
    bench b = {.c = &c, .world = world, .mpi = !strcmp(weft_world_transport(world), "mpi")};
    weft_mesh mesh = {0};
    weft_status st;
    *out = (weft_layer_bench){0};
    WEFT_TRY(weft_mesh_create(&mesh, world, r->mesh));
    c.comm = mesh.cp;
    WEFT_TRY_OR(st, weft_arena_create(&c.arena, &c.ctx->mem, "attention case", NULL), close_mesh);
    st = run(&b, progress, out);
    weft_arena_destroy(c.arena);
close_mesh:
    weft_mesh_destroy(&mesh);
    return st;
}
