/* labels: small noasan */
/* The covering set of layouts for `weft verify`: it covers what it says, and its first small rows hold. All of them:
 * test_verify_matrix_long.c. */
#include "cli/verify_matrix.h"

static matrix m;

static void every_two_values_meet(void **state)
{
    (void)state;
    cover_check(&m.cover);
    for (int r = 0; r < m.cover.rows; r++)
        assert_int_equal(world_of(m.cover.row[r]), m.cover.row[r][WORLD] + 1);
    print_message("%d rows, %d pairs of values; %d pairs cannot meet\n", m.cover.rows, m.cover.pairs, m.cover.refusals);
}

static void small_rows_hold(void **state)
{
    (void)state;
    int runs = 0, failed = 0;
    for (int r = 0; r < m.cover.rows && runs < 3; r++) {
        const int *row = m.cover.row[r];
        if (world_of(row) != 2 + 2 * (runs > 0)) continue;
        failed += !run_row(&m, row, (mode)runs++).good;
    }
    assert_int_equal(runs, 3);
    assert_int_equal(failed, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_two_values_meet), cmocka_unit_test(small_rows_hold)};
    matrix_open(&m);
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    matrix_close(&m);
    return failed;
}
