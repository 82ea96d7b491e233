/* One update of all weights on one rank: against AdamW written plainly in double, decay by the table's mark, clipping,
 * norms that are not finite. test_zero.c has the ranks.
 * labels: small */
#include "harness/test.h"
#include "optim/optim.h"

#include <float.h>

/* Awkward sizes with gaps between them: what lies in a gap belongs to nobody. */
static const weft_spec specs[] = {
    {.name = "embed",
     .nd = 2,
     .shape = {33, 7},
     .offset = 0,
     .count = 231,
     .decay = true,
     .cut_dim = -1,
     .own_count = 231},
    {.name = "norm",
     .nd = 1,
     .shape = {257},
     .offset = 240,
     .count = 257,
     .cut_dim = -1,
     .number = 1,
     .own_count = 257},
    {.name = "head",
     .nd = 2,
     .shape = {7, 143},
     .offset = 500,
     .count = 1001,
     .decay = true,
     .cut_dim = -1,
     .number = 2,
     .own_count = 1001},
    {.name = "bias", .nd = 1, .shape = {1}, .offset = 1510, .count = 1, .cut_dim = -1, .number = 3, .own_count = 1},
};
enum { N = sizeof specs / sizeof *specs, COUNT = 1520 };

static const weft_optim_options options =
    {.lr = 1e-3, .min_lr = 0, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .weight_decay = 0.1, .clip = 1.0};

typedef struct fixture { /* one rank; two buckets, whose bound lies inside a tensor */
    weft_ctx ctx;
    weft_kern kern;
    weft_optim *optim;
    weft_dtype real;
    void *w, *g; /* [COUNT] */
} fixture;

static const int64_t bounds[] = {0, 700, COUNT};

static weft_optim_parts parts_of(const fixture *f, weft_prec prec)
{
    return (weft_optim_parts){.prec = prec,
                              .spec = specs,
                              .n = N,
                              .count = COUNT,
                              .weights = f->w,
                              .gradients = f->g,
                              .bucket = bounds,
                              .buckets = 2};
}

static void open_fixture(fixture *f, weft_prec prec, weft_isa isa, const weft_optim_options *o)
{
    *f = (fixture){.real = weft_prec_real(prec), .w = calloc(COUNT, 8), .g = calloc(COUNT, 8)};
    weft_ctx_init(&f->ctx);
    assert_ok(weft_kern_init(&f->kern, isa));
    weft_optim_parts parts = parts_of(f, prec);
    assert_ok(weft_optim_create(&f->optim, &f->ctx, &f->kern, &parts, o));
}

static void close_fixture(fixture *f)
{
    weft_optim_destroy(f->optim);
    free(f->w), free(f->g);
}

static double norm_of(fixture *f)
{
    double norm = -1;
    assert_ok(weft_optim_norm(f->optim, 1, &norm));
    return norm;
}

/* The error of a moment, beside an array that has a place for gaps too. */
static double moment_error(const fixture *f, int which, const double *want)
{
    int n = 0;
    double worst = 0, size = weft_norm2(want, WEFT_F64, COUNT);
    const weft_piece *p = weft_optim_state(f->optim, which, &n);
    assert_int_equal(n, N + 1); /* the bound of the buckets cuts one tensor */
    for (int i = 0; i < n; i++)
        worst = fmax(worst, weft_rel_l2(p[i].data, f->real, want + specs[p[i].spec].offset + p[i].first, WEFT_F64,
                                        p[i].count, size / N));
    return worst;
}

/* ---- against the plain update --------------------------------------------------------------------- */

typedef struct plain {
    double w[COUNT], m[COUNT], v[COUNT];
} plain;

static double plain_norm(const double *g)
{
    double sum = 0;
    for (int s = 0; s < N; s++)
        for (int64_t i = 0; i < specs[s].count; i++) sum += g[specs[s].offset + i] * g[specs[s].offset + i];
    return sqrt(sum);
}

static void plain_update(plain *p, const double *g, double norm, double lr, int step)
{
    double scale = options.clip / (norm + 1e-6) < 1 ? options.clip / (norm + 1e-6) : 1;
    for (int s = 0; s < N; s++)
        for (int64_t i = specs[s].offset; i < specs[s].offset + specs[s].count; i++) {
            double gi = g[i] * scale;
            p->m[i] = 0.9 * p->m[i] + (1 - 0.9) * gi;
            p->v[i] = 0.95 * p->v[i] + (1 - 0.95) * gi * gi;
            double mh = p->m[i] / (1 - pow(0.9, step)), vh = p->v[i] / (1 - pow(0.95, step));
            p->w[i] -= lr * (mh / (sqrt(vh) + 1e-8) + (specs[s].nd >= 2 ? 0.1 : 0) * p->w[i]);
        }
}

/* `scale`: of the gradients, which norm and update take back. */
static void eight_steps(weft_prec prec, weft_isa isa, double limit, double scale)
{
    fixture f;
    plain *p = calloc(1, sizeof *p);
    double *g = calloc(COUNT, sizeof *g);
    open_fixture(&f, prec, isa, &options);
    for (int i = 0; i < COUNT; i++) weft_store(f.w, f.real, i, p->w[i] = (float)test_normal(1, i));
    for (int step = 1; step <= 8; step++) {
        for (int i = 0; i < COUNT; i++) {
            /* small at even steps (no clipping), large at odd ones; float values, so that both sides start alike */
            g[i] = (float)(test_normal(100 + (uint64_t)step, i) * (step % 2 ? 1.0 : 1e-3));
            weft_store(f.g, f.real, i, g[i] * scale);
        }
        double norm, lr = weft_lr_at(&options, step - 1);
        assert_ok(weft_optim_reduce(f.optim));
        assert_ok(weft_optim_norm(f.optim, scale, &norm));
        assert_at_most(fabs(norm - plain_norm(g)) / norm, 1e-13); /* both sum 1490 squares in double */
        assert_ok(weft_optim_update(f.optim, norm, scale, lr, step));
        plain_update(p, g, norm, lr, step);
    }
    assert_at_most(weft_rel_l2(f.w, f.real, p->w, WEFT_F64, COUNT, 0), limit);
    assert_at_most(moment_error(&f, 0, p->m), 2 * limit);
    assert_at_most(moment_error(&f, 1, p->v), 4 * limit);
    close_fixture(&f);
    free(p), free(g);
}

static void equals_adamw_in_double(void **state)
{
    (void)state;
    eight_steps(WEFT_PREC_F64, WEFT_ISA_REF, 1e-14, 1); /* the same formula in the same type */
    eight_steps(WEFT_PREC_F64, WEFT_ISA_REF, 1e-14, 4096);
    /* fp32 rounds each of 8 steps a few times: a handful of units of 6e-8 */
    for (int isa = 0; isa < WEFT_ISA_COUNT; isa++)
        if (weft_isa_available((weft_isa)isa))
            for (int prec = WEFT_PREC_F32; prec < WEFT_PREC_COUNT; prec++)
                eight_steps((weft_prec)prec, (weft_isa)isa, 2e-7, prec == WEFT_PREC_F16 ? 65536 : 1);
}

/* ---- decay, clipping ------------------------------------------------------------------------------ */

static void decay_follows_the_mark(void **state)
{
    (void)state;
    fixture f;
    open_fixture(&f, WEFT_PREC_F32, WEFT_ISA_REF, &options);
    float *w = f.w;
    for (int i = 0; i < COUNT; i++) w[i] = 2;
    assert_ok(weft_optim_update(f.optim, 0, 1, 1e-3, 1));
    for (int s = 0; s < N; s++)
        for (int64_t i = 0; i < specs[s].count; i++)
            assert_true(w[specs[s].offset + i] == (specs[s].decay ? 2 - 1e-3f * (0.1f * 2) : 2.0f));
    for (int i = 231; i < 240; i++) assert_true(w[i] == 2.0f); /* a gap is not touched */
    close_fixture(&f);
}

/* With beta1 = beta2 = 0 and a large eps the update is lr * g' / eps: it shows the clipping factor. */
static double factor_at(double norm, double clip)
{
    fixture f;
    weft_optim_options o = {.lr = 1, .eps = 1024, .clip = clip};
    open_fixture(&f, WEFT_PREC_F32, WEFT_ISA_REF, &o);
    for (int i = 0; i < COUNT; i++) ((float *)f.g)[i] = 0x1p-20f; /* vanishes beside eps */
    assert_ok(weft_optim_update(f.optim, norm, 1, 1, 1));
    double factor = -(double)((float *)f.w)[0] * 1024 * 0x1p20;
    close_fixture(&f);
    return factor;
}

static void clips_only_above_the_limit(void **state)
{
    (void)state;
    const double rounding = 1e-6; /* fp32, and |g| / eps = 1e-9 */
    assert_at_most(fabs(factor_at(0.6, 1.0) - 1), rounding);
    assert_at_most(fabs(factor_at(1.0 - 2e-6, 1.0) - 1), rounding);
    assert_at_most(fabs(factor_at(4.0, 1.0) - 0.25), rounding);
    assert_at_most(fabs(factor_at(4.0, 0.0) - 1), rounding); /* 0: no clipping */
    assert_at_most(fabs(factor_at(0.0, 1.0) - 1), rounding);
}

static void bad_norms_and_steps_change_nothing(void **state)
{
    (void)state;
    fixture f;
    open_fixture(&f, WEFT_PREC_F32, weft_isa_best(), &options);
    float *w = f.w, *g = f.g;
    for (int i = 0; i < COUNT; i++) w[i] = 2;
    g[240 + 17] = NAN;
    double norm = norm_of(&f);
    assert_true(isnan(norm));
    assert_int_equal(weft_optim_update(f.optim, norm, 1, 1e-3, 5), WEFT_ERR_NUMERIC);
    assert_non_null(strstr(weft_last_error(), "step 5: the gradient norm is nan: grad.norm holds nan at element 17"));
    g[240 + 17] = 0;
    g[500] = -INFINITY;
    norm = norm_of(&f);
    assert_true(isinf(norm));
    assert_int_equal(weft_optim_update(f.optim, norm, 1, 1e-3, 5), WEFT_ERR_NUMERIC);
    assert_non_null(strstr(weft_last_error(), "grad.head holds -inf at element 0"));
    g[500] = 0;
    g[1001] = NAN; /* in the second bucket's piece of the tensor */
    assert_int_equal(weft_optim_update(f.optim, norm_of(&f), 1, 1e-3, 5), WEFT_ERR_NUMERIC);
    assert_non_null(strstr(weft_last_error(), "grad.head holds nan at element 501"));
    g[1001] = 0;
    assert_int_equal(weft_optim_update(f.optim, INFINITY, 1, 1e-3, 5), WEFT_ERR_NUMERIC);
    assert_non_null(strstr(weft_last_error(), "though every gradient is finite"));
    assert_refused(weft_optim_update(f.optim, 1, 1, 1e-3, 0), "steps count from 1");
    assert_refused(weft_optim_update(f.optim, 1, 1, NAN, 1), "learning rate nan");
    static const double zeros[COUNT];
    for (int i = 0; i < COUNT; i++) assert_true(w[i] == 2.0f);
    assert_true(moment_error(&f, 0, zeros) == 0 && moment_error(&f, 1, zeros) == 0);
    /* The largest finite gradients have a finite norm: squares are summed in double. */
    for (int i = 0; i < COUNT; i++) g[i] = FLT_MAX;
    assert_true(isfinite(norm_of(&f)));
    close_fixture(&f);
}

static void bad_tables_and_options_are_refused(void **state)
{
    (void)state;
    fixture f;
    weft_optim *o = NULL;
    weft_optim_options bad = options;
    int n = 1;
    open_fixture(&f, WEFT_PREC_F32, WEFT_ISA_REF, &options);
    weft_optim_parts good = parts_of(&f, WEFT_PREC_F32), parts = good;
    bad.beta2 = 1;
    assert_refused(weft_optim_create(&o, &f.ctx, &f.kern, &parts, &bad), "beta2 1");
    parts.count = 1510;
    assert_int_equal(weft_optim_create(&o, &f.ctx, &f.kern, &parts, &options), WEFT_ERR_INTERNAL);
    static const int64_t wrong[][3] = {{0, 700, COUNT - 1}, {1, 700, COUNT}, {0, COUNT + 1, COUNT}};
    for (int i = 0; i < 3; i++) {
        parts = good;
        parts.bucket = wrong[i];
        assert_int_equal(weft_optim_create(&o, &f.ctx, &f.kern, &parts, &options), WEFT_ERR_INTERNAL);
    }
    assert_null(o);
    assert_null(weft_optim_state(f.optim, 2, &n));
    assert_int_equal(n, 0);
    close_fixture(&f);
    assert_int_equal(f.ctx.mem.bytes, 0);
}

/* ---- sums and weights that 16 bits would lose ----------------------------------------------------- */

/* G31. A hundred updates of 0.001 from 1.0, and a sum of 512 ones: bf16 weights would stay at 1.0, a bf16 sum would
 * stop at 256. */
static void g31_master_weights_and_sums_are_wide(void **state)
{
    (void)state;
    fixture f;
    const weft_spec one = {.name = "w", .nd = 1, .shape = {1}, .count = 1, .cut_dim = -1, .own_count = 1};
    float w = 1, g = 1, sum = 0, ones[512];
    /* beta 0: m / (sqrt(v) + eps) = 1 for g = 1, so each update is lr */
    weft_optim_options o = {.lr = 1e-3, .eps = 1e-12};
    weft_optim_parts parts = {.prec = WEFT_PREC_BF16,
                              .spec = &one,
                              .n = 1,
                              .count = 1,
                              .weights = &w,
                              .gradients = &g,
                              .bucket = (int64_t[]){0, 1},
                              .buckets = 1};
    weft_optim *optim = NULL;
    weft_ctx_init(&f.ctx);
    assert_ok(weft_kern_init(&f.kern, weft_isa_best()));
    assert_ok(weft_optim_create(&optim, &f.ctx, &f.kern, &parts, &o));
    for (int step = 1; step <= 100; step++) assert_ok(weft_optim_update(optim, 1, 1, 1e-3, step));
    assert_at_most(fabs(w - 0.9), 100 * 0x1p-25); /* half a unit of fp32 below 1, each time */
    assert_at_most(fabs(weft_bf16_to_f32(weft_f32_to_bf16(w)) - 0.8984375), 0);
    for (int i = 0; i < 512; i++) ones[i] = 1;
    for (int i = 0; i < 512; i++) f.kern.op[WEFT_PREC_BF16].axpy(&sum, &ones[i], 1, 1, 1);
    assert_true(sum == 512);
    assert_true(f.kern.op[WEFT_PREC_BF16].sumsq(ones, 512, 1) == 512);
    weft_optim_destroy(optim);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equals_adamw_in_double),
        cmocka_unit_test(decay_follows_the_mark),
        cmocka_unit_test(clips_only_above_the_limit),
        cmocka_unit_test(bad_norms_and_steps_change_nothing),
        cmocka_unit_test(bad_tables_and_options_are_refused),
        cmocka_unit_test(g31_master_weights_and_sums_are_wide),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
