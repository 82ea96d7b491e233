/* attention.c — what every attention kernel shares: which keys a query sees, which of them dropout keeps;
 * and the refusal of shapes that no kernel takes. */
#include "kern/attention/attention_impl.h"

#include <float.h>
#include <math.h>

/* Positions and windows stay far below this, so that their sums fit into 64 bits. */
static const int64_t far = INT64_C(1) << 60;

/* Rows of a range of n that stand before position x: positions grow, so this is the index of the first that does
 * not. The last run that begins before x counts as far as x, or whole when x lies in the gap behind it. */
static int64_t rows_before(int64_t x, int64_t pos, int64_t run, int64_t step, int64_t n)
{
    int64_t y = x - pos;
    if (run == step) return weft_max_i64(0, weft_min_i64(n, y)); /* no division: this is asked for every query row */
    return y <= 0 ? 0 : weft_min_i64(n, y / step * run + weft_min_i64(y % step, run));
}

void weft_attn_key_range(const weft_mask *m, const weft_attn_pair *p, int64_t qpos, int64_t *lo, int64_t *hi)
{
    int64_t first = -far, last = far;
    if (m->left >= 0) first = qpos - m->left;
    if (m->right >= 0) last = qpos + m->right;
    if (m->causal) last = weft_min_i64(last, weft_max_i64(qpos, m->prefix - 1));
    *lo = rows_before(first, p->k_pos, p->k_run, p->k_step, p->nk);
    *hi = rows_before(last + 1, p->k_pos, p->k_run, p->k_step, p->nk);
}

void weft_attn_query_range(const weft_mask *m, const weft_attn_pair *p, int64_t j0, int64_t j1, int64_t *lo,
                           int64_t *hi)
{
    int64_t k0 = weft_attn_kpos(p, j0), k1 = weft_attn_kpos(p, j1 - 1);
    int64_t first = -far, last = far;
    if (m->right >= 0) first = k0 - m->right;
    if (m->causal && k0 >= m->prefix) first = weft_max_i64(first, k0);
    if (m->left >= 0) last = k1 + m->left;
    *lo = rows_before(first, p->q_pos, p->q_run, p->q_step, p->nq);
    *hi = rows_before(last + 1, p->q_pos, p->q_run, p->q_step, p->nq);
}

/* ---- dropout --------------------------------------------------------------------------------------------- */

bool weft_attn_kept(double dropout, uint64_t seed, uint32_t word3, uint32_t sample, uint32_t head, int64_t q_token,
                    int64_t k_token)
{
    weft_philox_out x = weft_philox(seed, (uint32_t)(k_token >> 2), (uint32_t)q_token,
                                    weft_philox_word2(sample, head), word3);
    return (double)x.w[k_token & 3] >= dropout * 0x1p32;
}

/* ---- refusals -------------------------------------------------------------------------------------------- */

static weft_status check_heads(const weft_attn_desc *d)
{
    if (d->H < 1 || d->Hkv < 1)
        return weft_fail(WEFT_ERR_REFUSED, "attention: %d query heads and %d key/value heads; both must be at least 1",
                         d->H, d->Hkv);
    if (d->group < 1)
        return weft_fail(WEFT_ERR_REFUSED, "attention: %d query heads per key/value head; must be at least 1",
                         d->group);
    if (d->head0 < 0 || d->kv_head0 < 0)
        return weft_fail(WEFT_ERR_REFUSED, "attention: first heads %d and %d; must be at least 0", d->head0,
                         d->kv_head0);
    int first = weft_attn_kv_head(d, 0), last = weft_attn_kv_head(d, d->H - 1);
    if (first < 0 || last >= d->Hkv)
        return weft_fail(WEFT_ERR_REFUSED,
                         "attention: query heads %d..%d read key/value heads %d..%d (groups of %d), but heads %d..%d "
                         "are here; query heads must be a multiple of key/value heads",
                         d->head0, d->head0 + d->H - 1, first + d->kv_head0, last + d->kv_head0, d->group,
                         d->kv_head0, d->kv_head0 + d->Hkv - 1);
    return WEFT_OK;
}

static weft_status check_mask(const weft_mask *m)
{
    if (m->left < -1 || m->right < -1 || m->left > far / 4 || m->right > far / 4)
        return weft_fail(WEFT_ERR_REFUSED,
                         "attention: window of %lld keys before and %lld after; use -1 for no limit, 0 for none",
                         (long long)m->left, (long long)m->right);
    if (m->prefix < 0 || m->prefix > far / 4)
        return weft_fail(WEFT_ERR_REFUSED, "attention: prefix %lld; must be 0 (none) or a number of tokens",
                         (long long)m->prefix);
    return WEFT_OK;
}

/* Outside of fp64 kernels hold scale and softcap in fp32, and flush what is below FLT_MIN: one that becomes 0 or
 * infinite there is another problem. Two bounds are narrower. The scale is multiplied by log2(e). And scores are
 * divided by the cap: far below it they would be flushed, which at 2^100 moves no score by more than 2^-26; there the
 * cap moves none either, since tanh(x) = x. */
static weft_status check_scale(const weft_attn_desc *d, weft_prec prec)
{
    const double most = (double)FLT_MAX / 2, size = fabs(d->scale);
    if (!isfinite(d->scale))
        return weft_fail(WEFT_ERR_REFUSED, "attention: scale %g; must be finite, usually 1/sqrt(%d)", d->scale, d->D);
    if (prec == WEFT_PREC_F64 || size == 0 || (size >= (double)FLT_MIN && size <= most)) return WEFT_OK;
    return weft_fail(WEFT_ERR_REFUSED,
                     "attention: scale is %g, outside of fp32 (%.3g to %.3g), in which %s holds it; use precision "
                     "fp64, or a scale such as 1/sqrt(%d) = %.3g",
                     d->scale, (double)FLT_MIN, most, weft_prec_name(prec), d->D, 1 / sqrt((double)d->D));
}

static weft_status check_softcap(double cap, weft_prec prec)
{
    const double most = 0x1p100;
    if (!isfinite(cap) || cap < 0)
        return weft_fail(WEFT_ERR_REFUSED, "attention: softcap %g; must be 0 (none) or positive", cap);
    if (prec == WEFT_PREC_F64 || cap == 0 || (cap >= (double)FLT_MIN && cap <= most)) return WEFT_OK;
    return weft_fail(WEFT_ERR_REFUSED,
                     "attention: softcap is %g, outside of fp32 (%.3g to %.3g), in which %s holds it; use precision "
                     "fp64, or %s",
                     cap, (double)FLT_MIN, most, weft_prec_name(prec),
                     cap > 1 ? "0 for none, which comes to the same" : "a cap such as 30");
}

weft_status weft_attn_check(const weft_attn_desc *d, weft_prec prec)
{
    if (d->D < 1 || d->D > WEFT_ATTN_MAX_D || d->Dv < 1 || d->Dv > WEFT_ATTN_MAX_D)
        return weft_fail(WEFT_ERR_REFUSED, "attention: head size %d (values %d); must be from 1 to %d", d->D, d->Dv,
                         WEFT_ATTN_MAX_D);
    WEFT_TRY(check_heads(d));
    WEFT_TRY(check_mask(&d->mask));
    WEFT_TRY(check_scale(d, prec));
    WEFT_TRY(check_softcap(d->softcap, prec));
    if (!(d->dropout >= 0 && d->dropout < 1)) /* NaN is neither */
        return weft_fail(WEFT_ERR_REFUSED, "attention: dropout %g; must be 0 (none) or a probability below 1",
                         d->dropout);
    return WEFT_OK;
}
