/* labels: small */
/* What must hold for any right implementation, whatever its order of additions: invariances, inverses, sums
 * that are known. Every test runs on every instruction set of this machine, in fp32 unless it says more. */
#include "harness/test.h"

#include "kern/kern.h"

enum { R = 5, N = 101 };

/* Runs `body` with the fp32 functions of each instruction set. */
static void on_each(void (*body)(const weft_kern *k))
{
    for (int isa = 0; isa < WEFT_ISA_COUNT; isa++) {
        weft_kern k;
        if (!weft_isa_available((weft_isa)isa)) continue;
        assert_ok(weft_kern_init(&k, (weft_isa)isa));
        body(&k);
    }
}
#define ON_EACH(name) \
    static void name(void **state) \
    { \
        (void)state; \
        on_each(name##_body); \
    }

static float ones[N], zeros[N];

/* ---- norms ------------------------------------------------------------------------------------------- */

static void norms_ignore_scale_and_shift_body(const weft_kern *k)
{
    const weft_kern_ops *op = &k->op[WEFT_PREC_F32];
    float x[R * N], x2[R * N], y[R * N], y2[R * N], mean[R], rstd[R];
    test_fill_normal(x, 0, R * N, 1);
    for (int i = 0; i < R * N; i++) x2[i] = 8 * x[i]; /* a power of two: exact */
    op->rmsnorm_fwd(y, N, rstd, x, N, ones, R, N, 0, 1);
    op->rmsnorm_fwd(y2, N, rstd, x2, N, ones, R, N, 0, 1);
    assert_at_most(weft_rel_l2(y2, WEFT_F32, y, WEFT_F32, R * N, 0), 2e-7);
    for (int r = 0; r < R; r++) assert_at_most(fabs(weft_norm2(y + r * N, WEFT_F32, N) - sqrt(N)), 1e-5);

    for (int i = 0; i < R * N; i++) x2[i] = x[i] + 1024; /* costs x ten bits */
    op->layernorm_fwd(y, N, mean, rstd, x, N, ones, zeros, R, N, 0, 1);
    op->layernorm_fwd(y2, N, mean, rstd, x2, N, ones, zeros, R, N, 0, 1);
    assert_at_most(weft_rel_l2(y2, WEFT_F32, y, WEFT_F32, R * N, 0), 1e-4);
    for (int r = 0; r < R; r++) {
        double sum = 0;
        for (int i = 0; i < N; i++) sum += y[r * N + i];
        assert_at_most(fabs(sum), 1e-4);
        assert_at_most(fabs(weft_norm2(y + r * N, WEFT_F32, N) - sqrt(N)), 1e-5);
    }
}
ON_EACH(norms_ignore_scale_and_shift)

/* So the gradient has no part along those directions: <dx, x> = 0 for rmsnorm; sum dx = 0 for layernorm too. */
static void norm_gradients_are_orthogonal_body(const weft_kern *k)
{
    const weft_kern_ops *op = &k->op[WEFT_PREC_F32];
    static float work[2 * 64 * N];
    float x[R * N], w[N], dy[R * N], y[R * N], dx[R * N] = {0}, dl[R * N] = {0}, dw[N] = {0}, db[N] = {0}, mean[R],
                                                      rstd[R];
    assert_true(sizeof work >= weft_norm_work_bytes(WEFT_PREC_F32, N, 1));
    test_fill_normal(x, 0, R * N, 1), test_fill_normal(w, 0, N, 2), test_fill_normal(dy, 0, R * N, 3);
    op->rmsnorm_fwd(y, N, rstd, x, N, w, R, N, 0, 1);
    op->rmsnorm_bwd(dx, N, dw, dy, N, x, N, w, rstd, R, N, work, 1);
    op->layernorm_fwd(y, N, mean, rstd, x, N, w, db, R, N, 0, 1);
    op->layernorm_bwd(dl, N, dw, db, dy, N, x, N, w, mean, rstd, R, N, work, 1);
    for (int r = 0; r < R; r++) {
        double along = 0, along_l = 0, sum = 0;
        for (int i = r * N; i < (r + 1) * N; i++) along += dx[i] * x[i], along_l += dl[i] * x[i], sum += dl[i];
        assert_at_most(fabs(along), 1e-4); /* 100 terms of size 1 with 1e-7 each, and room */
        assert_at_most(fabs(along_l), 1e-4);
        assert_at_most(fabs(sum), 1e-4);
    }
}
ON_EACH(norm_gradients_are_orthogonal)

/* ---- rope -------------------------------------------------------------------------------------------- */

static void rope_backward_is_the_inverse_body(const weft_kern *k)
{
    enum { D = 38, H = 3 };
    const weft_kern_ops *op = &k->op[WEFT_PREC_F32];
    float x[R * H * D], y[R * H * D], c[R * D / 2], s[R * D / 2];
    test_fill_normal(x, 0, R * H * D, 1);
    memcpy(y, x, sizeof x);
    for (int i = 0; i < R * D / 2; i++) c[i] = (float)cos(i * 0.7), s[i] = (float)sin(i * 0.7);
    op->rope(y, H * D, c, s, R, H, D, 1, 1);
    assert_at_most(fabs(weft_norm2(y, WEFT_F32, R * H * D) / weft_norm2(x, WEFT_F32, R * H * D) - 1), 1e-6);
    assert_true(weft_rel_l2(y, WEFT_F32, x, WEFT_F32, R * H * D, 0) > 0.1); /* it did turn */
    op->rope(y, H * D, c, s, R, H, D, -1, 1);
    assert_at_most(weft_rel_l2(y, WEFT_F32, x, WEFT_F32, R * H * D, 0), 3e-7);
}
ON_EACH(rope_backward_is_the_inverse)

/* q_i . k_j depends on i - j only. */
static void rope_sees_distances_only_body(const weft_kern *k)
{
    enum { D = 34, T = 4 };
    const weft_kern_ops *op = &k->op[WEFT_PREC_F32];
    float q[T * D], key[T * D], c[T * D / 2], s[T * D / 2], one[2 * D];
    test_fill_normal(one, 0, 2 * D, 1);
    for (int t = 0; t < T; t++) {
        memcpy(q + t * D, one, D * sizeof(float));
        memcpy(key + t * D, one + D, D * sizeof(float));
        for (int i = 0; i < D / 2; i++)
            c[t * D / 2 + i] = (float)cos(t * pow(0.8, i)), s[t * D / 2 + i] = (float)sin(t * pow(0.8, i));
    }
    op->rope(q, D, c, s, T, 1, D, 1, 1);
    op->rope(key, D, c, s, T, 1, D, 1, 1);
    for (int i = 1; i < T; i++) {
        double near = 0, far = 0;
        for (int d = 0; d < D; d++) near += q[D + d] * key[d], far += q[i * D + d] * key[(i - 1) * D + d];
        assert_at_most(fabs(near - far), 1e-5);
    }
}
ON_EACH(rope_sees_distances_only)

/* ---- activations ------------------------------------------------------------------------------------- */

static void activations_have_their_symmetries_body(const weft_kern *k)
{
    const weft_kern_ops *op = &k->op[WEFT_PREC_F32];
    float x[N], minus[N], y[N], y_minus[N];
    for (int i = 0; i < N; i++) x[i] = (float)(i - 50) * 0.2f, minus[i] = -x[i];
    op->gelu_fwd(y, N, x, N, 1, N, 1);
    op->gelu_fwd(y_minus, N, minus, N, 1, N, 1);
    for (int i = 0; i < N; i++) assert_at_most(fabs(y[i] - y_minus[i] - x[i]), 2e-6); /* g(x) - g(-x) = x */
    assert_true(y[50] == 0);
    op->swiglu_fwd(y, N, x, N, ones, N, 1, N, 1);
    op->swiglu_fwd(y_minus, N, minus, N, ones, N, 1, N, 1);
    for (int i = 0; i < N; i++) assert_at_most(fabs(y[i] - y_minus[i] - x[i]), 2e-6); /* silu has the same identity */
    assert_true(y[50] == 0);
}
ON_EACH(activations_have_their_symmetries)

/* exp(-x) overflows far on the negative side; the functions and their slopes go to 0 and 1 there, never NaN. */
static void activations_are_finite_far_out_body(const weft_kern *k)
{
    const weft_kern_ops *op = &k->op[WEFT_PREC_F32];
    const float x[4] = {-1e4f, -200, 200, 1e4f}, one[4] = {1, 1, 1, 1};
    float y[4], dx[4], du[4];
    op->swiglu_fwd(y, 4, x, 4, one, 4, 1, 4, 1);
    op->swiglu_bwd(dx, 4, du, 4, one, 4, x, 4, one, 4, 1, 4, 1);
    for (int i = 0; i < 4; i++) {
        assert_at_most(fabs(y[i] - (x[i] > 0 ? x[i] : 0)), 0);
        assert_at_most(fabs(dx[i] - (x[i] > 0)), 0);
    }
    op->gelu_fwd(y, 4, x, 4, 1, 4, 1);
    op->gelu_bwd(dx, 4, one, 4, x, 4, 1, 4, 1);
    for (int i = 0; i < 4; i++) {
        assert_at_most(fabs(y[i] - (x[i] > 0 ? x[i] : 0)), 0);
        assert_at_most(fabs(dx[i] - (x[i] > 0)), 0);
    }
}
ON_EACH(activations_are_finite_far_out)

/* ---- cross-entropy ----------------------------------------------------------------------------------- */

static void xent_rows_sum_to_zero_body(const weft_kern *k)
{
    const weft_kern_ops *op = &k->op[WEFT_PREC_F32];
    float x[R * N], d[R * N], d2[R * N], nll[R], nll2[R];
    const int32_t target[R] = {0, 100, 50, 7, 99};
    test_fill_normal(x, 0, R * N, 1);
    op->xent(nll, d, N, x, N, target, 1, R, N, 1);
    for (int r = 0; r < R; r++) {
        double sum = 0;
        for (int i = 0; i < N; i++) sum += d[r * N + i];
        assert_at_most(fabs(sum), 1e-6);
        assert_true(d[r * N + target[r]] < 0 && nll[r] > 0);
    }
    test_fill_normal(x, 0, R * N, 1); /* the gradient used them up */
    for (int i = 0; i < R * N; i++) x[i] = x[i] + 64; /* costs six bits of each logit, 4e-6 */
    op->xent(nll2, d2, N, x, N, target, 1, R, N, 1);
    assert_at_most(weft_rel_l2(nll2, WEFT_F32, nll, WEFT_F32, R, 0), 1e-5);
    assert_at_most(weft_rel_l2(d2, WEFT_F32, d, WEFT_F32, R * N, 0), 1e-5);
}
ON_EACH(xent_rows_sum_to_zero)

/* Equal logits: nll = ln V, whatever their size; certain ones: 0; hopeless ones: the gap. */
static void xent_has_known_values_body(const weft_kern *k)
{
    const weft_kern_ops *op = &k->op[WEFT_PREC_F32];
    float x[4 * N], nll[4];
    const int32_t target[4] = {3, 3, 3, 3};
    for (int i = 0; i < N; i++) x[i] = 0, x[N + i] = -3e4f, x[2 * N + i] = x[3 * N + i] = 0;
    x[2 * N + 3] = 1e4f;
    x[3 * N + 4] = 1e4f;
    op->xent(nll, NULL, 0, x, N, target, 1, 4, N, 1);
    assert_at_most(fabs(nll[0] - log(N)), 1e-6);
    assert_at_most(fabs(nll[1] - log(N)), 1e-6);
    assert_at_most(fabs(nll[2]), 0);
    assert_at_most(fabs(nll[3] - 1e4), 0);
}
ON_EACH(xent_has_known_values)

/* Ignored rows select: NaN there must not come through as NaN x 0 (field report G11's kind). A NaN in a row
 * that counts must show. */
static void xent_ignored_rows_hide_nan_and_others_do_not_body(const weft_kern *k)
{
    for (int p = 0; p < WEFT_PREC_COUNT; p++) {
        const weft_dtype real = weft_prec_real((weft_prec)p), comp = weft_prec_compute((weft_prec)p);
        double x[2 * N], d[2 * N], nll[2]; /* large enough for any type */
        const int32_t target[2] = {-100, 4};
        for (int i = 0; i < 2 * N; i++) weft_store(x, real, i, i < N || i == N + 90 ? NAN : 1.0);
        memset(d, 0xff, sizeof d);
        k->op[p].xent(nll, d, N, x, N, target, 1, 2, N, 1);
        assert_true(weft_load(nll, real, 0) == 0);
        for (int i = 0; i < N; i++) assert_true(weft_load(d, comp, i) == 0);
        assert_true(isnan(weft_load(nll, real, 1)));
        assert_true(isnan(weft_load(d, comp, N)));
    }
}
ON_EACH(xent_ignored_rows_hide_nan_and_others_do_not)

/* ---- AdamW ------------------------------------------------------------------------------------------- */

/* The first update is lr * sign(g) whatever the gradient's size; decay shrinks the weight apart from it. */
static void adamw_first_step_is_the_sign_body(const weft_kern *k)
{
    float p[N], g[N], m[N] = {0}, v[N] = {0};
    const weft_adamw_args a = {.lr = 0.01, .beta1 = 0.9, .beta2 = 0.999, .eps = 0, .weight_decay = 0.5, .c1 = 1 - 0.9,
                               .c2 = 1 - 0.999, .gscale = 4};
    for (int i = 0; i < N; i++) p[i] = 2, g[i] = (float)((i % 2 ? -1 : 1) * pow(10, i % 9 - 4));
    k->op[WEFT_PREC_F32].adamw(p, g, m, v, N, &a, 1);
    for (int i = 0; i < N; i++) assert_at_most(fabs(p[i] - (2 - 0.01 * 0.5 * 2 - (g[i] > 0 ? 0.01 : -0.01))), 5e-7);
}
ON_EACH(adamw_first_step_is_the_sign)

/* A shard's update is the whole update's part, bit for bit, wherever the shard begins. */
static void adamw_of_a_shard_is_a_shard_of_adamw_body(const weft_kern *k)
{
    enum { COUNT = 20011 };
    static float whole[4][COUNT], shard[4][COUNT];
    const weft_adamw_args a = {1e-3, 0.9, 0.95, 1e-8, 0.1, 0.5, 0.3, 0.7};
    for (int i = 0; i < 4; i++) test_fill_normal(whole[i], 0, COUNT, (uint64_t)i + 1);
    for (int i = 0; i < COUNT; i++) whole[3][i] = fabsf(whole[3][i]);
    memcpy(shard, whole, sizeof whole);
    k->op[WEFT_PREC_F32].adamw(whole[0], whole[1], whole[2], whole[3], COUNT, &a, 3);
    for (int64_t at = 0, n = 1; at < COUNT; at += n, n = n * 3 + 1) {
        if (n > COUNT - at) n = COUNT - at;
        k->op[WEFT_PREC_F32].adamw(shard[0] + at, shard[1] + at, shard[2] + at, shard[3] + at, n, &a, 1);
    }
    assert_memory_equal(whole, shard, sizeof whole);
}
ON_EACH(adamw_of_a_shard_is_a_shard_of_adamw)

/* The moments of a row that gets no more gradients decay to exactly zero, not to a denormal that stays; and
 * the caller's floating-point mode comes back. */
static void adamw_moments_die_out_body(const weft_kern *k)
{
    float p[N], g[N] = {0}, m[N], v[N];
    volatile float tiny = 1e-30f;
    const weft_adamw_args a = {1e-3, 0.9, 0.9, 1e-8, 0, 1, 1, 1};
    if (k->isa == WEFT_ISA_REF) return; /* the specification knows nothing of modes */
    for (int i = 0; i < N; i++) p[i] = 1, m[i] = v[i] = 1e-36f;
    for (int step = 0; step < 100; step++) k->op[WEFT_PREC_BF16].adamw(p, g, m, v, N, &a, 2);
    for (int i = 0; i < N; i++) assert_true(m[i] == 0 && v[i] == 0 && p[i] == 1);
    assert_true(tiny * 1e-10f != 0);
}
ON_EACH(adamw_moments_die_out)

/* Norms do not depend on the size of a row: numbers of which the squares, or the sum, are beyond float give what they
 * give 2^-100 times as large. They explode, and a row of zeros would hide that. */
static void norms_of_huge_rows_body(const weft_kern *k)
{
    enum { ROW = 21 };
    static const weft_prec precs[] = {WEFT_PREC_F32, WEFT_PREC_BF16};
    float x[2][ROW], w[ROW], b[ROW] = {0}, mean, rstd[2], wide[2][ROW];
    uint32_t y[2][ROW], keep[ROW];
    for (int i = 0; i < ROW; i++) {
        x[1][i] = (float)(i % 5 + 1) * 0x1p25f, w[i] = (float)(1 + i % 3); /* exact in bf16 */
        x[0][i] = x[1][i] * 0x1p100f;
    }
    for (int p = 0; p < 2; p++) {
        const weft_kern_ops *op = &k->op[precs[p]];
        for (int norm = 0; norm < 3; norm++) {
            for (int i = 0; i < 2; i++) {
                if (norm == 0) op->rmsnorm_fwd(y[i], ROW, &rstd[i], x[i], ROW, w, 1, ROW, 1e-5, 1);
                else if (norm == 1) op->layernorm_fwd(y[i], ROW, &mean, &rstd[i], x[i], ROW, w, b, 1, ROW, 1e-5, 1);
                else op->to_compute(y[i], x[i], ROW, 1),
                     op->headnorm_fwd(y[i], ROW, keep, &rstd[i], w, 1, 1, ROW, 1e-5, 1);
                op->to_real(wide[i], y[i], ROW, 1);
            }
            for (int i = 0; i < ROW; i++)
                assert_at_most(fabs((double)wide[0][i] - (double)wide[1][i]), 1e-2 * fabs((double)wide[1][i]) + 1e-4);
            assert_true(wide[1][4] > 1);
        }
    }
}
ON_EACH(norms_of_huge_rows)

/* ---- whole arrays ------------------------------------------------------------------------------------ */

static void sumsq_is_exact_where_it_can_be_body(const weft_kern *k)
{
    static float x[300001];
    const int64_t sizes[] = {0, 1, 2, 3, 5, 7, 33, 257, 1001, 300001};
    for (int64_t i = 0; i < 300001; i++) x[i] = (float)(i % 7 - 3);
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        double want = 0;
        for (int64_t i = 0; i < sizes[s]; i++) want += (double)x[i] * (double)x[i]; /* integers: every order is exact */
        for (int threads = 1; threads <= 3; threads++)
            assert_true(k->op[WEFT_PREC_BF16].sumsq(x, sizes[s], threads) == want);
    }
    x[0] = 1e30f; /* its square is beyond float, and finite */
    assert_at_most(fabs(k->op[WEFT_PREC_F32].sumsq(x, 1, 1) / 1e60 - 1), 1e-6);
}
ON_EACH(sumsq_is_exact_where_it_can_be)

/* Every 16-bit pattern goes to fp32 and comes back; a NaN comes back as some NaN. */
static void sixteen_bits_survive_conversion_body(const weft_kern *k)
{
    static uint16_t all[65536], back[65536];
    static float wide[65536];
    for (int i = 0; i < 65536; i++) all[i] = (uint16_t)i;
    for (int p = WEFT_PREC_BF16; p <= WEFT_PREC_F16; p++)
        for (int threads = 1; threads <= 2; threads++) {
            const weft_dtype type = weft_prec_compute((weft_prec)p);
            k->op[p].to_real(wide, all, 65536, threads);
            k->op[p].to_compute(back, wide, 65536, threads);
            for (int i = 0; i < 65536; i++) {
                const double value = weft_load(all, type, i);
                if (isnan(value)) assert_true(isnan(wide[i]) && isnan(weft_load(back, type, i)));
                else assert_true(wide[i] == value && back[i] == all[i]);
            }
        }
}
ON_EACH(sixteen_bits_survive_conversion)

/* Rounding to nearest even, ties included, must not depend on the instruction set. */
static void rounding_equals_the_scalar_one_body(const weft_kern *k)
{
    enum { COUNT = 100003 };
    static float x[COUNT];
    static uint16_t c[COUNT];
    for (int64_t i = 0; i < COUNT; i++) {
        union { uint32_t u; float f; } bits = {weft_philox(3, (uint32_t)i, 0, 0, 0).w[0]};
        if (i % 3 == 0) bits.u = (bits.u & 0xffff0000u) | 0x8000u;         /* ties of bf16 */
        if (i % 3 == 1) bits.u = (bits.u & 0x8fffe000u) | 0x38001000u;     /* ties of fp16 */
        x[i] = bits.f;
    }
    k->op[WEFT_PREC_BF16].to_compute(c, x, COUNT, 1);
    for (int64_t i = 0; i < COUNT; i++)
        if (!isnan(x[i])) assert_int_equal(c[i], weft_f32_to_bf16(x[i]));
    k->op[WEFT_PREC_F16].to_compute(c, x, COUNT, 1);
    for (int64_t i = 0; i < COUNT; i++)
        if (!isnan(x[i])) assert_int_equal(c[i], weft_f32_to_f16(x[i]));
}
ON_EACH(rounding_equals_the_scalar_one)

/* Field report G31: weights and sums kept in bf16 stand still. The master is fp32 in the bf16 tables too. */
static void g31_small_updates_and_long_sums_are_not_lost_body(const weft_kern *k)
{
    const weft_kern_ops *op = &k->op[WEFT_PREC_BF16];
    const float step = -0.001f, one = 1;
    const weft_bf16 one_c = weft_f32_to_bf16(1);
    float master = 1, sum = 0, sum_c = 0;
    weft_bf16 copy;
    for (int i = 0; i < 100; i++) op->axpy(&master, &step, 1, 1, 1);
    op->to_compute(&copy, &master, 1, 1);
    assert_at_most(fabs(master - 0.9), 1e-5);
    assert_at_most(fabs(weft_bf16_to_f32(copy) - 0.8984375), 0);
    for (int i = 0; i < 512; i++) {
        op->axpy(&sum, &one, 1, 1, 1);
        op->add_real(&sum_c, 1, &one_c, 1, 1, 1, 1);
    }
    assert_true(sum == 512 && sum_c == 512);

    static weft_bf16 column[512]; /* and the sums over rows of bf16 */
    static float work[2 * 64];
    float db = 0;
    for (int i = 0; i < 512; i++) column[i] = one_c;
    op->bias_bwd(&db, column, 1, 512, 1, work, 1);
    assert_true(db == 512);
}
ON_EACH(g31_small_updates_and_long_sums_are_not_lost)

static int fill_constants(void **state)
{
    (void)state;
    for (int i = 0; i < N; i++) ones[i] = 1;
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(norms_ignore_scale_and_shift),
        cmocka_unit_test(norm_gradients_are_orthogonal),
        cmocka_unit_test(rope_backward_is_the_inverse),
        cmocka_unit_test(rope_sees_distances_only),
        cmocka_unit_test(activations_have_their_symmetries),
        cmocka_unit_test(activations_are_finite_far_out),
        cmocka_unit_test(xent_rows_sum_to_zero),
        cmocka_unit_test(xent_has_known_values),
        cmocka_unit_test(xent_ignored_rows_hide_nan_and_others_do_not),
        cmocka_unit_test(adamw_first_step_is_the_sign),
        cmocka_unit_test(adamw_of_a_shard_is_a_shard_of_adamw),
        cmocka_unit_test(adamw_moments_die_out),
        cmocka_unit_test(norms_of_huge_rows),
        cmocka_unit_test(sumsq_is_exact_where_it_can_be),
        cmocka_unit_test(sixteen_bits_survive_conversion),
        cmocka_unit_test(rounding_equals_the_scalar_one),
        cmocka_unit_test(g31_small_updates_and_long_sums_are_not_lost),
    };
    return cmocka_run_group_tests(tests, fill_constants, NULL);
}
