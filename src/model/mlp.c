/* mlp.c — the feed-forward half of a block: norm, up (gate and up in one product), activation, down into
 * the residual stream. The activation's result is not kept: it is cheap to make again, and as wide as F. */
#include "model/model_impl.h"

void weft__act_fwd(weft__pass *p, void *act, const void *up, int64_t rows)
{
    const weft_model *m = p->m;
    int64_t F = m->F, W = weft__up_width(m);
    weft_part outer = weft__part(p, WEFT_PART_ACTIVATION);
    if (m->family->gated) m->op->swiglu_fwd(act, F, up, W, weft__from(up, F, m->cs), W, rows, F, m->ctx->threads);
    else m->op->gelu_fwd(act, F, up, W, rows, F, m->ctx->threads);
    weft__part_end(p, outer);
}

const void *weft__act_bwd(weft__pass *p, void *dact, void *gate, int64_t rows)
{
    const weft_model *m = p->m;
    int64_t F = m->F, W = weft__up_width(m);
    void *up = weft__at(gate, F, m->cs);
    weft_part outer = weft__part(p, WEFT_PART_ACTIVATION);
    if (m->family->gated)
        m->op->swiglu_bwd(gate, W, up, W, dact, F, gate, W, up, W, rows, F, m->ctx->threads);
    else m->op->gelu_bwd(dact, F, dact, F, gate, W, rows, F, m->ctx->threads);
    weft__part_end(p, outer);
    return m->family->gated ? gate : dact;
}

weft_status weft__mlp_again(weft__pass *p, int layer, weft__acts *a)
{
    const weft__layer *y = &p->m->layer[layer];
    weft__norm_fwd(p, &y->norm2, a->n2, a->mean2, a->rstd2, a->x_mid);
    return p->tile ? WEFT_OK : weft__columns_fwd(p, &y->up, a->up, a->n2);
}

/* x_out = x_mid + mlp(norm2(x_mid)) */
weft_status weft__mlp_fwd(weft__pass *p, int layer, weft__acts *a, void *x_out)
{
    const weft__layer *y = &p->m->layer[layer];
    WEFT_TRY(weft__mlp_again(p, layer, a));
    if (p->tile) return weft__mlp_tiles_fwd(p, y, a, x_out);
    weft__act_fwd(p, p->scratch->act, a->up, p->rows);
    return weft__rows_fwd(p, &y->down, WEFT_SITE_DROP_MLP, x_out, a->x_mid, p->scratch->act);
}

static weft_status whole_bwd(weft__pass *p, const weft__layer *y, weft__acts *a)
{
    weft__scratch *s = p->scratch;
    weft__act_fwd(p, s->act, a->up, p->rows);
    /* The gradient of act replaces act: the product that needs act, dW, comes first. */
    WEFT_TRY(weft__rows_bwd(p, &y->down, s->act, s->dxc, s->act));
    return weft__columns_bwd(p, &y->up, s->dn, weft__act_bwd(p, s->act, a->up, p->rows), a->n2);
}

/* scratch->dx: gradient of x_out on entry, of x_mid on return. */
weft_status weft__mlp_bwd(weft__pass *p, int layer, weft__acts *a)
{
    const weft__layer *y = &p->m->layer[layer];
    weft__residual_gradient(p, WEFT_SITE_DROP_MLP);
    WEFT_TRY((p->tile ? weft__mlp_tiles_bwd : whole_bwd)(p, y, a));
    weft__norm_bwd(p, &y->norm2, p->scratch->dx, p->scratch->dn, a->x_mid, a->mean2, a->rstd2);
    return WEFT_OK;
}
