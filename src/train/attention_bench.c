/* attention_bench.c — what one attention layer costs on the ranks of a world: time, time stood still, bytes; and what
 * the same work costs where nothing is exchanged.
 *
 * Whatever is to be compared takes turns within each repeat, so that whatever else the machine does meets all of it
 * alike; of the repeats the median counts, of the ranks the slowest, because the others wait for it. */
#include "train/attention_alone.h"

#include <string.h>

enum { WARM_UP = 2, REPEATS_MIN = 3, REPEATS_MANY = 9, REPEATS_MAX = WEFT_BENCH_REPEATS_MAX, WAYS_MAX = 2 };
static const double enough_seconds = 20, /* no more repeats than the minimum past these */
    warm_seconds = 2;                    /* no second warming up past these */

typedef struct run_of { double seconds, cpu, kernels; } run_of; /* kernels: seconds in attention kernels */
typedef struct sample { run_of layer, alone; double exposed, flight; } sample; /* alone.cpu 0: this rank had no part */
typedef struct way { const char *name; weft_mpi_progress progress; sample x[REPEATS_MAX]; } way;

typedef struct bench {
    weft_attention_case *c;
    weft_cp_plan *plan;
    weft_cp_io io;
    weft_world *world;
    weft_layer_against against;
    weft__alone alone;
    bool does_alone, mpi;
    int ways, repeats;
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

/* The whole is done by as many ranks as keep all cores busy, as they are in the layer: alone on an idle machine it
 * would run at another clock rate. */
static weft_status open_alone(bench *b, const weft_kern *kern)
{
    int cpus, sharers, rank = weft_comm_rank(b->c->comm);
    weft_world_cpus(b->world, &cpus, &sharers);
    b->does_alone = b->against == WEFT_AGAINST_OWN ||
                    (b->against == WEFT_AGAINST_WHOLE && rank < weft_max_i64(1, cpus / b->c->ctx->threads));
    if (!b->does_alone) return WEFT_OK;
    return weft__alone_open(&b->alone, b->c, kern, b->against == WEFT_AGAINST_WHOLE);
}

/* ---- measuring ---------------------------------------------------------------------------------------------- */

static run_of now_of(const bench *b)
{
    const weft_ctx *ctx = b->c->ctx;
    return (run_of){weft_now(&ctx->clock), weft_cpu_seconds(), ctx->attention_seconds};
}

static run_of since(const bench *b, run_of t)
{
    run_of n = now_of(b);
    return (run_of){n.seconds - t.seconds, n.cpu - t.cpu, n.kernels - t.kernels};
}

static weft_status layer_once(bench *b, sample *s)
{
    weft_counters before, after;
    WEFT_TRY(weft_barrier(b->c->comm));
    weft_world_counters(b->world, &before);
    run_of begin = now_of(b);
    WEFT_TRY(weft_cp_forward(b->plan, 0, &b->io));
    WEFT_TRY(weft_cp_backward(b->plan, 0, &b->io));
    s->layer = since(b, begin);
    weft_world_counters(b->world, &after);
    b->sent[0] = after.bytes_logical - before.bytes_logical;
    b->sent[1] = after.messages - before.messages;
    s->exposed = after.exposed_seconds - before.exposed_seconds;
    s->flight = after.flight_seconds - before.flight_seconds;
    return WEFT_OK;
}

static weft_status alone_once(bench *b, sample *s)
{
    s->alone = (run_of){0};
    if (b->against == WEFT_AGAINST_NOTHING) return WEFT_OK;
    WEFT_TRY(weft_barrier(b->c->comm));
    run_of begin = now_of(b);
    if (!b->does_alone) return WEFT_OK;
    WEFT_TRY(weft__alone_run(&b->alone));
    s->alone = since(b, begin);
    return WEFT_OK;
}

/* All of it on one rank takes long enough to warm itself up: as many times a rank's share as there are ranks. */
static bool warms_alone(const bench *b) { return b->against != WEFT_AGAINST_WHOLE; }

enum { WARMING = -1 };
static weft_status once(bench *b, int repeat)
{
    for (int i = 0; i < b->ways; i++) {
        way *w = &b->way[i];
        sample s;
        if (b->mpi) WEFT_TRY(weft_world_set_progress(b->world, w->progress));
        if (repeat != WARMING || warms_alone(b)) WEFT_TRY(alone_once(b, &s));
        WEFT_TRY(layer_once(b, &s));
        if (repeat != WARMING) w->x[repeat] = s;
    }
    return WEFT_OK;
}

/* All ranks go by the longest time, or some would stop while others go on. */
static weft_status spent(const bench *b, double begin, double limit, bool *enough)
{
    double seconds = weft_now(&b->c->ctx->clock) - begin;
    WEFT_TRY(weft_all_reduce(b->c->comm, &seconds, 1, WEFT_F64, WEFT_MAX));
    *enough = seconds > limit;
    return WEFT_OK;
}

static weft_status repeat(bench *b)
{
    bool enough = false;
    double begin = weft_now(&b->c->ctx->clock);
    for (int i = 0; i < WARM_UP && !enough; i++) {
        WEFT_TRY(once(b, WARMING));
        WEFT_TRY(spent(b, begin, warm_seconds, &enough));
    }
    int64_t given = b->c->run->o->bench_repeats, least = given ? given : REPEATS_MIN,
            most = given ? given : REPEATS_MANY;
    begin = weft_now(&b->c->ctx->clock);
    for (enough = false; b->repeats < least || (b->repeats < most && !enough); b->repeats++) {
        WEFT_TRY(once(b, b->repeats));
        WEFT_TRY(spent(b, begin, enough_seconds, &enough));
    }
    return WEFT_OK;
}

/* ---- figures ------------------------------------------------------------------------------------------------- */

enum { SECONDS, EXPOSED, FLIGHT, CPU, CPU_MEAN, ALONE, ALONE_CPU, SHARE, SHARE_MEAN, CPU_SHARE, STEPS, FIGURES };

/* One repeat: x[r * REPEATS_MAX] is rank r's. */
static void figures_of(const bench *b, const sample *x, int P, double f[FIGURES])
{
    run_of layer = {0}, alone = {0}, most = {0};
    double share = 1e300, cpu_share = 1e300;
    int parts = 0;
    memset(f, 0, FIGURES * sizeof *f);
    for (const sample *s = x; s < x + (size_t)P * REPEATS_MAX; s += REPEATS_MAX) {
        layer.seconds += s->layer.seconds, layer.cpu += s->layer.cpu, layer.kernels += s->layer.kernels;
        alone.seconds += s->alone.seconds, alone.cpu += s->alone.cpu, alone.kernels += s->alone.kernels;
        f[SECONDS] = s->layer.seconds > f[SECONDS] ? s->layer.seconds : f[SECONDS];
        f[EXPOSED] = s->exposed > f[EXPOSED] ? s->exposed : f[EXPOSED];
        f[FLIGHT] = s->flight > f[FLIGHT] ? s->flight : f[FLIGHT];
        f[CPU] = s->layer.cpu > f[CPU] ? s->layer.cpu : f[CPU];
        most.seconds = s->alone.seconds > most.seconds ? s->alone.seconds : most.seconds;
        most.cpu = s->alone.cpu > most.cpu ? s->alone.cpu : most.cpu;
        double one = s->alone.seconds / s->layer.seconds, one_cpu = s->alone.cpu / s->layer.cpu;
        share = one < share ? one : share;
        cpu_share = one_cpu < cpu_share ? one_cpu : cpu_share;
        parts += s->alone.cpu > 0;
    }
    f[CPU_MEAN] = layer.cpu / P;
    if (b->against == WEFT_AGAINST_OWN) {
        f[ALONE] = most.seconds, f[ALONE_CPU] = most.cpu;
        f[SHARE] = share, f[SHARE_MEAN] = alone.seconds / layer.seconds, f[CPU_SHARE] = cpu_share;
        f[STEPS] = layer.kernels / alone.kernels;
    } else if (parts > 0) {
        f[ALONE] = alone.seconds / parts, f[ALONE_CPU] = alone.cpu / parts;
        f[CPU_SHARE] = f[ALONE_CPU] / P / f[CPU];
    }
}

static weft_status settle_way(const bench *b, const way *w, weft_layer_way *out)
{
    int P = weft_comm_size(b->c->comm);
    double f[REPEATS_MAX][FIGURES], median[FIGURES], one[REPEATS_MAX];
    sample *all = NULL;
    size_t *counts = NULL;
    WEFT_TRY(WEFT_NEW(b->c->arena, (int64_t)P * REPEATS_MAX, "samples", &all));
    WEFT_TRY(WEFT_NEW(b->c->arena, P, "samples", &counts));
    for (int r = 0; r < P; r++) counts[r] = sizeof w->x;
    WEFT_TRY(weft_all_gather(b->c->comm, w->x, all, counts));
    for (int i = 0; i < b->repeats; i++) figures_of(b, all + i, P, f[i]);
    for (int k = 0; k < FIGURES; k++) {
        for (int i = 0; i < b->repeats; i++) one[i] = f[i][k];
        median[k] = weft_unsigned_nan(weft_sorted(one, b->repeats)); /* a rank without work takes 0 of 0 seconds */
    }
    *out = (weft_layer_way){.name = w->name,
                            .seconds = median[SECONDS],
                            .exposed = median[EXPOSED],
                            .flight = median[FLIGHT],
                            .cpu = median[CPU],
                            .cpu_mean = median[CPU_MEAN],
                            .alone = median[ALONE],
                            .alone_cpu = median[ALONE_CPU],
                            .share = median[SHARE],
                            .share_mean = median[SHARE_MEAN],
                            .cpu_share = median[CPU_SHARE],
                            .steps = median[STEPS]};
    return WEFT_OK;
}

static weft_status plan_seconds(const bench *b, double *seconds)
{
    weft_cp_cost x;
    if (!b->c->run->cp.profile) return WEFT_OK;
    WEFT_TRY(weft_cp_cost_of(&x, &b->c->problem, &b->c->run->cp, weft_comm_size(b->c->comm)));
    *seconds = x.attention_forward + x.attention_backward + weft_cp_cost_added(&x);
    return WEFT_OK;
}

static weft_status settle(bench *b, weft_layer_bench *out)
{
    int64_t pool = (int64_t)weft_cp_pool_bytes(b->plan);
    for (int i = 0; i < b->ways; i++) WEFT_TRY(settle_way(b, &b->way[i], &out->way[i]));
    out->ways = b->ways;
    out->repeats = b->repeats;
    WEFT_TRY(weft_all_reduce(b->c->comm, b->sent, 2, WEFT_I64, WEFT_SUM));
    WEFT_TRY(weft_all_reduce(b->c->comm, &pool, 1, WEFT_I64, WEFT_MAX));
    out->bytes = b->sent[0];
    out->messages = b->sent[1];
    out->pool_bytes = (size_t)pool;
    WEFT_TRY(weft_agree(b->c->comm, plan_seconds(b, &out->planned_seconds)));
    weft_cp_describe(b->plan, &out->plan);
    return WEFT_OK;
}

/* ---- the bench ----------------------------------------------------------------------------------------------- */

static weft_status measure(bench *b, const weft_kern *kern, const char *progress, weft_layer_bench *out)
{
    weft_attention_case *c = b->c;
    WEFT_TRY(weft_agree(c->comm, weft_arena_alloc(c->arena, (int64_t)weft_cp_kept_bytes(b->plan), 1, "kept by heads",
                                                  &c->kept)));
    b->io = weft__case_io(c);
    WEFT_TRY(weft_cp_bind(b->plan, 0, weft__case_queries(c), &c->shard_kv));
    WEFT_TRY(weft_agree(c->comm, open_alone(b, kern)));
    WEFT_TRY(choose_ways(b, progress));
    WEFT_TRY(repeat(b));
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
    weft_status st = measure(b, &kern, progress, out);
    weft__alone_close(&b->alone);
    weft_cp_plan_destroy(b->plan);
    return st;
}

weft_status weft_bench_attention(weft_world *world, const weft_run *r, const char *progress,
                                 weft_layer_against against, weft_layer_bench *out)
{
    uint64_t seed = (uint64_t)r->o->seed;
    weft_attention_case c = {.name = "--make", .run = r, .ctx = weft_world_ctx(world), .C = weft_prec_compute(r->prec),
                             .R = weft_prec_real(r->prec), .seed = seed,
                             .problem = {.prec = r->prec, .layout = r->layout, .need_backward = true, .slots = 1,
                                         .seed = seed}};
    bench b = {.c = &c, .world = world, .against = against, .mpi = !strcmp(weft_world_transport(world), "mpi")};
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
