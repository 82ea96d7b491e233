/* charge.c — kernels that compute nothing and touch no memory: they only charge the time that the work would take to
 * a clock. With them the simulator runs the real context-parallel code at sizes that no machine here has.
 *
 * Attention: visible pairs x H x 2 (D + Dv) operations forward, at the rate of the precision, and what each pair takes
 * besides; where a mask cuts a block, every row of it computes a few keys in vain, and each row takes as long as some
 * keys in each block. backward_factor times as long backward. Copies, sums and the like: bytes read and written, at the
 * rate of copies. Not charged, because they are O(rows) where attention is O(rows^2): starting and finishing a row's
 * state, delta.
 * Operations of a model outside attention have no such form; their entries are NULL. */
#include "kern/attention/attention_impl.h"
#include "kern/kern_impl.h"

#include <math.h>
#include <string.h>

static void charge(const weft_attn_run *run, double seconds)
{
    const weft_clock *clock = run->charge->clock;
    if (clock->charge) clock->charge(clock->ud, seconds);
}

/* ---- attention ------------------------------------------------------------------------------------------ */

/* Edges of the mask that cut a block: where queries begin to see, and where they end. */
static int edges_in(const weft_mask *mask, const weft_attn_pair *pair, int64_t all)
{
    if (mask->left < 0) return 1;
    const weft_mask begin = {false, mask->left, -1, 0}, end = {mask->causal, -1, mask->right, mask->prefix};
    return (weft_attn_area(&begin, pair) < all) + (weft_attn_area(&end, pair) < all);
}

/* Visible pairs and those that are computed in vain: rows of a block that the mask cuts run over its edges, as far as
 * the block goes. */
static double keys_of(const weft_attn_run *run, const weft_mask *mask, const weft_attn_pair *pair)
{
    const int64_t area = weft_attn_area(mask, pair), all = pair->nq * pair->nk; /* of one block's rows */
    if (area == 0 || area == all || !(run->charge->edge_keys > 0)) return (double)area;
    const double in_vain = (double)pair->nq * run->charge->edge_keys;
    return (double)area + fmin(edges_in(mask, pair, all) * in_vain, (double)(all - area));
}

/* n pairs that see the same queries, whose state stays where it is from one to the next. */
static double computed(const weft_attn_run *run, const weft_mask *mask, const weft_attn_pair *pairs, int64_t n)
{
    double keys = 0;
    for (int64_t i = 0; i < n; i++) keys += keys_of(run, mask, &pairs[i]);
    return keys > 0 ? keys + (double)pairs->nq * run->charge->row_keys : 0;
}

static void work(const weft_attn_desc *d, const weft_attn_run *run, weft_prec p, double keys)
{
    const double one = 2.0 * (d->D + d->Dv) / run->charge->flops_per_second[p] + run->charge->pair_seconds[p];
    charge(run, keys * d->H * one);
    if (run->poll) run->poll(run->poll_ud);
}

static void forward(const weft_attn_desc *d, const weft_attn_pair *pairs, int64_t n, const weft_attn_run *run,
                    weft_prec p)
{
    double keys = 0;
    for (int64_t i = 0, together; i < n; i += together) {
        together = weft_attn_run_of(&pairs[i], n - i);
        keys += computed(run, &d->mask, &pairs[i], together);
    }
    work(d, run, p, keys);
}

static void backward(const weft_attn_desc *d, const weft_attn_pair *pairs, int64_t n, const weft_attn_run *run,
                     weft_prec p)
{
    double keys = 0;
    for (int64_t i = 0; i < n; i++) keys += computed(run, &d->mask, &pairs[i], 1);
    work(d, run, p, run->charge->backward_factor * keys);
}

#define EACH_PRECISION(suffix, prec) \
    static void forward_##suffix(const weft_attn_desc *d, const weft_attn_fwd_io *io, const weft_attn_pair *pairs, \
                                 int64_t n, const weft_attn_run *run) \
    { \
        (void)io; \
        forward(d, pairs, n, run, prec); \
    } \
    static void backward_##suffix(const weft_attn_desc *d, const weft_attn_bwd_io *io, const weft_attn_pair *pairs, \
                                  int64_t n, const weft_attn_run *run) \
    { \
        (void)io; \
        backward(d, pairs, n, run, prec); \
    }
EACH_PRECISION(f64, WEFT_PREC_F64)
EACH_PRECISION(f32, WEFT_PREC_F32)
EACH_PRECISION(bf16, WEFT_PREC_BF16)
EACH_PRECISION(f16, WEFT_PREC_F16)
#undef EACH_PRECISION

static void start(const weft_attn_desc *d, void *acc, void *m, void *l, int64_t rows)
{
    (void)d, (void)acc, (void)m, (void)l, (void)rows;
}

static void finish(const weft_attn_desc *d, void *o, int64_t o_ld, void *lse, const void *acc, void *m, void *l,
                   const void *sinks, int64_t rows, int threads)
{
    (void)d, (void)o, (void)o_ld, (void)lse, (void)acc, (void)m, (void)l, (void)sinks, (void)rows, (void)threads;
}

static void delta(const weft_attn_desc *d, void *out, void *dsinks, const void *sinks, const void *dout,
                  int64_t dout_ld, const void *o, int64_t o_ld, const void *m, const void *l, int64_t rows, int threads)
{
    (void)d, (void)out, (void)dsinks, (void)sinks, (void)dout, (void)dout_ld, (void)o, (void)o_ld, (void)m, (void)l;
    (void)rows, (void)threads;
}

static size_t work_bytes(const weft_attn_desc *d, int threads)
{
    (void)d, (void)threads;
    return 0;
}

static void lse(void *out, const void *m, const void *l, int64_t n) { (void)out, (void)m, (void)l, (void)n; }

static const weft_attn_ops attention[WEFT_PREC_COUNT] = {
    [WEFT_PREC_F64] = {"charge", start, forward_f64, finish, delta, backward_f64, work_bytes, lse},
    [WEFT_PREC_F32] = {"charge", start, forward_f32, finish, delta, backward_f32, work_bytes, lse},
    [WEFT_PREC_BF16] = {"charge", start, forward_bf16, finish, delta, backward_bf16, work_bytes, lse},
    [WEFT_PREC_F16] = {"charge", start, forward_f16, finish, delta, backward_f16, work_bytes, lse},
};

/* ---- moving rows -------------------------------------------------------------------------------------------- */

/* The rate is of bytes that a copy moves, each of which is read and written. */
static void touched(const weft_attn_run *run, double bytes)
{
    charge(run, bytes / 2 / run->charge->memory_bytes_per_second);
}

static double row_bytes(const weft_rows *r, int64_t rows, int64_t n)
{
    return (double)rows * (double)n * (double)weft_dtype_size(r->type);
}

static void copy(void *dst, const weft_rows *to, const void *src, const weft_rows *from, int64_t rows, int64_t n,
                 const weft_attn_run *run)
{
    (void)dst, (void)src;
    touched(run, row_bytes(to, rows, n) + row_bytes(from, rows, n));
}

static void add(void *dst, const weft_rows *to, const void *src, const weft_rows *from, int64_t rows, int64_t n,
                const weft_attn_run *run)
{
    (void)dst, (void)src;
    touched(run, 2 * row_bytes(to, rows, n) + row_bytes(from, rows, n));
}

static void zero(void *dst, size_t bytes, const weft_attn_run *run)
{
    (void)dst;
    touched(run, (double)bytes);
}

static void f8_encode(void *stream, const weft_f8 *f, const void *src, const weft_rows *from, int64_t rows,
                      const weft_attn_run *run)
{
    int64_t n = (int64_t)f->heads * f->width;
    (void)stream, (void)src;
    touched(run, row_bytes(from, rows, n) + (double)rows * (double)n);
}

static void f8_decode(void *dst, const weft_rows *to, const void *stream, const weft_f8 *f, int64_t row0, int64_t rows,
                      const weft_attn_run *run)
{
    int64_t n = (int64_t)f->heads * f->width;
    (void)dst, (void)stream, (void)row0;
    touched(run, row_bytes(to, rows, n) + (double)rows * (double)n);
}

static const weft_move_ops move = {copy, add, zero, f8_encode, f8_decode};

/* ---- sums and conversions that are given no clock ---------------------------------------------------------- */

static void axpy(void *y, const void *x, double a, int64_t n, int threads)
{
    (void)y, (void)x, (void)a, (void)n, (void)threads;
}
static void convert(void *to, const void *from, int64_t n, int threads)
{
    (void)to, (void)from, (void)n, (void)threads;
}

weft_status weft_kern_init_charge(weft_kern *kern, const weft_charge *rates)
{
    for (int p = 0; p < WEFT_PREC_COUNT; p++)
        if (!(rates->flops_per_second[p] > 0))
            return weft_fail(WEFT_ERR_REFUSED,
                             "kernels that charge time: %g operations per second for %s; more than 0 is needed",
                             rates->flops_per_second[p], weft_prec_name((weft_prec)p));
    if (!(rates->backward_factor > 0) || !(rates->memory_bytes_per_second > 0))
        return weft_fail(WEFT_ERR_REFUSED,
                         "kernels that charge time: backward takes %g times as long, memory moves %g bytes per "
                         "second; both must be more than 0",
                         rates->backward_factor, rates->memory_bytes_per_second);
    memset(kern, 0, sizeof *kern);
    kern->isa = WEFT_ISA_REF;
    kern->charge = rates;
    for (int p = 0; p < WEFT_PREC_COUNT; p++) {
        weft_kern_ops *o = &kern->op[p];
        o->attn = attention[p];
        o->move = move;
        o->axpy = axpy;
        o->to_compute = o->to_real = convert;
    }
    return WEFT_OK;
}
