/* Philox against the vectors of its authors' library, the counter's fields, uniforms, normals, permutation. */
#include "harness/test.h"

static void known_answers(void **state)
{
    (void)state;
    static const struct { uint64_t key; uint32_t counter[4], out[4]; } kat[] = {
        {0, {0, 0, 0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
        {UINT64_MAX, {~0u, ~0u, ~0u, ~0u}, {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
        /* digits of pi; key words a4093822, 299f31d0 */
        {0x299f31d0a4093822u, {0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
         {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
    };
    for (size_t i = 0; i < sizeof kat / sizeof *kat; i++) {
        const uint32_t *c = kat[i].counter;
        weft_philox_out r = weft_philox(kat[i].key, c[0], c[1], c[2], c[3]);
        assert_memory_equal(r.w, kat[i].out, sizeof r.w);
    }
}

/* Every field of the address changes the value, and no field runs into its neighbour. */
static void fields_are_apart(void **state)
{
    (void)state;
    assert_int_equal(weft_philox_word2(0xffff, 0), 0x0000ffffu);
    assert_int_equal(weft_philox_word2(0x10000, 0), 0); /* wraps inside its field */
    assert_int_equal(weft_philox_word2(0, 0xffff), 0xffff0000u);
    assert_int_equal(weft_philox_word3(0xfffff, 0, WEFT_SITE_INIT), 0x000fffffu);
    assert_int_equal(weft_philox_word3(0x100000, 0, WEFT_SITE_INIT), 0);
    assert_int_equal(weft_philox_word3(0, 0xff, WEFT_SITE_INIT), 0x0ff00000u);
    assert_int_equal(weft_philox_word3(0, 0x100, WEFT_SITE_INIT), 0);
    assert_int_equal(weft_philox_word3(0, 0, WEFT_SITE_DROP_RESIDUAL), 0x50000000u);
}

static void uniform_range(void **state)
{
    (void)state;
    assert_true(weft_uniform(0) == 0.0f);
    assert_true(weft_uniform(UINT32_MAX) == 1.0f - 0x1p-24f);
    assert_true(weft_uniform(0x80000000u) == 0.5f);
}

/* Means over 100,000 draws: the limits are six standard deviations of the mean. */
static void normals(void **state)
{
    (void)state;
    enum { N = 50000 };
    double sum = 0, square = 0, product = 0, fourth = 0, z[2];
    for (uint32_t i = 0; i < N; i++) {
        weft_philox_out r = weft_philox(42, i, 0, 0, 0);
        weft_normal_pair(r.w[0], r.w[1], z);
        sum += z[0] + z[1];
        square += z[0] * z[0] + z[1] * z[1];
        fourth += pow(z[0], 4) + pow(z[1], 4);
        product += z[0] * z[1];
    }
    const double root = sqrt(2.0 * N);
    assert_at_most(fabs(sum / (2 * N)), 6 / root);
    assert_at_most(fabs(square / (2 * N) - 1), 6 * sqrt(2) / root);
    assert_at_most(fabs(fourth / (2 * N) - 3), 6 * sqrt(96) / root);
    assert_at_most(fabs(product / N), 6 / sqrt(N));
    /* The ends of the words give finite numbers. */
    static const uint32_t ends[] = {0, 1, UINT32_MAX};
    for (int a = 0; a < 3; a++)
        for (int b = 0; b < 3; b++) {
            weft_normal_pair(ends[a], ends[b], z);
            assert_true(isfinite(z[0]) && isfinite(z[1]));
        }
}

static void permutation_is_a_bijection(void **state)
{
    (void)state;
    static const int64_t sizes[] = {1, 2, 3, 4, 5, 7, 15, 16, 17, 33, 257, 1001, 4096, 4097};
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++)
        for (uint32_t epoch = 0; epoch < 3; epoch++) {
            char *seen = calloc((size_t)sizes[s], 1);
            assert_non_null(seen);
            for (int64_t i = 0; i < sizes[s]; i++) {
                int64_t j = weft_permute(7, epoch, sizes[s], i);
                assert_true(j >= 0 && j < sizes[s] && !seen[j]);
                seen[j] = 1;
            }
            free(seen);
        }
    int64_t j = weft_permute(7, 0, INT64_C(1) << 40, (INT64_C(1) << 40) - 1);
    assert_true(j >= 0 && j < INT64_C(1) << 40);
}

static void permutation_depends_on_seed_and_epoch(void **state)
{
    (void)state;
    int same_epoch = 0, same_seed = 0, in_place = 0;
    for (int64_t i = 0; i < 1001; i++) {
        int64_t j = weft_permute(1, 0, 1001, i);
        assert_true(j == weft_permute(1, 0, 1001, i));
        same_epoch += j == weft_permute(1, 1, 1001, i);
        same_seed += j == weft_permute(2, 0, 1001, i);
        in_place += j == i;
    }
    /* A random pair agrees about once in 1001; ten would be one in ten million. */
    assert_true(same_epoch < 10 && same_seed < 10 && in_place < 10);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(known_answers), cmocka_unit_test(fields_are_apart), cmocka_unit_test(uniform_range),
        cmocka_unit_test(normals), cmocka_unit_test(permutation_is_a_bijection),
        cmocka_unit_test(permutation_depends_on_seed_and_epoch),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
