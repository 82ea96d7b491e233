/* step_bench.c — a training step on random tokens, and where its time goes: forward, backward, norm and update, as
 * step.c does them, without a file to read. */
#include "train/train.h"

#include <stdlib.h>

enum { REPEATS_MIN = 5, REPEATS_MAX = 25 };
static const double enough_seconds = 10; /* no more repeats than the minimum past these */

typedef struct sample {
    double seconds, part[WEFT_PARTS];
} sample;

typedef struct bench {
    weft_ctx *ctx;
    const weft_run *run;
    weft_engine engine;
    weft_optim *optim;
    weft_arena *arena;
    int32_t *token, *target;
    weft_docs docs, short_docs; /* a document a sequence; many, whose attention costs next to nothing */
    sample x[REPEATS_MAX];
    int repeats;
    int64_t step;
    double loss;
} bench;

/* Every token is as likely as any other: what a kernel reads and how often it misses does not depend on the text. */
static weft_status make_batch(bench *b, int64_t V)
{
    const weft_run_options *o = b->run->o;
    int64_t B = o->micro_batch, T = o->seq_length, n = 0;
    if (!weft_mul_i64(B, T, &n))
        return weft_fail(WEFT_ERR_REFUSED, "bench step: %lld sequences are too many", (long long)B);
    WEFT_TRY(WEFT_NEW(b->arena, n, "tokens", &b->token));
    WEFT_TRY(WEFT_NEW(b->arena, n, "targets", &b->target));
    for (int64_t i = 0; i < n; i++) {
        weft_philox_out w = weft_philox((uint64_t)o->seed, (uint32_t)i, (uint32_t)(i >> 32), 0,
                                        weft_philox_word3(0, 0, WEFT_SITE_SAMPLE));
        b->token[i] = (int32_t)(w.w[0] % (uint64_t)V);
        b->target[i] = (int32_t)(w.w[1] % (uint64_t)V);
    }
    WEFT_TRY(weft_docs_from_text(&b->docs, b->arena, "*", B, T, 0));
    return weft_docs_from_text(&b->short_docs, b->arena, "each:256", B, T, 0);
}

static weft_status open(bench *b, weft_world *world)
{
    const weft_run_options *o = b->run->o;
    weft_model_config config;
    WEFT_TRY(weft_run_model_config(b->run, &config));
    WEFT_TRY(make_batch(b, config.V));
    const int64_t docs = b->short_docs.first[o->micro_batch]; /* at most as many as offsets */
    const weft_engine_options eo = {.B = o->micro_batch, .T = o->seq_length, .max_docs = docs, .train = true};
    WEFT_TRY(weft_engine_open(&b->engine, world, b->run, &config, &eo));
    weft_model_init_weights(b->engine.model, (uint64_t)o->seed);
    const weft_optim_options oo = {.lr = o->lr,
                                   .beta1 = o->beta1,
                                   .beta2 = o->beta2,
                                   .eps = o->adam_eps,
                                   .weight_decay = o->weight_decay,
                                   .clip = o->clip,
                                   .decay_steps = 1};
    return weft_engine_optimizer(&b->engine, &oo, &b->optim);
}

static weft_status one_step(bench *b, const weft_docs *docs)
{
    weft_model *m = b->engine.model;
    double n = (double)(docs->B * docs->T), nll = 0, norm;
    weft_guard_begin(&b->ctx->guard, b->step + 1, 1, false);
    weft_model_zero_gradients(m);
    const weft_engine_pass pass = {.for_backward = true, .grad_scale = 1 / n, .optim = b->optim};
    WEFT_TRY(weft_engine_forward(&b->engine, &pass, b->token, b->target, docs, &nll));
    WEFT_TRY(weft_engine_backward(&b->engine, &pass));
    WEFT_TRY(weft_optim_reduce(b->optim));
    WEFT_TRY(weft_optim_norm(b->optim, 1, &norm));
    WEFT_TRY(weft_optim_update(b->optim, norm, 1, b->run->o->lr, ++b->step));
    weft_model_weights_changed(m);
    b->loss = nll / n;
    return WEFT_OK;
}

static weft_status timed_step(bench *b, const weft_docs *docs, sample *s)
{
    weft_parts *parts = &b->ctx->parts;
    double begin = weft_now(&b->ctx->clock);
    weft_parts_start(parts, &b->ctx->clock);
    weft_status st = one_step(b, docs);
    weft_parts_stop(parts);
    s->seconds = weft_now(&b->ctx->clock) - begin;
    for (int i = 0; i < WEFT_PARTS; i++) s->part[i] = parts->seconds[i];
    return st;
}

static int ascending(const void *a, const void *b)
{
    double x = ((const sample *)a)->seconds, y = ((const sample *)b)->seconds;
    return (x > y) - (x < y);
}

/* How often something is measured: as asked, or by the time that it takes. */
static bool enough(const bench *b, int done, int least, double begin)
{
    int64_t given = b->run->o->bench_repeats;
    if (given) return done >= given;
    return done >= REPEATS_MAX || (done >= least && weft_now(&b->ctx->clock) - begin >= enough_seconds);
}

/* A step whose products are written down, as many as there is room for. */
static weft_status noted_step(bench *b, int64_t room, weft_step_bench *out, weft_gemm_args **log, sample *s)
{
    WEFT_TRY(WEFT_NEW(b->arena, room, "products", log));
    weft_gemm_record(b->engine.gemm, *log, room);
    WEFT_TRY(timed_step(b, &b->short_docs, s));
    out->products = weft_gemm_recorded(b->engine.gemm);
    weft_gemm_record(b->engine.gemm, NULL, 0);
    return WEFT_OK;
}

/* A step that does not count, or two where there was no room to note all products of the first: never by the time that
 * it takes, or instructions counted over a run would depend on the machine. It touches all memory and runs the products
 * of a step, but on short documents: attention over a long sequence would take half of the time. */
static weft_status warm_up(bench *b, weft_step_bench *out, weft_gemm_args **log)
{
    enum { ROOM = 2048 };
    sample s;
    WEFT_TRY(noted_step(b, ROOM, out, log, &s));
    if (out->products <= ROOM) return WEFT_OK;
    return noted_step(b, out->products, out, log, &s);
}

/* The products of a step once more, on the same operands. Gradients and activations are garbage afterwards. The best
 * of several times: what stands between products is what is asked about. */
static weft_status products_alone(bench *b, weft_step_bench *out, const weft_gemm_args *log)
{
    double start = weft_now(&b->ctx->clock);
    int done = 0;
    do {
        double begin = weft_now(&b->ctx->clock);
        for (int64_t i = 0; i < out->products; i++) WEFT_TRY(weft_gemm_run(b->engine.gemm, &log[i], NULL));
        double seconds = weft_now(&b->ctx->clock) - begin;
        if (done++ == 0 || seconds < out->products_alone) out->products_alone = seconds;
    } while (done < REPEATS_MIN && !enough(b, done, REPEATS_MIN, start));
    return WEFT_OK;
}

static weft_status measure(bench *b, weft_step_bench *out)
{
    weft_gemm_args *log = NULL;
    WEFT_TRY(warm_up(b, out, &log));
    double begin = weft_now(&b->ctx->clock);
    while (!enough(b, b->repeats, REPEATS_MIN, begin)) WEFT_TRY(timed_step(b, &b->docs, &b->x[b->repeats++]));
    out->loss = b->loss;
    WEFT_TRY(products_alone(b, out, log));
    qsort(b->x, (size_t)b->repeats, sizeof *b->x, ascending);
    const sample *median = &b->x[b->repeats / 2];
    out->seconds = median->seconds;
    out->spread = (b->x[3 * b->repeats / 4].seconds - b->x[b->repeats / 4].seconds) / median->seconds;
    for (int i = 0; i < WEFT_PARTS; i++) out->part[i] = median->part[i];
    out->repeats = b->repeats;
    out->threads = b->ctx->threads;
    out->tokens = b->docs.B * b->docs.T;
    out->params = weft_model_weight_count(b->engine.model);
    const weft_model_config *config = &b->engine.config;
    out->flops = weft_model_step_flops(config, out->tokens, weft_model_area(config, &b->engine.slot[0].shard));
    out->memory_bytes = (double)b->ctx->mem.peak + (double)weft_gemm_bytes(b->engine.gemm);
    out->resident_bytes = weft_resident_bytes();
    out->file_bytes = (double)weft_model_file_bytes(b->engine.model);
    weft_model_describe(b->engine.model, &out->plan);
    return WEFT_OK;
}

weft_status weft_bench_step_run(weft_world *world, const weft_run *run, weft_step_bench *out)
{
    bench b = {.ctx = weft_world_ctx(world), .run = run};
    *out = (weft_step_bench){0};
    b.ctx->guard = run->guard;
    WEFT_TRY(weft_arena_create(&b.arena, &b.ctx->mem, "bench", NULL));
    weft_status st = open(&b, world);
    if (st >= 0) st = measure(&b, out);
    if (b.optim) weft_optim_destroy(b.optim);
    weft_engine_close(&b.engine);
    weft_arena_destroy(b.arena);
    return st;
}
