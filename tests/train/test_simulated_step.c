/* labels: small */
/* The trainer's step in the simulated world, where a send ends only against a posted receive: collectives of the data-,
 * the context-parallel and the whole group, exchanges of attention, all of it free of dead-lock, with the bits of
 * thread ranks. Ranks that take the collectives of two groups in different orders are named here as a cycle, at
 * once. */
#include "simulated_case.h"

static const weft_sim_model model = {.latency_seconds = 1e-5, .link_bytes_per_second = 1e9,
                                     .port_bytes_per_second = 1e9,
                                     .node_latency_seconds = 1e-6, .node_bytes_per_second = 1e10};

/* A run on which nothing divides: 33 tokens, 3 layers; 8 sequences to a step. */
static void open_run(test_run *t, const char *const *layout)
{
    const char *common[] = {"--data", data_path, "--hidden-size", "12", "--num-layers", "3", "--num-attention-heads",
                            "3", "--num-query-groups", "1", "--ffn-hidden-size", "20", "--seq-length", "33",
                            "--steps", "2", "--lr", "1e-2", "--warmup-steps", "0", "--global-batch-size", "4",
                            "--valid-fraction", "0"};
    test_run_open_more(t, WEFT_CMD_TRAIN, common, sizeof common / sizeof *common, layout);
}

static int ranks_of(const test_run *t)
{
    weft_mesh_shape m = t->run.mesh;
    return m.tp * m.cp * m.dp * m.pp;
}

#define W(...) ((const char *const[]){__VA_ARGS__, NULL})

static void check_bits(const char *const *layout)
{
    test_run t;
    open_run(&t, layout);
    int ranks = ranks_of(&t);
    job threads = {.run = &t.run}, simulated = {.run = &t.run};
    if (weft_run_sim(ranks, &model, body, &simulated) < 0) fail_msg("%s: %s", layout[1], weft_last_error());
    assert_ok(weft_run_threads(ranks, body, &threads));
    assert_memory_equal(simulated.loss, threads.loss, sizeof threads.loss);
    assert_memory_equal(simulated.norm, threads.norm, sizeof threads.norm);
    assert_true(threads.loss[0][0] > 0 && threads.norm[ranks - 1][STEPS - 1] > 0);
    test_run_close(&t);
}

static void a_step_ends_with_the_bits_of_threads(void **state)
{
    (void)state;
    check_bits(W("--cp-strategy", "ring", "--dp", "2", "--cp", "2"));
    check_bits(W("--cp-strategy", "pcp", "--cp", "4"));
    check_bits(W("--cp-strategy", "pairwise", "--dp", "2", "--cp", "3"));
    check_bits(W("--cp-strategy", "none", "--dp", "4"));
    check_bits(W("--cp-strategy", "dcp-ring", "--dp", "2", "--cp", "4"));
    check_bits(W("--cp-strategy", "ring", "--pp", "2", "--cp", "2", "--dp", "2"));
    check_bits(W("--cp-strategy", "none", "--pp", "3"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_step_ends_with_the_bits_of_threads)};
    return cmocka_run_group_tests(tests, setup, teardown);
}
