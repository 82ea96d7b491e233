/* flops.c — the model FLOPs of a step, as model-FLOPs utilisation counts them, and how a stage's work is spread over
 * its passes and layers, for who waits for them. At 128K tokens attention dominates, so a figure without it says
 * nothing about long context. */
#include <math.h>

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

static double product(const weft__linear *y) { return 2.0 * (double)y->in * (double)y->out; }

/* Query t of T sees t + 1 keys, W at most. */
double weft_model_sequence_area(const weft_model_config *c, int64_t tokens, bool windowed)
{
    const double T = (double)tokens, W = windowed ? fmin((double)c->window, T) : T;
    return T * W - W * (W - 1) / 2;
}

/* Keys that a query sees on average. */
static double mean_keys(const weft_model *m, int64_t l)
{
    return weft_model_sequence_area(&m->config, m->T, weft__windowed(&m->config, (int)l)) / (double)m->T;
}

weft_model_widths weft_model_share_widths(const weft_model_config *c, const weft_model_share *share)
{
    const weft__cuts x = weft__cuts_of(c, share);
    const weft__family *f = weft__family_of(c->family);
    const int64_t H = x.head.end - x.head.begin, Hkv = x.kv.end - x.kv.begin, F = x.F.end - x.F.begin;
    return (weft_model_widths){
        .qkv = {c->C, (H + 2 * Hkv) * c->D}, .o = {H * c->D, c->C}, .up = {c->C, f->gated ? 2 * F : F},
        .down = {F, c->C}, .head = {c->C, x.V.end - x.V.begin}, .H = (int)H, .Hkv = (int)Hkv,
        .rotates = c->rope.type != WEFT_ROPE_NONE, .qk_norm = f->qk_norm};
}

/* Of what a layer's forward pass does, what its backward pass does again (weft__block_bwd). */
static double again(const weft_model *m, const weft__layer *y, double attention)
{
    double sum = 0;
    if (m->recompute >= WEFT_RECOMPUTE_ATTENTION) sum += product(&y->qkv) + (m->keep_attention ? 0 : attention);
    if (m->recompute == WEFT_RECOMPUTE_FULL) sum += product(&y->o);
    if (m->recompute >= WEFT_RECOMPUTE_BLOCK || m->tile) sum += product(&y->up);
    return sum;
}

double weft__layer_work(const weft_model *m, int64_t l, bool backward)
{
    const weft__layer *y = &m->layer[l];
    const double products = product(&y->qkv) + product(&y->o) + product(&y->up) + product(&y->down);
    const double attention = 4 * mean_keys(m, l) * (double)m->H * (double)m->config.D;
    return backward ? 2 * products + 2.5 * attention + again(m, y, attention) : products + attention;
}

double weft__head_work(const weft_model *m) { return 3 * product(&m->par.head); }

double weft_model_pass_work(const weft_model *m, bool backward)
{
    double sum = m->last_stage && !backward ? weft__head_work(m) : 0;
    for (int64_t l = m->layers.begin; l < m->layers.end; l++) sum += weft__layer_work(m, l, backward);
    return sum;
}
