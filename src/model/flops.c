/* flops.c — the model FLOPs of a step, as model-FLOPs utilisation counts them. At 128K tokens attention
 * dominates, so a figure without it says nothing about long context. */
#include "model/model_impl.h"

double weft_model_area(const weft_model_config *config, const weft_shard *shard)
{
    int64_t windowed = config->window > 0 ? config->L - config->window_from_layer : 0;
    double area = 0;
    for (int kind = 0; kind < 2; kind++) {
        int64_t layers = kind ? windowed : config->L - windowed;
        if (layers == 0) continue;
        weft_mask mask = weft__mask(config, kind);
        double visible = 0;
        for (int r = 0; r < shard->P; r++) visible += (double)weft_shard_area(&mask, shard, r, shard, -1);
        area += visible * (double)layers / (double)config->L;
    }
    return area;
}

double weft_model_step_flops(const weft_model_config *config, int64_t tokens, double area)
{
    weft__params par;
    if (weft__params_walk(config, &weft_model_all, NULL, NULL, NULL, &par) < 0) return 0;
    /* A tied embedding is also the head, which is a product. */
    int64_t products = par.matrices - par.embedding_count + (config->tied ? config->V * config->C : 0);
    return 6.0 * (double)products * (double)tokens +
           12.0 * area * (double)config->H * (double)config->D * (double)config->L;
}
