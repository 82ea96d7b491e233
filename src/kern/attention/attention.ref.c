/* attention.ref.c — the specification of attention in the four precisions. It also is the fp64 kernel. */
#include "kern/attention/attention_impl.h"

#include <math.h>

static size_t work_bytes(const weft_attn_desc *d, int threads)
{
    (void)d, (void)threads; /* one row of state, in registers */
    return 0;
}

/* Messages move while this rank computes; only the calling thread may move them. */
static void poll_now_and_then(const weft_attn_run *run, int64_t row)
{
    if (run->poll && row % 32 == 0 && weft_attn_thread() == 0) run->poll(run->poll_ud);
}

#define REF_TEMPLATE "kern/attention/attention.ref.inl"
#include "kern/ref_each.inl"

void weft_attn_fill_ref(weft_attn_ops *ops, weft_prec prec)
{
    static const weft_attn_ops *const table[WEFT_PREC_COUNT] = {&weft_ops_f64_ref, &weft_ops_f32_ref,
                                                                &weft_ops_bf16_ref, &weft_ops_f16_ref};
    *ops = *table[prec];
}
