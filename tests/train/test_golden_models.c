/* labels: small */ /* timeout: 300 */
/* Every golden model (float64 numbers of an independent implementation): nll per token, every gradient, eight
 * AdamW steps, on 1 to 4 context-parallel ranks, on dp x cp = 2 x 2, and on two stages of a pipeline. */
#include "harness/test.h"
#include "harness/run.h"

static void run_model(const char *dir, const char *strategy, const char *layout, int cp, int dp, const char *precision)
{
    char c[16], d[16], path[640];
    static int turn;
    if (turn++ % test_every(5) != 0) return; /* of 16 per model: every kind of run meets some models */
    snprintf(path, sizeof path, "%.600s/case.safetensors", dir);
    test_run r;
    snprintf(c, sizeof c, "%d", cp);
    snprintf(d, sizeof d, "%d", dp);
    const char *words[] = {"--cp",        c,         "--dp", d, "--cp-strategy", strategy, "--cp-layout", layout,
                           "--precision", precision, NULL};
    test_run_open(&r, WEFT_CMD_VERIFY, words);
    test_verify(&r, cp * dp, dir, path, 1);
    test_run_close(&r);
}

static void fp32(void **state)
{
    (void)state;
    char dir[TEST_FILES_MAX][512];
    int n = test_golden_files("models", "", dir);
    assert_true(n >= 9);
    for (int i = 0; i < n; i++) {
        run_model(dir[i], "auto", "contiguous", 1, 1, "fp32");
        for (int P = 2; P <= 4; P++) {
            run_model(dir[i], "pcp", P % 2 ? "contiguous" : "zigzag", P, 1, "fp32");
            run_model(dir[i], "ring", P % 2 ? "zigzag" : "contiguous", P, 1, "fp32");
        }
        run_model(dir[i], "auto", "balanced", 3, 1, "fp32");
        run_model(dir[i], "ring", "zigzag", 2, 2, "fp32");
        run_model(dir[i], "pcp", "contiguous", 2, 3, "fp32"); /* more dp ranks than rows: some have none */
    }
}

static void fp64_and_16_bits(void **state)
{
    (void)state;
    char dir[TEST_FILES_MAX][512];
    int n = test_golden_files("models", "", dir);
    for (int i = 0; i < n; i++) {
        run_model(dir[i], "ring", "zigzag", 3, 1, "fp64");
        run_model(dir[i], "pcp", "zigzag", 2, 1, "bf16");
        run_model(dir[i], "pairwise", "contiguous", 3, 1, "fp16");
    }
}

/* Strategies with head groups and direct exchanges, on 1 x 4, 2 x 2 and 1 x 6 (dp x cp): each pair of them for some
 * models, each model with each strategy. With all other options: tests/cli/test_verify_matrix_long.c. */
static void fp32_grids(void **state)
{
    (void)state;
    static const char *const strategy[] = {"dcp", "dcp-ring", "pairwise"}, *const layout[] = {"contiguous", "zigzag"};
    static const struct { int dp, cp; } mesh[] = {{1, 4}, {2, 2}, {1, 6}};
    char dir[TEST_FILES_MAX][512];
    int n = test_golden_files("models", "", dir);
    for (int i = 0; i < n; i++)
        for (int s = 0; s < 3; s++) {
            int m = (i + s) % 3;
            run_model(dir[i], strategy[s], layout[(i + s + m) % 2], mesh[m].cp, mesh[m].dp, "fp32");
        }
}

/* Two stages, micro-batches of one row: every golden model has two layers or more. */
static void pipelines(void **state)
{
    (void)state;
    static const struct { const char *precision, *cp, *dp; int ranks; } layouts[] = {
        {"fp32", "1", "1", 2}, {"fp32", "2", "1", 4}, {"fp32", "1", "2", 4}, {"bf16", "1", "1", 2}};
    char dir[TEST_FILES_MAX][512], path[640];
    int n = test_golden_files("models", "", dir), turn = 0;
    for (int i = 0; i < n; i++)
        for (int x = 0; x < 4; x++) {
            if (turn++ % test_every(5) != 0) continue;
            const char *words[] = {"--pp", "2", "--micro-batch-size", "1", "--cp", layouts[x].cp, "--dp", layouts[x].dp,
                                   "--precision", layouts[x].precision, NULL};
            test_run r;
            snprintf(path, sizeof path, "%.600s/case.safetensors", dir[i]);
            test_run_open(&r, WEFT_CMD_VERIFY, words);
            test_verify(&r, layouts[x].ranks, dir[i], path, 1);
            test_run_close(&r);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(fp32), cmocka_unit_test(fp32_grids),
                                       cmocka_unit_test(fp64_and_16_bits), cmocka_unit_test(pipelines)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
