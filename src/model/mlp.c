/* mlp.c — the feed-forward half of a block: norm, up (gate and up in one product), activation, down into
 * the residual stream. The activation's result is not kept: it is cheap to make again, and as wide as F. */
#include "model/model_impl.h"

/* act[S,F] = silu(gate) * up, or gelu(fc) */
static void act_fwd(weft__pass *p, void *act, weft__acts *a)
{
    const weft_model *m = p->m;
    int64_t F = m->F, W = weft__up_width(m);
    weft_part outer = weft__part(p, WEFT_PART_ACTIVATION);
    if (m->family->gated)
        m->op->swiglu_fwd(act, F, a->up, W, weft__at(a->up, F, m->cs), W, p->rows, F, m->ctx->threads);
    else m->op->gelu_fwd(act, F, a->up, W, p->rows, F, m->ctx->threads);
    weft__part_end(p, outer);
}

/* a->up is overwritten by its gradient. */
static void act_bwd(weft__pass *p, void *dact, weft__acts *a)
{
    const weft_model *m = p->m;
    int64_t F = m->F, W = weft__up_width(m);
    void *up = weft__at(a->up, F, m->cs);
    weft_part outer = weft__part(p, WEFT_PART_ACTIVATION);
    if (m->family->gated)
        m->op->swiglu_bwd(a->up, W, up, W, dact, F, a->up, W, up, W, p->rows, F, m->ctx->threads);
    else m->op->gelu_bwd(dact, F, dact, F, a->up, W, p->rows, F, m->ctx->threads);
    weft__part_end(p, outer);
}

/* x_out = x_mid + mlp(norm2(x_mid)) */
weft_status weft__mlp_fwd(weft__pass *p, int layer, weft__acts *a, void *x_out)
{
    weft_model *m = p->m;
    const weft__layer *y = &m->layer[layer];

    weft__norm_fwd(p, &y->norm2, a->n2, a->mean2, a->rstd2, a->x_mid);
    WEFT_TRY(weft__columns_fwd(p, &y->up, a->up, a->n2));
    act_fwd(p, p->scratch->act, a);
    return weft__rows_fwd(p, &y->down, x_out, a->x_mid, p->scratch->act);
}

/* scratch->dx: gradient of x_out on entry, of x_mid on return. */
weft_status weft__mlp_bwd(weft__pass *p, int layer, weft__acts *a)
{
    weft_model *m = p->m;
    const weft__layer *y = &m->layer[layer];
    weft__scratch *s = p->scratch;

    weft__residual_gradient(p);
    act_fwd(p, s->act, a);
    /* The gradient of act replaces act: the product that needs act, dW, comes first. */
    WEFT_TRY(weft__rows_bwd(p, &y->down, s->act, s->dxc, s->act));
    act_bwd(p, s->act, a);
    const void *dup = m->family->gated ? a->up : s->act;
    WEFT_TRY(weft__columns_bwd(p, &y->up, s->dn, dup, a->n2));
    weft__norm_bwd(p, &y->norm2, s->dx, s->dn, a->x_mid, a->mean2, a->rstd2);
    return WEFT_OK;
}
