/* ends.c — what gradients of the stages of a pipeline have in common: the tied embedding, and one norm. */
#include "train/train.h"

#include <math.h>

weft_status weft_engine_add_ends(weft_engine *e)
{
    int n = 0;
    const weft_spec *spec = weft_model_spec(e->model, &n);
    if (!e->mesh.ends || !e->config.tied || WEFT_PLANTED(tied_end_forgotten)) return WEFT_OK;
    weft_dtype R = weft_prec_real(e->run->prec);
    weft_place(e->mesh.world, "add tied embeddings", -1, -1);
    /* On both stages the array begins with it. */
    return weft_all_reduce(e->mesh.ends, weft_model_gradients(e->model), spec[0].count, R, WEFT_SUM);
}

weft_status weft_engine_norm(weft_engine *e, double *norm)
{
    int n = 0;
    const weft_spec *spec = weft_model_spec(e->model, &n);
    const weft_kern_ops *op = &e->kern.op[e->run->prec];
    size_t size = weft_dtype_size(weft_prec_real(e->run->prec));
    double sum = 0;
    weft_part outer = weft_part_begin(&e->ctx->parts, WEFT_PART_OPTIMIZER);
    for (int i = 0; i < n; i++) {
        const char *g = (const char *)weft_model_gradients(e->model);
        sum += op->sumsq(g + (size_t)(spec[i].offset + spec[i].own_first) * size, spec[i].own_count, e->ctx->threads);
    }
    weft_part_end(&e->ctx->parts, outer);
    if (WEFT_PLANTED(norm_counted_twice)) sum *= 2;
    WEFT_TRY(weft_all_reduce(e->mesh.tp_pp, &sum, 1, WEFT_F64, WEFT_SUM));
    *norm = sqrt(sum);
    return WEFT_OK;
}
