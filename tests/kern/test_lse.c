/* The logarithm of a row's sum, from the final m and l: the very bits that finish reports, with and without sinks,
 * in every table. Strategies that get m and l back from other ranks rely on it. */
/* labels: small */
#include "harness/test.h"
#include "kern/kern.h"

enum { ROWS = 257, H = 3, DV = 5, N = ROWS * H };

static void fill(weft_dtype R, void *acc, void *m, void *l, void *sinks)
{
    for (int64_t i = 0; i < N; i++) {
        double x = test_normal(1, i);
        weft_store(m, R, i, i % 7 == 3 ? -INFINITY : 40 * x);
        weft_store(l, R, i, i % 7 == 3 ? 0 : 1 + 300 * test_normal(2, i) * test_normal(2, i));
    }
    for (int64_t i = 0; i < N * DV; i++) weft_store(acc, R, i, test_normal(3, i));
    for (int h = 0; h < H; h++) weft_store(sinks, R, h, h == 1 ? -INFINITY : 3.0 * h - 1);
}

static void check(const weft_attn_ops *ops, weft_prec prec, bool sinks, int threads)
{
    static double acc[N * DV], m[N], l[N], o[N * DV], from_finish[N], from_state[N], sink[H];
    const weft_dtype R = weft_prec_real(prec);
    const weft_attn_desc d = {.H = H, .Hkv = H, .D = DV, .Dv = DV, .group = 1, .scale = 1, .mask = {false, -1, -1, 0}};
    fill(R, acc, m, l, sink);
    ops->finish(&d, o, (int64_t)H * DV, from_finish, acc, m, l, sinks ? sink : NULL, ROWS, threads);
    ops->lse(from_state, m, l, N);
    assert_memory_equal(from_state, from_finish, (size_t)N * weft_dtype_size(R));
    for (int64_t i = 0; i < N; i++) {
        double want = weft_load(l, R, i) == 0 ? -INFINITY : weft_load(m, R, i) + log(weft_load(l, R, i));
        double got = weft_load(from_state, R, i);
        assert_true(got == want || fabs(got - want) <= (R == WEFT_F64 ? 1e-14 : 3e-7) * fmax(1, fabs(want)));
    }
}

static void same_as_finish(void **state)
{
    (void)state;
    for (int isa = WEFT_ISA_REF; isa <= (int)weft_isa_best(); isa++) {
        weft_kern kern;
        if (!weft_isa_available((weft_isa)isa)) continue;
        assert_ok(weft_kern_init(&kern, (weft_isa)isa));
        for (int p = 0; p < WEFT_PREC_COUNT; p++)
            for (int sinks = 0; sinks < 2; sinks++)
                for (int threads = 1; threads <= 3; threads += 2)
                    check(&kern.op[p].attn, (weft_prec)p, sinks, threads);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(same_as_finish)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
