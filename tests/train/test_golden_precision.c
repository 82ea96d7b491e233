/* labels: small */ /* timeout: 300 */
/* The golden attention cases in 16 bits on up to 16 ranks, and fp64 on ranks against one rank: for each case one
 * strategy and layout of the grid here, each of them for some case; all of them for every case in
 * test_golden_grid.c. */
#include "harness/grid.h"
#include "harness/test.h"
#include "train/golden_grid.h"

static void g27_sixteen_bits_on_sixteen_ranks(void **state)
{
    (void)state;
    grid_deal deal = {0};
    golden_narrow("bf16", 16, &deal);
    golden_narrow("fp16", 4, &deal);
    grid_deal_check(&deal);
}

static void fp64_equals_one_rank(void **state)
{
    (void)state;
    grid_deal deal = {0};
    for (int P = 2; P <= 5; P += test_every(3)) golden_exact(P, &deal);
    grid_deal_check(&deal);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(g27_sixteen_bits_on_sixteen_ranks),
                                       cmocka_unit_test(fp64_equals_one_rank)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
