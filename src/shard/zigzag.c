/* zigzag.c — rank r holds chunks r and 2P-1-r of 2P: an early one with little causal work and a late one
 * with much, together the same area on every rank when 2P divides T. */
#include "shard/shard_impl.h"

static int64_t runs(int64_t T, int P, int rank)
{
    (void)T, (void)P, (void)rank;
    return 2;
}

static weft__run run(int64_t T, int P, int rank, int64_t i)
{
    int64_t n = 2 * (int64_t)P;
    return weft__chunk(T, n, i == 0 ? rank : n - 1 - rank);
}

const weft__layout_ops weft__layout_zigzag = {"zigzag", runs, run};
