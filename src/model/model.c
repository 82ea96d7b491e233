/* model.c — a model on one rank: its parameters, its buffers, and one attention plan per distinct mask.
 *
 * Everything is allocated here, for the largest micro-batch that the options name; a step allocates
 * nothing. Order of the creation: what can fail on one rank alone comes first, then all ranks agree, then
 * the plans, which are collective: a rank that left early would be waited for. */
#include <string.h>

#include "model/model_impl.h"

/* ---- checks ------------------------------------------------------------------------------------------ */

static weft_status check_options(const weft_model_options *o)
{
    int64_t tokens;
    if (o->B < 1 || o->T < 1 || o->max_docs < 1 || o->slots < 1)
        return weft_fail(WEFT_ERR_REFUSED,
                         "model: %lld sequences of %lld tokens, %lld documents, %d slots; each must be "
                         "at least 1",
                         (long long)o->B, (long long)o->T, (long long)o->max_docs, o->slots);
    if (!weft_mul_i64(o->B, o->T, &tokens) || tokens > INT64_MAX / 8)
        return weft_fail(WEFT_ERR_REFUSED, "model: %lld sequences of %lld tokens do not fit into memory sizes",
                         (long long)o->B, (long long)o->T);
    if (!(o->embedding_dropout >= 0 && o->embedding_dropout < 1 && o->residual_dropout >= 0 && o->residual_dropout < 1))
        return weft_fail(WEFT_ERR_REFUSED, "model: dropout %g of the embedding, %g of the residual stream; at least 0 "
                         "and below 1 works", o->embedding_dropout, o->residual_dropout);
    if (o->mlp_rows < 0 || o->recompute < 0 || o->recompute >= WEFT_RECOMPUTE_MODES)
        return weft_fail(WEFT_ERR_REFUSED, "model: recompute %d, tiles of %lld rows; 0 to %d, and 0 (all) or more work",
                         (int)o->recompute, (long long)o->mlp_rows, WEFT_RECOMPUTE_MODES - 1);
    if (o->prec >= WEFT_PREC_COUNT)
        return weft_fail(WEFT_ERR_REFUSED, "model: precision %d; fp64, fp32, bf16 and fp16 exist", (int)o->prec);
    if (o->offload < 0 || o->offload >= WEFT_OFFLOADS || (o->offload == WEFT_OFFLOAD_FILE && !o->offload_folder))
        return weft_fail(WEFT_ERR_REFUSED, "model: offload %d; 0 to %d work, %d with a folder", (int)o->offload,
                         WEFT_OFFLOADS - 1, WEFT_OFFLOAD_FILE);
    if (o->offload != WEFT_OFFLOAD_NONE && !o->train)
        return weft_fail(WEFT_ERR_REFUSED, "model: offload without train: no inputs of layers are kept; leave it out");
    return WEFT_OK;
}

static weft_status check_share(const weft_model_share *s, const weft_model_config *config)
{
    if (s->stages < 1 || s->stage < 0 || s->stage >= s->stages)
        return weft_fail(WEFT_ERR_REFUSED, "model: stage %d of %d; stages count from 0", s->stage, s->stages);
    if (s->stages > config->L)
        return weft_fail(WEFT_ERR_REFUSED, "model: a pipeline of %d stages (--pp) with %lld layers; every stage needs "
                         "one, so at most --pp %lld works", s->stages, (long long)config->L, (long long)config->L);
    return WEFT_OK;
}

weft_status weft__model_check(const weft_model_config *config, const weft_model_share *share,
                              const weft_model_options *o)
{
    WEFT_TRY(weft_model_config_check(config, "model"));
    WEFT_TRY(check_options(o));
    return check_share(share, config);
}

weft_model_share weft_model_share_of(const weft_model_place *place)
{
    return (weft_model_share){
        .tp = place->tp ? weft_comm_rank(place->tp) : 0, .tps = place->tp ? weft_comm_size(place->tp) : 1,
        .stage = place->stage, .stages = place->stages ? place->stages : 1,
        .sequence_parallel = place->sequence_parallel,
    };
}

/* ---- memory ------------------------------------------------------------------------------------------ */

static void add_bound(weft_model *m, int64_t bound)
{
    if (bound > m->bucket[m->buckets]) m->bucket[++m->buckets] = bound;
}

/* Bounds of embeddings, every layer, and the tail: what of them is on this stage. */
static weft_status make_buckets(weft_model *m)
{
    WEFT_TRY(WEFT_NEW(m->arena, m->config.L + 3, "tables", &m->bucket));
    m->buckets = 0;
    m->bucket[0] = 0;
    add_bound(m, m->par.embedding_count);
    for (int64_t l = m->layers.begin; l < m->layers.end; l++) add_bound(m, m->layer[l].first + m->layer[l].count);
    add_bound(m, m->par.count);
    return WEFT_OK;
}

static weft_status alloc_array(weft_model *m, int64_t count, size_t size, const char *label, char **out)
{
    WEFT_TRY(weft_arena_alloc(m->buffers, count, size, label, (void **)out));
    if (weft_arena_kind(m->buffers) == WEFT_MEM_HOST) memset(*out, 0, (size_t)count * size);
    return WEFT_OK;
}

static weft_status make_tables(weft_model *m)
{
    WEFT_TRY(weft__params_walk(&m->config, &m->share, NULL, NULL, NULL, &m->par));
    WEFT_TRY(WEFT_NEW0(m->arena, m->par.n, "tables", &m->spec));
    WEFT_TRY(WEFT_NEW0(m->arena, m->config.L, "tables", &m->layer));
    WEFT_TRY(weft__params_walk(&m->config, &m->share, m->arena, m->spec, m->layer, &m->par));
    return make_buckets(m);
}

static weft_status alloc_parameters(weft_model *m)
{
    WEFT_TRY(make_tables(m));
    WEFT_TRY(alloc_array(m, m->par.count, m->rs, "weights", &m->weights));
    if (m->train) WEFT_TRY(alloc_array(m, m->par.count, m->rs, "gradients", &m->grads));
    if (m->rt == m->ct) return WEFT_OK;
    m->copies_from = weft__operands_from(&m->config, &m->par);
    return alloc_array(m, m->par.count - m->copies_from, m->cs, "weights for products", &m->copies);
}

/* Of each share alike, and no more than travel at once. */
static void set_tile(weft_model *m, int64_t rows)
{
    int64_t of_share = weft_ceil_div(rows, m->tp.shares);
    if (rows == 0 || rows >= m->rows_max) return;
    m->tile = (m->share.tps > 1 ? weft_min_i64(of_share, m->tp.chunk) : of_share) * m->tp.shares;
}

static weft_status alloc_all(weft_model *m, const weft_model_options *o)
{
    int64_t largest;
    if (!weft_mul_i64(m->rows_max, weft__widest(m), &largest) || largest > INT64_MAX / (int64_t)sizeof(double))
        return weft_fail(WEFT_ERR_REFUSED, "model: %lld rows of %lld elements do not fit into memory sizes",
                         (long long)m->rows_max, (long long)weft__widest(m));
    WEFT_TRY(alloc_parameters(m));
    WEFT_TRY(weft__tp_alloc(m, m->rows_max));
    set_tile(m, o->mlp_rows);
    WEFT_TRY(weft__offload_alloc(m, o));
    return weft__slots_alloc(m);
}

/* ---- plans ------------------------------------------------------------------------------------------- */

static weft_cp_problem problem_of(const weft_model_config *c, const weft__cuts *x, const weft_model_options *o,
                                  bool windowed)
{
    return (weft_cp_problem){
        .prec = o->prec, .B = o->B, .Tq = o->T, .T = o->T, .max_docs = o->max_docs,
        .H = (int)(x->head.end - x->head.begin), .Hkv = (int)(x->kv.end - x->kv.begin), .group = c->H / c->Hkv,
        .head0 = (int)x->head.begin, .D = c->D, .Dv = c->D, .scale = weft__scale(c), .mask = weft__mask(c, windowed),
        .layout = o->layout,
        .dropout = o->train ? o->dropout : 0, .seed = o->seed, .need_backward = o->train, .slots = o->slots,
    };
}

/* A window that holds the whole sequence is no window: one problem less. */
int weft_model_attention(const weft_model_config *c, const weft_model_share *share, const weft_model_options *o,
                         weft_layer_attention out[2])
{
    weft__cuts x = weft__cuts_of(c, share);
    bool windowed = c->window > 0 && c->window < o->T && c->window_from_layer < c->L;
    int64_t split = windowed ? c->window_from_layer : c->L;
    int n = 0;
    if (x.head.begin == x.head.end) return 0;
    if (split > 0) out[n++] = (weft_layer_attention){problem_of(c, &x, o, false), 0, split - 1};
    if (windowed) out[n++] = (weft_layer_attention){problem_of(c, &x, o, true), split, c->L - 1};
    return n;
}

bool weft__plan_layers(const weft_model *m, const weft_layer_attention *kind, weft_span *here)
{
    *here = (weft_span){weft_max_i64(kind->first_layer, m->layers.begin),
                        weft_min_i64(kind->last_layer + 1, m->layers.end)};
    return here->begin < here->end;
}

static weft_status make_plans(weft_model *m, const weft_model_options *o)
{
    weft_layer_attention kind[WEFT__MAX_PLANS];
    int n = weft_model_attention(&m->config, &m->share, o, kind);
    for (int i = 0; i < n; i++) {
        weft_span here;
        if (!weft__plan_layers(m, &kind[i], &here)) continue;
        WEFT_TRY(weft_cp_plan_create(&m->plan[m->plans], m->arena, m->kern, m->cp, &kind[i].problem, &o->cp));
        m->plan_keeps[m->plans] = weft_cp_kept_bytes(m->plan[m->plans]);
        m->plan_layers[m->plans] = here;
        m->plan_of[1] = m->plans++;
    }
    return WEFT_OK;
}

/* ---- the door ---------------------------------------------------------------------------------------- */

static weft_status create_local(weft_model **out, weft_ctx *ctx, const weft_model_place *place,
                                const weft_model_config *config, const weft_model_options *o)
{
    const weft_model_share share = weft_model_share_of(place);
    weft_arena *arena;
    WEFT_TRY(weft__model_check(config, &share, o));
    WEFT_TRY(weft_arena_create(&arena, &ctx->mem, "model", NULL));
    weft_status st = WEFT_NEW0(arena, 1, "tables", out);
    if (st < 0) {
        weft_arena_destroy(arena);
        return st;
    }
    (*out)->arena = arena;
    WEFT_TRY(weft_arena_create(&(*out)->pool, &ctx->mem, "offload", NULL));
    return weft_arena_create(&(*out)->buffers, &ctx->mem, "model", NULL);
}

weft_status weft__model_size(weft_model *m, const weft_model_config *config, const weft_model_share *share,
                             const weft_model_options *o, int cp_ranks)
{
    m->share = *share;
    m->layers = weft_model_cut(config->L, m->share.stages, m->share.stage);
    m->first_stage = m->share.stage == 0;
    m->last_stage = m->share.stage + 1 == m->share.stages;
    weft__cuts cut = weft__cuts_of(config, &m->share);
    m->H = (int)(cut.head.end - cut.head.begin);
    m->Hkv = (int)(cut.kv.end - cut.kv.begin);
    m->F = cut.F.end - cut.F.begin;
    m->config = *config;
    m->family = weft__family_of(config->family);
    m->prec = o->prec;
    m->rt = weft_prec_real(o->prec);
    m->ct = weft_prec_compute(o->prec);
    m->rs = weft_dtype_size(m->rt);
    m->cs = weft_dtype_size(m->ct);
    m->train = o->train;
    m->slots = o->slots;
    m->embedding_dropout = o->train ? o->embedding_dropout : 0;
    m->residual_dropout = o->train ? o->residual_dropout : 0;
    m->seed = o->seed;
    m->recompute = o->recompute;
    m->keep_attention = o->keep_attention || o->recompute == WEFT_RECOMPUTE_NONE;
    m->head_slot = -1;
    m->layout = o->layout;
    m->T = o->T;
    m->rows_max = weft_shard_max_rows(o->layout, o->B, o->T, cp_ranks);
    return alloc_all(m, o);
}

static weft_status fill(weft_model *m, weft_ctx *ctx, const weft_kern *kern, weft_gemm *gemm,
                        const weft_model_place *place, const weft_model_config *config, const weft_model_options *o)
{
    const weft_model_share share = weft_model_share_of(place);
    m->ctx = ctx;
    m->kern = kern;
    m->op = &kern->op[o->prec];
    m->gemm = gemm;
    m->cp = place->cp;
    if (share.tps > 1) m->tp.comm = place->tp;
    WEFT_TRY(weft__model_size(m, config, &share, o, weft_comm_size(m->cp)));
    return weft__offload_open(m);
}

/* Over cp, then over tp, whose groups have a rank of every group of cp each. */
static weft_status agree(const weft_model_place *place, weft_status st)
{
    st = weft_agree(place->cp, st);
    return place->tp ? weft_agree(place->tp, st) : st;
}

weft_status weft_model_create(weft_model **out, weft_ctx *ctx, const weft_kern *kern, weft_gemm *gemm,
                              const weft_model_place *place, const weft_model_config *config,
                              const weft_model_options *options)
{
    weft_model *m = NULL;
    *out = NULL;
    weft_status st = create_local(&m, ctx, place, config, options);
    if (st == WEFT_OK) st = fill(m, ctx, kern, gemm, place, config, options);
    st = agree(place, st);
    if (st == WEFT_OK) st = agree(place, make_plans(m, options));
    if (st == WEFT_OK) st = agree(place, weft__slots_alloc_kept(m));
    if (st < 0) weft_model_destroy(m);
    else *out = m;
    return st;
}

void weft_model_destroy(weft_model *m)
{
    if (!m) return;
    for (int i = 0; i < m->plans; i++) weft_cp_plan_destroy(m->plan[i]);
    weft__offload_close(m); /* its thread reads and writes buffers */
    weft_arena_destroy(m->pool);
    weft_arena_destroy(m->buffers);
    weft_arena_destroy(m->arena); /* the model itself lies in it */
}

const weft_spec *weft_model_spec(const weft_model *m, int *n)
{
    *n = m->par.n;
    return m->spec;
}

const int64_t *weft_model_buckets(const weft_model *m, int *n)
{
    *n = m->buckets;
    return m->bucket;
}

weft_status weft_model_whole_spec(const weft_model_config *config, weft_arena *arena, weft_spec **spec, int *n)
{
    weft__params par;
    WEFT_TRY(weft__params_walk(config, &weft_model_all, NULL, NULL, NULL, &par));
    WEFT_TRY(WEFT_NEW0(arena, par.n, "tables", spec));
    *n = par.n;
    return weft__params_walk(config, &weft_model_all, arena, *spec, NULL, &par);
}

weft_status weft_model_share_spec(const weft_model_config *config, const weft_model_share *share, weft_arena *arena,
                                  weft_spec **spec, int *n, int64_t **bucket, int *buckets)
{
    weft_model m = {.arena = arena, .config = *config, .share = *share,
                    .layers = weft_model_cut(config->L, share->stages, share->stage)};
    WEFT_TRY(make_tables(&m));
    *spec = m.spec;
    *n = m.par.n;
    *bucket = m.bucket;
    *buckets = m.buckets;
    return WEFT_OK;
}

int64_t weft_model_stream_rows(const weft_model *m, int64_t B)
{
    weft__pass p = {.m = (weft_model *)(uintptr_t)m, .shares = m->tp.shares};
    p.rows = weft_shard_rows(m->layout, B, m->T, weft_comm_size(m->cp), weft_comm_rank(m->cp));
    return weft__stream_count(&p);
}

void *weft_model_weights(weft_model *m) { return m->weights; }
void *weft_model_gradients(weft_model *m) { return m->grads; }
int64_t weft_model_weight_count(const weft_model *m) { return m->par.count; }

void weft_model_zero_gradients(weft_model *m)
{
    weft_part outer = weft_part_begin(&m->ctx->parts, WEFT_PART_OPTIMIZER);
    if (m->grads) memset(m->grads, 0, (size_t)m->par.count * m->rs);
    weft_part_end(&m->ctx->parts, outer);
}

void weft_model_describe(const weft_model *m, weft_text *out)
{
    for (int i = 0; i < m->plans; i++) {
        weft_span l = m->plan_layers[i];
        weft_text_add(out, "layers %lld-%lld", (long long)l.begin, (long long)l.end - 1);
        if (weft__windowed(&m->config, (int)l.begin)) weft_text_add(out, ", window %lld", (long long)m->config.window);
        weft_text_add(out, ": ");
        weft_cp_describe(m->plan[i], out);
        weft_text_add(out, "\n");
    }
}
