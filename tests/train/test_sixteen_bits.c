/* labels: small tsan */
/* `weft verify` in 16 bits: a dynamic loss scale under which gradients overflow is halved until they do not, on all
 * ranks together, and no further; a scale that was given is kept. Sums over micro-batches and ranks are fp32 (G31). */
#include "pipeline_case.h"

static test_dir dir;

/* Gradients behind the last norm are 128 and 256 times what they are with its usual weights. */
static double steep(const weft_spec *s, int64_t i)
{
    return case_weight(s, i) * (strcmp(s->name, "model.norm.weight") ? 1 : 128);
}

static double steeper(const weft_spec *s, int64_t i)
{
    return case_weight(s, i) * (strcmp(s->name, "model.norm.weight") ? 1 : 256);
}

static double gentle(const weft_spec *s, int64_t i) { return case_weight(s, i) / 4; }

typedef struct scene {
    test_run run;
    int failed, found;
    double scale; /* that the note names; 1: none */
    double worst; /* of all findings */
} scene;

static weft_status body(weft_ctx *ctx, weft_world *world, void *ud)
{
    scene *s = ud;
    char model[600], path[600];
    weft_report report = {0};
    snprintf(model, sizeof model, "%s/model", dir.path);
    snprintf(path, sizeof path, "%s/case.safetensors", dir.path);
    WEFT_TRY(weft_arena_create(&report.arena, &ctx->mem, "report", NULL));
    weft_status st = weft_verify_model(world, &s->run.run, model, path, &report);
    if (st >= 0 && ctx->rank == 0) {
        const char *line = strstr(report.note.data, "gradients of ");
        s->failed = report.failed;
        s->found = report.n;
        for (int i = 0; i < report.n; i++) s->worst = fmax(s->worst, report.row[i].error);
        s->scale = line ? atof(line + strlen("gradients of ")) : 1;
    }
    weft_text_free(&report.note);
    weft_arena_destroy(report.arena);
    return st;
}

static scene verify(layout x, const char *precision, const char *scale)
{
    scene s = {0};
    char pp[12], cp[12], dp[12], tp[12];
    snprintf(pp, sizeof pp, "%d", x.pp);
    snprintf(cp, sizeof cp, "%d", x.cp);
    snprintf(dp, sizeof dp, "%d", x.dp);
    snprintf(tp, sizeof tp, "%d", x.tp);
    const char *words[] = {"--precision", precision, "--pp", pp, "--cp", cp, "--dp", dp, "--tp", tp, "--loss-scale",
                           scale, "--micro-batch-size", x.micro, NULL};
    test_run_open(&s.run, WEFT_CMD_VERIFY, words);
    assert_ok(weft_run_threads(x.pp * x.cp * x.dp * x.tp, body, &s));
    test_run_close(&s.run);
    assert_true(s.found > 10);
    return s;
}

static void an_overflow_halves_the_scale(void **state)
{
    (void)state;
    static const layout on[] = {{1, 1, 1, "1", 1, false}, {2, 1, 1, "1", 1, false}, {1, 2, 1, "2", 2, false},
                                {1, 1, 1, "2", 1, false}};
    weft_model_config c = case_config(WEFT_LLAMA, 2);
    case_write(test_dir_file(&dir, "case.safetensors"), 2, false);
    for (int i = 0; i < 4; i++) {
        case_write_weights(test_dir_file(&dir, "model"), &c, i % 2 ? steeper : steep);
        char text[32];
        scene s = verify(on[i], "fp16", "dynamic");
        assert_int_equal(s.failed, 0);
        assert_true(s.scale >= 2 && s.scale <= 0x1p15);
        snprintf(text, sizeof text, "%.0f", s.scale);
        assert_int_equal(verify(on[i], "fp16", text).failed, 0);
        snprintf(text, sizeof text, "%.0f", 2 * s.scale); /* what it was halved from does overflow */
        s = verify(on[i], "fp16", text);
        assert_true(s.failed > 0 && s.scale == atof(text));
    }
}

static void no_overflow_leaves_it(void **state)
{
    (void)state;
    weft_model_config c = case_config(WEFT_LLAMA, 2);
    case_write_weights(test_dir_file(&dir, "model"), &c, gentle);
    case_write(test_dir_file(&dir, "case.safetensors"), CASE_ROWS_MAX, false);
    scene s = verify((layout){2, 1, 1, "1", 1, false}, "fp16", "auto");
    assert_int_equal(s.failed, 0);
    assert_true(s.scale == 0x1p16);
}

/* Operands are rounded for each token alone, so rows on other ranks and in other micro-batches change the order of fp32
 * sums only; sums or masters of 16 bits would be off by a hundred times the limit. */
static void g31_sums_over_ranks_and_micro_batches_are_wide(void **state)
{
    (void)state;
    static const char *const precision[] = {"bf16", "fp16"};
    weft_model_config c = case_config(WEFT_GPT2, 2);
    case_write_weights(test_dir_file(&dir, "model"), &c, gentle);
    case_write(test_dir_file(&dir, "case.safetensors"), CASE_ROWS_MAX, false);
    for (int i = 0; i < 2; i++) {
        scene s = verify((layout){1, 1, 3, "1", 1, false}, precision[i], "auto");
        assert_at_most(s.worst, 2e-5);
        s = verify((layout){2, 1, 1, "5", 1, false}, precision[i], "auto");
        assert_at_most(s.worst, 2e-5);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(an_overflow_halves_the_scale),
                                       cmocka_unit_test(no_overflow_leaves_it),
                                       cmocka_unit_test(g31_sums_over_ranks_and_micro_batches_are_wide)};
    test_dir_make(&dir);
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    test_dir_remove(&dir);
    return failed;
}
