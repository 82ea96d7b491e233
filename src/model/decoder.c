/* decoder.c — cached generation by one rank, or by the ranks of tp together: the layers of a training pass, with
 * attention over a cache.
 *
 * New rows are queries at positions n, n+1, ...; keys and values of all positions so far lie in the cache,
 * after the rotation, so they are never made again. A prompt goes through in chunks of rows; the result is
 * the same as feeding one token at a time, because the running state of the attention sees the same keys. */
#include <string.h>

#include "model/model_impl.h"

enum { CHUNK = 128 }; /* rows of a prompt at a time: enough for the products, little memory */

struct weft_decoder {
    weft_model *m;
    weft_arena *arena;
    int64_t n, max, chunk;   /* tokens so far; at most; rows at a time */
    char *cache;             /* (C) [L][max][2 Hkv D]: k beside v */
    weft__acts acts;
    weft__scratch scratch;
    void *acc, *work;        /* of the attention */
    void *n_out, *rstd, *mean;
    int64_t *pos;
    void *cos, *sin;
};

static weft_attn_desc attention_of(const weft_model *m, int layer)
{
    const weft_model_config *c = &m->config;
    return (weft_attn_desc){
        .H = m->H, .Hkv = m->Hkv, .D = c->D, .Dv = c->D, .group = c->H / c->Hkv, .scale = weft__scale(c),
        .head0 = (int)m->par.cut.head.begin, .kv_head0 = (int)m->par.cut.kv.begin,
        .mask = weft__mask(c, weft__windowed(c, layer)),
    };
}

static weft_status alloc_decoder(weft_decoder *d)
{
    weft_model *m = d->m;
    const weft_model_config *c = &m->config;
    int64_t S = d->chunk, kv = 2 * (int64_t)m->Hkv * c->D, per_layer, all;
    weft_attn_desc desc = attention_of(m, 0);
    if (!weft_mul_i64(d->max, kv, &per_layer) || !weft_mul_i64(per_layer, c->L, &all))
        return weft_fail(WEFT_ERR_REFUSED, "decoder: a cache of %lld tokens does not fit into memory sizes",
                         (long long)d->max);
    if (m->H > 0) WEFT_TRY(weft_attn_check(&desc, m->prec));
    WEFT_TRY(weft_arena_alloc(d->arena, all, m->cs, "cache", (void **)&d->cache));
    const weft__act_rows rows = {S, S, 0};
    WEFT_TRY(weft__acts_alloc(m, d->arena, &rows, WEFT__ALL & ~(WEFT__MID | WEFT__N2), &d->acts));
    weft__acts_join(&d->acts);
    WEFT_TRY(weft__scratch_alloc(m, d->arena, &rows, false, &d->scratch));
    WEFT_TRY(weft_arena_alloc(d->arena, S * m->H * c->D, m->rs, "attention", &d->acc));
    size_t work = m->H > 0 ? m->op->attn.work_bytes(&desc, m->ctx->threads) : 0;
    WEFT_TRY(weft_arena_alloc(d->arena, (int64_t)work, 1, "attention", &d->work));
    WEFT_TRY(weft_arena_alloc(d->arena, c->C, m->cs, "normed", &d->n_out));
    WEFT_TRY(weft_arena_alloc(d->arena, 1, m->rs, "norm statistics", &d->rstd));
    WEFT_TRY(weft_arena_alloc(d->arena, 1, m->rs, "norm statistics", &d->mean));
    WEFT_TRY(WEFT_NEW(d->arena, S, "positions", &d->pos));
    WEFT_TRY(weft_arena_alloc(d->arena, S * (c->D / 2), m->rs, "rotation", &d->cos));
    return weft_arena_alloc(d->arena, S * (c->D / 2), m->rs, "rotation", &d->sin);
}

weft_status weft_decoder_create(weft_decoder **out, weft_model *m, int64_t max_tokens)
{
    weft_arena *arena;
    weft_decoder *d = NULL;
    *out = NULL;
    if (max_tokens < 1) return weft_fail(WEFT_ERR_REFUSED, "decoder: room for %lld tokens; at least 1 works",
                                         (long long)max_tokens);
    if (!m->first_stage || !m->last_stage)
        return weft_fail(WEFT_ERR_REFUSED, "decoder: a stage of a pipeline has some layers only; generate with --pp 1");
    if (m->family->learned_positions && max_tokens > m->config.max_position)
        return weft_fail(WEFT_ERR_REFUSED, "decoder: room for %lld tokens; this model has learned positions below %s = "
                         "%lld only", (long long)max_tokens, m->family->keys->max_position,
                         (long long)m->config.max_position);
    WEFT_TRY(weft_arena_create(&arena, &m->ctx->mem, "decoder", NULL));
    weft_status st = WEFT_NEW0(arena, 1, "tables", &d);
    if (st == WEFT_OK) {
        *d = (weft_decoder){.m = m, .arena = arena, .max = max_tokens, .chunk = weft_min_i64(CHUNK, max_tokens)};
        st = alloc_decoder(d);
    }
    if (st < 0) weft_arena_destroy(arena);
    else *out = d;
    return st;
}

void weft_decoder_destroy(weft_decoder *d)
{
    if (d) weft_arena_destroy(d->arena);
}

/* ---- one layer's attention over the cache ------------------------------------------------------------- */

static void *cache_of(const weft_decoder *d, int layer)
{
    int64_t kv = 2 * (int64_t)d->m->Hkv * d->m->config.D;
    return weft__at(d->cache, layer * d->max * kv, d->m->cs);
}

/* The k and v of the fused rows go behind those of earlier tokens. */
static void store_keys(const weft_decoder *d, int layer, const weft__acts *a, int64_t rows)
{
    const weft_model *m = d->m;
    int64_t Q = weft__qkv_width(m), k = m->H * (int64_t)m->config.D, kv = Q - k;
    char *cache = cache_of(d, layer);
    for (int64_t i = 0; i < rows; i++)
        memcpy(weft__at(cache, (d->n + i) * kv, m->cs), weft__at(a->qkv, i * Q + k, m->cs), (size_t)kv * m->cs);
}

static weft_status attend_cache(weft__pass *p, int layer, weft__acts *a)
{
    const weft_decoder *d = p->attend_ud;
    weft_model *m = p->m;
    const weft_attn_ops *attn = &m->op->attn;
    if (m->H == 0) return WEFT_OK;
    weft_attn_desc desc = attention_of(m, layer);
    int64_t D = m->config.D, kv = 2 * m->Hkv * D, Q = weft__qkv_width(m), HD = m->H * D;
    void *cache = cache_of(d, layer);

    store_keys(d, layer, a, p->rows);
    weft_attn_fwd_io io = {
        .q = a->qkv, .k = cache, .v = weft__at(cache, kv / 2, m->cs), .q_ld = Q, .k_ld = kv, .v_ld = kv,
        .acc = d->acc, .m = a->m, .l = a->l,
    };
    /* Keys before the first query's window are seen by nobody. */
    int64_t first = desc.mask.left < 0 ? 0 : weft_max_i64(0, d->n - desc.mask.left);
    weft_attn_pair pair = {
        .nq = p->rows, .q_pos = d->n, .q_run = 1, .q_step = 1,
        .k_row = first, .nk = d->n + p->rows - first, .k_pos = first, .k_run = 1, .k_step = 1,
    };
    weft_attn_run run = {.work = d->work, .threads = m->ctx->threads};
    attn->start(&desc, d->acc, a->m, a->l, p->rows);
    attn->forward(&desc, &io, &pair, 1, &run);
    attn->finish(&desc, a->o, HD, NULL, d->acc, a->m, a->l, NULL, p->rows, m->ctx->threads);
    return WEFT_OK;
}

/* ---- tokens in, logits out ---------------------------------------------------------------------------- */

/* At most a chunk of tokens; leaves their residual stream in acts.x_in. */
static weft_status feed_chunk(weft_decoder *d, const int32_t *tokens, int64_t n)
{
    weft_model *m = d->m;
    for (int64_t i = 0; i < n; i++) d->pos[i] = d->n + i;
    weft_rope_table(&m->config, m->prec, d->pos, n, d->cos, d->sin);
    weft__pass p = {
        .m = m, .rows = n, .token = tokens, .pos = d->pos, .cos = d->cos, .sin = d->sin, .scratch = &d->scratch,
        .attend = attend_cache, .attend_ud = d, .shares = 1,
    };
    WEFT_TRY(weft__embed_fwd(&p, d->acts.x_in));
    for (int64_t l = 0; l < m->config.L; l++) WEFT_TRY(weft__block_fwd(&p, (int)l, &d->acts, d->acts.x_in));
    d->n += n;
    return WEFT_OK;
}

/* logits[V] (R) of row `last` of the chunk that was fed. */
static weft_status last_logits(weft_decoder *d, int64_t last, void *logits)
{
    weft_model *m = d->m;
    weft__pass p = {.m = m, .rows = 1, .shares = 1, .layer = -1};
    weft_span V = m->par.cut.V;
    void *here = weft__at(logits, V.begin, m->rs);
    weft__norm_fwd(&p, &m->par.norm, d->n_out, d->mean, d->rstd, weft__at(d->acts.x_in, last * m->config.C, m->rs));
    WEFT_TRY(weft__linear_fwd(&p, &m->par.head, here, V.end - V.begin, m->rt, 0, d->n_out, m->config.C));
    return m->share.tps == 1 ? WEFT_OK : weft__tp_logits(&p, logits);
}

static weft_status feed_all(weft_decoder *d, const int32_t *tokens, int64_t n, void *logits)
{
    int64_t rows = 0;
    for (int64_t first = 0; first < n; first += rows) {
        rows = weft_min_i64(d->chunk, n - first);
        WEFT_TRY(feed_chunk(d, tokens + first, rows));
    }
    return last_logits(d, rows - 1, logits);
}

/* One token of a small model is less work than waking a second thread, and a region that waits for a thread
 * whose core is taken by somebody else costs milliseconds: generation of 200 tokens took 7 s instead of 0.2 s. */
static int threads_for(const weft_model *m, int64_t n)
{
    enum { SMALL = 1 << 23 }; /* multiply-adds: about a millisecond of one thread */
    return m->par.count < SMALL / n ? 1 : m->ctx->threads;
}

weft_status weft_decoder_feed(weft_decoder *d, const int32_t *tokens, int64_t n, void *logits)
{
    if (n < 1) return weft_fail(WEFT_ERR_REFUSED, "decoder: %lld tokens; at least 1 is needed", (long long)n);
    if (n > d->max - d->n)
        return weft_fail(WEFT_ERR_REFUSED, "decoder: %lld tokens after %lld; it was made for %lld in all", (long long)n,
                         (long long)d->n, (long long)d->max);
    for (int64_t i = 0; i < n; i++)
        if (tokens[i] < 0 || tokens[i] >= d->m->config.V)
            return weft_fail(WEFT_ERR_REFUSED, "decoder: token %lld is %d; ids below %lld (the vocabulary) work",
                             (long long)i, (int)tokens[i], (long long)d->m->config.V);
    int threads = d->m->ctx->threads;
    d->m->ctx->threads = threads_for(d->m, n);
    weft_status st = feed_all(d, tokens, n, logits);
    d->m->ctx->threads = threads;
    return st;
}
