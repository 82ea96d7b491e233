/* labels: small */
/* test_train_api.c — weft/train.h as its users call it: options as text, the same losses on any ranks, a
 * directory that another run can start from, refusals on every rank. */
#include "harness/tempdir.h"
#include "harness/test.h"

#include "weft/train.h"

enum { STEPS = 3, TEXT = 1200 };

typedef struct run {
    const weft_train_options *options;
    double loss[STEPS], held_out;
    const char *save;
    int steps;
    int from; /* steps done by the checkpoint that it goes on from */
} run;

static test_dir dir;

static void set(weft_train_options *o, const char *key, const char *value)
{
    assert_ok(weft_train_options_set(o, key, value));
}

static weft_train_options *without_model(const char *cp, const char *dp)
{
    weft_train_options *o;
    assert_ok(weft_train_options_create(&o));
    set(o, "train.seq_length", "33");
    set(o, "steps", "3"); /* by the flag's name */
    set(o, "train.global_batch_size", "2");
    set(o, "optim.warmup_steps", "1");
    set(o, "data.valid_fraction", "0.2");
    set(o, "data.path", test_dir_file(&dir, "text.txt"));
    set(o, "run.precision", "fp64");
    set(o, "parallel.cp", cp);
    set(o, "parallel.dp", dp);
    return o;
}

static weft_train_options *tiny(const char *cp, const char *dp)
{
    weft_train_options *o = without_model(cp, dp);
    set(o, "model.hidden_size", "16");
    set(o, "model.layers", "1");
    set(o, "model.heads", "2");
    return o;
}

static weft_status rank_main(weft_group *group, void *ud)
{
    run *r = ud;
    weft_train *t;
    weft_train_report report;
    double held_out = 0;
    WEFT_TRY(weft_train_create(&t, group, r->options));
    weft_train_report_init(&report, sizeof report);
    bool root = weft_group_rank(group) == 0;
    weft_status st = WEFT_OK;
    for (int step = 0; step < r->steps && st >= 0; step++) {
        st = weft_train_step(t, &report);
        if (root) r->loss[step] = report.loss;
        if (st >= 0 && report.step != r->from + step + 1)
            st = weft_fail(WEFT_ERR_COMPARE, "step %lld", (long long)report.step);
    }
    if (st >= 0) st = weft_train_eval(t, 2, &held_out);
    if (root) r->held_out = held_out;
    if (st >= 0 && r->save) st = weft_train_save(t, r->save);
    weft_train_destroy(t);
    return st;
}

static void test_losses_do_not_depend_on_ranks(void **state)
{
    (void)state;
    static const struct { const char *cp, *dp; int ranks; } cuts[] = {{"1", "1", 1}, {"2", "1", 2}, {"3", "1", 3},
                                                                      {"2", "2", 4}};
    run r[4] = {{0}};
    for (int i = 0; i < 4; i++) {
        weft_train_options *o = tiny(cuts[i].cp, cuts[i].dp);
        r[i].options = o;
        r[i].steps = STEPS;
        assert_ok(weft_group_threads(cuts[i].ranks, rank_main, &r[i]));
        weft_train_options_destroy(o);
    }
    assert_true(r[0].loss[2] < r[0].loss[0]);
    for (int i = 1; i < 4; i++) { /* fp64 sums in another order, over three steps */
        for (int s = 0; s < STEPS; s++) assert_at_most(fabs(r[i].loss[s] - r[0].loss[s]), 1e-12);
        assert_at_most(fabs(r[i].held_out - r[0].held_out), 1e-12);
    }
}

static void test_a_saved_model_starts_another_run(void **state)
{
    (void)state;
    const char *saved = test_dir_file(&dir, "saved");
    weft_train_options *o = tiny("2", "1");
    run first = {.options = o, .steps = STEPS, .save = saved}, second = {.steps = 0};
    assert_ok(weft_group_threads(2, rank_main, &first));
    assert_refused(weft_group_threads(2, rank_main, &first), "exists");
    weft_train_options_destroy(o);

    second.options = o = without_model("1", "1");
    set(o, "model.dir", saved);
    assert_ok(weft_group_threads(1, rank_main, &second));
    weft_train_options_destroy(o);
    assert_at_most(fabs(second.held_out - first.held_out), 1e-6); /* weights are saved as fp32 */
}

/* The second step of two ranks, done by one rank from what they saved after the first. */
static void test_a_checkpoint_goes_on_elsewhere(void **state)
{
    (void)state;
    char saved[512];
    snprintf(saved, sizeof saved, "%s", test_dir_file(&dir, "resumable"));
    weft_train_options *o = tiny("2", "1");
    run whole = {.options = o, .steps = 2}, first = {.options = o, .steps = 1, .save = saved};
    assert_ok(weft_group_threads(2, rank_main, &whole));
    assert_ok(weft_group_threads(2, rank_main, &first));
    weft_train_options_destroy(o);
    run second = {.options = o = tiny("1", "1"), .steps = 1, .from = 1};
    set(o, "run.resume", saved);
    assert_ok(weft_group_threads(1, rank_main, &second));
    assert_at_most(fabs(second.loss[0] - whole.loss[1]), 1e-12); /* fp64, and masters beside the fp32 weights */
    set(o, "run.resume", "auto");
    assert_refused(weft_group_threads(1, rank_main, &second), "give the path of a checkpoint");
    weft_train_options_destroy(o);
}

static void test_options_are_checked_as_they_are_set(void **state)
{
    (void)state;
    weft_train_options *o;
    char text[8192], cut[8];
    assert_ok(weft_train_options_create(&o));
    assert_refused(weft_train_options_set(o, "optim.lrr", "1"), "optim.lr");
    assert_refused(weft_train_options_set(o, "optim.lr", "fast"), "lr");
    assert_refused(weft_train_options_set(o, "parallel.cp_strategy", "rign"), "ring");
    assert_refused(weft_train_options_set(o, "optim.lr", NULL), "NULL");
    assert_refused(weft_train_options_set(o, NULL, "1"), "NULL");
    set(o, "lr", "0.25");
    size_t need = weft_train_options_text(o, text, sizeof text);
    assert_true(need == strlen(text) + 1);
    assert_non_null(strstr(text, "0.25"));
    assert_true(weft_train_options_text(o, cut, sizeof cut) == need);
    assert_int_equal(strlen(cut), sizeof cut - 1);
    weft_train_options_destroy(o);
}

/* What was set by a call stays; the rest comes from the file. */
static void test_a_file_of_options(void **state)
{
    (void)state;
    static const char yaml[] = "optim:\n  lr: 0.5\n  clip: 0.75\n";
    char text[8192];
    const char *path = test_dir_file(&dir, "options.yaml");
    test_write_raw(path, yaml, sizeof yaml - 1);
    weft_train_options *o;
    assert_ok(weft_train_options_create(&o));
    set(o, "optim.lr", "0.25");
    assert_ok(weft_train_options_file(o, path));
    weft_train_options_text(o, text, sizeof text);
    assert_non_null(strstr(text, "0.25"));
    assert_non_null(strstr(text, "0.75"));
    assert_null(strstr(text, "0.5\n"));
    weft_train_options_destroy(o);
}

static weft_status create_refused(weft_group *group, void *ud)
{
    weft_train *t = NULL;
    weft_status st = weft_train_create(&t, group, ud);
    weft_train_destroy(t);
    return st == WEFT_ERR_REFUSED ? WEFT_OK : weft_fail(WEFT_ERR_COMPARE, "status %d, not a refusal", (int)st);
}

static void test_what_is_not_possible_is_refused_on_every_rank(void **state)
{
    (void)state;
    weft_train_options *o = tiny("2", "1");
    assert_ok(weft_group_threads(3, create_refused, o)); /* three ranks for cp 2 */
    set(o, "parallel.cp_strategy", "none");
    assert_ok(weft_group_threads(2, create_refused, o));
    set(o, "parallel.cp_strategy", "ring");
    set(o, "data.path", "/nowhere/text.txt");
    weft_status st = weft_group_threads(2, rank_main, &(run){.options = o});
    assert_true(st < 0);
    assert_non_null(strstr(weft_last_error(), "/nowhere/text.txt"));
    weft_train_options_destroy(o);
}

static weft_status bad_report(weft_group *group, void *ud)
{
    weft_train *t;
    weft_train_report report = {0};
    WEFT_TRY(weft_train_create(&t, group, ud));
    weft_status st = weft_train_step(t, &report);
    weft_train_destroy(t);
    return st;
}

static void test_a_report_without_its_size_is_refused(void **state)
{
    (void)state;
    weft_train_options *o = tiny("1", "1");
    assert_refused(weft_group_threads(1, bad_report, o), "_init");
    weft_train_options_destroy(o);
}

static int open_dir(void **state)
{
    (void)state;
    static const char words[] = "the weft crosses the warp, one thread over and one under; ";
    char text[TEXT];
    for (int i = 0; i < TEXT; i++) text[i] = words[i % (int)(sizeof words - 1)];
    test_dir_make(&dir);
    test_write_raw(test_dir_file(&dir, "text.txt"), text, TEXT);
    return 0;
}

static int close_dir(void **state)
{
    (void)state;
    test_dir_remove(&dir);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_losses_do_not_depend_on_ranks),
        cmocka_unit_test(test_a_saved_model_starts_another_run),
        cmocka_unit_test(test_a_checkpoint_goes_on_elsewhere),
        cmocka_unit_test(test_options_are_checked_as_they_are_set),
        cmocka_unit_test(test_a_file_of_options),
        cmocka_unit_test(test_what_is_not_possible_is_refused_on_every_rank),
        cmocka_unit_test(test_a_report_without_its_size_is_refused),
    };
    return cmocka_run_group_tests(tests, open_dir, close_dir);
}
