/* labels: small */ /* timeout: 120 */
/* Pipelines of processes: one rank's loss and gradients; a stage that is killed is named, and one that hangs is named
 * by those that wait for it, with what they wait for. */
#include "pipeline_case.h"

#include "harness/ranks.h"

static test_dir dir;

/* arg: "2 1 2 1 FOLDER" */
static weft_status verify_body(weft_ctx *ctx, weft_world *world, const char *arg)
{
    layout x;
    char folder[400], model[512], path[512];
    test_run t;
    test_verdict verdict;
    if (sscanf(arg, "%d %d %d %399s", &x.pp, &x.cp, &x.dp, folder) != 4)
        return weft_fail(WEFT_ERR_INTERNAL, "argument %s", arg);
    x.micro = "1", x.tp = 1, x.sequence_parallel = false;
    snprintf(model, sizeof model, "%s/model", folder);
    snprintf(path, sizeof path, "%s/case.safetensors", folder);
    WEFT_TRY(weft_world_set_timeout(world, ctx->fault.kind == WEFT_FAULT_STOP ? 1 : 60));
    case_open(&t, x);
    weft_status st = test_verify_rank(ctx, world, &t, model, path, &verdict);
    test_run_close(&t);
    if (st >= 0 && ctx->rank == 0 && (verdict.failed || verdict.n < 10))
        return weft_fail(WEFT_ERR_COMPARE, "%d of %d fail: %s", verdict.failed, verdict.n, verdict.worst);
    return st;
}

static const test_body bodies[] = {{"verify", verify_body}};

static weft_status verify(int pp, int cp, int dp)
{
    char arg[500];
    weft_model_config c = case_config(WEFT_GPT2, 4);
    case_write_model(test_dir_file(&dir, "model"), &c);
    case_write(test_dir_file(&dir, "case.safetensors"), 4 * dp, false);
    snprintf(arg, sizeof arg, "%d %d %d %s", pp, cp, dp, dir.path);
    return test_ranks(TEST_PROCESSES, pp * cp * dp, &bodies[0], arg);
}

static void processes_give_one_ranks_results(void **state)
{
    (void)state;
    assert_ok(verify(3, 1, 1));
    assert_ok(verify(2, 2, 1));
}

/* Rank 1 is the stage in the middle; its third pass is the first backward pass. */
static void a_killed_stage_is_named(void **state)
{
    (void)state;
    setenv("WEFT_FAULT", "kill:rank=1:site=pipeline:hit=3", 1);
    weft_status st = verify(3, 1, 1);
    unsetenv("WEFT_FAULT");
    assert_true(st < 0);
    if (!strstr(weft_last_error(), "rank 1 was killed") || !strstr(weft_last_error(), "backward"))
        fail_msg("%s", weft_last_error());
}

static void a_stage_that_hangs_is_named_with_what_is_waited_for(void **state)
{
    (void)state;
    setenv("WEFT_FAULT", "stop:rank=1:site=pipeline:hit=3", 1);
    weft_status st = verify(3, 1, 1);
    unsetenv("WEFT_FAULT");
    const char *said = weft_last_error();
    assert_true(st < 0);
    if (!strstr(said, "in wait for") || !strstr(said, "rank 1 is asleep in backward")) fail_msg("%s", said);
}

int main(int argc, char **argv)
{
    int code;
    if (test_ranks_child(argc, argv, bodies, 1, &code)) return code;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(processes_give_one_ranks_results), cmocka_unit_test(a_killed_stage_is_named),
        cmocka_unit_test(a_stage_that_hangs_is_named_with_what_is_waited_for),
    };
    test_dir_make(&dir);
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    test_dir_remove(&dir);
    return failed;
}
