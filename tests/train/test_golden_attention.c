/* labels: small noasan */ /* timeout: 300 */
/* Every golden attention case (float64 numbers of an independent implementation) by every strategy and layout: each of
 * these triples once, on one of 1 to 16 ranks, threads and processes in turn; by what `auto` takes; and by every
 * instruction set. The whole product is in test_golden_grid.c. */
#include "harness/grid.h"
#include "harness/test.h"

static const int sizes[] = {1, 2, 3, 4, 5, 7, 8, 16};
enum { SIZES = sizeof sizes / sizeof *sizes, JOBS = 4096 };

/* The jobs of this size: triple number t runs at size t mod 8, shifted from file to file. Returns how many must run. */
static int add_share(grid_list *g, char path[TEST_FILES_MAX][512], int files, int size)
{
    int ns, nl, runs = 0;
    const char *const *strategy = grid_strategies(&ns), *const *layout = grid_layouts(&nl);
    for (int f = 0; f < files; f++) {
        for (int s = 0; s < ns; s++)
            for (int l = 0; l < nl; l++) {
                if ((f + 3 * s + 5 * l) % SIZES != size) continue;
                grid_add(g, path[f], strategy[s], layout[l], sizes[size], "fp32", NULL);
                runs += grid_runs(strategy[s], sizes[size], grid_heads(path[f]));
            }
        if (f % SIZES != size) continue;
        grid_add(g, path[f], "auto", layout[f % nl], sizes[size], "fp32", NULL);
        runs++;
    }
    return runs;
}

static void fp32_covers_everything(void **state)
{
    (void)state;
    char path[TEST_FILES_MAX][512];
    int files = test_golden_attention(path);
    for (int i = 0; i < SIZES; i++) {
        grid_list g;
        int none = sizes[i] == 1 ? files : 0;
        grid_open(&g, JOBS);
        for (int f = 0; f < none; f++) grid_add(&g, path[f], "none", "contiguous", 1, "fp32", NULL);
        int runs = none + add_share(&g, path, files, i);
        assert_true(runs > files * 3); /* of 35 pairs, an eighth for each size, ulysses aside */
        grid_run(&g, sizes[i], i % 2);
        assert_int_equal(grid_judge(&g, 5), runs);
        grid_close(&g);
    }
}

static void fp32_every_isa(void **state)
{
    (void)state;
    char path[TEST_FILES_MAX][512];
    enum { P = 3 };
    int files = test_golden_attention(path);
    grid_deal deal = {0};
    grid_list g;
    grid_open(&g, JOBS);
    for (int i = 0; i < WEFT_ISA_COUNT; i++)
        for (int f = 0; f < files && weft_isa_available((weft_isa)i); f++) {
            grid_pair p = grid_deal_next(&deal, P, grid_heads(path[f]));
            grid_add(&g, path[f], p.strategy, p.layout, P, "fp32",
                     (const char *[]){"--isa", weft_isa_name((weft_isa)i), NULL});
        }
    grid_run(&g, P, false);
    assert_int_equal(grid_judge(&g, 5), deal.dealt);
    grid_deal_check(&deal);
    grid_close(&g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(fp32_covers_everything), cmocka_unit_test(fp32_every_isa)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
