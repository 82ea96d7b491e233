/* Shapes, tables of tensors, and the comparisons that every other test relies on. */
#include "harness/test.h"
#include "tensor/tensor.h"

static void counts_are_checked(void **state)
{
    (void)state;
    int64_t n = -1;
    assert_ok(weft_count_of((int64_t[]){2, 96, 4}, 3, "q", &n));
    assert_int_equal(n, 768);
    assert_ok(weft_count_of(NULL, 0, "scalar", &n));
    assert_int_equal(n, 1);
    assert_ok(weft_count_of((int64_t[]){5, 0, 7}, 3, "empty", &n));
    assert_int_equal(n, 0);
    assert_ok(weft_count_of((int64_t[]){64, 16, 2048, 2048}, 4, "scores", &n));
    assert_true(n == INT64_C(1) << 32);
    assert_refused(weft_count_of((int64_t[]){INT64_C(1) << 32, INT64_C(1) << 31}, 2, "q", &n), "q: the product");
    assert_refused(weft_count_of((int64_t[]){4, -1}, 2, "q", &n), "q: dimension 1 is -1");
    assert_true(n == INT64_C(1) << 32); /* written on success only */
}

static void shapes(void **state)
{
    (void)state;
    weft_view a = {.nd = 3, .shape = {2, 96, 4}}, b = a;
    char buf[64], tight[8];
    assert_int_equal(weft_view_count(&a), 768);
    assert_true(weft_same_shape(&a, &b));
    b.shape[3] = 9; /* beyond nd */
    assert_true(weft_same_shape(&a, &b));
    b.shape[2] = 5;
    assert_false(weft_same_shape(&a, &b));
    b = a, b.nd = 2;
    assert_false(weft_same_shape(&a, &b));
    assert_string_equal(weft_shape_text(a.shape, 3, buf, sizeof buf), "[2, 96, 4]");
    assert_string_equal(weft_shape_text(a.shape, 0, buf, sizeof buf), "[]");
    weft_shape_text(a.shape, 3, tight, sizeof tight);
    assert_true(strlen(tight) < sizeof tight);
}

static void specs_are_found(void **state)
{
    (void)state;
    const weft_spec table[] = {{.name = "a"}, {.name = "ab"}, {.name = "b"}};
    assert_ptr_equal(weft_spec_find(table, 3, "ab"), &table[1]);
    assert_null(weft_spec_find(table, 3, "abc"));
    assert_null(weft_spec_find(table, 1, "b"));
}

static void relative_error(void **state)
{
    (void)state;
    const double ref[] = {3, 4}, x[] = {3, 4.5};
    const float xf[] = {3, 4.5f};
    assert_at_most(fabs(weft_rel_l2(x, WEFT_F64, ref, WEFT_F64, 2, 0) - 0.1), 1e-16);
    assert_at_most(fabs(weft_rel_l2(xf, WEFT_F32, ref, WEFT_F64, 2, 0) - 0.1), 1e-16);
    assert_at_most(fabs(weft_rel_l2(x, WEFT_F64, ref, WEFT_F64, 2, 50) - 0.01), 1e-17); /* the floor counts */
    assert_true(weft_rel_l2(ref, WEFT_F64, ref, WEFT_F64, 2, 0) == 0);
    assert_true(weft_norm2(ref, WEFT_F64, 2) == 5);
    const double zero[] = {0, 0};
    assert_true(weft_rel_l2(zero, WEFT_F64, zero, WEFT_F64, 2, 0) == 0);
    assert_true(isinf(weft_rel_l2(x, WEFT_F64, zero, WEFT_F64, 2, 0)));
    assert_true(weft_rel_l2(x, WEFT_F64, ref, WEFT_F64, 0, 0) == 0);
}

/* A value that is not finite, on either side, must never look small. */
static void not_finite_is_far(void **state)
{
    (void)state;
    static const double bad[] = {NAN, INFINITY, -INFINITY};
    const double ref[] = {1, 2, 3};
    for (int i = 0; i < 3; i++)
        for (int at = 0; at < 3; at++) {
            double x[] = {1, 2, 3};
            x[at] = bad[i];
            assert_true(weft_rel_l2(x, WEFT_F64, ref, WEFT_F64, 3, 1) == INFINITY);
            assert_true(weft_rel_l2(ref, WEFT_F64, x, WEFT_F64, 3, 1) == INFINITY);
            assert_true(weft_rel_l2(x, WEFT_F64, x, WEFT_F64, 3, 1) == INFINITY);
            assert_true(weft_max_scaled(x, WEFT_F64, ref, WEFT_F64, 3) == INFINITY);
            assert_true(weft_max_scaled(ref, WEFT_F64, x, WEFT_F64, 3) == INFINITY);
        }
}

static void scaled_error(void **state)
{
    (void)state;
    const double ref[] = {0.5, 100, -INFINITY}, x[] = {0.75, 101, -INFINITY};
    /* max(0.25 / 1, 1 / 100); equal infinities: 0 */
    assert_true(weft_max_scaled(x, WEFT_F64, ref, WEFT_F64, 3) == 0.25);
    const double other[] = {0.5, 100, INFINITY};
    assert_true(weft_max_scaled(other, WEFT_F64, ref, WEFT_F64, 3) == INFINITY);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(counts_are_checked), cmocka_unit_test(shapes), cmocka_unit_test(specs_are_found),
        cmocka_unit_test(relative_error), cmocka_unit_test(not_finite_is_far), cmocka_unit_test(scaled_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
