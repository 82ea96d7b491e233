/* labels: small */
/* The planned bytes of weights, copies, gradients and moments are those that the arenas count. */
#include "harness/test.h"
#include "harness/run.h"
#include "harness/text_case.h"
#include "plan/plan.h"

enum { RANKS_MAX = 6 };

typedef struct counted { size_t weights, copies, gradients, first, second; } counted;
typedef struct job {
    const weft_run *run;
    counted rank[RANKS_MAX];
    weft_plan_rank at[RANKS_MAX];
} job;

static size_t bytes_of(const weft_mem *mem, const char *label)
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
    const weft_engine *e = weft_trainer_engine(t);
    j->at[ctx->rank] = weft_plan_rank_of(&e->mesh, j->run->sequence_parallel, (int)j->run->o->zero_stage);
    j->rank[ctx->rank] = (counted){bytes_of(&ctx->mem, "weights"), bytes_of(&ctx->mem, "weights for products"),
                                   bytes_of(&ctx->mem, "gradients"), bytes_of(&ctx->mem, "first moment"),
                                   bytes_of(&ctx->mem, "second moment")};
    weft_trainer_destroy(t);
    return WEFT_OK;
}

/* An arena rounds each of n allocations up to 64 bytes. */
static void same(size_t have, int64_t planned, int n) { assert_in_range(have, planned, planned + 63 * n); }

/* Returns the moments of all ranks as planned. */
static int64_t check_ranks(int ranks, const char *const *words)
{
    test_run r;
    int64_t moments = 0;
    test_run_open(&r, WEFT_CMD_TRAIN, words);
    job j = {.run = &r.run};
    if (weft_run_threads(ranks, body, &j) < 0) fail_msg("%s", weft_last_error());
    for (int i = 0; i < ranks; i++) {
        weft_model_config c;
        weft_plan_state s;
        const counted *have = &j.rank[i];
        assert_ok(weft_run_model_config(&r.run, &c));
        assert_ok(weft_plan_state_bytes(&c, r.run.prec, &j.at[i], true, &s));
        same(have->weights, s.weights, 1);
        same(have->copies, s.copies, 1);
        same(have->gradients, s.gradients, 1);
        same(have->first + have->second, s.moments, 2);
        assert_int_equal(weft_plan_state_total(&s), s.weights + s.copies + s.gradients + s.moments);
        moments += s.moments;
    }
    test_run_close(&r);
    return moments;
}

#define WORDS(...) \
    ((const char *const[]){"--data", data_path, "--hidden-size", "20", "--num-attention-heads", "5", "--num-layers", \
                           "3", "--seq-length", "65", "--steps", "1", __VA_ARGS__, NULL})

static void planned_equals_counted(void **state)
{
    (void)state;
    static const char *const precisions[] = {"fp64", "fp32", "bf16"}, *const families[] = {"llama", "gpt2", "qwen3"};
    for (int p = 0; p < 3; p++)
        for (int tied = 0; tied < 2; tied++)
            check_ranks(2 - tied, WORDS("--family", families[p], "--precision", precisions[p],
                                        tied || p == 1 ? "--tied" : "--no-tied", "--cp", tied ? "1" : "2"));
}

/* The ranks of dp x cp share two moments of each parameter, to the element; with stage 0 each has them all. */
static void moments_are_shared(void **state)
{
    (void)state;
    int64_t one = check_ranks(1, WORDS("--cp", "1")), all = check_ranks(6, WORDS("--cp", "3", "--dp", "2"));
    assert_int_equal(all, one);
    assert_int_equal(check_ranks(6, WORDS("--cp", "3", "--dp", "2", "--zero-stage", "0")), 6 * one);
    /* The tied embedding is on both stages. */
    int64_t stages = check_ranks(4, WORDS("--cp", "2", "--pp", "2"));
    assert_int_equal(stages, one + 2 * 4 * 259 * 20);
}

static void evaluation_keeps_weights_only(void **state)
{
    (void)state;
    weft_model_config c = {.family = WEFT_LLAMA, .V = 11, .C = 8, .F = 12, .L = 2, .H = 2, .Hkv = 1, .D = 4,
                           .norm_eps = 1e-5,
                           .rope = {.type = WEFT_ROPE_PLAIN, .theta = 1e4, .factor = 1}};
    const weft_plan_rank one = {.share = weft_model_all, .ranks = 1};
    weft_plan_state s;
    assert_ok(weft_plan_state_bytes(&c, WEFT_PREC_F32, &one, false, &s));
    assert_int_equal(s.weights, 4 * weft_model_params(&c));
    assert_int_equal(s.copies + s.gradients + s.moments, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(planned_equals_counted), cmocka_unit_test(moments_are_shared),
                                       cmocka_unit_test(evaluation_keeps_weights_only)};
    return cmocka_run_group_tests(tests, setup, teardown);
}
