/* labels: small */
/* The trainer's step in the simulated world, where a send ends only against a posted receive: collectives of the data-,
 * the context-parallel and the whole group, exchanges of attention, all of it free of dead-lock, with the bits of
 * thread ranks. Ranks that take the collectives of two groups in different orders are named here as a cycle, at
 * once. */
#include "harness/test.h"
#include "harness/run.h"
#include "harness/tempdir.h"

enum { STEPS = 2, RANKS_MAX = 8 };

typedef struct job {
    const weft_run *run;
    double loss[RANKS_MAX][STEPS], norm[RANKS_MAX][STEPS];
} job;

static test_dir dir;

static weft_status body(weft_ctx *ctx, weft_world *world, void *ud)
{
    job *j = ud;
    weft_trainer *t = NULL;
    WEFT_TRY(weft_trainer_create(&t, world, j->run));
    weft_status st = WEFT_OK;
    for (int s = 0; s < STEPS && st >= 0; s++) {
        weft_record record;
        st = weft_trainer_step(t, &record);
        j->loss[ctx->rank][s] = record.loss, j->norm[ctx->rank][s] = record.grad_norm;
    }
    weft_trainer_destroy(t);
    return st;
}

static void check(const char *dp, const char *cp, const char *strategy)
{
    static const weft_sim_model model = {.latency_seconds = 1e-5, .link_bytes_per_second = 1e9,
                                         .port_bytes_per_second = 1e9,
                                         .node_latency_seconds = 1e-6, .node_bytes_per_second = 1e10};
    const char *words[] = {"--data", test_dir_file(&dir, "data.txt"), "--hidden-size", "12", "--num-layers", "2",
                           "--num-attention-heads", "3", "--num-query-groups", "1", "--ffn-hidden-size", "20",
                           "--seq-length",
                           "33", "--steps", "2", "--lr", "1e-2", "--warmup-steps", "0", "--global-batch-size", "4",
                           "--valid-fraction", "0", "--dp", dp, "--cp", cp, "--cp-strategy", strategy, NULL};
    test_run t;
    test_run_open(&t, WEFT_CMD_TRAIN, words);
    int ranks = t.run.mesh.dp * t.run.mesh.cp;
    job threads = {.run = &t.run}, simulated = {.run = &t.run};
    if (weft_run_sim(ranks, &model, body, &simulated) < 0)
        fail_msg("dp %s, %s on %s: %s", dp, strategy, cp, weft_last_error());
    assert_ok(weft_run_threads(ranks, body, &threads));
    assert_memory_equal(simulated.loss, threads.loss, sizeof threads.loss);
    assert_memory_equal(simulated.norm, threads.norm, sizeof threads.norm);
    assert_true(threads.loss[0][0] > 0 && threads.norm[ranks - 1][STEPS - 1] > 0);
    test_run_close(&t);
}

static void a_step_ends_with_the_bits_of_threads(void **state)
{
    (void)state;
    check("2", "2", "ring");
    check("1", "4", "pcp");
    check("2", "3", "pairwise");
    check("4", "1", "none");
    check("2", "4", "dcp-ring");
}

static int setup(void **state)
{
    (void)state;
    test_dir_make(&dir);
    FILE *f = fopen(test_dir_file(&dir, "data.txt"), "w");
    if (!f) return -1;
    for (int i = 0; i < 400; i++) fprintf(f, "%d words %d and %d\n", i, i * i % 89, i % 7);
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
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_step_ends_with_the_bits_of_threads)};
    return cmocka_run_group_tests(tests, setup, teardown);
}
