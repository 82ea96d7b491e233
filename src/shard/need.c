/* need.c — which key rows of one rank the queries of another can see: what pairwise has to send, and no more.
 *
 * The query at p sees the key at c iff  p - left <= c <= last_seen(p),  last_seen(p) = p + right, or if causal
 * min(p + right, max(p, prefix - 1)). Queries that stand at
 * consecutive positions p0 .. p1 therefore see all of [p0 - left, last_seen(p1)] together: neighbouring intervals
 * overlap, since last_seen(p) >= p. Both ends grow with the queries, so the intervals of a document's runs come
 * ordered and their union is made by lengthening the last range. In memory, keys of a document ascend: an interval of
 * positions is an interval of rows of each segment. */
#include "shard/shard_impl.h"

/* Windows are clamped here so that p + right cannot overflow; no position is as large. */
static const int64_t FAR = (int64_t)1 << 60;

typedef struct view { /* a mask with limits that can be added to positions */
    bool causal;
    int64_t left, right, last_prefix;
} view;

static view view_of(const weft_mask *m)
{
    return (view){m->causal, m->left < 0 ? FAR : weft_min_i64(m->left, FAR),
                  m->right < 0 ? FAR : weft_min_i64(m->right, FAR), weft__clamp(m->prefix, 0, FAR) - 1};
}

static int64_t last_seen(const view *v, int64_t p)
{
    int64_t hi = p + v->right;
    return v->causal ? weft_min_i64(hi, weft_max_i64(p, v->last_prefix)) : hi;
}

typedef struct ranges {
    weft_range *out;
    int64_t n, capacity; /* n > capacity: too many */
} ranges;

static void add(ranges *x, int64_t begin, int64_t end)
{
    if (begin >= end || x->n > x->capacity) return;
    weft_range *last = x->n ? &x->out[x->n - 1] : NULL;
    if (last && begin <= last->begin + last->len) {
        last->len = weft_max_i64(last->len, end - last->begin);
        return;
    }
    if (x->n++ < x->capacity) x->out[x->n - 1] = (weft_range){begin, end - begin};
}

/* Keys of a segment, whose first row is k_row, that queries at p0 .. p1 see. */
static void add_interval(ranges *x, const view *v, int64_t p0, int64_t p1, const weft_segment *k, int64_t k_row)
{
    int64_t begin = weft__count_below(k->start, k->len, k->run, k->stride, p0 - v->left);
    int64_t end = weft__count_below(k->start, k->len, k->run, k->stride, last_seen(v, p1) + 1);
    add(x, k_row + begin, k_row + end);
}

static void add_segment(ranges *x, const view *v, const weft_segment *q, const weft_segment *k, int64_t k_row)
{
    int64_t last = q->start + weft_segment_step(q, q->len - 1), gap = q->stride - q->run;
    /* Do the views of neighbouring runs touch for any positions? Then the runs are as good as one. */
    if (v->left + (v->causal ? 0 : v->right) >= gap) {
        add_interval(x, v, q->start, last, k, k_row);
        return;
    }
    int64_t k_last = k->start + weft_segment_step(k, k->len - 1);
    /* Runs that end out of reach of the segment's first key see none of it. */
    int64_t reach = v->causal && k->start > v->last_prefix ? 0 : v->right;
    int64_t run = weft_max_i64(0, (k->start - reach - q->start) / q->stride);
    for (int64_t p = q->start + run * q->stride; p <= last && p - v->left <= k_last; p += q->stride)
        add_interval(x, v, p, weft_min_i64(last, p + q->run - 1), k, k_row);
}

int64_t weft_shard_need(const weft_mask *mask, const weft_shard *q, int rank, const weft_shard *k, int owner,
                        weft_range *out, int64_t capacity)
{
    view v = view_of(mask);
    ranges x = {out, 0, capacity};
    weft_join j = weft_join_start(q, rank, k, owner);
    while (weft_join_next(&j)) {
        int64_t k_row = j.k_row;
        for (int64_t b = j.k0; b < j.k1; k_row += j.k[b++].len)
            for (int64_t a = j.q0; a < j.q1; a++) add_segment(&x, &v, &j.q[a], &j.k[b], k_row);
    }
    return x.n > x.capacity ? -1 : x.n;
}
