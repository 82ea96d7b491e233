/* labels: long */ /* timeout: 7200 */
/* The whole product: every golden attention case x every strategy x every layout x P = 1, 2, 3, 4, 5, 7, 8, 16, with
 * ranks as threads and as processes; fp64 against one rank and 16 bits for all strategies and layouts. */
#include "train/golden_grid.h"

static void whole_product(bool processes)
{
    static const int sizes[] = {1, 2, 3, 4, 5, 7, 8, 16};
    char path[TEST_FILES_MAX][512];
    static int file_of[GOLDEN_JOBS];
    int files = test_golden_attention(path);
    for (int i = 0; i < 8; i++) {
        grid_list g;
        grid_open(&g, GOLDEN_JOBS);
        golden_add(&g, path, files, sizes[i], "fp32", NULL, file_of);
        grid_run(&g, sizes[i], processes);
        int held = grid_judge(&g, 5);
        assert_int_equal(held, golden_runs(path, files, sizes[i]));
        print_message("P=%d, %s: %d runs hold, at most %.2f of a limit\n", sizes[i],
                      processes ? "processes" : "threads", held, grid_worst(&g));
        grid_close(&g);
    }
}

static void threads(void **state)
{
    (void)state;
    whole_product(false);
}

static void processes(void **state)
{
    (void)state;
    whole_product(true);
}

static void sixteen_bits(void **state)
{
    (void)state;
    golden_narrow("bf16", 16, NULL);
    golden_narrow("bf16", 5, NULL);
    golden_narrow("fp16", 8, NULL);
}

static void exact(void **state)
{
    (void)state;
    static const int sizes[] = {2, 3, 4, 5, 7, 8, 16};
    for (int i = 0; i < 7; i++) golden_exact(sizes[i], NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(threads), cmocka_unit_test(processes),
                                       cmocka_unit_test(sixteen_bits),
                                       cmocka_unit_test(exact)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
