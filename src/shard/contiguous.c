/* contiguous.c — rank r holds chunks 2r and 2r+1 of 2P: one run of neighbouring tokens.
 * Causal work is uneven: max/mean = 2 - 1/P (the last rank sees everything). */
#include "shard/shard_impl.h"

weft__run weft__contiguous_run(weft_layout l, int64_t T, int P, int rank, int64_t i)
{
    (void)l, (void)i;
    int64_t n = 2 * (int64_t)P;
    int64_t begin = weft__chunk_begin(T, n, 2 * (int64_t)rank);
    return (weft__run){begin, weft__chunk_begin(T, n, 2 * (int64_t)rank + 2) - begin, 1, 1};
}

const weft__layout_ops weft__layout_contiguous = {
    "contiguous", false, 1, true, 1, weft__contiguous_run, weft__chunk_capacity, NULL};
