/* striped.c — token t lies on rank floor(t/k) mod P: stripes of k tokens, dealt in turn.
 *
 * Causal work is even, max/mean = 1 + k (P - 1) / (T + 1) for one document, but about half of every block is visible
 * to every rank. k = 1 balances best; whole kernel tiles (k = 128, say) waste no half-empty tiles. */
#include "shard/shard_impl.h"

/* A product with k, or as good as infinity: k may be larger than any T. */
static int64_t times(int64_t k, int64_t n)
{
    int64_t x;
    return weft_mul_i64(k, n, &x) ? x : INT64_MAX;
}

static int64_t block_of(weft_layout l, int64_t T) { return weft__clamp(l.block, 1, T); }

static weft__run run(weft_layout l, int64_t T, int P, int rank, int64_t i)
{
    (void)i;
    int64_t k = block_of(l, T), period = times(k, P), first = weft_min_i64(times(k, rank), T);
    return (weft__run){first, T / period * k + weft__clamp(T % period - first, 0, k), k, period};
}

/* A document has at most a head and a body on each rank. And every segment begins with a stripe or with the document
 * that cuts one, or follows such a head. */
static int64_t capacity(weft_layout l, int64_t B, int64_t T, int64_t docs, int P)
{
    return weft_min_i64(times(docs, 2 * (int64_t)P), B * weft_ceil_div(T, block_of(l, T)) + docs);
}

const weft__layout_ops weft__layout_striped = {"striped", true, 2, true, 1, run, capacity, NULL};
