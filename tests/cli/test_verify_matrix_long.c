/* labels: long */ /* timeout: 3600 */
/* Every row of the covering set of layouts, in fp32, fp64 and 16 bits; and what cannot meet is refused. Other models:
 * WEFT_TEST_MODELS=FOLDER, of folders with config.json, weights, case.safetensors and trajectory.json, or one of them.
 * */
#include "cli/verify_matrix.h"

static matrix m;

static double worst[PRECISIONS][KINDS];

static int failures_of(const int *row)
{
    int failed = 0;
    for (int x = 0; x < MODES; x++) {
        verdict v = run_row(&m, row, (mode)x);
        double *w = worst[precision_of(row, (mode)x)];
        failed += !v.good;
        for (int k = 0; k < KINDS; k++) w[k] = fmax(w[k], v.worst[k]);
    }
    return failed;
}

static void every_row_holds(void **state)
{
    (void)state;
    int failed = 0;
    if (getenv("WEFT_TEST_SEED")) skip();
    cover_check(&m.cover);
    for (int r = 0; r < m.cover.rows; r++) failed += failures_of(m.cover.row[r]);
    print_message("%d rows x %d, %d pairs of values; %d runs failed\n", m.cover.rows, MODES, m.cover.pairs, failed);
    assert_int_equal(failed, 0);
}

/* Rows drawn from all that the rule allows: WEFT_TEST_SEED=S draws others, and runs these only; WEFT_TEST_CASES=N so
 * many. */
static void some_others_hold(void **state)
{
    (void)state;
    const char *seed = getenv("WEFT_TEST_SEED"), *cases = getenv("WEFT_TEST_CASES");
    int failed = 0, n = cases ? atoi(cases) : 40;
    for (int i = 0; i < n; i++) {
        int row[PARAMS];
        cover_draw(&m.cover, seed ? (uint64_t)atoll(seed) : 1, i, row);
        failed += failures_of(row);
    }
    for (int p = 0; p < PRECISIONS; p++)
        print_message("%s: at most %.1e, %.1e, %.1e, %.1e in nll, gradients, losses, norms\n", precisions[p],
                      worst[p][NLL], worst[p][GRADIENT], worst[p][LOSS], worst[p][NORM]);
    assert_int_equal(failed, 0);
}

/* The pair beside what is most usual; ranks that are only too many for this test are no refusal. */
static void what_cannot_meet_is_refused(void **state)
{
    (void)state;
    int refused = 0;
    for (int i = 0; i < m.cover.refusals; i++) {
        int row[PARAMS] = {0};
        verdict v = {.good = true};
        char path[700];
        row[STRATEGY] = 1; /* auto */
        row[m.cover.refused[i].p] = m.cover.refused[i].i;
        row[m.cover.refused[i].q] = m.cover.refused[i].j;
        if (m.cover.refused[i].q == WORLD || world_of(row) > WORLD_MAX) continue;
        case_of(&m, row, WIDE, path, sizeof path);
        int code = run_command(row, WIDE, m.model[row[MODEL]].dir, path, &v);
        if (code != 2 || !v.said[0])
            fail_msg("%s with %s: exit %d, %s", params[m.cover.refused[i].p].value[m.cover.refused[i].i],
                     params[m.cover.refused[i].q].value[m.cover.refused[i].j], code, v.said);
        refused++;
    }
    print_message("%d pairs are refused, %d are no sizes of at most %d ranks\n", refused, m.cover.refusals - refused,
                  WORLD_MAX);
    assert_true(refused > 20);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_row_holds), cmocka_unit_test(some_others_hold),
                                       cmocka_unit_test(what_cannot_meet_is_refused)};
    matrix_open(&m);
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    matrix_close(&m);
    return failed;
}
