/* profile_rates.c — how fast this rank computes: attention, matrix products, and what touches every element once.
 *
 * A figure is the median of some repetitions: a step is long, and meets the disturbances that a lucky repetition
 * escapes. Where the time of a kernel is a sum of terms, as many shapes are timed as there are terms, such that each
 * weighs in one of them:
 *   a call      s + work / rate                               large work and, nearly all s, few rows
 *   attention   pairs (2 (D + Dv) / rate + of a pair)         a large head and a small one
 *               and of a row in a block of keys               many keys and few
 *               and keys in vain at an edge of the mask       a causal mask and a full one
 *   products    operations / rate + bytes / their rate        a square and a layer's thin matrices */
#include "cli/profile_rates.h"

#include <math.h>

enum { HEADS = 2, HEAD = 128, HEAD_SMALL = 32, ROWS_MAX = 4096, ROWS_SMALL = 8 };
enum { HEAD_EDGE = 64, ROWS_EDGE = 1024, KEYS_FEW = 128 };
enum { SIDE = 256, SIDE_MAX = 2048, SIDE_SMALL = 16, THIN_ROWS = 4096, THIN_OUT = 1024, THIN_IN = 256 };
static const double long_enough = 0.05;    /* seconds that a measurement of large work should take, */
static const double short_enough = 0.002;  /* one of many small pieces, */
static const double edge_enough = 0.05;    /* and one of two that are compared: some slices of a shared core */

void weft_rates_took(weft_series *s, double seconds)
{
    if (s->n < WEFT_BENCH_REPEATS_MAX) s->seconds[s->n++] = seconds;
}

double weft_rates_median(weft_series *s) { return s->n > 0 ? weft_sorted(s->seconds, s->n) : 0; }

static weft_status make_rows(weft_rates *b, weft_dtype t, int64_t n, void **out)
{
    return weft_bench_numbers(b->arena, t, n, "bench rows", out);
}

/* t = start + work / rate, where the work of the small piece is done at the rate of the large one. */
static double start_of(double rate, double small_work, double small_seconds)
{
    return fmax(0, small_seconds - small_work / rate);
}

/* All ranks stop together. */
static weft_status all_took(weft_rates *b, double seconds, bool *enough)
{
    double e = seconds >= long_enough;
    WEFT_TRY(weft_all_reduce(b->comm, &e, 1, WEFT_F64, WEFT_MIN));
    *enough = e > 0;
    return WEFT_OK;
}

/* ---- attention --------------------------------------------------------------------------------------------- */

typedef struct attention { /* n rows */
    weft_attn_desc desc;
    weft_attn_run run;
    weft_attn_fwd_io forward;
    weft_attn_bwd_io backward;
    weft_attn_pair pair;
    int64_t n;
} attention;

/* Visible keys of a row, on average. */
static double keys_of(const attention *a) { return (double)weft_attn_area(&a->desc.mask, &a->pair) / (double)a->n; }
/* Pairs, with what rows take besides. */
static double pairs_of(const attention *a, double row_keys) { return HEADS * (double)a->n * (keys_of(a) + row_keys); }
static double operations(const attention *a, double row_keys) /* of forward */
{
    return pairs_of(a, row_keys) * 2 * (a->desc.D + a->desc.Dv);
}

static weft_status prepare(weft_rates *b, weft_prec prec, int head, int64_t n, attention *a)
{
    weft_dtype c = weft_prec_compute(prec), r = weft_prec_real(prec);
    int64_t ld = HEADS * head;
    void *x[4], *sum[4], *row[3], *work;
    *a = (attention){.desc = {.H = HEADS, .Hkv = HEADS, .D = head, .Dv = head, .group = 1,
                              .scale = 1 / sqrt((double)head), .mask = {false, -1, -1, 0}},
                     .run = {.threads = b->ctx->threads}, .n = n,
                     .pair = {.nq = n, .q_run = 1, .q_step = 1, .nk = n, .k_run = 1, .k_step = 1}};
    for (int i = 0; i < 4; i++) WEFT_TRY(make_rows(b, c, n * ld, &x[i]));
    for (int i = 0; i < 4; i++)
        WEFT_TRY(weft_arena_zalloc(b->arena, n * ld, weft_dtype_size(r), "bench rows", &sum[i]));
    for (int i = 0; i < 3; i++)
        WEFT_TRY(weft_arena_zalloc(b->arena, n * HEADS, weft_dtype_size(r), "bench rows", &row[i]));
    WEFT_TRY(weft_arena_alloc(b->arena, (int64_t)b->kern.op[prec].attn.work_bytes(&a->desc, a->run.threads), 1,
                              "bench work", &work));
    a->run.work = work;
    a->forward = (weft_attn_fwd_io){.q = x[0], .k = x[1], .v = x[2], .q_ld = ld, .k_ld = ld, .v_ld = ld, .acc = sum[0],
                                    .m = row[0], .l = row[1]};
    a->backward = (weft_attn_bwd_io){.q = x[0],
                                     .k = x[1],
                                     .v = x[2],
                                     .dout = x[3],
                                     .q_ld = ld,
                                     .k_ld = ld,
                                     .v_ld = ld,
                                     .dout_ld = ld,
                                     .m = row[0],
                                     .l = row[1],
                                     .delta = row[2],
                                     .dq = sum[1],
                                     .dk = sum[2],
                                     .dv = sum[3]};
    return WEFT_OK;
}

typedef struct timed { double operations, pairs, seconds[2]; } timed; /* forward, backward */

static void run_once(weft_rates *b, weft_prec prec, attention *a, weft_series took[2])
{
    const weft_attn_ops *ops = &b->kern.op[prec].attn;
    ops->start(&a->desc, a->forward.acc, a->forward.m, a->forward.l, a->n);
    double begin = weft_rates_now(b);
    ops->forward(&a->desc, &a->forward, &a->pair, 1, &a->run);
    double middle = weft_rates_now(b);
    ops->backward(&a->desc, &a->backward, &a->pair, 1, &a->run);
    weft_rates_took(&took[0], middle - begin);
    weft_rates_took(&took[1], weft_rates_now(b) - middle);
}

static weft_status attention_of(weft_rates *b, weft_prec prec, int head, int64_t n, double row_keys,
                                timed *out)
{
    attention a;
    weft_series took[2] = {0};
    weft_mark mark = weft_arena_mark(b->arena);
    WEFT_TRY(weft_agree(b->comm, prepare(b, prec, head, n, &a)));
    for (int i = 0; i < b->repeats; i++) run_once(b, prec, &a, took);
    *out = (timed){operations(&a, row_keys), pairs_of(&a, row_keys),
                   {weft_rates_median(&took[0]), weft_rates_median(&took[1])}};
    weft_arena_release(b->arena, mark);
    return WEFT_OK;
}

/* Twice the rows until it takes long enough. */
static weft_status attention_large(weft_rates *b, weft_prec prec, int head, double row_keys, timed *out)
{
    bool enough = false;
    for (int64_t n = 128; n <= ROWS_MAX && !enough; n *= 2) {
        WEFT_TRY(attention_of(b, prec, head, n, row_keys, out));
        WEFT_TRY(all_took(b, out->seconds[0], &enough));
    }
    return WEFT_OK;
}

/* One forward call, of as many as take `least` seconds. */
static double forward_call(weft_rates *b, weft_prec prec, attention *a, double least)
{
    const weft_attn_ops *ops = &b->kern.op[prec].attn;
    double begin = weft_rates_now(b), took;
    int64_t calls = 0;
    do {
        ops->start(&a->desc, a->forward.acc, a->forward.m, a->forward.l, a->n);
        ops->forward(&a->desc, &a->forward, &a->pair, 1, &a->run);
        took = weft_rates_now(b) - begin;
        calls++;
    } while (took < least);
    return took / (double)calls;
}

/* Seconds of one forward call of few rows, and their operations. */
static weft_status attention_small(weft_rates *b, weft_prec prec, double row_keys, double *work, double *seconds)
{
    weft_mark mark = weft_arena_mark(b->arena);
    attention a;
    weft_series took = {0};
    WEFT_TRY(weft_agree(b->comm, prepare(b, prec, HEAD, ROWS_SMALL, &a)));
    for (int i = 0; i < b->repeats; i++) weft_rates_took(&took, forward_call(b, prec, &a, short_enough));
    *work = operations(&a, row_keys), *seconds = weft_rates_median(&took);
    weft_arena_release(b->arena, mark);
    return WEFT_OK;
}

/* One forward and one backward call with so many keys, of as many as take long enough. */
static double both_calls(weft_rates *b, attention *a, int64_t keys, bool causal)
{
    const weft_attn_ops *ops = &b->kern.op[WEFT_PREC_F32].attn;
    double begin = weft_rates_now(b), took;
    int64_t calls = 0;
    a->pair.nk = keys, a->desc.mask.causal = causal;
    do {
        forward_call(b, WEFT_PREC_F32, a, 0);
        ops->backward(&a->desc, &a->backward, &a->pair, 1, &a->run);
        took = weft_rates_now(b) - begin;
        calls++;
    } while (took < edge_enough);
    return took / (double)calls;
}

/* With k keys a row takes t(k) = (k + of a row) / rate: few and many of them give both. What a causal mask takes beyond
 * that are keys in vain. In turns, because clocks drift; both directions together, as steps run them. */
static weft_status attention_rows(weft_rates *b, double *row_keys, double *edge_keys)
{
    weft_mark mark = weft_arena_mark(b->arena);
    attention a;
    weft_series row = {0}, edge = {0};
    WEFT_TRY(weft_agree(b->comm, prepare(b, WEFT_PREC_F32, HEAD_EDGE, ROWS_EDGE, &a)));
    for (int i = 0; i < b->repeats; i++) {
        const double few = both_calls(b, &a, KEYS_FEW, false), many = both_calls(b, &a, ROWS_EDGE, false);
        const double causal = both_calls(b, &a, ROWS_EDGE, true);
        const double of_key = (many - few) / (ROWS_EDGE - KEYS_FEW), of_row = fmax(0, few / of_key - KEYS_FEW);
        if (!(of_key > 0)) continue; /* the core was not ours */
        weft_rates_took(&row, of_row);
        weft_rates_took(&edge, fmax(0, causal / of_key - of_row - keys_of(&a)));
    }
    *row_keys = weft_rates_median(&row), *edge_keys = weft_rates_median(&edge);
    weft_arena_release(b->arena, mark);
    return WEFT_OK;
}

/* ---- attention under an exchange ------------------------------------------------------------------------------ */

static void move_on(void *world) { weft_progress(world); }

static double forward_calls(weft_rates *b, attention *a, int64_t n)
{
    const double begin = weft_rates_now(b);
    for (int64_t i = 0; i < n; i++) forward_call(b, WEFT_PREC_F32, a, 0);
    return weft_rates_now(b) - begin;
}

/* One after the other, then both at once: computing of about twice the time of the exchange. */
static weft_status unhidden_once(weft_rates *b, attention *a, size_t bytes, const char *from, char *to, weft_req *req,
                                 weft_series *share)
{
    WEFT_TRY(weft_barrier(b->comm));
    double begin = weft_rates_now(b);
    WEFT_TRY(weft_rates_exchange(b, 1, bytes, from, to, req));
    const double moving = weft_rates_now(b) - begin;
    const int64_t calls = 1 + (int64_t)(2 * moving / fmax(forward_call(b, WEFT_PREC_F32, a, 0), moving / 1000));
    const double computing = forward_calls(b, a, calls);
    WEFT_TRY(weft_barrier(b->comm));
    begin = weft_rates_now(b);
    WEFT_TRY(weft_rates_start(b, 1, bytes, from, to, req));
    forward_calls(b, a, calls);
    WEFT_TRY(weft_wait_all(req, 2));
    weft_rates_took(share, fmin(1, fmax(0, (weft_rates_now(b) - begin - computing) / moving)));
    return WEFT_OK;
}

weft_status weft_rates_unhidden(weft_rates *b, size_t bytes, const char *from, char *to, weft_req *req, double *share)
{
    weft_mark mark = weft_arena_mark(b->arena);
    attention a;
    weft_series all = {0};
    WEFT_TRY(weft_agree(b->comm, prepare(b, WEFT_PREC_F32, HEAD, ROWS_EDGE, &a)));
    a.run.poll = move_on, a.run.poll_ud = weft_comm_world(b->comm);
    for (int i = 0; i < b->repeats; i++) WEFT_TRY(unhidden_once(b, &a, bytes, from, to, req, &all));
    *share = weft_rates_median(&all);
    weft_arena_release(b->arena, mark);
    return WEFT_OK;
}

/* ---- attention alone -------------------------------------------------------------------------------------------- */

/* Of a pair: operations / rate + x, by two sizes of heads. A small head that is no slower than a large one, for each
 * operation, leaves x at 0, and the large one has the rate. */
static void solve_attention(const timed *large, const timed *small, double *rate, double *of_pair)
{
    const double a = large->operations / large->pairs, b = small->operations / small->pairs;
    const double ta = large->seconds[0] / large->pairs, tb = small->seconds[0] / small->pairs;
    *rate = large->operations / large->seconds[0], *of_pair = 0;
    if (!(ta > tb && tb * a > ta * b)) return;
    *rate = (a - b) / (ta - tb);
    *of_pair = tb - b / *rate;
}

static weft_status measure_attention(weft_rates *b, weft_profile *p)
{
    double seconds[2] = {0, 0};
    WEFT_TRY(attention_rows(b, &p->attention_row_keys, &p->attention_edge_keys));
    for (int i = 0; i < WEFT_PREC_COUNT; i++) {
        timed large, little;
        double work, took;
        WEFT_TRY(attention_large(b, (weft_prec)i, HEAD, p->attention_row_keys, &large));
        WEFT_TRY(attention_large(b, (weft_prec)i, HEAD_SMALL, p->attention_row_keys, &little));
        WEFT_TRY(attention_small(b, (weft_prec)i, p->attention_row_keys, &work, &took));
        solve_attention(&large, &little, &p->flops_per_second[i], &p->attention_pair_seconds[i]);
        if (i == WEFT_PREC_F64) continue; /* the reference kernels have figures of their own */
        p->attention_seconds = fmax(p->attention_seconds, start_of(p->flops_per_second[i], work, took));
        for (int k = 0; k < 2; k++) seconds[k] += large.seconds[k] + little.seconds[k];
    }
    p->backward_factor = seconds[1] / seconds[0];
    return WEFT_OK;
}

/* ---- products ---------------------------------------------------------------------------------------------- */

typedef struct shape { int64_t M, N, K; bool trans_a, trans_b; } shape;

static double product_operations(const shape *x) { return 2.0 * (double)x->M * (double)x->N * (double)x->K; }
static double product_elements(const shape *x)
{
    return (double)x->M * (double)x->K + (double)x->K * (double)x->N + (double)x->M * (double)x->N;
}

static weft_status product(weft_rates *b, weft_prec prec, const shape *s, double enough, double *seconds)
{
    const weft_dtype t = weft_prec_compute(prec);
    void *x[3];
    weft_series all = {0};
    weft_mark mark = weft_arena_mark(b->arena);
    WEFT_TRY(make_rows(b, t, s->M * s->K, &x[0]));
    WEFT_TRY(make_rows(b, t, s->K * s->N, &x[1]));
    WEFT_TRY(make_rows(b, t, s->M * s->N, &x[2]));
    const weft_gemm_args args = {.ab = t, .c = t, .trans_a = s->trans_a, .trans_b = s->trans_b, .M = s->M, .N = s->N,
                                 .K = s->K, .A = x[0], .lda = s->trans_a ? s->M : s->K, .B = x[1],
                                 .ldb = s->trans_b ? s->K : s->N, .C = x[2], .ldc = s->N};
    WEFT_TRY(weft_gemm_run(b->gemm, &args, NULL)); /* what is made once for a shape */
    for (int i = 0; i < b->repeats; i++) {
        double begin = weft_rates_now(b), took;
        int64_t calls = 0;
        do {
            WEFT_TRY(weft_gemm_run(b->gemm, &args, NULL));
            took = weft_rates_now(b) - begin;
            calls++;
        } while (took < enough);
        weft_rates_took(&all, took / (double)calls);
    }
    *seconds = weft_rates_median(&all);
    weft_arena_release(b->arena, mark);
    return WEFT_OK;
}

/* Of square matrices, of which one is read transposed, as a forward pass does. */
static shape square(int64_t n) { return (shape){n, n, n, false, true}; }

/* The largest square: twice the side until one takes long enough. */
static weft_status product_rate(weft_rates *b, weft_prec prec, double *rate)
{
    bool enough = false;
    for (int64_t n = SIDE; n <= SIDE_MAX && !enough; n *= 2) {
        const shape s = square(n);
        double seconds;
        WEFT_TRY(weft_agree(b->comm, product(b, prec, &s, 0, &seconds)));
        WEFT_TRY(all_took(b, seconds, &enough));
        *rate = product_operations(&s) / seconds;
    }
    return WEFT_OK;
}

/* The three products of a layer's matrix, a few elements of whose rows meet a few operations: what they take beyond
 * their operations. */
static weft_status product_bytes(weft_rates *b, weft_prec prec, double rate, double *bytes, double *seconds)
{
    static const shape thin[] = {{THIN_ROWS, THIN_OUT, THIN_IN, false, true},  /* y = x W^T */
                                 {THIN_ROWS, THIN_IN, THIN_OUT, false, false}, /* dx = dy W */
                                 {THIN_OUT, THIN_IN, THIN_ROWS, true, false}}; /* dW = dy^T x */
    for (size_t i = 0; i < sizeof thin / sizeof *thin; i++) {
        double took;
        WEFT_TRY(weft_agree(b->comm, product(b, prec, &thin[i], 0, &took)));
        *seconds += took - product_operations(&thin[i]) / rate;
        *bytes += product_elements(&thin[i]) * (double)weft_dtype_size(weft_prec_compute(prec));
    }
    return WEFT_OK;
}

/* Bytes in fp32 and in bf16, which move alike; where they take no time beside the operations they are hidden. */
static weft_status measure_products(weft_rates *b, weft_profile *p)
{
    double bytes = 0, seconds = 0;
    for (int i = 0; i < WEFT_PREC_COUNT; i++) {
        const shape tiny = square(SIDE_SMALL);
        double *rate = &p->product_flops_per_second[i], small;
        WEFT_TRY(product_rate(b, (weft_prec)i, rate));
        if (i == WEFT_PREC_F64) continue;
        WEFT_TRY(weft_agree(b->comm, product(b, (weft_prec)i, &tiny, short_enough, &small)));
        p->product_seconds = fmax(p->product_seconds, start_of(*rate, product_operations(&tiny), small));
        if (i != WEFT_PREC_F16) WEFT_TRY(product_bytes(b, (weft_prec)i, *rate, &bytes, &seconds));
    }
    p->product_bytes_per_second = seconds > 0 ? bytes / seconds : 0;
    return WEFT_OK;
}

/* ---- elements ---------------------------------------------------------------------------------------------- */

enum { WIDTH = 1024, ELEMENTS = 4 << 20, REALS = 4, COMPUTES = 5 }; /* 16 MiB an array in fp32 */

typedef struct elements {
    weft_prec prec;
    void *r[REALS], *c[COMPUTES]; /* [ELEMENTS] (R), (C) */
    void *w, *dw, *rstd, *work;
} elements;

static weft_status make_elements(weft_rates *b, weft_prec prec, elements *e)
{
    const weft_dtype R = weft_prec_real(prec), C = weft_prec_compute(prec);
    const int64_t rows = ELEMENTS / WIDTH;
    *e = (elements){.prec = prec};
    for (int i = 0; i < 2; i++) WEFT_TRY(make_rows(b, R, ELEMENTS, &e->r[i]));
    for (int i = 2; i < REALS; i++) /* AdamW's moments */
        WEFT_TRY(weft_arena_zalloc(b->arena, ELEMENTS, weft_dtype_size(R), "bench rows", &e->r[i]));
    for (int i = 0; i < COMPUTES; i++) WEFT_TRY(make_rows(b, C, ELEMENTS, &e->c[i]));
    WEFT_TRY(make_rows(b, R, WIDTH, &e->w));
    WEFT_TRY(make_rows(b, R, WIDTH, &e->dw));
    WEFT_TRY(make_rows(b, R, rows, &e->rstd));
    return weft_arena_alloc(b->arena, (int64_t)weft_norm_work_bytes(prec, WIDTH, b->ctx->threads), 1, "bench work",
                            &e->work);
}

/* The kernels between the products of a step: norm, gate, residual, optimizer. Returns the bytes that they read and
 * write. Nothing is read that an earlier repetition has written in its place: such numbers fade to denormal ones, with
 * which processors take ten times as long. */
static double touch_elements(weft_rates *b, const elements *e)
{
    const weft_kern_ops *k = &b->kern.op[e->prec];
    const int64_t rows = ELEMENTS / WIDTH, n = WIDTH;
    const int threads = b->ctx->threads;
    const double R = (double)weft_dtype_size(weft_prec_real(e->prec)),
                 C = (double)weft_dtype_size(weft_prec_compute(e->prec));
    const weft_adamw_args adamw = {.lr = 1e-3, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .weight_decay = 0.1,
                                   .c1 = 0.1, .c2 = 0.05, .gscale = 1};
    k->rmsnorm_fwd(e->c[0], n, e->rstd, e->r[0], n, e->w, rows, n, 1e-5, threads);
    k->rmsnorm_bwd(e->r[1], n, e->dw, e->c[0], n, e->r[0], n, e->w, e->rstd, rows, n, e->work, threads);
    k->swiglu_fwd(e->c[0], n, e->c[1], n, e->c[2], n, rows, n, threads);
    k->swiglu_bwd(e->c[3], n, e->c[4], n, e->c[0], n, e->c[1], n, e->c[2], n, rows, n, threads);
    k->add_real(e->r[1], n, e->c[2], n, rows, n, threads);
    k->adamw(e->r[0], e->r[1], e->r[2], e->r[3], ELEMENTS, &adamw, threads);
    return ELEMENTS * ((R + C) + (3 * R + C) + 3 * C + 5 * C + (2 * R + C) + 7 * R);
}

/* In fp32 and in bf16, whose bytes move alike. */
static weft_status measure_elements(weft_rates *b, weft_profile *p)
{
    static const weft_prec precs[] = {WEFT_PREC_F32, WEFT_PREC_BF16};
    double bytes = 0, seconds = 0;
    for (size_t i = 0; i < sizeof precs / sizeof *precs; i++) {
        weft_mark mark = weft_arena_mark(b->arena);
        elements e;
        weft_series took = {0};
        double moved = 0;
        WEFT_TRY(weft_agree(b->comm, make_elements(b, precs[i], &e)));
        for (int k = 0; k < b->repeats; k++) {
            double begin = weft_rates_now(b);
            moved = touch_elements(b, &e);
            weft_rates_took(&took, weft_rates_now(b) - begin);
        }
        weft_arena_release(b->arena, mark);
        bytes += moved, seconds += weft_rates_median(&took);
    }
    p->element_bytes_per_second = bytes / seconds;
    return WEFT_OK;
}

/* ---- all of it ---------------------------------------------------------------------------------------------- */

weft_status weft_rates_kernels(weft_rates *b, weft_profile *p)
{
    WEFT_TRY(measure_attention(b, p));
    WEFT_TRY(measure_products(b, p));
    return measure_elements(b, p);
}
