/* imbalance.c — how unevenly the attention of a step lies on the ranks: as work, and as time.
 *
 * In every micro-batch the ranks of a context group wait for the busiest of them, so a rank that is busy in one does
 * not make up for another that is in the next; groups wait for the group with most when all are done. */
#include "train/trainer_impl.h"

/* How much of the layers' heads is here: a stage may have a layer more than another, a rank of tp a head more. */
static double own_heads(const weft_engine *e)
{
    weft_span layers = weft_model_cut(e->config.L, e->mesh.size.pp, e->mesh.at.pp);
    weft_span heads = weft_model_cut(e->config.H, e->mesh.size.tp, e->mesh.at.tp);
    return (double)(layers.end - layers.begin) * (double)(heads.end - heads.begin);
}

weft_status weft__imbalance(const weft_engine *e, double *area, int64_t micros, double seconds, double *in_area,
                            double *in_time, double *visible)
{
    double own = 0, busiest = 0, heads = own_heads(e);
    weft_comm *all = e->mesh.all;
    for (int64_t a = 0; a < micros; a++) own += area[a];
    WEFT_TRY(weft_all_reduce(e->mesh.cp, area, micros, WEFT_F64, WEFT_MAX));
    for (int64_t a = 0; a < micros; a++) busiest += area[a];
    double sum[2] = {seconds, own * heads}, most[2] = {seconds, busiest * heads};
    WEFT_TRY(weft_all_reduce(all, sum, 2, WEFT_F64, WEFT_SUM));
    WEFT_TRY(weft_all_reduce(all, most, 2, WEFT_F64, WEFT_MAX));
    int ranks = weft_comm_size(all);
    *in_time = sum[0] > 0 ? most[0] * ranks / sum[0] : 1;
    *visible = sum[1] / ((double)e->config.L * (double)e->config.H);
    *in_area = sum[1] > 0 ? most[1] * ranks / sum[1] : 1;
    return WEFT_OK;
}
