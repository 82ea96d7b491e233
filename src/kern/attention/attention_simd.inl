/* attention_simd.inl — the fast attention kernels, from one source for every instruction set: included by
 * attention.avx2.c and attention.avx512.c after their SIMD vocabulary. fp32, bf16 and fp16 operands; all
 * arithmetic and state in fp32. */
#include "kern/attention/attention_impl.h"

#include <math.h>
#include <sched.h>
#include <stdatomic.h>
#include <string.h>

#include "kern/attention/simd_gemm.inl"
#include "kern/attention/simd_lanes.inl"
#include "kern/attention/simd_pack.inl"
#include "kern/attention/simd_drop.inl"
#include "kern/attention/simd_tasks.inl"
#include "kern/attention/simd_forward.inl"
#include "kern/attention/simd_backward.inl"

static size_t thread_bytes(const weft_attn_desc *d)
{
    size_t f = forward_floats(d), b = backward_floats(d);
    return ((f > b ? f : b) + 15) / 16 * 16 * sizeof(float);
}

static size_t work_bytes(const weft_attn_desc *d, int threads) { return work_size(threads, thread_bytes(d)); }

static float *work_floats(const weft_attn_run *run, const weft_attn_desc *d, int me)
{
    return (float *)(void *)work_of_thread(run, thread_bytes(d), me);
}

static void start(const weft_attn_desc *d, void *acc, void *m, void *l, int64_t rows)
{
    memset(acc, 0, (size_t)(rows * d->H * d->Dv) * sizeof(float));
    memset(l, 0, (size_t)(rows * d->H) * sizeof(float));
    for (int64_t i = 0; i < rows * d->H; i++) ((float *)m)[i] = -INFINITY;
}

static void forward_work(const call *x, const task *t, slot *mine, int me)
{
    fwd_buffers b;
    (void)mine; /* of the backward */
    b.dropout = &x->drop;
    forward_carve(&b, x->d, work_floats(x->run, x->d, me));
    forward_task(&b, x->d, x->io, t, x->c, x->run, me);
}

static void forward(weft_prec c, const weft_attn_desc *d, const weft_attn_fwd_io *io, const weft_attn_pair *pairs,
                    int64_t n, const weft_attn_run *run)
{
    const call x = {c, d, io, run, dropout_of(d, io->drop_word3)};
    run_tasks(&x, pairs, n, forward_tasks, forward_work);
}

static void backward_work(const call *x, const task *t, slot *mine, int me)
{
    bwd_buffers b;
    b.dropout = &x->drop;
    backward_carve(&b, x->d, work_floats(x->run, x->d, me));
    backward_task(&b, x->d, x->io, t, mine, x->c, x->run, me);
}

static void backward(weft_prec c, const weft_attn_desc *d, const weft_attn_bwd_io *io, const weft_attn_pair *pairs,
                     int64_t n, const weft_attn_run *run)
{
    const call x = {c, d, io, run, dropout_of(d, io->drop_word3)};
    run_tasks(&x, pairs, n, backward_tasks, backward_work);
}

/* Of m and l as they are stored, so that whoever has them reports the same. */
static float log_sum(float m, float l) { return l == 0 ? -INFINITY : (float)((double)m + log((double)l)); }

static void lse_of(void *lse, const void *m, const void *l, int64_t n)
{
    for (int64_t i = 0; i < n; i++) ((float *)lse)[i] = log_sum(((const float *)m)[i], ((const float *)l)[i]);
}

/* m, l with the sink; returns what the accumulator is multiplied by. Double: one rounding per result. */
static float close_row(float *m, float *l, float *lse, const float *sink)
{
    double top = *m, sum = *l, shrink = 1;
    if (sink && *sink != -INFINITY) {
        if (!(top >= (double)*sink)) top = (double)*sink;
        shrink = exp((double)*m - top);
        sum = sum * shrink + exp((double)*sink - top);
    }
    *m = (float)top;
    *l = (float)sum;
    if (lse) *lse = log_sum(*m, *l);
    return sum == 0 ? 0 : (float)(shrink / sum);
}

static void finish(weft_prec c, const weft_attn_desc *d, void *o, int64_t o_ld, void *lse, const void *acc, void *m,
                   void *l, const void *sinks, int64_t rows, int threads)
{
    (void)threads; /* named in the pragma only */
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t i = 0; i < rows; i++)
        for (int h = 0; h < d->H; h++) {
            int64_t at = i * d->H + h;
            float f = close_row((float *)m + at, (float *)l + at, lse ? (float *)lse + at : NULL,
                                sinks ? (const float *)sinks + h : NULL);
            row_out(o, i * o_ld + (int64_t)h * d->Dv, c, (const float *)acc + at * d->Dv, d->Dv, vset(f));
        }
}

static float row_dot(weft_prec c, const void *a, int64_t a_at, const void *b, int64_t b_at, int n)
{
    V sum = vzero();
    for (int x = 0; x < n; x += VLEN)
        sum = vfma(vector_in(a, a_at + x, c, n - x), vector_in(b, b_at + x, c, n - x), sum);
    return vsum(sum);
}

static void delta(weft_prec c, const weft_attn_desc *d, void *out, void *dsinks, const void *sinks, const void *dout,
                  int64_t dout_ld, const void *o, int64_t o_ld, const void *m, const void *l, int64_t rows, int threads)
{
    (void)threads;
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t i = 0; i < rows; i++)
        for (int h = 0; h < d->H; h++) {
            int64_t x = (int64_t)h * d->Dv;
            ((float *)out)[i * d->H + h] = row_dot(c, dout, i * dout_ld + x, o, i * o_ld + x, d->Dv);
        }
    if (!sinks || !dsinks) return;
    /* a head's sum belongs to one thread: one order */
#pragma omp parallel for num_threads(threads) schedule(dynamic, 1)
    for (int h = 0; h < d->H; h++) {
        double sum = 0;
        for (int64_t at = h; at < rows * d->H; at += d->H) {
            double li = (double)((const float *)l)[at];
            if (li != 0)
                sum -= exp((double)((const float *)sinks)[h] - (double)((const float *)m)[at]) / li *
                       (double)((float *)out)[at];
        }
        ((float *)dsinks)[h] += (float)sum;
    }
}

/* The table's functions of one precision. */
#define PRECISION(P, p) \
    static void forward_##p(const weft_attn_desc *d, const weft_attn_fwd_io *io, const weft_attn_pair *pairs, \
                            int64_t n, const weft_attn_run *run) \
    { \
        forward(P, d, io, pairs, n, run); \
    } \
    static void finish_##p(const weft_attn_desc *d, void *o, int64_t o_ld, void *lse, const void *acc, void *m, \
                           void *l, const void *sinks, int64_t rows, int threads) \
    { \
        finish(P, d, o, o_ld, lse, acc, m, l, sinks, rows, threads); \
    } \
    static void delta_##p(const weft_attn_desc *d, void *out, void *dsinks, const void *sinks, const void *dout, \
                          int64_t dout_ld, const void *o, int64_t o_ld, const void *m, const void *l, int64_t rows, \
                          int threads) \
    { \
        delta(P, d, out, dsinks, sinks, dout, dout_ld, o, o_ld, m, l, rows, threads); \
    } \
    static void backward_##p(const weft_attn_desc *d, const weft_attn_bwd_io *io, const weft_attn_pair *pairs, \
                             int64_t n, const weft_attn_run *run) \
    { \
        backward(P, d, io, pairs, n, run); \
    } \
    static const weft_attn_ops ops_##p = {SIMD_ISA " 64x120", start,   forward_##p, finish_##p, \
                                          delta_##p,          backward_##p, work_bytes, lse_of};
PRECISION(WEFT_PREC_F32, f32)
PRECISION(WEFT_PREC_BF16, bf16)
PRECISION(WEFT_PREC_F16, f16)
#undef PRECISION
_Static_assert(LANES == 64 && KEYS == 120, "the table's name states the tile");

void SIMD_NAME(weft_attn_fill)(weft_attn_ops *ops, weft_prec prec)
{
    if (prec == WEFT_PREC_F32) *ops = ops_f32;
    if (prec == WEFT_PREC_BF16) *ops = ops_bf16;
    if (prec == WEFT_PREC_F16) *ops = ops_f16;
}
