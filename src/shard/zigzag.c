/* zigzag.c — rank r holds chunks r and 2P-1-r of 2P: an early one with little causal work and a late one
 * with much, together the same area on every rank when 2P divides T. */
#include "shard/shard_impl.h"

static weft__run run(weft_layout l, int64_t T, int P, int rank, int64_t i)
{
    (void)l;
    int64_t n = 2 * (int64_t)P;
    return weft__chunk(T, n, i == 0 ? rank : n - 1 - rank);
}

const weft__layout_ops weft__layout_zigzag = {"zigzag", false, 2, true, 2, run, weft__chunk_capacity, NULL};
