/* block.c — one layer: attention, then MLP, each added to the residual stream; and the buffers they need. */
#include "model/model_impl.h"

#include <string.h>

weft_status weft__block_fwd(weft__pass *p, int layer, weft__acts *a, void *x_out)
{
    p->layer = layer;
    WEFT_TRY(weft__attention_fwd(p, layer, a)); /* x_mid = x_in + attention(norm1(x_in)) */
    return weft__mlp_fwd(p, layer, a, x_out);   /* x_out = x_mid + mlp(norm2(x_mid))     */
}

weft_status weft__block_bwd(weft__pass *p, int layer, weft__acts *a)
{
    p->layer = layer;
    WEFT_TRY(weft__mlp_bwd(p, layer, a));
    return weft__attention_bwd(p, layer, a);
}

void weft__residual_copy(const weft__pass *p, void *to, const void *from)
{
    if (to == from) return;
    weft_part outer = weft__part(p, WEFT_PART_RESIDUAL);
    const size_t bytes = (size_t)p->m->config.C * p->m->rs;
    const int64_t rows = weft__stream_count(p);
#pragma omp parallel for num_threads(p->m->ctx->threads) schedule(static)
    for (int64_t i = 0; i < rows; i++)
        memcpy((char *)to + (size_t)i * bytes, (const char *)from + (size_t)i * bytes, bytes);
    weft__part_end(p, outer);
}

void weft__residual_gradient(const weft__pass *p)
{
    const weft_model *m = p->m;
    const weft__scratch *s = p->scratch;
    if (s->dxc == s->dx) return;
    weft_part outer = weft__part(p, WEFT_PART_RESIDUAL);
    m->op->to_compute(s->dxc, s->dx, weft__stream_count(p) * m->config.C, m->ctx->threads);
    weft__part_end(p, outer);
}

weft_status weft__acts_alloc(const weft_model *m, weft_arena *arena, int64_t rows, int64_t stream_rows,
                              bool keep, bool sent, weft__acts *a)
{
    const weft_model_config *c = &m->config;
    int64_t S = rows, s = stream_rows, H = m->H, Hkv = m->Hkv, D = c->D;
    *a = (weft__acts){0};
    if (!sent) WEFT_TRY(weft_arena_alloc(arena, s * c->C, m->rs, "residual", &a->x_in));
    WEFT_TRY(weft_arena_alloc(arena, s * c->C, m->cs, "normed", &a->n1));
    a->x_mid = a->x_in;
    a->n2 = a->n1;
    if (keep) WEFT_TRY(weft_arena_alloc(arena, s * c->C, m->rs, "residual", &a->x_mid));
    if (keep) WEFT_TRY(weft_arena_alloc(arena, s * c->C, m->cs, "normed", &a->n2));
    WEFT_TRY(weft_arena_alloc(arena, s, m->rs, "norm statistics", &a->rstd1));
    WEFT_TRY(weft_arena_alloc(arena, s, m->rs, "norm statistics", &a->rstd2));
    if (m->family->layernorm) {
        WEFT_TRY(weft_arena_alloc(arena, s, m->rs, "norm statistics", &a->mean1));
        WEFT_TRY(weft_arena_alloc(arena, s, m->rs, "norm statistics", &a->mean2));
    }
    WEFT_TRY(weft_arena_alloc(arena, S * weft__qkv_width(m), m->cs, "qkv", &a->qkv));
    if (m->family->qk_norm) {
        WEFT_TRY(weft_arena_alloc(arena, S * H * D, m->cs, "qk before norm", &a->keep_q));
        WEFT_TRY(weft_arena_alloc(arena, S * Hkv * D, m->cs, "qk before norm", &a->keep_k));
        WEFT_TRY(weft_arena_alloc(arena, S * H, m->rs, "norm statistics", &a->rstd_q));
        WEFT_TRY(weft_arena_alloc(arena, S * Hkv, m->rs, "norm statistics", &a->rstd_k));
    }
    WEFT_TRY(weft_arena_alloc(arena, S * H * D, m->cs, "attention out", &a->o));
    WEFT_TRY(weft_arena_alloc(arena, S * H, m->rs, "attention state", &a->m));
    WEFT_TRY(weft_arena_alloc(arena, S * H, m->rs, "attention state", &a->l));
    return weft_arena_alloc(arena, S * weft__up_width(m), m->cs, "mlp", &a->up);
}

weft_status weft__scratch_alloc(const weft_model *m, weft_arena *arena, int64_t rows, bool backward, weft__scratch *s)
{
    const weft_model_config *c = &m->config;
    int64_t stream = weft__stream_rows_max(m, rows);
    *s = (weft__scratch){0};
    WEFT_TRY(weft_arena_alloc(arena, rows * m->F, m->cs, "scratch", &s->act));
    if (!backward) return WEFT_OK;
    if (m->first_stage && m->last_stage) WEFT_TRY(weft_arena_alloc(arena, stream * c->C, m->rs, "scratch", &s->dx));
    s->dxc = s->dx;
    if (m->rt != m->ct) WEFT_TRY(weft_arena_alloc(arena, stream * c->C, m->cs, "scratch", &s->dxc));
    WEFT_TRY(weft_arena_alloc(arena, stream * c->C, m->cs, "scratch", &s->dn));
    WEFT_TRY(weft_arena_alloc(arena, rows * m->H * c->D, m->cs, "scratch", &s->dout));
    WEFT_TRY(weft_arena_alloc(arena, rows * weft__qkv_width(m), m->cs, "scratch", &s->dqkv));
    size_t bytes = weft_norm_work_bytes(m->prec, weft__widest(m), m->ctx->threads);
    return weft_arena_alloc(arena, (int64_t)bytes, 1, "scratch", &s->work);
}
