/* labels: small */ /* timeout: 120 */
/* A whole training step on the layouts whose groups are worked out in docs/user/groups.md, in the simulated world: real
 * kernels, a send ends only against a posted receive, so that a step that ends here cannot stand still anywhere. Every
 * rank has one rank's loss and gradient norm. */
#include "simulated_case.h"

/* fp64; 5 layers on 4 stages, 33 tokens on 8 ranks, heads that divide by neither: nothing comes out even. */
static void open_run(test_run *t, const char *const *layout)
{
    const char *common[] = {"--data", data_path, "--hidden-size", "24", "--num-layers", "5", "--num-attention-heads",
                            "12", "--num-query-groups", "3", "--ffn-hidden-size", "20", "--seq-length", "33",
                            "--steps", "2", "--lr", "1e-3", "--warmup-steps", "0", "--global-batch-size", "8",
                            "--valid-fraction", "0", "--precision", "fp64"};
    test_run_open_more(t, WEFT_CMD_TRAIN, common, sizeof common / sizeof *common, layout);
}

#define W(...) ((const char *const[]){__VA_ARGS__, NULL})

static void check(int ranks, const char *const *layout)
{
    static const weft_sim_model model = {.latency_seconds = 1e-5, .link_bytes_per_second = 1e9,
                                         .port_bytes_per_second = 1e9, .node_ranks = 8,
                                         .node_latency_seconds = 1e-6, .node_bytes_per_second = 1e10};
    static int turn;
    if (turn++ % test_every(3) != 0) return;
    test_run t, single;
    open_run(&t, layout);
    open_run(&single, W("--cp", "1"));
    job many = {.run = &t.run}, one = {.run = &single.run};
    if (weft_run_sim(ranks, &model, body, &many) < 0) fail_msg("%s %s: %s", layout[0], layout[1], weft_last_error());
    assert_ok(weft_run_threads(1, body, &one));
    /* Sums of a few thousand terms; the second step follows an update that amplifies what the first rounded. */
    for (int r = 0; r < ranks; r++)
        for (int s = 0; s < STEPS; s++) {
            assert_at_most(fabs(many.loss[r][s] - one.loss[0][s]), s ? 1e-9 : 1e-12);
            assert_at_most(fabs(many.norm[r][s] / one.norm[0][s] - 1), s ? 1e-8 : 1e-11);
        }
    test_run_close(&t);
    test_run_close(&single);
}

static void dp2_pp2_pcp8(void **state)
{
    (void)state;
    check(32, W("--dp", "2", "--pp", "2", "--pcp-size", "8"));
}

static void dp4_dcp8(void **state)
{
    (void)state;
    check(32, W("--dp", "4", "--dcp-size", "8"));
}

static void tp2_cp2(void **state)
{
    (void)state;
    check(4, W("--tp", "2", "--cp", "2"));
    check(4, W("--tp", "2", "--cp", "2", "--sequence-parallel"));
}

static void tp4_cp2(void **state)
{
    (void)state;
    check(8, W("--tp", "4", "--cp", "2"));
    check(8, W("--tp", "4", "--cp", "2", "--sequence-parallel"));
}

static void tp8_cp2_pp4(void **state)
{
    (void)state;
    check(64, W("--tp", "8", "--cp", "2", "--pp", "4", "--sequence-parallel"));
}

/* Inputs of layers elsewhere: the thread that moves them knows no simulated time. */
static void tp2_cp2_pp2_offload(void **state)
{
    (void)state;
    check(8, W("--tp", "2", "--cp", "2", "--pp", "2", "--recompute", "full", "--offload", "host"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(tp2_cp2), cmocka_unit_test(dp4_dcp8),
                                       cmocka_unit_test(dp2_pp2_pcp8), cmocka_unit_test(tp8_cp2_pp4),
                                       cmocka_unit_test(tp2_cp2_pp2_offload), cmocka_unit_test(tp4_cp2)};
    return cmocka_run_group_tests(tests, setup, teardown);
}
