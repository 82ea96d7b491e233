/* labels: small */
/* Matrix products against plain loops in double: all transposes, types, betas, odd sizes, strided rows. */
#include "harness/place.h"
#include "harness/test.h"
#include "kern/gemm/gemm_impl.h"

#ifdef _OPENMP
#include <omp.h>
#endif

/* One product with operands of random values; C and the gaps between rows are filled with a pattern that
 * must survive where nothing is written. Behind the last row is a page that cannot be read. */
typedef struct problem {
    weft_gemm_args a;
    int64_t a_count, b_count, c_count;
    double *A, *B, *C, *want; /* values after rounding to the operands' types */
    void *a_data, *b_data, *c_data, *bias; /* bias: of the type of sums, or NULL */
} problem;

static void *typed(weft_dtype t, const double *x, int64_t n)
{
    void *p = place_new((size_t)n * weft_dtype_size(t), weft_dtype_size(t), PLACE_LAST);
    weft_convert(p, t, x, WEFT_F64, n);
    return p;
}

/* In (-1, 1), from a multiplicative hash: Philox would take most of this test's time. */
static double value(uint64_t seed, int64_t i)
{
    uint64_t h = ((uint64_t)i + (seed << 40)) * 0x9e3779b97f4a7c15u;
    h = (h ^ h >> 32) * 0xd6e8feb86659fd93u;
    return (double)(int64_t)(h ^ h >> 32) * 0x1p-63;
}

static double *values(uint64_t seed, weft_dtype t, int64_t n)
{
    double *x = malloc((size_t)(n ? n : 1) * sizeof *x);
    for (int64_t i = 0; i < n; i++) x[i] = value(seed, i);
    void *rounded = typed(t, x, n);
    weft_convert(x, WEFT_F64, rounded, t, n);
    place_free(rounded);
    return x;
}

static double at(const double *x, int64_t ld, bool trans, int64_t r, int64_t c)
{
    return trans ? x[c * ld + r] : x[r * ld + c];
}

static void naive(problem *p)
{
    const weft_gemm_args *a = &p->a;
    memcpy(p->want, p->C, (size_t)p->c_count * sizeof(double));
    for (int64_t i = 0; i < a->M; i++)
        for (int64_t j = 0; j < a->N; j++) {
            double s = a->beta ? p->C[i * a->ldc + j] : 0;
            if (p->bias) s += weft_load(p->bias, a->ab == WEFT_F64 ? WEFT_F64 : WEFT_F32, j);
            for (int64_t k = 0; k < a->K; k++)
                s += at(p->A, a->lda, a->trans_a, i, k) * at(p->B, a->ldb, a->trans_b, k, j);
            p->want[i * a->ldc + j] = s;
        }
}

/* No gap behind the last row. */
static int64_t count(int64_t rows, int64_t ld, int64_t gap) { return rows ? rows * ld - gap : 0; }

static problem make(weft_dtype ab, weft_dtype c, int64_t M, int64_t N, int64_t K, int trans, int beta, int64_t gap)
{
    problem p;
    memset(&p, 0, sizeof p);
    weft_gemm_args *a = &p.a;
    a->ab = ab, a->c = c, a->M = M, a->N = N, a->K = K, a->beta = beta;
    a->trans_a = trans & 1, a->trans_b = (trans & 2) != 0;
    a->lda = (a->trans_a ? M : K) + gap, a->ldb = (a->trans_b ? K : N) + gap, a->ldc = N + gap;
    p.a_count = count(a->trans_a ? K : M, a->lda, gap), p.b_count = count(a->trans_b ? N : K, a->ldb, gap);
    p.c_count = count(M, a->ldc, gap);
    p.A = values(1, ab, p.a_count), p.B = values(2, ab, p.b_count), p.C = values(3, c, p.c_count);
    p.want = malloc((size_t)(p.c_count + 1) * sizeof(double));
    p.a_data = typed(ab, p.A, p.a_count), p.b_data = typed(ab, p.B, p.b_count), p.c_data = typed(c, p.C, p.c_count);
    a->A = p.a_data, a->B = p.b_data, a->C = p.c_data;
    if (gap) { /* rows with gaps have a bias */
        double *bias = values(4, WEFT_F32, N);
        p.bias = typed(ab == WEFT_F64 ? WEFT_F64 : WEFT_F32, bias, N);
        a->bias = p.bias;
        free(bias);
    }
    naive(&p);
    return p;
}

static void drop(problem *p)
{
    free(p->A), free(p->B), free(p->C), free(p->want);
    place_free(p->a_data), place_free(p->b_data), place_free(p->c_data), place_free(p->bias);
}

/* Sum of K products of values below 1 in fp32: error at most K eps times the sum of moduli (<= K), and in
 * practice its square root; plus half a unit of the result's own rounding. */
static double limit(weft_dtype ab, weft_dtype c, int64_t K, double want)
{
    const double unit = c == WEFT_F64 ? 0x1p-53 : c == WEFT_F32 ? 0x1p-24 : c == WEFT_F16 ? 0x1p-11 : 0x1p-8;
    const double sum = ab == WEFT_F64 ? 0x1p-53 : 0x1p-24;
    return 2 * sum * (double)(K + 8) + unit * 1.01 * fabs(want) + 1e-7 * (c == WEFT_F16); /* fp16's subnormals */
}

static void check(weft_gemm *gemm, weft_dtype ab, weft_dtype c, int64_t M, int64_t N, int64_t K, int trans, int beta,
                  int64_t gap)
{
    problem p = make(ab, c, M, N, K, trans, beta, gap);
    assert_ok(weft_gemm_run(gemm, &p.a, NULL));
    for (int64_t i = 0; i < p.c_count; i++) {
        const double got = weft_load(p.c_data, c, i), want = p.want[i];
        const double lim = i % p.a.ldc < N ? limit(ab, c, K, want) : 0;
        if (!(fabs(got - want) <= lim))
            fail_msg("%s/%s M %d N %d K %d trans %d beta %d gap %d: C[%d, %d] = %.9g, not %.9g (limit %.2e)",
                     weft_dtype_name(ab), weft_dtype_name(c), (int)M, (int)N, (int)K, trans, beta, (int)gap,
                     (int)(i / p.a.ldc), (int)(i % p.a.ldc), got, want, lim);
    }
    drop(&p);
}

static const struct { weft_dtype ab, c; } types[] = {
    {WEFT_F64, WEFT_F64}, {WEFT_F32, WEFT_F32}, {WEFT_BF16, WEFT_F32}, {WEFT_BF16, WEFT_BF16}, {WEFT_F16, WEFT_F32},
    {WEFT_F16, WEFT_F16}};

static void each_product(weft_isa isa)
{
    static const int64_t sizes[][3] = {{1, 1, 1}, {1, 7, 33}, {7, 1, 5}, {5, 33, 1}, {2, 3, 257}, {33, 257, 7},
                                       {257, 5, 33}, {65, 65, 65},
                                       {3, 1001, 2}, {0, 5, 7}, {5, 0, 7}, {5, 7, 0}, {0, 0, 0}};
    weft_ctx ctx;
    weft_gemm *gemm;
    weft_ctx_init(&ctx);
    assert_ok(weft_gemm_create(&gemm, &ctx, (int)isa));
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++)
        for (size_t t = 0; t < sizeof types / sizeof *types; t++)
            for (int variant = 0; variant < 8; variant++) /* strided and dense rows take turns */
                check(gemm, types[t].ab, types[t].c, sizes[s][0], sizes[s][1], sizes[s][2], variant & 3, variant >> 2,
                      (variant + (int)s) % 2 ? 3 : 0);
    weft_gemm_destroy(gemm);
}

/* Threads are set per call, and the caller's number comes back. */
static void threads_are_the_contexts(void **state)
{
    (void)state;
    weft_ctx ctx;
    weft_gemm *gemm;
    weft_ctx_init(&ctx);
    assert_ok(weft_gemm_create(&gemm, &ctx, (int)weft_isa_best()));
#ifdef _OPENMP
    omp_set_num_threads(5);
#endif
    for (ctx.threads = 1; ctx.threads <= 3; ctx.threads++)
        for (size_t t = 0; t < sizeof types / sizeof *types; t++)
            check(gemm, types[t].ab, types[t].c, 70, 65, 33, 1, 1, 2);
#ifdef _OPENMP
    assert_int_equal(omp_get_max_threads(), 5);
#endif
    weft_gemm_destroy(gemm);
}

static void ref_equals_naive(void **state) { (void)state; each_product(WEFT_ISA_REF); }

/* oneDNN can be limited once per process: the strongest set comes in this executable, avx2 in
 * test_gemm_avx2.c. */
static void best_equals_naive(void **state) { (void)state; each_product(weft_isa_best()); }

static weft_gemm *best_gemm(weft_ctx *ctx)
{
    weft_gemm *gemm = NULL;
    weft_ctx_init(ctx);
    assert_ok(weft_gemm_create(&gemm, ctx, (int)weft_isa_best()));
    return gemm;
}

/* More rows, columns and products than a block holds, with remainders; sums of 16-bit results between blocks of K. */
static void packed_blocks_cover_the_result(void **state)
{
    (void)state;
    static const int64_t sizes[][3] = {{GEMM_MC + 3, 5, 3}, {3, GEMM_NC + 6, 5}, {5, 35, 2 * GEMM_KC + 3},
                                       {115, 259, 9}};
    static const weft_dtype ab[] = {WEFT_F32, WEFT_BF16, WEFT_F16};
    if (weft_isa_best() == WEFT_ISA_REF) skip();
    weft_ctx ctx;
    weft_gemm *gemm = best_gemm(&ctx);
    for (int i = 0; i < 4 * 3 * 8; i++) {
        const int64_t *n = sizes[i / 24];
        const weft_dtype type = ab[i % 3], c = i % 2 ? type : WEFT_F32;
        problem p = make(type, c, n[0], n[1], n[2], i / 3 & 3, i / 12 & 1, i % 3);
        ctx.threads = 1 + i % 3;
        assert_ok(weft_gemm_packed(gemm, &p.a));
        for (int64_t x = 0; x < p.c_count; x++)
            assert_at_most(fabs(weft_load(p.c_data, c, x) - p.want[x]),
                           x % p.a.ldc < n[1] ? limit(type, c, n[2], p.want[x]) : 0);
        drop(&p);
    }
    weft_gemm_destroy(gemm);
}

/* A row computed alone, by another number of threads, has the bits that it has among others. */
static void packed_rows_do_not_depend_on_their_company(void **state)
{
    (void)state;
    if (weft_isa_best() == WEFT_ISA_REF) skip();
    weft_ctx ctx;
    weft_gemm *gemm = best_gemm(&ctx);
    problem p = make(WEFT_BF16, WEFT_F32, 131, 300, GEMM_KC + 33, 2, 0, 0);
    float *one = malloc((size_t)p.c_count * sizeof *one);
    ctx.threads = 3;
    assert_ok(weft_gemm_packed(gemm, &p.a));
    ctx.threads = 1;
    for (int64_t r = 0; r < 131; r += 17) {
        weft_gemm_args part = p.a;
        part.M = r + 17 > 131 ? 131 - r : 17;
        part.A = (const weft_bf16 *)p.a.A + r * p.a.lda;
        part.C = one + r * p.a.ldc;
        assert_ok(weft_gemm_packed(gemm, &part));
    }
    assert_memory_equal(one, p.c_data, (size_t)p.c_count * sizeof *one);
    free(one);
    drop(&p);
    weft_gemm_destroy(gemm);
}

/* oneDNN's bf16 is chosen with AMX only; every AVX-512 machine can run it, so it is tested there too. */
static void native_bf16_equals_naive(void **state)
{
    (void)state;
    if (weft_isa_best() < WEFT_ISA_AVX512) skip();
    weft_ctx ctx;
    weft_gemm *gemm;
    weft_ctx_init(&ctx);
    assert_ok(weft_gemm_create(&gemm, &ctx, (int)weft_isa_best()));
    for (int variant = 0; variant < 16; variant++) {
        const weft_dtype c = variant & 8 ? WEFT_F32 : WEFT_BF16;
        problem p = make(WEFT_BF16, c, 33, 65, 257, variant & 3, variant >> 2 & 1, variant % 3);
        assert_ok(weft_gemm_dnn_run(gemm, &p.a));
        for (int64_t i = 0; i < p.c_count; i++)
            assert_at_most(fabs(weft_load(p.c_data, c, i) - p.want[i]),
                           i % p.a.ldc < 65 ? limit(WEFT_BF16, c, 257, p.want[i]) : 0);
        drop(&p);
    }
    weft_gemm_destroy(gemm);
}

/* What fp64 runs rely on: rows computed alone or together, with one thread or three, are the same bits. */
static void ref_rows_do_not_depend_on_their_company(void **state)
{
    (void)state;
    problem p = make(WEFT_F64, WEFT_F64, 67, 70, 129, 0, 0, 0);
    weft_ctx ctx;
    weft_gemm *gemm;
    weft_ctx_init(&ctx);
    assert_ok(weft_gemm_create(&gemm, &ctx, 0));
    assert_ok(weft_gemm_run(gemm, &p.a, NULL));
    double *one = malloc((size_t)p.c_count * sizeof(double));
    ctx.threads = 3;
    for (int64_t r = 0; r < 67; r += 13) {
        weft_gemm_args part = p.a;
        part.M = r + 13 > 67 ? 67 - r : 13;
        part.A = (const double *)p.a.A + r * p.a.lda;
        part.C = one + r * p.a.ldc;
        assert_ok(weft_gemm_run(gemm, &part, NULL));
    }
    assert_memory_equal(one, p.c_data, (size_t)p.c_count * sizeof(double));
    free(one);
    drop(&p);
    weft_gemm_destroy(gemm);
}

/* A NaN in C must not survive beta = 0, and operands that are not finite must be seen in the result. */
static void beta_zero_overwrites_nan(void **state)
{
    (void)state;
    for (size_t t = 0; t < sizeof types / sizeof *types; t++)
        for (int isa = 0; isa < 2; isa++) {
            weft_ctx ctx;
            weft_gemm *gemm;
            weft_ctx_init(&ctx);
            assert_ok(weft_gemm_create(&gemm, &ctx, isa ? (int)weft_isa_best() : 0));
            problem p = make(types[t].ab, types[t].c, 5, 7, 33, 0, 0, 1);
            for (int64_t i = 0; i < p.c_count; i++) weft_store(p.c_data, types[t].c, i, NAN);
            assert_ok(weft_gemm_run(gemm, &p.a, NULL));
            for (int64_t i = 0; i < 35; i++) assert_true(isfinite(weft_load(p.c_data, types[t].c, i / 7 * 8 + i % 7)));
            weft_store(p.a_data, types[t].ab, 2 * p.a.lda, NAN);
            assert_ok(weft_gemm_run(gemm, &p.a, NULL));
            for (int64_t i = 0; i < 35; i++)
                assert_int_equal(isnan(weft_load(p.c_data, types[t].c, i / 7 * 8 + i % 7)) != 0, i / 7 == 2);
            drop(&p);
            weft_gemm_destroy(gemm);
        }
}

/* The second run of a list of shapes allocates nothing; the account holds what weft_gemm_bytes says. */
static void allocates_for_new_shapes_only(void **state)
{
    (void)state;
    weft_ctx ctx;
    weft_gemm *gemm;
    weft_ctx_init(&ctx);
    assert_ok(weft_gemm_create(&gemm, &ctx, (int)weft_isa_best()));
    int64_t after_first = 0;
    for (int pass = 0; pass < 2; pass++) {
        for (int64_t n = 1; n <= 80; n++) { /* more shapes than the first table holds */
            problem p = make(n % 2 ? WEFT_F32 : WEFT_F16, WEFT_F32, n, 3, 5, (int)(n % 4), 0, 0);
            assert_ok(weft_gemm_run(gemm, &p.a, NULL));
            drop(&p);
        }
        if (pass == 0) after_first = ctx.mem.allocations;
    }
    assert_int_equal(ctx.mem.allocations, after_first);
    assert_true(weft_gemm_bytes(gemm) <= ctx.mem.bytes);
    weft_gemm_destroy(gemm);
    assert_int_equal(ctx.mem.bytes, 0);
}

static void bad_products_are_refused(void **state)
{
    (void)state;
    weft_ctx ctx;
    weft_gemm *gemm;
    float x[64] = {0};
    weft_ctx_init(&ctx);
    assert_ok(weft_gemm_create(&gemm, &ctx, 0));
    const weft_gemm_args good = {.ab = WEFT_F32, .c = WEFT_F32, .M = 2, .N = 3, .K = 4, .A = x, .lda = 4, .B = x,
                                 .ldb = 3,
                                 .C = x + 32, .ldc = 3};
    assert_ok(weft_gemm_run(gemm, &good, NULL));
    weft_gemm_args a = good;
    a.lda = 3;
    assert_refused(weft_gemm_run(gemm, &a, NULL), "leading dimension of A is 3");
    a = good, a.trans_b = true; /* stored [3, 4]: ldb 3 is too small */
    assert_refused(weft_gemm_run(gemm, &a, NULL), "leading dimension of B");
    a = good, a.ldc = 2;
    assert_refused(weft_gemm_run(gemm, &a, NULL), "leading dimension of C");
    a = good, a.beta = 2;
    assert_refused(weft_gemm_run(gemm, &a, NULL), "beta is 2");
    a = good, a.M = -1;
    assert_refused(weft_gemm_run(gemm, &a, NULL), "negative");
    a = good, a.B = NULL;
    assert_refused(weft_gemm_run(gemm, &a, NULL), "B is NULL");
    a = good, a.c = WEFT_BF16;
    assert_refused(weft_gemm_run(gemm, &a, NULL), "gemm of fp32 into bf16");
    weft_gemm_destroy(gemm);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(best_equals_naive),
        cmocka_unit_test(ref_equals_naive),
        cmocka_unit_test(threads_are_the_contexts),
        cmocka_unit_test(packed_blocks_cover_the_result),
        cmocka_unit_test(packed_rows_do_not_depend_on_their_company),
        cmocka_unit_test(native_bf16_equals_naive),
        cmocka_unit_test(ref_rows_do_not_depend_on_their_company),
        cmocka_unit_test(beta_zero_overwrites_nan),
        cmocka_unit_test(allocates_for_new_shapes_only),
        cmocka_unit_test(bad_products_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
