/* labels: small */
/* The planned bytes of weights, copies, gradients and moments are those that the arenas count. */
#include "harness/test.h"
#include "harness/run.h"
#include "harness/tempdir.h"
#include "plan/plan.h"

static test_dir dir;
static char data_path[600];

typedef struct job {
    const weft_run *run;
    size_t weights, copies, gradients, first, second;
} job;

static size_t counted(const weft_mem *mem, const char *label)
{
    size_t sum = 0;
    for (int i = 0; i < mem->rows; i++)
        if (!strcmp(mem->row[i].label, label)) sum += mem->row[i].bytes;
    return sum;
}

static weft_status body(weft_ctx *ctx, weft_world *world, void *ud)
{
    job *j = ud;
    weft_trainer *t = NULL;
    WEFT_TRY(weft_trainer_create(&t, world, j->run));
    if (ctx->rank == 0) {
        j->weights = counted(&ctx->mem, "weights");
        j->copies = counted(&ctx->mem, "weights for products");
        j->gradients = counted(&ctx->mem, "gradients");
        j->first = counted(&ctx->mem, "first moment");
        j->second = counted(&ctx->mem, "second moment");
    }
    weft_trainer_destroy(t);
    return WEFT_OK;
}

/* An arena rounds each of n allocations up to 64 bytes. */
static void same(size_t have, int64_t planned, int n) { assert_in_range(have, planned, planned + 63 * n); }

static void planned_equals_counted(void **state)
{
    (void)state;
    static const char *const precisions[] = {"fp64", "fp32", "bf16"}, *const families[] = {"llama", "gpt2", "qwen3"};
    for (int p = 0; p < 3; p++)
        for (int tied = 0; tied < 2; tied++) {
            const char *words[] = {"--data", data_path, "--hidden-size", "20", "--num-attention-heads", "5",
                                   "--num-layers", "3", "--seq-length", "65",
                                   "--steps", "1", "--family", families[p], "--precision", precisions[p], tied ||
                                   p == 1 ? "--tied" : "--no-tied",
                                   "--cp", tied ? "1" : "2", NULL};
            test_run r;
            test_run_open(&r, WEFT_CMD_TRAIN, words);
            job j = {.run = &r.run};
            if (weft_run_threads(2 - tied, body, &j) < 0) fail_msg("%s", weft_last_error());
            weft_model_config c;
            weft_plan_state s;
            assert_ok(weft_run_model_config(&r.run, &c));
            assert_ok(weft_plan_state_bytes(&c, &weft_model_all, r.run.prec, true, &s));
            same(j.weights, s.weights, 1);
            same(j.copies, s.copies, 1);
            same(j.gradients, s.gradients, 1);
            same(j.first + j.second, s.moments, 2);
            assert_int_equal(weft_plan_state_total(&s), s.weights + s.copies + s.gradients + s.moments);
            test_run_close(&r);
        }
}

static void evaluation_keeps_weights_only(void **state)
{
    (void)state;
    weft_model_config c = {.family = WEFT_LLAMA, .V = 11, .C = 8, .F = 12, .L = 2, .H = 2, .Hkv = 1, .D = 4,
                           .norm_eps = 1e-5,
                           .rope = {.type = WEFT_ROPE_PLAIN, .theta = 1e4, .factor = 1}};
    weft_plan_state s;
    assert_ok(weft_plan_state_bytes(&c, &weft_model_all, WEFT_PREC_F32, false, &s));
    assert_int_equal(s.weights, 4 * weft_model_params(&c));
    assert_int_equal(s.copies + s.gradients + s.moments, 0);
}

static int setup(void **state)
{
    (void)state;
    test_dir_make(&dir);
    snprintf(data_path, sizeof data_path, "%s", test_dir_file(&dir, "data.txt"));
    FILE *f = fopen(data_path, "w");
    if (!f) return -1;
    for (int i = 0; i < 600; i++) fprintf(f, "%d words\n", i);
    return fclose(f);
}

static int teardown(void **state)
{
    (void)state;
    test_dir_remove(&dir);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(planned_equals_counted),
                                       cmocka_unit_test(evaluation_keeps_weights_only)};
    return cmocka_run_group_tests(tests, setup, teardown);
}
