/* labels: small */ /* timeout: 300 */
/* Every golden attention case, by every strategy and layout, on 1 to 8 ranks, against float64 numbers that an
 * independent implementation made. fp64 is compared with one rank through the written tensors. */
#include "harness/test.h"
#include "harness/run.h"

#include <unistd.h>

static test_verdict run_case(const char *path, const char *strategy, const char *layout, int P, const char *precision,
                             const char *isa, const char *out)
{
    char ranks[16];
    test_run r;
    snprintf(ranks, sizeof ranks, "%d", P);
    const char *words[] = {"--cp",        ranks,     "--cp-strategy", strategy, "--cp-layout",        layout,
                           "--precision", precision, "--isa",         isa,      out ? "--out" : NULL, out,
                           NULL};
    test_run_open(&r, WEFT_CMD_ATTENTION, words);
    test_verdict v = test_verify(&r, P, NULL, path, 5);
    test_run_close(&r);
    return v;
}

static const char *const strategies[] = {"pcp", "ring"}, *const layouts[] = {"contiguous", "zigzag"};

static void all_cases(const int *sizes, int n_sizes, const char *precision, const char *isa)
{
    char path[TEST_FILES_MAX][512];
    int n = test_golden_files("attention", ".safetensors", path);
    assert_true(n >= 29);
    for (int i = 0; i < n; i++) {
        run_case(path[i], "none", "contiguous", 1, precision, isa, NULL);
        for (int p = 0; p < n_sizes; p++)
            for (int s = 0; s < 2; s++)
                for (int l = 0; l < 2; l++)
                    run_case(path[i], strategies[s], layouts[l], sizes[p], precision, isa, NULL);
    }
}

static void fp32_every_size(void **state)
{
    (void)state;
    all_cases((const int[]){1, 2, 3, 4, 5, 8}, 6, "fp32", "best");
}

static void fp32_every_isa(void **state)
{
    (void)state;
    static const char *const names[] = {"ref", "avx2", "avx512"};
    for (int i = 0; i < 3; i++) {
        weft_isa isa;
        assert_true(weft_isa_parse(names[i], &isa));
        if (weft_isa_available(isa)) all_cases((const int[]){3}, 1, "fp32", names[i]);
    }
}

/* Design 6: 16-bit inputs lose no more on many ranks than on one, because partial results stay fp32: at most
 * 1.25 times the error at P = 1, or below a quarter of the limit. */
static void sixteen_bits(const char *precision)
{
    char path[TEST_FILES_MAX][512];
    int n = test_golden_files("attention", ".safetensors", path);
    for (int i = 0; i < n; i++) {
        test_verdict one = run_case(path[i], "none", "contiguous", 1, precision, "best", NULL);
        for (int k = 0; k < 6; k++) {
            test_verdict many = run_case(path[i], strategies[k % 2], layouts[k / 2 % 2],
                                         k < 3   ? 2
                                         : k < 5 ? 4
                                                 : 8,
                                         precision, "best", NULL);
            for (int t = 0; t < many.n; t++)
                if (!(many.error[t] <= fmax(1.25 * one.error[t], many.limit[t] / 4)))
                    fail_msg("%s, %s: finding %d: %.2e on ranks, %.2e on one", path[i], precision, t, many.error[t],
                             one.error[t]);
        }
    }
}

static void bf16(void **state)
{
    (void)state;
    sixteen_bits("bf16");
}

static void fp16(void **state)
{
    (void)state;
    sixteen_bits("fp16");
}

static double largest_difference(const char *a, const char *b)
{
    weft_st *x = NULL, *y = NULL;
    double worst = 0;
    assert_ok(weft_st_open(&x, a));
    assert_ok(weft_st_open(&y, b));
    const weft_view *dout = weft_st_find(y, "o");
    assert_int_equal(weft_st_count(x), weft_st_count(y));
    for (int i = 0; i < weft_st_count(x); i++) {
        const weft_st_entry *e = weft_st_at(x, i);
        const weft_view *want = weft_st_find(y, e->name);
        assert_non_null(want);
        assert_int_equal(e->view.dtype, WEFT_F64);
        int64_t count = weft_view_count(want);
        double floor = weft_norm2(dout->data, dout->dtype, weft_view_count(dout)) / 100;
        double d = !strcmp(e->name, "lse") ? weft_max_scaled(e->view.data, WEFT_F64, want->data, WEFT_F64, count)
                                           : weft_rel_l2(e->view.data, WEFT_F64, want->data, WEFT_F64, count, floor);
        if (!(d <= worst)) worst = d;
    }
    weft_st_close(x);
    weft_st_close(y);
    return worst;
}

static void fp64_equals_one_rank(void **state)
{
    (void)state;
    char path[TEST_FILES_MAX][512], one[64], many[64];
    int n = test_golden_files("attention", ".safetensors", path);
    snprintf(one, sizeof one, "/tmp/weft-test-one-%ld.safetensors", (long)getpid());
    snprintf(many, sizeof many, "/tmp/weft-test-many-%ld.safetensors", (long)getpid());
    for (int i = 0; i < n; i++) {
        run_case(path[i], "none", "contiguous", 1, "fp64", "ref", one);
        for (int P = 2; P <= 5; P++) {
            run_case(path[i], strategies[P % 2], layouts[P / 2 % 2], P, "fp64", "ref", many);
            double d = largest_difference(many, one);
            if (!(d <= 1e-12))
                fail_msg("%s: %s %s P=%d differs from one rank by %.2e", path[i], strategies[P % 2], layouts[P / 2 % 2],
                         P, d);
        }
    }
    unlink(one);
    unlink(many);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(fp32_every_size), cmocka_unit_test(fp32_every_isa),
                                       cmocka_unit_test(bf16), cmocka_unit_test(fp16),
                                       cmocka_unit_test(fp64_equals_one_rank)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
