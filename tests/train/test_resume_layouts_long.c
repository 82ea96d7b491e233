/* labels: long */ /* timeout: 1800 */
/* The resume matrix: saved under each layout of a list, continued under each. They differ in tp, pp, dp, cp, strategy,
 * sequence layout, sequence parallelism, ZeRO, micro-batches, recomputation, rank order and the number of ranks; then
 * in precision. */
#include "resume_case.h"

static const char *const layouts[] = {
    "--micro-batch-size 1",
    "--micro-batch-size 12 --recompute full",
    "--cp 4 --cp-strategy ring",
    "--cp 5 --cp-strategy pcp --cp-layout contiguous --no-async-cp-comm",
    "--cp 3 --cp-strategy pairwise --cp-layout striped --micro-batch-size 4",
    "--cp 6 --cp-strategy ulysses --cp-keep-heads",
    "--cp 4 --cp-strategy dcp --cp-layout balanced --zero-stage 0",
    "--dp 4 --micro-batch-size 3",
    "--dp 3 --cp 2 --cp-strategy dcp-ring --rank-order dp-cp-tp-pp",
    "--tp 2 --dp 2 --zero-stage 0",
    "--tp 5",
    "--tp 3 --sequence-parallel --cp 2 --cp-strategy dcp-pairwise",
    "--pp 3 --micro-batch-size 2",
    "--pp 2 --tp 2 --sequence-parallel --micro-batch-size 2 --recompute attention --recompute-keep-attention",
    "--pp 2 --tp 2 --dp 2 --cp 2 --rank-order pp-dp-cp-tp --mlp-rows 7",
};
enum { LAYOUTS = sizeof layouts / sizeof *layouts };

static void any_goes_on_as_any(void **state)
{
    (void)state;
    for (int i = 0; i < LAYOUTS; i++) {
        run_case c;
        char name[32];
        snprintf(name, sizeof name, "from-%d", i);
        whole_run(&c, layouts[i], name);
        for (int k = 0; k < LAYOUTS; k++) goes_on(&c, name, layouts[k], 1e-6, 0);
    }
}

/* Masters are fp32 in all but fp64, so what is loaded is the same; the next loss is that of the run before within what
 * 16 bits lose (2^-9 and 2^-12 of operands, a few layers). fp64 is not among those that go on narrower: it is rounded.
 * */
static void any_precision_goes_on_as_another(void **state)
{
    (void)state;
    static const struct { const char *from, *as; double limit; } steps[] = {
        {"--precision fp32 --cp 2", "--precision fp64 --tp 2", 1e-6},
        {"--precision fp32 --cp 2", "--precision bf16 --dp 2 --pp 2", 2e-2},
        {"--precision fp32 --cp 2", "--precision fp16 --tp 3 --sequence-parallel", 5e-3},
        {"--precision bf16 --tp 2 --cp 2", "--precision bf16 --tp 2 --cp 2", 0},
        {"--precision bf16 --tp 2 --cp 2", "--precision fp32 --pp 3", 2e-2},
        {"--precision bf16 --tp 2 --cp 2", "--precision fp16", 2e-2},
        {"--precision fp16 --dp 2 --pp 2", "--precision fp16 --dp 2 --pp 2", 0},
        {"--precision fp16 --dp 2 --pp 2", "--precision fp32 --cp 3 --cp-strategy dcp", 5e-3},
        {"--precision fp16 --dp 2 --pp 2", "--precision bf16 --tp 2", 2e-2},
    };
    run_case c = {.words = ""};
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
        char name[32];
        snprintf(name, sizeof name, "type-%zu", i / 3);
        if (i % 3 == 0) whole_run(&c, steps[i].from, name);
        assert_string_equal(c.words, steps[i].from);
        goes_on(&c, name, steps[i].as, steps[i].limit, 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(any_goes_on_as_any),
                                       cmocka_unit_test(any_precision_goes_on_as_another)};
    resume_open();
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    test_dir_remove(&resume_dir);
    return failed;
}
