/* drop.ref.c — the specification of dropout of rows by address, for every precision. */
#include "kern/kern_impl.h"


#include <math.h>

double weft_drop_factor(const weft_drop *d, int64_t index, int64_t channel)
{
    int64_t token = index % d->T, sample = d->sample0 + index / d->T;
    uint32_t block = (uint32_t)(channel / 64 * 16 + channel % 16);
    weft_philox_out x = weft_philox(d->seed, (uint32_t)token, (uint32_t)(token >> 32),
                                    weft_philox_word2((uint32_t)sample, block), d->word3);
    return (double)x.w[channel / 16 % 4] >= d->p * 0x1p32 ? 1 / (1 - d->p) : 0;
}

#define REF_TEMPLATE "kern/drop/drop.ref.inl"
#include "kern/ref_each.inl"
