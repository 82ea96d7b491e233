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
    if (o->prec >= WEFT_PREC_COUNT)
        return weft_fail(WEFT_ERR_REFUSED, "model: precision %d; fp64, fp32, bf16 and fp16 exist", (int)o->prec);
    return WEFT_OK;
}

static weft_status check_place(const weft_model_place *place)
{
    if ((place->tp && weft_comm_size(place->tp) > 1) || place->stages > 1 || place->sequence_parallel)
        return weft_fail(WEFT_ERR_REFUSED, "model: parts of a layer (tp) and of the layers (pp) are not built; use cp");
    return WEFT_OK;
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

/* Bounds of embeddings, every layer, and the tail. */
static weft_status make_buckets(weft_model *m)
{
    m->buckets = (int)m->config.L + 2;
    WEFT_TRY(WEFT_NEW(m->arena, m->buckets + 1, "tables", &m->bucket));
    m->bucket[0] = 0;
    for (int64_t l = 0; l < m->config.L; l++) m->bucket[l + 1] = m->layer[l].first;
    m->bucket[m->buckets - 1] = m->par.tail_first;
    m->bucket[m->buckets] = m->par.count;
    return WEFT_OK;
}

static weft_status alloc_parameters(weft_model *m)
{
    WEFT_TRY(weft__params_walk(&m->config, &m->share, NULL, NULL, NULL, &m->par));
    WEFT_TRY(WEFT_NEW0(m->arena, m->par.n, "tables", &m->spec));
    WEFT_TRY(WEFT_NEW0(m->arena, m->config.L, "tables", &m->layer));
    WEFT_TRY(weft__params_walk(&m->config, &m->share, m->arena, m->spec, m->layer, &m->par));
    WEFT_TRY(make_buckets(m));
    WEFT_TRY(weft_arena_zalloc(m->arena, m->par.count, m->rs, "weights", (void **)&m->weights));
    if (m->train) WEFT_TRY(weft_arena_zalloc(m->arena, m->par.count, m->rs, "gradients", (void **)&m->grads));
    if (m->rt == m->ct) return WEFT_OK;
    m->copies_from = weft__operands_from(&m->config, &m->par);
    return weft_arena_zalloc(m->arena, m->par.count - m->copies_from, m->cs, "weights for products",
                             (void **)&m->copies);
}

/* With train each layer has its buffers; otherwise all share one set, and the residual stream is one
 * buffer that every layer adds to. */
static weft_status alloc_layers(weft_model *m)
{
    WEFT_TRY(WEFT_NEW0(m->arena, m->config.L, "tables", &m->acts));
    for (int64_t l = 0; l < m->config.L; l++) {
        if (m->train || l == 0) WEFT_TRY(weft__acts_alloc(m, m->arena, m->rows_max, m->train, &m->acts[l]));
        else m->acts[l] = m->acts[0];
    }
    if (!m->train) m->x_out = m->acts[0].x_in;
    else WEFT_TRY(weft_arena_alloc(m->arena, m->rows_max * m->config.C, m->rs, "residual", &m->x_out));
    return WEFT_OK;
}

static weft_status alloc_ends(weft_model *m)
{
    int64_t S = m->rows_max, half = m->config.D / 2, V = m->config.V;
    WEFT_TRY(weft_arena_alloc(m->arena, S * m->config.C, m->cs, "normed", &m->n_out));
    WEFT_TRY(weft_arena_alloc(m->arena, S, m->rs, "norm statistics", &m->rstd_out));
    WEFT_TRY(weft_arena_alloc(m->arena, S, m->rs, "norm statistics", &m->mean_out));
    WEFT_TRY(weft_arena_alloc(m->arena, S, m->rs, "loss", &m->nll));
    m->chunk = weft__loss_chunk(V, m->rs, S);
    WEFT_TRY(weft_arena_alloc(m->arena, m->chunk * V, m->rs, "logits", &m->logits));
    m->dlogits = m->logits;
    if (m->train && m->rt != m->ct)
        WEFT_TRY(weft_arena_alloc(m->arena, m->chunk * V, m->cs, "logits", &m->dlogits));
    WEFT_TRY(WEFT_NEW(m->arena, S, "positions", &m->index));
    WEFT_TRY(WEFT_NEW(m->arena, S, "positions", &m->pos));
    if (m->config.rope.type == WEFT_ROPE_NONE) return WEFT_OK;
    WEFT_TRY(WEFT_NEW(m->arena, S, "positions", &m->table_pos));
    WEFT_TRY(weft_arena_alloc(m->arena, S * half, m->rs, "rotation", &m->cos));
    return weft_arena_alloc(m->arena, S * half, m->rs, "rotation", &m->sin);
}

static weft_status alloc_all(weft_model *m)
{
    int64_t largest;
    if (!weft_mul_i64(m->rows_max, weft__widest(m), &largest) || largest > INT64_MAX / (int64_t)sizeof(double))
        return weft_fail(WEFT_ERR_REFUSED, "model: %lld rows of %lld elements do not fit into memory sizes",
                         (long long)m->rows_max, (long long)weft__widest(m));
    WEFT_TRY(alloc_parameters(m));
    WEFT_TRY(alloc_layers(m));
    WEFT_TRY(weft__scratch_alloc(m, m->arena, m->rows_max, m->train, &m->scratch));
    return alloc_ends(m);
}

/* ---- plans ------------------------------------------------------------------------------------------- */

static weft_cp_problem problem_of(const weft_model_config *c, const weft_model_options *o, bool windowed)
{
    return (weft_cp_problem){
        .prec = o->prec, .B = o->B, .Tq = o->T, .T = o->T, .max_docs = o->max_docs, .H = c->H, .Hkv = c->Hkv,
        .D = c->D, .Dv = c->D, .scale = weft__scale(c), .mask = weft__mask(c, windowed), .layout = o->layout,
        .dropout = o->train ? o->dropout : 0, .seed = o->seed, .need_backward = o->train, .slots = o->slots,
    };
}

/* A window that holds the whole sequence is no window: one problem less. */
int weft_model_attention(const weft_model_config *c, const weft_model_options *o, weft_layer_attention out[2])
{
    bool windowed = c->window > 0 && c->window < o->T && c->window_from_layer < c->L;
    int64_t split = windowed ? c->window_from_layer : c->L;
    int n = 0;
    if (split > 0) out[n++] = (weft_layer_attention){problem_of(c, o, false), 0, split - 1};
    if (windowed) out[n++] = (weft_layer_attention){problem_of(c, o, true), split, c->L - 1};
    return n;
}

static weft_status make_plans(weft_model *m, const weft_model_options *o)
{
    weft_layer_attention kind[WEFT__MAX_PLANS];
    int n = weft_model_attention(&m->config, o, kind);
    for (int i = 0; i < n; i++, m->plans++)
        WEFT_TRY(weft_cp_plan_create(&m->plan[i], m->arena, m->kern, m->cp, &kind[i].problem, &o->cp));
    m->plan_of[0] = 0;
    m->plan_of[1] = n - 1;
    return WEFT_OK;
}

/* Its size is the plan's to say, so it comes after the plans. */
static weft_status alloc_kept(weft_model *m)
{
    size_t most = 0;
    for (int i = 0; i < m->plans; i++) most = weft_max_size(most, weft_cp_kept_bytes(m->plan[i]));
    for (int64_t l = 0; l < m->config.L && most > 0; l++) {
        size_t bytes = m->train ? weft_cp_kept_bytes(weft__plan_of(m, l)) : most;
        m->acts[l].kept = m->acts[0].kept;
        if (m->train || l == 0)
            WEFT_TRY(weft_arena_alloc(m->arena, (int64_t)bytes, 1, "attention kept", &m->acts[l].kept));
    }
    return WEFT_OK;
}

/* ---- the door ---------------------------------------------------------------------------------------- */

static weft_status create_local(weft_model **out, weft_ctx *ctx, const weft_model_place *place,
                                const weft_model_config *config, const weft_model_options *o)
{
    weft_arena *arena;
    WEFT_TRY(weft_model_config_check(config, "model"));
    WEFT_TRY(check_options(o));
    WEFT_TRY(check_place(place));
    WEFT_TRY(weft_arena_create(&arena, &ctx->mem, "model", NULL));
    weft_status st = WEFT_NEW0(arena, 1, "tables", out);
    if (st < 0) weft_arena_destroy(arena);
    else (*out)->arena = arena;
    return st;
}

static weft_status fill(weft_model *m, weft_ctx *ctx, const weft_kern *kern, weft_gemm *gemm,
                        const weft_model_place *place, const weft_model_config *config, const weft_model_options *o)
{
    m->ctx = ctx;
    m->kern = kern;
    m->op = &kern->op[o->prec];
    m->gemm = gemm;
    m->cp = place->cp;
    m->share = weft_model_share_of(place);
    m->config = *config;
    m->family = weft__family_of(config->family);
    m->prec = o->prec;
    m->rt = weft_prec_real(o->prec);
    m->ct = weft_prec_compute(o->prec);
    m->rs = weft_dtype_size(m->rt);
    m->cs = weft_dtype_size(m->ct);
    m->train = o->train;
    m->slots = o->slots;
    m->layout = o->layout;
    m->rows_max = weft_shard_max_rows(o->layout, o->B, o->T, weft_comm_size(m->cp));
    return alloc_all(m);
}

weft_status weft_model_create(weft_model **out, weft_ctx *ctx, const weft_kern *kern, weft_gemm *gemm,
                              const weft_model_place *place, const weft_model_config *config,
                              const weft_model_options *options)
{
    weft_model *m = NULL;
    *out = NULL;
    weft_status st = create_local(&m, ctx, place, config, options);
    if (st == WEFT_OK) st = fill(m, ctx, kern, gemm, place, config, options);
    st = weft_agree(place->cp, st);
    if (st == WEFT_OK) st = make_plans(m, options);
    if (st == WEFT_OK) st = weft_agree(place->cp, alloc_kept(m));
    if (st < 0) weft_model_destroy(m);
    else *out = m;
    return st;
}

void weft_model_destroy(weft_model *m)
{
    if (!m) return;
    for (int i = 0; i < m->plans; i++) weft_cp_plan_destroy(m->plan[i]);
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

int64_t weft_model_stream_rows(const weft_model *m, const weft_shard *shard)
{
    return shard->rows[weft_comm_rank(m->cp)];
}

void *weft_model_input(weft_model *m, int slot) { return slot == 0 ? m->acts[0].x_in : NULL; }
void *weft_model_output(weft_model *m, int slot) { return slot == 0 ? m->x_out : NULL; }

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
    const weft_model_config *c = &m->config;
    bool windowed = m->plan_of[0] != m->plan_of[1] || (c->window > 0 && c->window_from_layer == 0);
    if (!windowed || c->window_from_layer > 0) {
        weft_text_add(out, "layers 0-%lld: ", (long long)(windowed ? c->window_from_layer : c->L) - 1);
        weft_cp_describe(m->plan[m->plan_of[0]], out);
        weft_text_add(out, "\n");
    }
    if (!windowed) return;
    weft_text_add(out, "layers %lld-%lld, window %lld: ", (long long)c->window_from_layer, (long long)c->L - 1,
                  (long long)c->window);
    weft_cp_describe(m->plan[m->plan_of[1]], out);
    weft_text_add(out, "\n");
}
