/* toy.h — small models for tests: odd sizes, weights by address, one micro-batch on tp x P rank threads. */
#ifndef WEFT_TEST_TOY_H
#define WEFT_TEST_TOY_H

#include "harness/test.h"

#include "mesh/mesh.h"
#include "model/model.h"

typedef struct toy { /* one problem and its results, in double whatever the precision */
    weft_model_config config;
    weft_prec prec;
    int P;                      /* ranks of cp */
    int tp;                     /* 0: one */
    bool sequence_parallel;
    double dropout, embedding_dropout, residual_dropout;
    weft_recompute recompute;
    bool keep_attention, keep_heads;
    int64_t mlp_rows;
    weft_offload offload;
    const char *offload_folder;
    weft_layout layout;
    const char *strategy;
    int64_t B, T;
    const int64_t *cu, *first;  /* documents; NULL: one per row */
    const int32_t *token, *target; /* [B,T] */
    double grad_scale;
    int slots;                  /* 0: one */
    const void *weights;        /* (R) of the whole model instead of toy_weights, or NULL */

    double nll_sum;             /* over all ranks of cp */
    double *token_nll;          /* [tp][B,T], equal for all */
    double *grads;              /* [ranks][count] of the whole model; the sum over ranks ends up in the first */
    char *grad_is;              /* [ranks][count] toy_gradient */
    int64_t count;
    double *rank_sum;           /* [P][tp] */
    int64_t *messages;          /* [P][tp] sent in the step */
    size_t *bytes;              /* [P][tp] in the rows of its account */
    int64_t *file;              /* [P][tp] bytes of its file */
} toy;

/* What a rank of tp has of the gradient of an element of the model. */
enum toy_gradient { TOY_NOTHING, TOY_OWN, TOY_COPY, TOY_PART, TOY_PART_COPY };

static inline int toy_tp(const toy *t) { return t->tp ? t->tp : 1; }

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

/* By names and elements of the whole model, whatever part of it is here. */
static inline weft_status toy_weights(weft_model *m, weft_arena *arena, const toy *t)
{
    int n, n_whole;
    weft_spec *whole;
    const weft_spec *spec = weft_model_spec(m, &n);
    weft_dtype type = weft_prec_real(t->prec);
    WEFT_TRY(weft_model_whole_spec(&t->config, arena, &whole, &n_whole));
    for (int i = 0; i < n; i++) {
        const weft_spec *w = &whole[spec[i].number];
        weft_spec_walk walk = weft_spec_walk_of(&spec[i], 0, spec[i].count);
        if (strcmp(w->name, spec[i].name)) return weft_fail(WEFT_ERR_COMPARE, "%s is %s", spec[i].name, w->name);
        for (weft_stretch s; weft_spec_walk_next(&walk, &s);)
            for (int64_t j = 0; j < s.n; j++)
                weft_store(weft_model_weights(m), type, spec[i].offset + s.at + j,
                           t->weights ? weft_load(t->weights, type, w->offset + s.whole + j)
                                      : toy_weight(w, s.whole + j));
    }
    weft_model_weights_changed(m);
    return WEFT_OK;
}

typedef struct toy_rank { /* what one rank needs to run a model */
    weft_arena *arena;
    weft_kern kern;
    weft_gemm *gemm;
    weft_comm *cp;
    weft_mesh mesh;             /* world NULL: one rank of tp */
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

static inline weft_status toy_place(toy_rank *r, weft_world *world, const toy *t, weft_model_place *place)
{
    int ranks[64];
    if (toy_tp(t) > 1) {
        WEFT_TRY(weft_mesh_create(&r->mesh, world, (weft_mesh_shape){.tp = t->tp, .cp = t->P, .dp = 1, .pp = 1}));
        *place = (weft_model_place){.cp = r->mesh.cp, .tp = r->mesh.tp, .sequence_parallel = t->sequence_parallel};
        return WEFT_OK;
    }
    for (int i = 0; i < t->P; i++) ranks[i] = i;
    WEFT_TRY(weft_comm_create(&r->cp, world, ranks, t->P, "cp"));
    *place = (weft_model_place){.cp = r->cp};
    return WEFT_OK;
}

static inline weft_status toy_open(toy_rank *r, weft_ctx *ctx, weft_world *world, const toy *t)
{
    weft_model_place place;
    *r = (toy_rank){0};
    WEFT_TRY(weft_arena_create(&r->arena, &ctx->mem, "test", NULL));
    WEFT_TRY(weft_kern_init(&r->kern, weft_isa_best()));
    WEFT_TRY(weft_gemm_create(&r->gemm, ctx, (int)weft_isa_best()));
    WEFT_TRY(toy_place(r, world, t, &place));
    WEFT_TRY(toy_docs(r, t));
    WEFT_TRY(toy_cut(r, t, weft_comm_rank(place.cp)));
    weft_model_options o = {
        .prec = t->prec, .B = t->B, .T = t->T, .max_docs = r->docs.first[t->B], .layout = t->layout,
        .cp = {.strategy = t->strategy ? t->strategy : "auto", .overlap = true,
               .keep_heads = t->keep_heads}, .train = true,
        .slots = t->slots ? t->slots : 1,
        .dropout = t->dropout, .embedding_dropout = t->embedding_dropout, .residual_dropout = t->residual_dropout,
        .seed = 3, .recompute = t->recompute, .keep_attention = t->keep_attention, .mlp_rows = t->mlp_rows,
        .offload = t->offload, .offload_folder = t->offload_folder,
    };
    WEFT_TRY(weft_model_create(&r->model, ctx, &r->kern, r->gemm, &place, &t->config, &o));
    return toy_weights(r->model, r->arena, t);
}

static inline void toy_close(toy_rank *r)
{
    weft_model_destroy(r->model);
    if (r->mesh.world) weft_mesh_destroy(&r->mesh);
    else weft_comm_destroy(r->cp);
    weft_gemm_destroy(r->gemm);
    weft_arena_destroy(r->arena);
}

static inline weft_status toy_step(toy_rank *r, const toy *t, bool backward, double *nll_sum, void *token_nll)
{
    weft_micro u = {.slot = 0, .shard = &r->shard, .token = r->token, .target = r->target};
    return weft_model_run(r->model, &u, backward, t->grad_scale, nll_sum, token_nll, NULL, NULL);
}

/* This rank's gradients at their places in the whole model. */
static inline weft_status toy_gradients(toy_rank *r, const toy *t, int rank)
{
    int n, n_whole;
    weft_spec *whole;
    const weft_spec *spec = weft_model_spec(r->model, &n);
    WEFT_TRY(weft_model_whole_spec(&t->config, r->arena, &whole, &n_whole));
    for (int i = 0; i < n; i++) {
        const weft_spec *p = &spec[i];
        weft_spec_walk walk = weft_spec_walk_of(p, 0, p->count);
        int64_t inner = p->cut_dim == 0 && p->nd == 2 ? p->whole[1] : 1;
        for (weft_stretch s; weft_spec_walk_next(&walk, &s);)
            for (int64_t j = 0; j < s.n; j++) {
                int64_t at = rank * t->count + whole[p->number].offset + s.whole + j, row = (s.whole + j) / inner;
                bool own = s.at + j >= p->own_first && s.at + j < p->own_first + p->own_count;
                bool part = p->sum == WEFT_SUM_TP ||
                            (p->sum == WEFT_SUM_SHARED && row >= p->shared.begin && row < p->shared.end);
                t->grad_is[at] = (char)(part ? own ? TOY_PART : TOY_PART_COPY : own ? TOY_OWN : TOY_COPY);
                t->grads[at] = weft_load(weft_model_gradients(r->model), weft_prec_real(t->prec), p->offset + s.at + j);
            }
    }
    return WEFT_OK;
}

static inline weft_status toy_body(weft_ctx *ctx, weft_world *world, void *ud)
{
    toy *t = ud;
    toy_rank r;
    int rank = weft_world_rank(world), tp = rank % toy_tp(t);
    weft_dtype type = weft_prec_real(t->prec);
    void *nll;
    WEFT_TRY(toy_open(&r, ctx, world, t));
    WEFT_TRY(weft_arena_alloc(r.arena, r.rows, sizeof(double), "test", &nll));
    weft_counters before, after;
    weft_world_counters(world, &before);
    WEFT_TRY(toy_step(&r, t, true, &t->rank_sum[rank], nll));
    weft_world_counters(world, &after);
    t->messages[rank] = after.messages - before.messages;
    for (int i = 0; i < ctx->mem.rows; i++) t->bytes[rank] += ctx->mem.row[i].bytes;
    t->file[rank] = weft_model_file_bytes(r.model);
    for (int64_t i = 0; i < r.rows; i++) t->token_nll[tp * t->B * t->T + r.index[i]] = weft_load(nll, type, i);
    WEFT_TRY(toy_gradients(&r, t, rank));
    toy_close(&r);
    return WEFT_OK;
}

/* The gradient of element i on the ranks of tp of one part of the sequences: by one of them, or the sum of parts; and
 * exactly one counts it. */
static inline weft_status toy_element(const toy *t, int cp, int64_t i, double *sum)
{
    int owners = 0;
    double own = 0, parts = 0;
    for (int k = 0; k < toy_tp(t); k++) {
        int64_t at = (cp * toy_tp(t) + k) * t->count + i;
        owners += t->grad_is[at] == TOY_OWN || t->grad_is[at] == TOY_PART;
        if (t->grad_is[at] == TOY_OWN) own = t->grads[at];
        if (t->grad_is[at] >= TOY_PART) parts += t->grads[at];
    }
    if (owners != 1) return weft_fail(WEFT_ERR_COMPARE, "element %lld is counted %d times", (long long)i, owners);
    for (int k = 0; k < toy_tp(t); k++) {
        int64_t at = (cp * toy_tp(t) + k) * t->count + i;
        if (t->grad_is[at] == TOY_COPY && t->grads[at] != own)
            return weft_fail(WEFT_ERR_COMPARE, "the gradient of element %lld differs between copies", (long long)i);
    }
    *sum = own + parts;
    return WEFT_OK;
}

static inline weft_status toy_merge(toy *t)
{
    for (int64_t i = 0; i < t->count; i++) {
        double all = 0, one = 0;
        for (int r = 0; r < t->P; r++) {
            WEFT_TRY(toy_element(t, r, i, &one));
            all += one;
        }
        t->grads[i] = all;
    }
    size_t bytes = (size_t)(t->B * t->T) * sizeof(double);
    for (int k = 1; k < toy_tp(t); k++) {
        if (memcmp(t->token_nll, t->token_nll + k * t->B * t->T, bytes))
            return weft_fail(WEFT_ERR_COMPARE, "nll differs between ranks of tp");
        for (int r = 0; r < t->P; r++)
            if (t->rank_sum[r * t->tp] != t->rank_sum[r * t->tp + k])
                return weft_fail(WEFT_ERR_COMPARE, "the sum of nll differs between ranks of tp");
    }
    return WEFT_OK;
}

/* Forward and backward on tp x P threads; t's results are freed by toy_free. */
static inline weft_status toy_run(toy *t)
{
    int ranks = t->P * toy_tp(t);
    t->count = weft_model_params(&t->config);
    t->token_nll = calloc((size_t)(toy_tp(t) * t->B * t->T), sizeof(double));
    t->grads = calloc((size_t)(ranks * t->count), sizeof(double));
    t->grad_is = calloc((size_t)(ranks * t->count), 1);
    t->rank_sum = calloc((size_t)ranks, sizeof(double));
    t->messages = calloc((size_t)ranks, sizeof(int64_t));
    t->bytes = calloc((size_t)ranks, sizeof(size_t));
    t->file = calloc((size_t)ranks, sizeof(int64_t));
    if (t->grad_scale == 0) t->grad_scale = 1;
    WEFT_TRY(weft_run_threads(ranks, toy_body, t));
    t->nll_sum = 0;
    for (int r = 0; r < t->P; r++) t->nll_sum += t->rank_sum[r * toy_tp(t)];
    return toy_merge(t);
}

static inline void toy_free(toy *t)
{
    free(t->token_nll);
    free(t->grads);
    free(t->grad_is);
    free(t->rank_sum);
    free(t->messages);
    free(t->bytes);
    free(t->file);
}

static inline void toy_tokens(int32_t *token, int32_t *target, int64_t n, int64_t V)
{
    for (int64_t i = 0; i < n; i++) {
        token[i] = (int32_t)((i * i * 7 + i * 3 + 2) % V);
        target[i] = i % 5 == 3 ? -100 : (int32_t)((i * 5 + 1) % V);
    }
}

#endif
