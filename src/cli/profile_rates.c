/* profile_rates.c — how fast this rank computes: attention, matrix products, and what touches every element once.
 *
 * A call costs something whatever its size, so two sizes are timed: with t = s + work / rate, they give the rate that
 * large work reaches, and s. The small one is small enough to be nearly all s. */
#include "cli/profile_rates.h"

enum { HEADS = 2, SIZE = 128, ROWS_MAX = 4096, ROWS_SMALL = 8, SIDE = 256, SIDE_MAX = 2048, SIDE_SMALL = 16 };
static const double long_enough = 0.05;    /* seconds that a measurement of large work should take, */
static const double short_enough = 0.002;  /* and one of many small pieces */

void weft_rates_best(double *least, double seconds)
{
    if (*least == 0 || seconds < *least) *least = seconds;
}

static weft_status make_rows(weft_rates *b, weft_dtype t, int64_t n, void **out)
{
    return weft_bench_numbers(b->arena, t, n, "bench rows", out);
}

typedef struct line { double rate, start; } line; /* t = start + work / rate */

static line solve(double work, double seconds, double small_work, double small_seconds)
{
    line l = {.rate = work / seconds};
    if (seconds > small_seconds && work > small_work) l.rate = (work - small_work) / (seconds - small_seconds);
    l.start = small_seconds - small_work / l.rate;
    if (l.start < 0) l.start = 0;
    return l;
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

typedef struct attention { /* a full mask over n rows */
    weft_attn_desc desc;
    weft_attn_run run;
    weft_attn_fwd_io forward;
    weft_attn_bwd_io backward;
    int64_t n;
    double seconds[2]; /* forward, backward */
} attention;

static double operations(int64_t n) { return 2.0 * (double)n * (double)n * HEADS * 2 * SIZE; } /* of forward */

static weft_status prepare(weft_rates *b, weft_prec prec, int64_t n, attention *a)
{
    weft_dtype c = weft_prec_compute(prec), r = weft_prec_real(prec);
    int64_t ld = HEADS * SIZE;
    void *x[4], *sum[4], *row[3], *work;
    *a = (attention){.desc = {.H = HEADS, .Hkv = HEADS, .D = SIZE, .Dv = SIZE, .group = 1, .scale = 0.088,
                              .mask = {false, -1, -1, 0}},
                     .run = {.threads = b->ctx->threads}, .n = n};
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

static const weft_attn_pair *pair_of(const attention *a, weft_attn_pair *pair)
{
    *pair = (weft_attn_pair){.nq = a->n, .q_run = 1, .q_step = 1, .nk = a->n, .k_run = 1, .k_step = 1};
    return pair;
}

static void run_once(weft_rates *b, weft_prec prec, attention *a)
{
    const weft_attn_ops *ops = &b->kern.op[prec].attn;
    weft_attn_pair pair;
    ops->start(&a->desc, a->forward.acc, a->forward.m, a->forward.l, a->n);
    double begin = weft_rates_now(b);
    ops->forward(&a->desc, &a->forward, pair_of(a, &pair), 1, &a->run);
    double middle = weft_rates_now(b);
    ops->backward(&a->desc, &a->backward, &pair, 1, &a->run);
    weft_rates_best(&a->seconds[0], middle - begin);
    weft_rates_best(&a->seconds[1], weft_rates_now(b) - middle);
}

/* Twice the rows until it takes long enough. */
static weft_status attention_large(weft_rates *b, weft_prec prec, attention *a)
{
    bool enough = false;
    for (int64_t n = 128; n <= ROWS_MAX && !enough; n *= 2) {
        weft_mark mark = weft_arena_mark(b->arena);
        WEFT_TRY(weft_agree(b->comm, prepare(b, prec, n, a)));
        for (int i = 0; i < b->repeats; i++) run_once(b, prec, a);
        weft_arena_release(b->arena, mark);
        WEFT_TRY(all_took(b, a->seconds[0], &enough));
    }
    return WEFT_OK;
}

/* Seconds of one forward call of few rows, of many one after the other. */
static weft_status attention_small(weft_rates *b, weft_prec prec, double *least)
{
    const weft_attn_ops *ops = &b->kern.op[prec].attn;
    weft_mark mark = weft_arena_mark(b->arena);
    weft_attn_pair pair;
    attention a;
    WEFT_TRY(weft_agree(b->comm, prepare(b, prec, ROWS_SMALL, &a)));
    for (int i = 0; i < b->repeats; i++) {
        double begin = weft_rates_now(b), took;
        int64_t calls = 0;
        do {
            ops->start(&a.desc, a.forward.acc, a.forward.m, a.forward.l, a.n);
            ops->forward(&a.desc, &a.forward, pair_of(&a, &pair), 1, &a.run);
            took = weft_rates_now(b) - begin;
            calls++;
        } while (took < short_enough);
        weft_rates_best(least, took / (double)calls);
    }
    weft_arena_release(b->arena, mark);
    return WEFT_OK;
}

static weft_status measure_attention(weft_rates *b, weft_profile *p)
{
    double seconds[2] = {0, 0};
    for (int i = 0; i < WEFT_PREC_COUNT; i++) {
        attention a;
        double small = 0;
        WEFT_TRY(attention_large(b, (weft_prec)i, &a));
        WEFT_TRY(attention_small(b, (weft_prec)i, &small));
        const line l = solve(operations(a.n), a.seconds[0], operations(ROWS_SMALL), small);
        p->flops_per_second[i] = operations(a.n) / a.seconds[0];
        if (i == WEFT_PREC_F64) continue; /* the reference kernels have figures of their own */
        if (l.start > p->attention_seconds) p->attention_seconds = l.start;
        seconds[0] += a.seconds[0], seconds[1] += a.seconds[1];
    }
    p->backward_factor = seconds[1] / seconds[0];
    return WEFT_OK;
}

/* ---- products ---------------------------------------------------------------------------------------------- */

/* Of square matrices, of which one is read transposed, as a forward pass does; *least: seconds of one. */
static weft_status product(weft_rates *b, weft_prec prec, int64_t n, double enough, double *least)
{
    const weft_dtype t = weft_prec_compute(prec);
    void *x[3];
    for (int i = 0; i < 3; i++) WEFT_TRY(make_rows(b, t, n * n, &x[i]));
    const weft_gemm_args args = {.ab = t, .c = t, .trans_b = true, .M = n, .N = n, .K = n, .A = x[0], .lda = n,
                                 .B = x[1], .ldb = n, .C = x[2], .ldc = n};
    WEFT_TRY(weft_gemm_run(b->gemm, &args, NULL)); /* what is made once for a shape */
    for (int i = 0; i < b->repeats; i++) {
        double begin = weft_rates_now(b), took;
        int64_t calls = 0;
        do {
            WEFT_TRY(weft_gemm_run(b->gemm, &args, NULL));
            took = weft_rates_now(b) - begin;
            calls++;
        } while (took < enough);
        weft_rates_best(least, took / (double)calls);
    }
    return WEFT_OK;
}

static double product_operations(int64_t n) { return 2.0 * (double)n * (double)n * (double)n; }

/* Twice the side until one takes long enough. */
static weft_status measure_product(weft_rates *b, weft_prec prec, line *out)
{
    double seconds = 0, small = 0;
    bool enough = false;
    int64_t n = SIDE / 2;
    weft_mark mark = weft_arena_mark(b->arena);
    WEFT_TRY(weft_agree(b->comm, product(b, prec, SIDE_SMALL, short_enough, &small)));
    while (n < SIDE_MAX && !enough) {
        weft_arena_release(b->arena, mark);
        n *= 2;
        seconds = 0;
        WEFT_TRY(weft_agree(b->comm, product(b, prec, n, 0, &seconds)));
        WEFT_TRY(all_took(b, seconds, &enough));
    }
    weft_arena_release(b->arena, mark);
    *out = solve(product_operations(n), seconds, product_operations(SIDE_SMALL), small);
    return WEFT_OK;
}

static weft_status measure_products(weft_rates *b, weft_profile *p)
{
    for (int i = 0; i < WEFT_PREC_COUNT; i++) {
        line l;
        WEFT_TRY(measure_product(b, (weft_prec)i, &l));
        p->product_flops_per_second[i] = l.rate;
        if (i != WEFT_PREC_F64 && l.start > p->product_seconds) p->product_seconds = l.start;
    }
    return WEFT_OK;
}

/* ---- elements ---------------------------------------------------------------------------------------------- */

enum { WIDTH = 1024, ELEMENTS = 4 << 20, REALS = 4, COMPUTES = 3 }; /* 16 MiB an array in fp32 */

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
 * write. */
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
    k->swiglu_bwd(e->c[1], n, e->c[2], n, e->c[0], n, e->c[1], n, e->c[2], n, rows, n, threads);
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
        double least = 0, moved = 0;
        WEFT_TRY(weft_agree(b->comm, make_elements(b, precs[i], &e)));
        for (int k = 0; k < b->repeats; k++) {
            double begin = weft_rates_now(b);
            moved = touch_elements(b, &e);
            weft_rates_best(&least, weft_rates_now(b) - begin);
        }
        weft_arena_release(b->arena, mark);
        bytes += moved, seconds += least;
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
