/* norm.c — the family's normalisation of the residual stream: RMSNorm, or LayerNorm for GPT-2. */
#include "model/model_impl.h"

void weft__norm_fwd(weft__pass *p, const weft__norm *norm, void *y, void *mean, void *rstd, const void *x)
{
    const weft_model *m = p->m;
    int64_t C = m->config.C, rows = weft__stream_count(p);
    const void *w = weft__weight(m, norm->w);
    weft_part outer = weft__part(p, WEFT_PART_NORM);
    if (m->family->layernorm)
        m->op->layernorm_fwd(y, C, mean, rstd, x, C, w, weft__weight(m, norm->b), rows, C, m->config.norm_eps,
                             m->ctx->threads);
    else m->op->rmsnorm_fwd(y, C, rstd, x, C, w, rows, C, m->config.norm_eps, m->ctx->threads);
    weft__part_end(p, outer);
}

/* dx (R) += : the residual stream runs past the norm, so its gradient is already there. */
void weft__norm_bwd(weft__pass *p, const weft__norm *norm, void *dx, const void *dy, const void *x, const void *mean,
                    const void *rstd)
{
    const weft_model *m = p->m;
    int64_t C = m->config.C, rows = weft__stream_count(p);
    const void *w = weft__weight(m, norm->w);
    void *dw = weft__grad(m, norm->w), *work = p->scratch->work;
    weft_part outer = weft__part(p, WEFT_PART_NORM);
    if (m->family->layernorm)
        m->op->layernorm_bwd(dx, C, dw, weft__grad(m, norm->b), dy, C, x, C, w, mean, rstd, rows, C, work,
                             m->ctx->threads);
    else m->op->rmsnorm_bwd(dx, C, dw, dy, C, x, C, w, rstd, rows, C, work, m->ctx->threads);
    weft__part_end(p, outer);
}
