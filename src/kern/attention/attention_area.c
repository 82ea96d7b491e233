/* attention_area.c — how many (query, key) pairs of a range of queries and a range of keys are visible.
 *
 * The keys that a query at q sees form one interval [lo, hi] of positions:
 *   lo = q - left (or none);   hi = min(q + right, max(q, prefix - 1) if causal)
 * and lo <= q <= hi, so the keys of the pair inside are  #(k <= hi) - #(k < lo).
 * The number of keys below t, F(t) = floor(t / step) run + min(t mod step, run) counted from the first key, grows by
 * the same amount whenever t grows by a step. So for queries one step apart the counts are a clamped arithmetic
 * progression, whose sum has a closed form: one for each token of a run, and one in all for contiguous ranges. A plan
 * for a million tokens in stripes asks for P^2 areas per step; going over the queries would be felt. */
#include "kern/attention/attention.h"

/* Windows are clamped here so that q + right cannot overflow; no position is as large. */
static const int64_t far = INT64_C(1) << 60;

static int64_t clamp(int64_t x, int64_t lo, int64_t hi) { return x < lo ? lo : x > hi ? hi : x; }

/* Floor division for a positive divisor: C's rounds towards zero. */
static int64_t floor_div(int64_t a, int64_t b) { return a >= 0 ? a / b : -((-a + b - 1) / b); }

typedef struct range { int64_t n, pos, run, step; } range;

/* A range without gaps is runs of any step. */
static range range_of(int64_t n, int64_t pos, int64_t run, int64_t step)
{
    return n <= run || run == step ? (range){n, pos, 1, 1} : (range){n, pos, run, step};
}

/* F(t - pos), which goes on below the first row and above the last. */
static int64_t rows_below(const range *r, int64_t t)
{
    int64_t turns = floor_div(t - r->pos, r->step);
    return turns * r->run + weft_min_i64(t - r->pos - turns * r->step, r->run);
}

/* sum of clamp(x + i d, 0, m) for i in [0, n); d > 0 */
static int64_t sum_clamped(int64_t x, int64_t d, int64_t n, int64_t m)
{
    int64_t zero = clamp(floor_div(-x, d) + 1, 0, n);
    x += zero * d;
    n -= zero;
    int64_t rising = clamp(floor_div(m - x, d) + 1, 0, n);
    return rising * x + rising * (rising - 1) / 2 * d + (n - rising) * m;
}

/* sum over the queries i0 <= i < i1 of the number of keys below q_i + c. The keys' step divides the queries'. */
static int64_t sum_below(const range *q, int64_t i0, int64_t i1, const range *k, int64_t c)
{
    int64_t sum = 0, d = q->step / k->step * k->run;
    for (int64_t x = 0; x < q->run && x < i1; x++) { /* x-th token of each run */
        int64_t j0 = weft_ceil_div(weft_max_i64(i0 - x, 0), q->run), j1 = weft_ceil_div(i1 - x, q->run);
        if (j0 < j1) sum += sum_clamped(rows_below(k, q->pos + x + j0 * q->step + c), d, j1 - j0, k->n);
    }
    return sum;
}

/* #(keys <= hi) has three parts: hi follows q + right, rests at the end of the prefix, then follows q. */
static int64_t sum_to_hi(bool causal, int64_t right, int64_t prefix, const range *q, const range *k)
{
    if (!causal) return sum_below(q, 0, q->n, k, right + 1);
    int64_t follow = clamp(rows_below(q, prefix - 1 - right), 0, q->n); /* q + right < prefix - 1 */
    int64_t rest = clamp(rows_below(q, prefix - 1), 0, q->n);          /* q < prefix - 1         */
    return sum_below(q, 0, follow, k, right + 1) + (rest - follow) * clamp(rows_below(k, prefix), 0, k->n) +
           sum_below(q, rest, q->n, k, 1);
}

static int64_t sum_one_by_one(const range *q, bool causal, int64_t left, int64_t right, int64_t prefix, const range *k)
{
    int64_t area = 0;
    for (int64_t i = 0; i < q->n; i++) {
        range one = {1, q->pos + i / q->run * q->step + i % q->run, k->step, k->step};
        area += sum_to_hi(causal, right, prefix, &one, k) - sum_below(&one, 0, 1, k, -left);
    }
    return area;
}

int64_t weft_attn_area(const weft_mask *m, const weft_attn_pair *p)
{
    int64_t left = m->left < 0 ? far : weft_min_i64(m->left, far),
            right = m->right < 0 ? far : weft_min_i64(m->right, far);
    int64_t prefix = clamp(m->prefix, 0, far);
    if (p->nq <= 0 || p->nk <= 0) return 0;
    range q = range_of(p->nq, p->q_pos, p->q_run, p->q_step), k = range_of(p->nk, p->k_pos, p->k_run, p->k_step);
    if (q.step == 1) q.run = q.step = k.step;
    if (q.step % k.step) return sum_one_by_one(&q, m->causal, left, right, prefix, &k);
    return sum_to_hi(m->causal, right, prefix, &q, &k) - sum_below(&q, 0, q.n, &k, -left);
}
