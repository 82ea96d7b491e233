/* fp32 and 16-bit runs do not lose accuracy as P grows: running state and travelling sums are fp32. */
/* labels: small */
/* mpi-long: 8 */
/* timeout: 240 */
#include "harness/test.h"
#include "harness/cp_case.h"

static const int ranks[] = {1, 2, 3, 4, 5, 8};
enum { RANKS = sizeof ranks / sizeof *ranks };

static void fp32_masks(void **state)
{
    (void)state;
    static const weft_mask masks[] = {
        {true, -1, -1, 0}, {false, -1, -1, 0}, {true, 16, -1, 0}, {false, 5, 9, 0}, {true, -1, -1, 20}};
    for (size_t m = 0; m < sizeof masks / sizeof *masks; m++) {
        cp_case c = {.name = "fp32", .prec = WEFT_PREC_F32, .B = 1, .Tq = 101, .T = 101, .H = 4, .Hkv = 2, .D = 16,
                     .Dv = 16,
                     .mask = masks[m], .sinks = m == 2, .seed = 3 + m};
        cp_check_all(&c, ranks, RANKS, 2e-6, 1e-6, 0.1);
    }
}

static void fp32_long_row(void **state)
{
    (void)state;
    cp_case c = {.name = "fp32 long", .prec = WEFT_PREC_F32, .B = 1, .Tq = 257, .T = 257, .H = 2, .Hkv = 1, .D = 16,
                 .Dv = 16, .mask = {true, -1, -1, 0}, .seed = 9};
    cp_check_all(&c, ranks, RANKS, 2e-6, 1e-6, 0.1);
}

/* Large logits: exp of a difference of two maxima must never be taken the wrong way round. */
static double large(const cp_case *c, char what, int64_t b, int64_t t, int h, int d)
{
    int64_t i = ((b * 1000 + t) * 100 + h) * 300 + d;
    return test_normal(c->seed + (uint64_t)what, i) * (what == 'q' ? 20 : 1);
}

static void large_logits(void **state)
{
    (void)state;
    cp_case c = {.name = "large logits", .prec = WEFT_PREC_F64, .B = 1, .Tq = 65, .T = 65, .H = 2, .Hkv = 2, .D = 64,
                 .Dv = 8, .mask = {true, -1, -1, 0}, .seed = 2, .value = large};
    /* scores near 1e3 leave 1e-16 * 1e3 in the exponent, hence 1e-12 only just */
    cp_check_all(&c, ranks, RANKS, 1e-11, 1e-12, 1);
    c.prec = WEFT_PREC_F32;
    /* the same factor for fp32: 6e-8 * scores of 100 */
    cp_check_all(&c, ranks, RANKS, 4e-5, 4e-5, 0.1);
}

/* 16-bit partial results would make the error grow with P. Error against the specification, per tensor. */
static void g27_error_does_not_grow_with_P(void **state)
{
    (void)state;
    for (int prec = WEFT_PREC_BF16; prec <= WEFT_PREC_F16; prec++) {
        cp_case c = {.name = "G27", .prec = (weft_prec)prec, .B = 1, .Tq = 256, .T = 256, .H = 4, .Hkv = 4, .D = 64,
                     .Dv = 64, .mask = {true, -1, -1, 0}, .seed = 27};
        cp_data data = cp_data_make(&c);
        cp_result *want = cp_result_make(&c, 1), *one = cp_result_make(&c, 1);
        cp_job job = {&c, &data, "none", WEFT_LAYOUT_ZIGZAG, true, 1, NULL, one, {0}};
        cp_reference(&c, &data, want);
        assert_ok(cp_run(1, &job, 1));
        for (int P = 2; P <= 8; P *= 2) {
            job.strategy = P == 4 ? "pcp" : "ring";
            job.out = cp_result_make(&c, P);
            assert_ok(cp_run(P, &job, 1));
            int64_t n = 256 * 4 * 64;
            const double *x[] = {job.out->o, job.out->dq, job.out->dk, job.out->dv},
                         *x1[] = {one->o, one->dq, one->dk, one->dv};
            const double *ref[] = {want->o, want->dq, want->dk, want->dv};
            for (int i = 0; i < 4; i++)
                assert_at_most(weft_rel_l2(x[i], WEFT_F64, ref[i], WEFT_F64, n, 0),
                               1.25 * weft_rel_l2(x1[i], WEFT_F64, ref[i], WEFT_F64, n, 0));
            cp_result_free(job.out);
        }
        cp_result_free(want);
        cp_result_free(one);
        cp_data_free(&data);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fp32_masks), cmocka_unit_test(fp32_long_row), cmocka_unit_test(large_logits),
        cmocka_unit_test(g27_error_does_not_grow_with_P),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
