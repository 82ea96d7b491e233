/* area.c — how much of the score matrix a pair of segments, or a pair of ranks, has to compute.
 *
 * The keys that a query at p sees form one interval [lo, hi] of positions:
 *   lo = p - left (or none);   hi = min(p + right, max(p, prefix - 1) if causal)
 * and lo <= p <= hi, so the count of a segment's keys inside is  #(k <= hi) - #(k < lo).
 * With strides of 1 both counts are clamped linear functions of p, whose sums have closed forms. */
#include "shard/shard_impl.h"

/* Windows are clamped here so that p + right cannot overflow; no position is as large. */
static const int64_t FAR = (int64_t)1 << 60;

static int64_t clamp(int64_t x, int64_t lo, int64_t hi) { return x < lo ? lo : x > hi ? hi : x; }

/* sum of clamp(x + i, 0, m) for i in [0, n) */
static int64_t sum_clamped(int64_t x, int64_t n, int64_t m)
{
    if (n <= 0) return 0;
    int64_t zero = clamp(-x, 0, n);
    x += zero;
    n -= zero;
    int64_t rising = clamp(m - x, 0, n);
    return rising * x + rising * (rising - 1) / 2 + (n - rising) * m;
}

typedef struct view { /* a mask with limits that can be added to positions */
    bool causal;
    int64_t left, right, last_prefix;
} view;

static view view_of(const weft_mask *m)
{
    return (view){m->causal, m->left < 0 ? FAR : weft_min_i64(m->left, FAR),
                  m->right < 0 ? FAR : weft_min_i64(m->right, FAR), clamp(m->prefix, -FAR, FAR) - 1};
}

/* sum over p in [a, a + n) of #(keys <= hi(p)) for keys c, c+1, ... (m of them). hi has three parts: it
 * follows p + right, rests at the end of the prefix, then follows p. */
static int64_t sum_below_hi(const view *v, int64_t a, int64_t n, int64_t c, int64_t m)
{
    if (!v->causal) return sum_clamped(a + v->right - c + 1, n, m);
    int64_t follow = clamp(v->last_prefix - v->right - a, 0, n);     /* p < last_prefix - right */
    int64_t rest = clamp(v->last_prefix - a, 0, n) - follow;         /* p < last_prefix         */
    return sum_clamped(a + v->right - c + 1, follow, m) + rest * clamp(v->last_prefix - c + 1, 0, m) +
           sum_clamped(a + follow + rest - c + 1, n - follow - rest, m);
}

/* Floor division for a positive divisor: C's rounds towards zero. */
static int64_t floor_div(int64_t a, int64_t b) { return a >= 0 ? a / b : -((-a + b - 1) / b); }

static int64_t area_strided(const view *v, const weft_segment *q, const weft_segment *k)
{
    int64_t area = 0;
    for (int64_t i = 0; i < q->len; i++) {
        int64_t p = q->start + weft_segment_step(q, i);
        int64_t hi = p + v->right;
        if (v->causal) hi = weft_min_i64(hi, weft_max_i64(p, v->last_prefix));
        int64_t below_hi = clamp(floor_div(hi - k->start, k->stride) + 1, 0, k->len);
        int64_t below_lo = clamp(floor_div(p - v->left - 1 - k->start, k->stride) + 1, 0, k->len);
        area += below_hi - below_lo;
    }
    return area;
}

int64_t weft_visible_area(const weft_mask *mask, const weft_segment *q, const weft_segment *k)
{
    if (q->row != k->row || q->doc != k->doc || q->len == 0 || k->len == 0) return 0;
    view v = view_of(mask);
    if (q->stride != 1 || k->stride != 1) return area_strided(&v, q, k);
    return sum_below_hi(&v, q->start, q->len, k->start, k->len) -
           sum_clamped(q->start - v.left - k->start, q->len, k->len);
}

/* ---- pairs of segments with the same row and document ---------------------------------------------- */

weft_join weft_join_start(const weft_shard *q, int rank, const weft_shard *k, int owner)
{
    return (weft_join){.q = q->seg + q->first[rank], .nq = q->first[rank + 1] - q->first[rank],
                       .k = k->seg + k->first[owner], .nk = k->first[owner + 1] - k->first[owner]};
}

static int compare(const weft_segment *a, const weft_segment *b)
{
    if (a->row != b->row) return a->row < b->row ? -1 : 1;
    if (a->doc != b->doc) return a->doc < b->doc ? -1 : 1;
    return 0;
}

/* End of the run of segments from `i` that have the row and document of list[i]; adds their rows. */
static int64_t same_document(const weft_segment *list, int64_t n, int64_t i, int64_t *rows)
{
    const weft_segment *head = &list[i];
    for (; i < n && compare(&list[i], head) == 0; i++) *rows += list[i].len;
    return i;
}

bool weft_join_next(weft_join *j)
{
    int64_t qi = j->q1, ki = j->k1, q_row = j->q_row_next, k_row = j->k_row_next;
    while (qi < j->nq && ki < j->nk) {
        int order = compare(&j->q[qi], &j->k[ki]);
        if (order < 0) q_row += j->q[qi++].len;
        else if (order > 0) k_row += j->k[ki++].len;
        else {
            j->q0 = qi, j->k0 = ki, j->q_row = q_row, j->k_row = k_row;
            j->q1 = same_document(j->q, j->nq, qi, &q_row);
            j->k1 = same_document(j->k, j->nk, ki, &k_row);
            j->q_row_next = q_row, j->k_row_next = k_row;
            return true;
        }
    }
    return false;
}

int64_t weft_shard_area(const weft_mask *mask, const weft_shard *q, int rank, const weft_shard *k, int owner)
{
    int64_t area = 0;
    int begin = owner < 0 ? 0 : owner, end = owner < 0 ? k->P : owner + 1;
    for (int r = begin; r < end; r++) {
        weft_join j = weft_join_start(q, rank, k, r);
        while (weft_join_next(&j))
            for (int64_t a = j.q0; a < j.q1; a++)
                for (int64_t b = j.k0; b < j.k1; b++) area += weft_visible_area(mask, &j.q[a], &j.k[b]);
    }
    return area;
}
