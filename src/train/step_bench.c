/* step_bench.c — training steps on random tokens, on any ranks, and where their time goes: micro-batches through the
 * pipeline, sums of gradients, norm and update, as step.c does them, without a file to read.
 *
 * The arithmetic units are measured by all threads of all ranks at once, before and after the steps: what a step
 * reaches is a share of what this machine does in the same minute. */
#include "train/step_bench.h"

#include <stdlib.h>

enum { STEPS = 10, COUNTED = 5, ALONE_MIN = 5 };
static const double roof_seconds = 0.05, enough_seconds = 10;

typedef struct bench {
    weft_ctx *ctx;
    weft_world *world;
    const weft_run *run;
    weft_engine engine;
    weft_pipeline *pipeline;
    weft_optim *optim;
    weft_arena *arena;
    int64_t micros;              /* micro-batches of a step on this rank */
    int32_t *token, *target;     /* [micros][B][T] */
    weft_docs docs, short_docs;  /* a document a sequence; many, whose attention costs next to nothing */
    const weft_docs *now;        /* which of them */
    weft__step_samples samples;
    int64_t step;
    double loss;
} bench;

/* ---- the batch ------------------------------------------------------------------------------------------- */

/* The first sequence of micro-batch a within the step, as in step.c. */
static int64_t first_sequence(const bench *b, int64_t a)
{
    return (a * b->run->mesh.dp + b->engine.mesh.at.dp) * b->run->o->micro_batch;
}

/* Every token is as likely as any other: what a kernel reads and how often it misses does not depend on the text. */
static void draw_tokens(bench *b, int64_t V)
{
    const int64_t per_micro = b->run->o->micro_batch * b->run->o->seq_length;
    for (int64_t a = 0; a < b->micros; a++)
        for (int64_t i = 0; i < per_micro; i++) {
            uint64_t at = (uint64_t)(first_sequence(b, a) * b->run->o->seq_length + i);
            weft_philox_out w = weft_philox((uint64_t)b->run->o->seed, (uint32_t)at, (uint32_t)(at >> 32), 0,
                                            weft_philox_word3(0, 0, WEFT_SITE_SAMPLE));
            b->token[a * per_micro + i] = (int32_t)(w.w[0] % (uint64_t)V);
            b->target[a * per_micro + i] = (int32_t)(w.w[1] % (uint64_t)V);
        }
}

static weft_status alloc_batch(bench *b)
{
    const weft_run_options *o = b->run->o;
    int64_t B = o->micro_batch, T = o->seq_length, n = 0;
    WEFT_TRY(weft_run_accumulation(b->run, &b->micros));
    if (!weft_mul_i64(B, T, &n) || !weft_mul_i64(n, b->micros, &n))
        return weft_fail(WEFT_ERR_REFUSED, "bench step: %lld sequences are too many", (long long)B);
    WEFT_TRY(WEFT_NEW(b->arena, n, "step tokens", &b->token));
    WEFT_TRY(WEFT_NEW(b->arena, n, "step targets", &b->target));
    WEFT_TRY(WEFT_NEW(b->arena, b->micros, "step areas", &b->samples.area));
    b->samples.micros = b->micros;
    WEFT_TRY(weft_docs_from_text(&b->docs, b->arena, "*", B, T, 0));
    return weft_docs_from_text(&b->short_docs, b->arena, "each:256", B, T, 0);
}

/* Documents of a micro-batch, at most: at most as many as offsets. */
static int64_t max_docs(const bench *b) { return b->short_docs.first[b->short_docs.B]; }

static weft_status open(bench *b, weft_world *world)
{
    const weft_run_options *o = b->run->o;
    weft_model_config config;
    WEFT_TRY(weft_run_model_config(b->run, &config));
    WEFT_TRY(alloc_batch(b));
    const weft_engine_options eo = {.B = o->micro_batch, .T = o->seq_length, .max_docs = max_docs(b),
                                    .micros = b->micros, .train = true};
    WEFT_TRY(weft_engine_open(&b->engine, world, b->run, &config, &eo));
    WEFT_TRY(weft_pipeline_create(&b->pipeline, &b->engine, b->micros));
    draw_tokens(b, config.V);
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

/* ---- one step --------------------------------------------------------------------------------------------- */

static weft_status batch_of_step(void *ud, int64_t a, weft_batch *out)
{
    const bench *b = ud;
    const int64_t at = a * b->run->o->micro_batch * b->run->o->seq_length;
    *out = (weft_batch){.token = b->token + at, .target = b->target + at, .docs = *b->now,
                        .sequence = first_sequence(b, a)};
    return WEFT_OK;
}

static void keep_area(void *ud, int64_t a, int slot)
{
    bench *b = ud;
    b->samples.area[a] = b->engine.slot[slot].area;
}

static int64_t tokens_of_step(const bench *b)
{
    const weft_run_options *o = b->run->o;
    return b->micros * o->micro_batch * o->seq_length * b->run->mesh.dp;
}

static weft_status one_step(bench *b)
{
    weft_model *m = b->engine.model;
    double n = (double)tokens_of_step(b), nll = 0, norm;
    const weft_pipeline_job job = {.sequences = b->micros * b->run->o->micro_batch, .B = b->run->o->micro_batch,
                                   .backward = true, .grad_scale = 1 / n, .batch = batch_of_step, .done = keep_area,
                                   .ud = b, .optim = b->optim};
    b->engine.step = b->step;
    weft_guard_begin(&b->ctx->guard, b->step + 1, 1, false);
    weft_model_zero_gradients(m);
    WEFT_TRY(weft_pipeline_run(b->pipeline, &job, &nll));
    WEFT_TRY(weft_all_reduce(b->engine.mesh.dp_cp, &nll, 1, WEFT_F64, WEFT_SUM));
    WEFT_TRY(weft_optim_reduce(b->optim));
    WEFT_TRY(weft_optim_norm(b->optim, 1, &norm));
    WEFT_TRY(weft_optim_update(b->optim, norm, 1, b->run->o->lr, ++b->step));
    weft_model_weights_changed(m);
    b->loss = nll / n;
    return WEFT_OK;
}

/* All ranks begin together: what one of them waits for is then a matter of the step alone. */
static weft_status timed_step(bench *b, const weft_docs *docs, weft__step_sample *s)
{
    weft_parts *parts = &b->ctx->parts;
    weft_counters before, after;
    weft_bytes sent;
    b->now = docs;
    WEFT_TRY(weft_barrier(b->engine.mesh.all));
    weft_world_counters(b->world, &before);
    weft_bytes_count(&b->engine.mesh, &sent);
    double begin = weft_now(&b->ctx->clock), attention = b->ctx->attention_seconds;
    weft_parts_start(parts, &b->ctx->clock);
    weft_status st = one_step(b);
    weft_parts_stop(parts);
    s->seconds = weft_now(&b->ctx->clock) - begin;
    s->attention = b->ctx->attention_seconds - attention;
    for (int i = 0; i < WEFT_PARTS; i++) s->part[i] = parts->seconds[i];
    weft_world_counters(b->world, &after);
    weft_bytes_count(&b->engine.mesh, &b->samples.sent);
    for (int k = 0; k < WEFT_BYTES_KINDS; k++) b->samples.sent.of[k] -= sent.of[k];
    s->flight = after.flight_seconds - before.flight_seconds;
    s->exposed = after.exposed_seconds - before.exposed_seconds;
    return st;
}

/* ---- the products alone ----------------------------------------------------------------------------------- */

/* A step whose products are written down, as many as there is room for. */
static weft_status noted_step(bench *b, int64_t room, weft_step_bench *out, weft_gemm_args **log,
                              weft__step_sample *s)
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
 * of a step, but on short documents: attention over a long sequence would take half of the time. Nobody asks about the
 * products of several ranks. */
static weft_status warm_up(bench *b, weft_step_bench *out, weft_gemm_args **log)
{
    enum { ROOM = 2048 };
    weft__step_sample s;
    if (out->ranks > 1) return timed_step(b, &b->short_docs, &s);
    WEFT_TRY(noted_step(b, ROOM, out, log, &s));
    if (out->products <= ROOM) return WEFT_OK;
    return noted_step(b, out->products, out, log, &s);
}

/* The products of a step once more, on the same operands. Gradients and activations are garbage afterwards. The best
 * of several times: what stands between products is what is asked about. */
static weft_status products_alone(bench *b, weft_step_bench *out, const weft_gemm_args *log)
{
    double start = weft_now(&b->ctx->clock);
    const int64_t given = b->run->o->bench_repeats, most = given ? weft_min_i64(given, ALONE_MIN) : ALONE_MIN;
    for (int64_t done = 0; log && done < most; done++) {
        double begin = weft_now(&b->ctx->clock);
        for (int64_t i = 0; i < out->products; i++) WEFT_TRY(weft_gemm_run(b->engine.gemm, &log[i], NULL));
        double seconds = weft_now(&b->ctx->clock) - begin;
        if (done == 0 || seconds < out->products_alone) out->products_alone = seconds;
        if (weft_now(&b->ctx->clock) - start >= enough_seconds) break;
    }
    return WEFT_OK;
}

/* ---- measuring -------------------------------------------------------------------------------------------- */

/* Operations per second of all threads of all ranks at once; 0: there is no unit to measure. */
static weft_status measure_roof(bench *b, weft_step_bench *out, double *roof)
{
    weft_roof_unit unit;
    *roof = 0;
    if (!weft_isa_roof(b->engine.kern.isa, b->run->prec, &unit)) return WEFT_OK;
    out->roof_name = weft_roof_name(unit);
    WEFT_TRY(weft_barrier(b->engine.mesh.all));
    *roof = weft_roof_measure(unit, &b->ctx->clock, b->ctx->threads, roof_seconds);
    return weft_all_reduce(b->engine.mesh.all, roof, 1, WEFT_F64, WEFT_SUM);
}

static weft_status run_steps(bench *b)
{
    const int64_t given = b->run->o->bench_repeats, steps = given ? given : STEPS, counted = given ? given : COUNTED;
    weft__step_samples *s = &b->samples;
    weft__step_sample first;
    for (int64_t i = 0; i < steps; i++)
        WEFT_TRY(timed_step(b, &b->docs, i < steps - counted ? &first : &s->x[s->n++]));
    return WEFT_OK;
}

static void describe(const bench *b, weft_step_bench *out)
{
    const weft_engine *e = &b->engine;
    int cpus, sharers;
    weft_world_cpus(b->world, &cpus, &sharers);
    out->threads = b->ctx->threads;
    out->crowded = sharers * b->ctx->threads > cpus;
    out->repeats = b->samples.n;
    out->tokens = tokens_of_step(b);
    out->params = weft_model_params(&e->config);
    out->loss = b->loss;
    double micros = (double)(b->micros * b->run->mesh.dp), area = weft_model_area(&e->config, &e->slot[0].shard);
    out->flops = weft_model_step_flops(&e->config, out->tokens, micros * area);
    weft_text_add(&out->plan, "%s", e->plan.data ? e->plan.data : "");
}

static weft_status measure(bench *b, weft_step_bench *out)
{
    weft_gemm_args *log = NULL;
    double before, after;
    out->ranks = weft_world_size(b->world);
    WEFT_TRY(warm_up(b, out, &log));
    WEFT_TRY(measure_roof(b, out, &before));
    WEFT_TRY(run_steps(b));
    WEFT_TRY(measure_roof(b, out, &after));
    out->roof = (before + after) / 2;
    describe(b, out);
    WEFT_TRY(products_alone(b, out, log));
    const weft__memory_of memory = {.engine = &b->engine, .max_docs = max_docs(b), .micros = b->micros, .train = true};
    WEFT_TRY(weft__memory_report(&memory, &out->memory));
    out->planned_seconds = weft__plan_seconds(&b->engine, b->run->o->micro_batch, b->micros, &out->planned);
    return weft__step_figures(&b->engine, b->arena, &b->samples, out);
}

weft_status weft_bench_step_run(weft_world *world, const weft_run *run, weft_step_bench *out)
{
    bench b = {.ctx = weft_world_ctx(world), .world = world, .run = run};
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
