/* rope.c — the angles of the rotary position embedding, computed in double from positions in the document.
 *
 * Pair i of a head of size D turns by pos * inv_i, inv_i = theta^(-2i/D) before scaling:
 *   linear  inv_i / factor
 *   llama3  long waves are slowed by factor, short ones are kept, a linear blend between
 *   yarn    the same idea with a ramp over i; cos and sin are also multiplied by the attention factor,
 *           so that logits grow by its square
 * Positions count from the document's beginning and come with the tokens through the shard: a rank that
 * numbers its own rows 0, 1, 2, ... gets other angles and no error.
 * Sources: Su et al. 2021 (RoPE); Chen et al. 2023 (linear); Peng et al. 2023 (YaRN). */
#include <math.h>

#include "model/model_impl.h"

static const double two_pi = 6.283185307179586476925286766559;

static double llama3_frequency(const weft_rope_config *r, double inv)
{
    double original = (double)r->original_max_position;
    double wave = two_pi / inv;
    if (wave > original / r->low_freq_factor) return inv / r->factor;
    if (wave < original / r->high_freq_factor) return inv;
    double s = (original / wave - r->low_freq_factor) / (r->high_freq_factor - r->low_freq_factor);
    return (1 - s) * inv / r->factor + s * inv;
}

/* The pair index at which a wave turns n times over the original context. */
static double yarn_index(const weft_model_config *c, double n)
{
    double original = (double)(c->rope.original_max_position ? c->rope.original_max_position : c->max_position);
    return c->D * log(original / (n * two_pi)) / (2 * log(c->rope.theta));
}

static void yarn_frequencies(const weft_model_config *c, double *inv)
{
    double low = fmax(floor(yarn_index(c, c->rope.beta_fast)), 0);
    double high = fmin(ceil(yarn_index(c, c->rope.beta_slow)), c->D - 1);
    if (low == high) high += 0.001; /* a step instead of 0/0 */
    for (int i = 0; i < c->D / 2; i++) {
        double ramp = fmin(fmax((i - low) / (high - low), 0), 1);
        inv[i] = inv[i] / c->rope.factor * ramp + inv[i] * (1 - ramp);
    }
}

double weft__rope_frequencies(const weft_model_config *c, double *inv)
{
    const weft_rope_config *r = &c->rope;
    for (int i = 0; i < c->D / 2; i++) inv[i] = pow(r->theta, -2.0 * i / c->D);
    switch (r->type) {
    case WEFT_ROPE_LINEAR:
        for (int i = 0; i < c->D / 2; i++) inv[i] /= r->factor;
        return 1;
    case WEFT_ROPE_LLAMA3:
        for (int i = 0; i < c->D / 2; i++) inv[i] = llama3_frequency(r, inv[i]);
        return 1;
    case WEFT_ROPE_YARN:
        yarn_frequencies(c, inv);
        return r->attention_factor > 0 ? r->attention_factor : 0.1 * log(r->factor) + 1;
    case WEFT_ROPE_PLAIN:
    case WEFT_ROPE_NONE: break;
    }
    return 1;
}

void weft_rope_table(const weft_model_config *config, weft_prec prec, const int64_t *pos, int64_t rows, void *cos_out,
                     void *sin_out)
{
    if (config->rope.type == WEFT_ROPE_NONE) return;
    double inv[WEFT_ATTN_MAX_D / 2];
    double factor = weft__rope_frequencies(config, inv);
    weft_dtype r = weft_prec_real(prec);
    int half = config->D / 2;
    for (int64_t row = 0; row < rows; row++)
        for (int i = 0; i < half; i++) {
            double angle = (double)pos[row] * inv[i];
            weft_store(cos_out, r, row * half + i, factor * cos(angle));
            weft_store(sin_out, r, row * half + i, factor * sin(angle));
        }
}
