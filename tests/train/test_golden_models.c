/* labels: small */ /* timeout: 300 */
/* Every golden model (float64 numbers of an independent implementation): nll per token, every gradient, eight
 * AdamW steps, on 1 to 4 context-parallel ranks and on dp x cp = 2 x 2. */
#include "harness/test.h"
#include "harness/run.h"

typedef struct job {
    const weft_run *run;
    const char *dir;
    char path[540];
    int failed, n;
    char worst[600];
} job;

static weft_status body(weft_ctx *ctx, weft_world *world, void *ud)
{
    job *j = ud;
    weft_report report = {0};
    WEFT_TRY(weft_arena_create(&report.arena, &ctx->mem, "report", NULL));
    weft_status st = weft_verify_model(world, j->run, j->dir, j->path, &report);
    if (st >= 0 && ctx->rank == 0) {
        j->failed = report.failed;
        j->n = report.n;
        for (int i = 0; i < report.n; i++)
            if (!(report.row[i].error <= report.row[i].limit))
                snprintf(j->worst, sizeof j->worst, "%s %.2e > %.2e", report.row[i].name, report.row[i].error,
                         report.row[i].limit);
    }
    weft_text_free(&report.note);
    weft_arena_destroy(report.arena);
    return st;
}

static void run_model(const char *dir, const char *strategy, const char *layout, int cp, int dp, const char *precision)
{
    char c[16], d[16];
    test_run r;
    snprintf(c, sizeof c, "%d", cp);
    snprintf(d, sizeof d, "%d", dp);
    const char *words[] = {"--cp",        c,         "--dp", d, "--cp-strategy", strategy, "--cp-layout", layout,
                           "--precision", precision, NULL};
    test_run_open(&r, WEFT_CMD_VERIFY, words);
    job j = {.run = &r.run, .dir = dir};
    snprintf(j.path, sizeof j.path, "%.500s/case.safetensors", dir);
    weft_status st = weft_run_threads(cp * dp, body, &j);
    if (st < 0) fail_msg("%s, %s %s cp=%d dp=%d %s: %s", dir, strategy, layout, cp, dp, precision, weft_last_error());
    if (j.failed || j.n < 1)
        fail_msg("%s, %s %s cp=%d dp=%d %s: %d of %d fail, %s", dir, strategy, layout, cp, dp, precision, j.failed, j.n,
                 j.worst);
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
        for (int P = 1; P <= 4; P++) {
            run_model(dir[i], "pcp", P % 2 ? "contiguous" : "zigzag", P, 1, "fp32");
            run_model(dir[i], "ring", P % 2 ? "zigzag" : "contiguous", P, 1, "fp32");
        }
        run_model(dir[i], "ring", "zigzag", 2, 2, "fp32");
        run_model(dir[i], "pcp", "contiguous", 2, 3, "fp32"); /* more dp ranks than rows: some have none */
    }
}

static void fp64_and_bf16(void **state)
{
    (void)state;
    char dir[TEST_FILES_MAX][512];
    int n = test_golden_files("models", "", dir);
    for (int i = 0; i < n; i++) {
        run_model(dir[i], "ring", "zigzag", 3, 1, "fp64");
        run_model(dir[i], "pcp", "zigzag", 2, 1, "bf16");
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(fp32), cmocka_unit_test(fp64_and_bf16)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
