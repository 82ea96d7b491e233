/* checked.h — a step on every kind of layout, beside what was planned for it: bytes to the byte, by kind of group and
 * on every rank; memory within 3 % of the counted peak. */
#ifndef WEFT_TEST_CHECKED_H
#define WEFT_TEST_CHECKED_H

#include "harness/text_case.h"
#include "harness/run.h"
#include "train/trainer_impl.h"

enum { RANKS_MAX = 16, WORDS_MAX = 24, STEPS = 2 };

typedef struct job {
    const weft_run *run;
    bool no_memory;      /* the simulated world has none behind its buffers */
    weft_plan_check check;
    weft_bytes planned[RANKS_MAX], sent[RANKS_MAX];
} job;

static weft_status body(weft_ctx *ctx, weft_world *world, void *ud)
{
    job *j = ud;
    weft_trainer *t = NULL;
    weft_plan_check check;
    if (!j->no_memory) weft_world_set_timeout(world, 60);
    WEFT_TRY(weft_trainer_create(&t, world, j->run));
    weft_status st = WEFT_OK;
    for (int s = 0; s < STEPS && st >= 0; s++) {
        weft_record record;
        st = weft_trainer_step(t, &record);
    }
    if (st >= 0) st = weft_trainer_check(t, &check);
    if (st >= 0 && ctx->rank == 0) j->check = check;
    weft_trainer_destroy(t);
    return st;
}

/* Layouts of all kinds on which nothing divides; `long` tests run all, small ones the first so many. */
static const char *const layouts[][WORDS_MAX] = {
    {"--cp", "2", "--tp", "2", "--pp", "2", "--sequence-parallel", "--global-batch-size", "3"},
    {"--cp", "3", "--cp-strategy", "pairwise", "--cp-layout", "striped", "--document-mask", "--separator", "\n"},
    {"--tp", "3", "--dp", "2", "--family", "gpt2", "--residual-dropout", "0.1", "--zero-stage", "0"},
    {"--cp", "4", "--cp-strategy", "dcp-ring", "--cp-head-size", "2", "--recompute", "full"},
    {"--tp", "2", "--mlp-rows", "64", "--recompute", "block", "--precision", "bf16", "--pp", "3",
     "--global-batch-size", "4"},
    {"--dp", "3", "--precision", "fp16"},
    {"--cp", "2", "--cp-strategy", "ring", "--cp-comm-dtype", "bf16", "--micro-batch-size", "2"},
    {"--cp", "4", "--cp-strategy", "pcp", "--cp-layout", "contiguous", "--recompute", "attention"},
    {"--cp", "2", "--cp-strategy", "ulysses", "--cp-keep-heads", "--family", "qwen3"},
    {"--cp", "6", "--cp-strategy", "dcp-pairwise", "--sliding-window", "100", "--family", "mistral"},
    {"--cp", "4", "--cp-strategy", "dcp", "--precision", "bf16", "--recompute", "full", "--recompute-keep-attention"},
    {"--cp", "3", "--fp8-enabled", "--cp-strategy", "ring", "--precision", "bf16"},
    {"--tp", "2", "--sequence-parallel", "--mlp-rows", "100", "--dp", "2"},
    {"--tp", "4", "--sequence-parallel", "--recompute", "full", "--mlp-rows", "33", "--no-tied"},
    {"--pp", "4", "--dp", "2", "--global-batch-size", "10", "--no-overlap-grad-reduce"},
    {"--pp", "2", "--cp", "2", "--cp-layout", "balanced", "--document-mask", "--separator", "\n", "--guard", "off",
     "--global-batch-size", "3"},
    {"--tp", "2", "--pp", "2", "--no-tied", "--embedding-dropout", "0.1", "--residual-dropout", "0.1"},
    {"--offload", "host", "--recompute", "full", "--cp", "2", "--tp", "2"},
    {"--dp", "2", "--cp", "2", "--tp", "2", "--pp", "2", "--rank-order", "pp-dp-cp-tp", "--global-batch-size", "4"},
    {"--precision", "fp64", "--cp", "2", "--num-query-groups", "2", "--tp", "3", "--zero-stage", "0"},
    {"--cp", "17", "--cp-strategy", "ring", "--cp-layout", "contiguous"},
    {NULL},
};
enum { LAYOUTS = sizeof layouts / sizeof *layouts };

static void check_bytes(const job *j, const char *what, const char *world)
{
    const weft_plan_check *c = &j->check;
    assert_true(c->taken);
    for (int k = 0; k < WEFT_BYTES_KINDS; k++)
        if (c->planned.of[k] != c->sent.of[k])
            fail_msg("%s(%s), rank %d, %s: %lld bytes planned, %lld sent; %d ranks differ", what, world, c->rank,
                     weft_bytes_name((weft_bytes_kind)k), (long long)c->planned.of[k], (long long)c->sent.of[k],
                     c->differ);
    assert_int_equal(c->differ, 0);
}

static void check_memory(const job *j, const char *what)
{
    const weft_memory_report *r = &j->check.memory;
    double held = (double)weft_memory_total(&r->counted);
    double planned = (double)(weft_memory_total(&r->planned) - r->planned.bytes[WEFT_MEMORY_CHECKPOINT]);
    if (fabs(planned / held - 1) > 0.03)
        fail_msg("%s: %.0f bytes planned, %.0f held: %.3f", what, planned, held, planned / held);
    for (int k = 0; k < WEFT_MEMORY_TABLES; k++) {
        double x = (double)r->planned.bytes[k], y = (double)r->counted.bytes[k];
        if (k != WEFT_MEMORY_CHECKPOINT && fabs(x - y) > 0.03 * y)
            fail_msg("%s: %s: %.0f bytes planned, %.0f held", what, weft_memory_name((weft_memory_kind)k), x, y);
    }
}

static void check_layout(const char *const *more, bool simulated)
{
    const char *common[] = {"--data", data_path, "--hidden-size", "96", "--num-attention-heads", "6", "--num-layers",
                            "5", "--seq-length", "517", "--steps", "4", "--vocab-size", "300", "--valid-fraction",
                            "0"};
    char what[300];
    test_words(more, what, sizeof what);
    test_run r;
    test_run_open_more(&r, WEFT_CMD_TRAIN, common, sizeof common / sizeof *common, more);
    const int ranks = weft_mesh_ranks(r.run.mesh);
    job j = {.run = &r.run};
    if (weft_run_threads(ranks, body, &j) < 0) fail_msg("%s: %s", what, weft_last_error());
    check_bytes(&j, what, "threads");
    check_memory(&j, what);
    static const weft_sim_model model = {.latency_seconds = 1e-5, .link_bytes_per_second = 1e9,
                                         .port_bytes_per_second = 1e9, .node_latency_seconds = 1e-6,
                                         .node_bytes_per_second = 1e10};
    job s = {.run = &r.run, .no_memory = true};
    if (simulated && weft_run_sim(ranks, &model, body, &s) < 0) fail_msg("%s: %s", what, weft_last_error());
    if (simulated) check_bytes(&s, what, "simulated");
    test_run_close(&r);
}

#endif
