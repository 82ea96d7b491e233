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

static void forward_work(const call *x, const task *t, slot *mine, int me)
{
    fwd_buffers b;
    (void)mine; /* of the backward */
    b.dropout = &x->drop;
    forward_carve(&b, x->d, work_of_thread(x->run, thread_bytes(x->d), me));
    tiles_enter();
    forward_task(&b, x->d, x->io, t, x->run, me);
    tiles_leave();
}

static void forward(const weft_attn_desc *d, const weft_attn_fwd_io *io, const weft_attn_pair *pairs, int64_t n,
                    const weft_attn_run *run)
{
    const call x = {WEFT_PREC_BF16, d, io, run, dropout_of(d, io->drop_word3)};
    run_tasks(&x, pairs, n, forward_tasks, forward_work);
}

static void backward_work(const call *x, const task *t, slot *mine, int me)
{
    bwd_buffers b;
    b.dropout = &x->drop;
    backward_carve(&b, x->d, work_of_thread(x->run, thread_bytes(x->d), me));
    tiles_enter();
    backward_task(&b, x->d, x->io, t, mine, x->run, me);
    tiles_leave();
}

static void backward(const weft_attn_desc *d, const weft_attn_bwd_io *io, const weft_attn_pair *pairs, int64_t n,
                     const weft_attn_run *run)
{
    const call x = {WEFT_PREC_BF16, d, io, run, dropout_of(d, io->drop_word3)};
    run_tasks(&x, pairs, n, backward_tasks, backward_work);
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
