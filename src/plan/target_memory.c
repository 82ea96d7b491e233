/* target_memory.c — bytes of a rank of another system, by formulas: Weft's code counts only what is Weft's.
 *
 * Of a trainer as GPUs run it: weights in 16 bits for products, gradients in fp32, masters and AdamW's two moments in
 * fp32; activations in 16 bits; attention keeps its output and a number per row; head and loss hold the logits of a
 * micro-batch and their gradient, both in 16 bits and in fp32. */
#include "plan/target_impl.h"
#include "plan/plan_impl.h"

#include <math.h>

/* ZeRO 1 shards masters and moments, 2 the gradients, 3 the weights, too, over the ranks with the same part. */
static void add_state(const weft_plan_ask *ask, const weft_layout_choice *c, double params, weft_memory *out)
{
    const double ranks = (double)c->dp * c->cp;
    const double layer = params / fmax(1, (double)(ask->config->L / c->pp)); /* gathered while it is computed with */
    const double weights = c->zero >= 3 ? 2 * params / ranks + 2 * 2 * layer : 2 * params;
    const double gradients = c->zero >= 2 ? 4 * params / ranks + 4 * layer : 4 * params;
    out->bytes[WEFT_MEMORY_WEIGHTS] = (int64_t)weights;
    out->bytes[WEFT_MEMORY_GRADIENTS] = (int64_t)gradients;
    out->bytes[WEFT_MEMORY_MOMENTS] = (int64_t)(12 * params / (c->zero >= 1 ? ranks : 1));
}

/* Bytes per token that a layer leaves behind without recomputation: the inputs of its norms and products, and what
 * attention and activation need, in 16 bits. What is as wide as the model is on all ranks of tp, or cut over them. */
static double layer_bytes(const weft_plan_ask *ask, const weft_layout_choice *c, weft_recompute mode)
{
    const weft_model_config *m = ask->config;
    const double tp = c->tp, rows = c->sequence_parallel ? tp : 1, C = (double)m->C, F = (double)m->F;
    const double qkv = (m->H + 2.0 * m->Hkv) * m->D / tp, o = (double)m->H * m->D / tp;
    const double input = 2 * C / rows, normed = 2 * C / rows, attention = 2 * o + 4 * m->H / tp;
    const double up = m->family == WEFT_GPT2 ? 1 : 2;
    const bool keeps = mode == WEFT_RECOMPUTE_NONE || c->keep_attention;
    double sum = 2 * input + (keeps ? attention : 0);                /* of both halves */
    if (mode == WEFT_RECOMPUTE_FULL) return input + (c->keep_attention ? attention : 0);
    if (mode == WEFT_RECOMPUTE_NONE) sum += normed + 2 * qkv;
    if (mode <= WEFT_RECOMPUTE_ATTENTION) sum += normed + 2 * (up + 1) * F / tp;
    return sum;
}

static void add_activations(const weft_plan_ask *ask, const weft_layout_choice *c, int64_t micros, weft_memory *out)
{
    const double tokens = (double)c->micro_batch * (double)ask->options.T / c->cp;
    const double layers = (double)weft_ceil_div(ask->config->L, c->pp);
    const double alive = fmin(c->pp, (double)micros); /* micro-batches of the first stage under 1F1B */
    const double kept = layer_bytes(ask, c, c->recompute), whole = layer_bytes(ask, c, WEFT_RECOMPUTE_NONE);
    const double inputs = 2 * (double)ask->config->C / (c->sequence_parallel ? c->tp : 1);
    const double offloaded = c->offload ? fmin(kept, inputs) : 0;
    out->bytes[WEFT_MEMORY_OFFLOADED] = (int64_t)(tokens * layers * alive * offloaded);
    out->bytes[WEFT_MEMORY_ACTIVATIONS] = (int64_t)(tokens * layers * alive * (kept - offloaded));
    /* one layer at a time is whole in backward, with as many gradients */
    out->bytes[WEFT_MEMORY_SCRATCH] = (int64_t)(tokens * ((c->recompute != WEFT_RECOMPUTE_NONE ? whole : 0) + whole));
    out->bytes[WEFT_MEMORY_LOGITS] = (int64_t)(tokens * 12 * (double)ask->config->V / c->tp);
}

/* Keys and values that travel, or those of all ranks where they are gathered: two blocks of a ring; in backward their
 * gradients, too. */
static void add_exchange(const weft_plan_ask *ask, const weft_layout_choice *c, weft_memory *out)
{
    weft__target_case x = {*ask, *c};
    const double tokens = (double)c->micro_batch * (double)ask->options.T / c->cp;
    const double pair = 2 * 2.0 * ask->config->Hkv * ask->config->D / c->tp;
    const double blocks = weft__target_is(&x, "pcp") ? c->cp : 2;
    if (c->cp > 1) out->bytes[WEFT_MEMORY_ATTENTION] = (int64_t)(2 * blocks * tokens * pair);
}

weft_status weft__target_memory(const weft_plan_ask *ask, const weft_layout_choice *c, weft_memory *out)
{
    int64_t micros;
    weft_memory m = {0};
    WEFT_TRY(weft_plan_micros(ask, c, &micros));
    double params = weft__stage_params(ask, c, 0);
    for (int s = 1; s < c->pp; s++) params = fmax(params, weft__stage_params(ask, c, s));
    add_state(ask, c, params, &m);
    add_activations(ask, c, micros, &m);
    add_exchange(ask, c, &m);
    *out = m;
    return WEFT_OK;
}
