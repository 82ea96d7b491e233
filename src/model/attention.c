/* attention.c — the attention half of a block: norm, q,k,v in one product, q,k norm, rotation, attention
 * over ranks or over a cache, output product into the residual stream.
 *
 * Rows know their positions from the shard; of ranks only the heads that are here are known. A rank with no rows
 * walks through all of it, because its peers wait for its part of the exchange. */
#include <math.h>

#include "model/model_impl.h"

weft_mask weft__mask(const weft_model_config *c, bool windowed)
{
    /* Hugging Face's window W counts the query itself; left counts the keys before it. */
    return (weft_mask){.causal = true, .left = windowed ? c->window - 1 : -1, .right = -1};
}

double weft__scale(const weft_model_config *c) { return 1 / sqrt((double)c->D); }

/* q: heads 0..H-1 of the fused rows, k: heads H..H+Hkv-1. */
static void qk_norm_fwd(weft__pass *p, const weft__layer *y, weft__acts *a)
{
    const weft_model *m = p->m;
    const weft_model_config *c = &m->config;
    int64_t Q = weft__qkv_width(m), H = m->H, Hkv = m->Hkv, D = c->D;
    void *k = weft__at(a->qkv, H * D, m->cs);
    weft_part outer = weft__part(p, WEFT_PART_NORM);
    m->op->headnorm_fwd(a->qkv, Q, a->keep_q, a->rstd_q, weft__weight(m, y->q_norm), p->rows, H, D, c->norm_eps,
                        m->ctx->threads);
    m->op->headnorm_fwd(k, Q, a->keep_k, a->rstd_k, weft__weight(m, y->k_norm), p->rows, Hkv, D, c->norm_eps,
                        m->ctx->threads);
    weft__part_end(p, outer);
}

static void qk_norm_bwd(weft__pass *p, const weft__layer *y, weft__acts *a)
{
    const weft_model *m = p->m;
    const weft_model_config *c = &m->config;
    int64_t Q = weft__qkv_width(m), H = m->H, Hkv = m->Hkv, D = c->D;
    void *dq = p->scratch->dqkv, *dk = weft__at(p->scratch->dqkv, H * D, m->cs), *work = p->scratch->work;
    weft_part outer = weft__part(p, WEFT_PART_NORM);
    m->op->headnorm_bwd(dq, Q, weft__grad(m, y->q_norm), a->keep_q, weft__weight(m, y->q_norm), a->rstd_q, p->rows, H,
                        D, work, m->ctx->threads);
    m->op->headnorm_bwd(dk, Q, weft__grad(m, y->k_norm), a->keep_k, weft__weight(m, y->k_norm), a->rstd_k, p->rows,
                        Hkv, D, work, m->ctx->threads);
    weft__part_end(p, outer);
}

/* Rotates q and k, which lie side by side, in one call. */
static void rope(weft__pass *p, void *qkv, int sign)
{
    const weft_model *m = p->m;
    if (m->config.rope.type == WEFT_ROPE_NONE) return;
    weft_part outer = weft__part(p, WEFT_PART_ROPE);
    m->op->rope(qkv, weft__qkv_width(m), p->cos, p->sin, p->rows, m->H + m->Hkv, m->config.D, sign, m->ctx->threads);
    weft__part_end(p, outer);
}

static weft_cp_io cp_io(weft__pass *p, int layer, weft__acts *a)
{
    const weft_model *m = p->m;
    int64_t D = m->config.D, Q = weft__qkv_width(m), k = m->H * D, v = k + m->Hkv * D;
    return (weft_cp_io){
        .layer = layer, .step = p->step, .no_dropout = !p->training, .q = a->qkv, .k = weft__at(a->qkv, k, m->cs),
        .v = weft__at(a->qkv, v, m->cs), .q_ld = Q, .k_ld = Q, .v_ld = Q, .o = a->o, .o_ld = k, .m = a->m, .l = a->l,
        .kept = a->kept,
    };
}

weft_status weft__attend_ranks(weft__pass *p, int layer, weft__acts *a)
{
    if (p->m->H == 0) return WEFT_OK; /* nor has any other rank of cp a head of this part */
    weft_cp_io io = cp_io(p, layer, a);
    return weft_cp_forward(weft__plan_of(p->m, layer), p->slot, &io);
}

static weft_status attend_ranks_bwd(weft__pass *p, int layer, weft__acts *a)
{
    const weft_model *m = p->m;
    if (m->H == 0) return WEFT_OK;
    weft_cp_io io = cp_io(p, layer, a);
    int64_t D = m->config.D, k = m->H * D, v = k + m->Hkv * D;
    void *d = p->scratch->dqkv;
    io.dout = p->scratch->dout;
    io.dout_ld = k;
    io.dq = d;
    io.dk = weft__at(d, k, m->cs);
    io.dv = weft__at(d, v, m->cs);
    io.dq_ld = io.dk_ld = io.dv_ld = io.q_ld;
    return weft_cp_backward(weft__plan_of(m, layer), p->slot, &io);
}

weft_status weft__attention_inside(weft__pass *p, int layer, weft__acts *a, bool attend)
{
    weft_model *m = p->m;
    const weft__layer *y = &m->layer[layer];

    weft__norm_fwd(p, &y->norm1, a->n1, a->mean1, a->rstd1, a->x_in);
    WEFT_TRY(weft__columns_fwd(p, &y->qkv, a->qkv, a->n1));
    if (y->q_norm >= 0) qk_norm_fwd(p, y, a);
    rope(p, a->qkv, +1);
    WEFT_TRY(weft__guard_qkv(p, layer, a->qkv));
    return attend ? p->attend(p, layer, a) : WEFT_OK;
}

weft_status weft__attention_out(weft__pass *p, int layer, weft__acts *a)
{
    return weft__rows_fwd(p, &p->m->layer[layer].o, WEFT_SITE_DROP_RESIDUAL, a->x_mid, a->x_in, a->o);
}

/* scratch->dx: gradient of x_mid on entry, of x_in on return. */
weft_status weft__attention_bwd(weft__pass *p, int layer, weft__acts *a)
{
    weft_model *m = p->m;
    const weft__layer *y = &m->layer[layer];
    weft__scratch *s = p->scratch;
    int64_t HD = y->o.in;

    weft__residual_gradient(p, WEFT_SITE_DROP_RESIDUAL);
    WEFT_TRY(weft__rows_bwd(p, &y->o, s->dout, s->dxc, a->o));
    WEFT_TRY(weft__guard(p, &(weft__watched){.tensor = "dO", .layer = layer, .x = s->dout, .type = m->ct, .ld = HD,
                                             .rows = p->rows, .cols = HD, .D = m->config.D,
                                             .head0 = (int)m->par.cut.head.begin, .gradient = true}));
    WEFT_TRY(attend_ranks_bwd(p, layer, a));
    rope(p, s->dqkv, -1);
    if (y->q_norm >= 0) qk_norm_bwd(p, y, a);
    WEFT_TRY(weft__columns_bwd(p, &y->qkv, s->dn, s->dqkv, a->n1));
    weft__norm_bwd(p, &y->norm1, s->dx, s->dn, a->x_in, a->mean1, a->rstd1);
    return WEFT_OK;
}
