/* toy.h — small models for tests: odd sizes, weights by address, one micro-batch on P rank threads. */
#ifndef WEFT_TEST_TOY_H
#define WEFT_TEST_TOY_H

#include "harness/test.h"

#include "model/model.h"

typedef struct toy { /* one problem and its results, in double whatever the precision */
    weft_model_config config;
    weft_prec prec;
    int P;
    weft_layout layout;
    const char *strategy;
    int64_t B, T;
    const int64_t *cu, *first;  /* documents; NULL: one per row */
    const int32_t *token, *target; /* [B,T] */
    double grad_scale;
    const void *weights;        /* (R) instead of toy_weights, or NULL */

    double nll_sum;             /* over all ranks */
    double *token_nll;          /* [B,T] */
    double *grads;              /* [ranks][count]; the sum over ranks ends up in the first */
    int64_t count;
    double *rank_sum;           /* [P] */
} toy;

static inline weft_model_config toy_config(weft_family family, int64_t L)
{
    weft_model_config c = {
        .family = family, .V = 11, .C = 10, .F = 5, .L = L, .max_position = 64, .H = 3, .Hkv = 1, .D = 4,
        .norm_eps = 1e-5, .rope = {.type = WEFT_ROPE_PLAIN, .theta = 100, .factor = 1}, .bos = -1, .eos = -1,
    };
    if (family == WEFT_QWEN2) c.qkv_bias = c.tied = true;
    if (family == WEFT_MISTRAL) c.window = 3;
    if (family == WEFT_GPT2) {
        c.C = 6;
        c.D = 2;
        c.Hkv = 3;
        c.F = 7;
        c.rope.type = WEFT_ROPE_NONE;
        c.tied = c.qkv_bias = c.o_bias = c.mlp_bias = true;
    }
    return c;
}

/* Large enough that every path carries a gradient well above rounding. */
static inline double toy_weight(const weft_spec *s, int64_t i)
{
    double z = test_normal((uint64_t)s->offset + 17, i);
    if (s->nd == 2) return 0.4 * z;
    return strstr(s->name, "bias") ? 0.3 * z : 1 + 0.2 * z;
}

static inline void toy_weights(weft_model *m, weft_prec prec)
{
    int n;
    const weft_spec *spec = weft_model_spec(m, &n);
    for (int t = 0; t < n; t++)
        for (int64_t i = 0; i < spec[t].count; i++)
            weft_store(weft_model_weights(m), weft_prec_real(prec), spec[t].offset + i, toy_weight(&spec[t], i));
    weft_model_weights_changed(m);
}

typedef struct toy_rank { /* what one rank needs to run a model */
    weft_arena *arena;
    weft_kern kern;
    weft_gemm *gemm;
    weft_comm *cp;
    weft_model *model;
    weft_shard shard;
    weft_docs docs;
    int64_t *cu, *first;
    int64_t rows, *index, *pos;
    int32_t *token, *target;
} toy_rank;

static inline weft_status toy_docs(toy_rank *r, const toy *t)
{
    WEFT_TRY(WEFT_NEW(r->arena, 2 * t->B, "test", &r->cu));
    WEFT_TRY(WEFT_NEW(r->arena, t->B + 1, "test", &r->first));
    for (int64_t b = 0; b <= t->B; b++) r->first[b] = 2 * b;
    for (int64_t b = 0; b < t->B; b++) {
        r->cu[2 * b] = 0;
        r->cu[2 * b + 1] = t->T;
    }
    r->docs =
        (weft_docs){.B = t->B, .T = t->T, .cu = t->cu ? t->cu : r->cu, .first = t->first ? t->first : r->first, NULL};
    return WEFT_OK;
}

static inline weft_status toy_cut(toy_rank *r, const toy *t, int rank)
{
    int64_t docs = r->docs.first[t->B];
    WEFT_TRY(weft_shard_alloc(&r->shard, r->arena, t->P, weft_shard_capacity(t->layout, t->B, t->T, docs, t->P)));
    WEFT_TRY(weft_shard_make(&r->shard, t->layout, &r->docs, 0));
    r->rows = r->shard.rows[rank];
    WEFT_TRY(WEFT_NEW(r->arena, r->rows, "test", &r->index));
    WEFT_TRY(WEFT_NEW(r->arena, r->rows, "test", &r->pos));
    WEFT_TRY(WEFT_NEW(r->arena, r->rows, "test", &r->token));
    WEFT_TRY(WEFT_NEW(r->arena, r->rows, "test", &r->target));
    weft_shard_tokens(&r->shard, rank, r->index, r->pos);
    for (int64_t i = 0; i < r->rows; i++) {
        r->token[i] = t->token[r->index[i]];
        r->target[i] = t->target[r->index[i]];
    }
    return WEFT_OK;
}

static inline weft_status toy_open(toy_rank *r, weft_ctx *ctx, weft_world *world, const toy *t)
{
    int ranks[64];
    *r = (toy_rank){0};
    for (int i = 0; i < t->P; i++) ranks[i] = i;
    WEFT_TRY(weft_arena_create(&r->arena, &ctx->mem, "test", NULL));
    WEFT_TRY(weft_kern_init(&r->kern, weft_isa_best()));
    WEFT_TRY(weft_gemm_create(&r->gemm, ctx, (int)weft_isa_best()));
    WEFT_TRY(weft_comm_create(&r->cp, world, ranks, t->P, "cp"));
    WEFT_TRY(toy_docs(r, t));
    WEFT_TRY(toy_cut(r, t, weft_world_rank(world)));
    weft_model_options o = {
        .prec = t->prec, .B = t->B, .T = t->T, .max_docs = r->docs.first[t->B], .layout = t->layout,
        .cp = {.strategy = t->strategy ? t->strategy : "auto", .overlap = true}, .train = true, .slots = 1,
    };
    WEFT_TRY(weft_model_create(&r->model, ctx, &r->kern, r->gemm, &(weft_model_place){.cp = r->cp}, &t->config, &o));
    if (!t->weights) {
        toy_weights(r->model, t->prec);
        return WEFT_OK;
    }
    memcpy(weft_model_weights(r->model), t->weights,
           (size_t)weft_model_weight_count(r->model) * weft_dtype_size(weft_prec_real(t->prec)));
    weft_model_weights_changed(r->model);
    return WEFT_OK;
}

static inline void toy_close(toy_rank *r)
{
    weft_model_destroy(r->model);
    weft_comm_destroy(r->cp);
    weft_gemm_destroy(r->gemm);
    weft_arena_destroy(r->arena);
}

static inline weft_status toy_step(toy_rank *r, const toy *t, bool backward, double *nll_sum, void *token_nll)
{
    weft_micro u = {.slot = 0, .shard = &r->shard, .token = r->token, .target = r->target};
    return weft_model_run(r->model, &u, backward, t->grad_scale, nll_sum, token_nll, NULL, NULL);
}

static inline weft_status toy_body(weft_ctx *ctx, weft_world *world, void *ud)
{
    toy *t = ud;
    toy_rank r;
    int rank = weft_world_rank(world);
    weft_dtype type = weft_prec_real(t->prec);
    void *nll;
    WEFT_TRY(toy_open(&r, ctx, world, t));
    WEFT_TRY(weft_arena_alloc(r.arena, r.rows, sizeof(double), "test", &nll));
    WEFT_TRY(toy_step(&r, t, true, &t->rank_sum[rank], nll));
    for (int64_t i = 0; i < r.rows; i++) t->token_nll[r.index[i]] = weft_load(nll, type, i);
    weft_convert(t->grads + rank * t->count, WEFT_F64, weft_model_gradients(r.model), type, t->count);
    toy_close(&r);
    return WEFT_OK;
}

/* Forward and backward on P threads; t's results are freed by toy_free. */
static inline weft_status toy_run(toy *t)
{
    t->count = weft_model_params(&t->config);
    t->token_nll = calloc((size_t)(t->B * t->T), sizeof(double));
    t->grads = calloc((size_t)(t->P * t->count), sizeof(double));
    t->rank_sum = calloc((size_t)t->P, sizeof(double));
    if (t->grad_scale == 0) t->grad_scale = 1;
    weft_status st = weft_run_threads(t->P, toy_body, t);
    t->nll_sum = 0;
    for (int r = 0; r < t->P; r++) t->nll_sum += t->rank_sum[r];
    for (int r = 1; r < t->P; r++)
        for (int64_t i = 0; i < t->count; i++) t->grads[i] += t->grads[r * t->count + i];
    return st;
}

static inline void toy_free(toy *t)
{
    free(t->token_nll);
    free(t->grads);
    free(t->rank_sum);
}

static inline void toy_tokens(int32_t *token, int32_t *target, int64_t n, int64_t V)
{
    for (int64_t i = 0; i < n; i++) {
        token[i] = (int32_t)((i * i * 7 + i * 3 + 2) % V);
        target[i] = i % 5 == 3 ? -100 : (int32_t)((i * 5 + 1) % V);
    }
}

#endif
