/* One update of all weights: against AdamW written plainly in double, decay by the table's mark, clipping,
 * norms that are not finite, and the same bits on every rank.
 * labels: small tsan */
#include "comm/comm.h"
#include "harness/ranks.h"
#include "harness/test.h"
#include "optim/optim.h"

#include <float.h>

/* Awkward sizes with gaps between them: what lies in a gap belongs to nobody. */
static const weft_spec specs[] = {
    {.name = "embed", .nd = 2, .shape = {33, 7}, .offset = 0, .count = 231, .decay = true},
    {.name = "norm", .nd = 1, .shape = {257}, .offset = 240, .count = 257, .decay = false},
    {.name = "head", .nd = 2, .shape = {7, 143}, .offset = 500, .count = 1001, .decay = true},
    {.name = "bias", .nd = 1, .shape = {1}, .offset = 1510, .count = 1, .decay = false},
};
enum { N = sizeof specs / sizeof *specs, COUNT = 1520 };

static const weft_optim_options options = {.lr = 1e-3, .min_lr = 0, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8,
                                           .weight_decay = 0.1, .clip = 1.0};

typedef struct fixture {
    weft_ctx ctx;
    weft_kern kern;
    weft_optim *optim;
} fixture;

static void open_fixture(fixture *f, weft_prec prec, weft_isa isa, const weft_optim_options *o)
{
    weft_ctx_init(&f->ctx);
    assert_ok(weft_kern_init(&f->kern, isa));
    assert_ok(weft_optim_create(&f->optim, &f->ctx, &f->kern, prec, specs, N, COUNT, o));
}

static void close_fixture(fixture *f) { weft_optim_destroy(f->optim); }

/* ---- against the plain update --------------------------------------------------------------------- */

typedef struct plain { double w[COUNT], m[COUNT], v[COUNT]; } plain;

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

static void eight_steps(weft_prec prec, weft_isa isa, double limit)
{
    fixture f;
    const bool wide = prec == WEFT_PREC_F64;
    plain *p = calloc(1, sizeof *p);
    double *g = calloc(COUNT, sizeof *g);
    void *w = calloc(COUNT, 8), *gr = calloc(COUNT, 8);
    open_fixture(&f, prec, isa, &options);
    for (int i = 0; i < COUNT; i++) weft_store(w, wide ? WEFT_F64 : WEFT_F32, i, p->w[i] = (float)test_normal(1, i));
    for (int step = 1; step <= 8; step++) {
        for (int i = 0; i < COUNT; i++) {
            /* small at even steps (no clipping), large at odd ones; float values, so that both sides start alike */
            g[i] = (float)(test_normal(100 + (uint64_t)step, i) * (step % 2 ? 1.0 : 1e-3));
            weft_store(gr, wide ? WEFT_F64 : WEFT_F32, i, g[i]);
        }
        double norm = weft_optim_norm(f.optim, gr), lr = weft_lr_at(&options, step - 1);
        assert_at_most(fabs(norm - plain_norm(g)) / norm, 1e-13); /* both sum 1490 squares in double */
        assert_ok(weft_optim_update(f.optim, w, gr, norm, lr, step));
        plain_update(p, g, norm, lr, step);
    }
    assert_at_most(weft_rel_l2(w, wide ? WEFT_F64 : WEFT_F32, p->w, WEFT_F64, COUNT, 0), limit);
    assert_at_most(weft_rel_l2(weft_optim_state(f.optim, 0), wide ? WEFT_F64 : WEFT_F32, p->m, WEFT_F64, COUNT, 0),
                   2 * limit);
    assert_at_most(weft_rel_l2(weft_optim_state(f.optim, 1), wide ? WEFT_F64 : WEFT_F32, p->v, WEFT_F64, COUNT, 0),
                   4 * limit);
    close_fixture(&f);
    free(p), free(g), free(w), free(gr);
}

static void equals_adamw_in_double(void **state)
{
    (void)state;
    eight_steps(WEFT_PREC_F64, WEFT_ISA_REF, 1e-14); /* the same formula in the same type */
    /* fp32 rounds each of 8 steps a few times: a handful of units of 6e-8 */
    for (int isa = 0; isa < WEFT_ISA_COUNT; isa++)
        if (weft_isa_available((weft_isa)isa))
            for (int prec = WEFT_PREC_F32; prec < WEFT_PREC_COUNT; prec++)
                eight_steps((weft_prec)prec, (weft_isa)isa, 2e-7);
}

/* ---- decay, clipping ------------------------------------------------------------------------------ */

static void decay_follows_the_mark(void **state)
{
    (void)state;
    fixture f;
    float w[COUNT], g[COUNT] = {0};
    open_fixture(&f, WEFT_PREC_F32, WEFT_ISA_REF, &options);
    for (int i = 0; i < COUNT; i++) w[i] = 2;
    assert_ok(weft_optim_update(f.optim, w, g, 0, 1e-3, 1));
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
    float w[COUNT] = {0}, g[COUNT];
    weft_optim_options o = {.lr = 1, .eps = 1024, .clip = clip};
    open_fixture(&f, WEFT_PREC_F32, WEFT_ISA_REF, &o);
    for (int i = 0; i < COUNT; i++) g[i] = 0x1p-20f; /* vanishes beside eps */
    assert_ok(weft_optim_update(f.optim, w, g, norm, 1, 1));
    double factor = -(double)w[0] * 1024 * 0x1p20;
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
    float w[COUNT], g[COUNT] = {0};
    open_fixture(&f, WEFT_PREC_F32, weft_isa_best(), &options);
    for (int i = 0; i < COUNT; i++) w[i] = 2;
    g[240 + 17] = NAN;
    double norm = weft_optim_norm(f.optim, g);
    assert_true(isnan(norm));
    assert_int_equal(weft_optim_update(f.optim, w, g, norm, 1e-3, 5), WEFT_ERR_NUMERIC);
    assert_non_null(strstr(weft_last_error(), "step 5: the gradient norm is nan: grad.norm holds nan at element 17"));
    g[240 + 17] = 0;
    g[500] = -INFINITY;
    norm = weft_optim_norm(f.optim, g);
    assert_true(isinf(norm));
    assert_int_equal(weft_optim_update(f.optim, w, g, norm, 1e-3, 5), WEFT_ERR_NUMERIC);
    assert_non_null(strstr(weft_last_error(), "grad.head holds -inf at element 0"));
    g[500] = 0;
    assert_int_equal(weft_optim_update(f.optim, w, g, INFINITY, 1e-3, 5), WEFT_ERR_NUMERIC);
    assert_non_null(strstr(weft_last_error(), "though every gradient is finite"));
    assert_refused(weft_optim_update(f.optim, w, g, 1, 1e-3, 0), "steps count from 1");
    assert_refused(weft_optim_update(f.optim, w, g, 1, NAN, 1), "learning rate nan");
    for (int i = 0; i < COUNT; i++) {
        assert_true(w[i] == 2.0f);
        assert_true(((float *)weft_optim_state(f.optim, 0))[i] == 0 && ((float *)weft_optim_state(f.optim, 1))[i] == 0);
    }
    /* The largest finite gradients have a finite norm: squares are summed in double. */
    for (int i = 0; i < COUNT; i++) g[i] = FLT_MAX;
    assert_true(isfinite(weft_optim_norm(f.optim, g)));
    close_fixture(&f);
}

static void bad_tables_and_options_are_refused(void **state)
{
    (void)state;
    fixture f;
    weft_optim *o = NULL;
    weft_optim_options bad = options;
    open_fixture(&f, WEFT_PREC_F32, WEFT_ISA_REF, &options);
    bad.beta2 = 1;
    assert_refused(weft_optim_create(&o, &f.ctx, &f.kern, WEFT_PREC_F32, specs, N, COUNT, &bad), "beta2 1");
    assert_int_equal(weft_optim_create(&o, &f.ctx, &f.kern, WEFT_PREC_F32, specs, N, 1510, &options),
                     WEFT_ERR_INTERNAL);
    assert_null(o);
    assert_null(weft_optim_state(f.optim, 2));
    close_fixture(&f);
    assert_int_equal(f.ctx.mem.bytes, 0);
}

/* ---- sums and weights that 16 bits would lose ----------------------------------------------------- */

/* A hundred updates of 0.001 from 1.0, and a sum of 512 ones: bf16 weights would stay at 1.0, a bf16 sum
 * would stop at 256. */
static void master_weights_and_sums_are_wide(void **state)
{
    (void)state;
    fixture f;
    const weft_spec one = {.name = "w", .nd = 1, .shape = {1}, .count = 1};
    float w = 1, g = 1, sum = 0, ones[512];
    /* beta 0: m / (sqrt(v) + eps) = 1 for g = 1, so each update is lr */
    weft_optim_options o = {.lr = 1e-3, .eps = 1e-12};
    weft_optim *optim = NULL;
    weft_ctx_init(&f.ctx);
    assert_ok(weft_kern_init(&f.kern, weft_isa_best()));
    assert_ok(weft_optim_create(&optim, &f.ctx, &f.kern, WEFT_PREC_BF16, &one, 1, 1, &o));
    for (int step = 1; step <= 100; step++) assert_ok(weft_optim_update(optim, &w, &g, 1, 1e-3, step));
    assert_at_most(fabs(w - 0.9), 100 * 0x1p-25); /* half a unit of fp32 below 1, each time */
    assert_at_most(fabs(weft_bf16_to_f32(weft_f32_to_bf16(w)) - 0.8984375), 0);
    for (int i = 0; i < 512; i++) ones[i] = 1;
    for (int i = 0; i < 512; i++) f.kern.op[WEFT_PREC_BF16].axpy(&sum, &ones[i], 1, 1, 1);
    assert_true(sum == 512);
    assert_true(f.kern.op[WEFT_PREC_BF16].sumsq(ones, 512, 1) == 512);
    weft_optim_destroy(optim);
}

/* ---- ranks ---------------------------------------------------------------------------------------- */

typedef struct shared { float *weights[8]; double norm[8]; int64_t count; const weft_spec *spec; int n; int same;
                       } shared;

static weft_status rank_body(weft_ctx *ctx, weft_world *world, void *ud)
{
    shared *s = ud;
    weft_kern kern;
    weft_comm *comm = NULL;
    weft_optim *optim = NULL;
    int rank = weft_world_rank(world), ranks = weft_world_size(world);
    WEFT_TRY(weft_kern_init(&kern, weft_isa_best()));
    WEFT_TRY(test_comm_all(&comm, world, "dp_cp"));
    WEFT_TRY(weft_optim_create(&optim, ctx, &kern, WEFT_PREC_F32, s->spec, s->n, s->count, &options));
    float *g = malloc((size_t)s->count * sizeof *g), *w = s->weights[rank];
    if (!g) return weft_fail(WEFT_ERR_MEMORY, "test gradients");
    for (int64_t i = 0; i < s->count; i++) w[i] = (float)(i % 257) * 0x1p-8f;
    weft_status st = WEFT_OK;
    for (int step = 1; step <= 2 && st == WEFT_OK; step++) {
        for (int64_t i = 0; i < s->count; i++)
            g[i] = s->same ? 0.6f / sqrtf((float)s->count) / (float)ranks
                           : (float)((uint32_t)(i * 2654435761 + rank * 97 + step * 31) >> 8) * 0x1p-23f - 1.0f;
        st = weft_optim_reduce(optim, comm, g);
        if (st == WEFT_OK) s->norm[rank] = weft_optim_norm(optim, g);
        if (st == WEFT_OK) st = weft_optim_update(optim, w, g, s->norm[rank], 1e-3, step);
    }
    free(g);
    weft_optim_destroy(optim);
    weft_comm_destroy(comm);
    return st;
}

static void run_ranks(int ranks, shared *s)
{
    for (int r = 0; r < ranks; r++) assert_non_null(s->weights[r] = calloc((size_t)s->count, sizeof(float)));
    assert_ok(weft_run_threads(ranks, rank_body, s));
    for (int r = 1; r < ranks; r++) {
        assert_memory_equal(s->weights[r], s->weights[0], (size_t)s->count * sizeof(float));
        assert_true(s->norm[r] == s->norm[0]);
    }
    for (int r = 0; r < ranks; r++) free(s->weights[r]);
}

/* Four ranks hold the same reduced gradient of norm 0.6: the norm is 0.6 (summed over ranks it would be 1.2,
 * and the update clipped). */
static void g15_norm_counts_each_parameter_once(void **state)
{
    (void)state;
    static const weft_spec one = {.name = "w", .nd = 1, .shape = {1001}, .count = 1001};
    shared s = {.count = 1001, .spec = &one, .n = 1, .same = 1};
    run_ranks(4, &s);
    assert_at_most(fabs(s.norm[0] - 0.6), 0.6 * 0x1p-22); /* the gradient's own rounding in fp32 */
}

static void all_ranks_get_the_same_bits(void **state)
{
    (void)state;
    static const weft_spec two[] = {
        /* over one piece */
        {.name = "a", .nd = 2, .shape = {1001, 1050}, .offset = 0, .count = 1051050, .decay = true},
        {.name = "b", .nd = 1, .shape = {33}, .offset = 1051050, .count = 33},
    };
    static const int sizes[] = {2, 3};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        shared big = {.count = 1051083, .spec = two, .n = 2};
        shared odd = {.count = COUNT, .spec = specs, .n = N};
        run_ranks(sizes[i], &big);
        run_ranks(sizes[i] * 2 - 1, &odd);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equals_adamw_in_double), cmocka_unit_test(decay_follows_the_mark),
        cmocka_unit_test(clips_only_above_the_limit), cmocka_unit_test(bad_norms_and_steps_change_nothing),
        cmocka_unit_test(bad_tables_and_options_are_refused), cmocka_unit_test(master_weights_and_sums_are_wide),
        cmocka_unit_test(g15_norm_counts_each_parameter_once), cmocka_unit_test(all_ranks_get_the_same_bits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
