/* attention.amx.c — attention of bf16 operands on tile registers (AMX), with 512-bit vectors for what is between the
 * products. Masks, lanes, dropout and the hand-out of tasks are those of the vector kernels; start, finish, delta and
 * lse are theirs altogether. */
#include "kern/simd/avx512.h"

#include "kern/attention/attention_impl.h"

#include <math.h>
#include <sched.h>
#include <stdatomic.h>
#include <string.h>

enum { LANES = 128, KEYS = 128 };
#include "kern/attention/simd_lanes.inl"
#include "kern/attention/simd_drop.inl"
#include "kern/attention/simd_tasks.inl"

#include "kern/attention/amx_tiles.inl"
#include "kern/attention/amx_pack.inl"
#include "kern/attention/amx_quick.inl"
#include "kern/attention/amx_forward.inl"
#include "kern/attention/amx_backward.inl"

static size_t thread_bytes(const weft_attn_desc *d)
{
    const size_t f = forward_bytes(d), b = backward_bytes(d);
    return f > b ? f : b; /* whole tiles */
}

static size_t work_bytes(const weft_attn_desc *d, int threads) { return work_size(threads, thread_bytes(d)); }

static void forward(const weft_attn_desc *d, const weft_attn_fwd_io *io, const weft_attn_pair *pairs, int64_t n,
                    const weft_attn_run *run)
{
    tasks *q = work_tasks(run);
    dropout drop = dropout_of(d, io->drop_word3); /* before denormals are flushed: p may be one */
#pragma omp parallel num_threads(run->threads)
    {
        simd_mode mode = simd_enter();
        int me = weft_attn_thread();
        fwd_buffers b;
        b.dropout = &drop;
        task t;
        tiles_enter();
        forward_carve(&b, d, work_of_thread(run, thread_bytes(d), me));
        while (take(q, &t, d, pairs, n, forward_tasks, run, me)) forward_task(&b, d, io, &t, run, me);
        tiles_leave();
        simd_leave(mode);
    }
}

static void backward(const weft_attn_desc *d, const weft_attn_bwd_io *io, const weft_attn_pair *pairs, int64_t n,
                     const weft_attn_run *run)
{
    tasks *q = work_tasks(run);
    dropout drop = dropout_of(d, io->drop_word3);
#pragma omp parallel num_threads(run->threads)
    {
        simd_mode mode = simd_enter();
        int me = weft_attn_thread();
        bwd_buffers b;
        b.dropout = &drop;
        task t;
        tiles_enter();
        backward_carve(&b, d, work_of_thread(run, thread_bytes(d), me));
        while (take(q, &t, d, pairs, n, backward_tasks, run, me))
            backward_task(&b, d, io, &t, &q->slots[me], run, me);
        tiles_leave();
        simd_leave(mode);
    }
}

void weft_attn_fill_amx(weft_attn_ops *ops, weft_prec prec)
{
    weft_attn_fill_avx512(ops, prec);
    ops->name = "amx 128x128";
    ops->forward = forward;
    ops->backward = backward;
    ops->work_bytes = work_bytes;
}
_Static_assert(LANES == 128 && KEYS == 128, "the table's name states the tile");
