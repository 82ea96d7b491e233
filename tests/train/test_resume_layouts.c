/* labels: small */
/* A few runs that go on under another layout; all kinds from all kinds: test_resume_layouts_long.c. */
#include "resume_case.h"

static void parts_and_stages_and_back(void **state)
{
    (void)state;
    run_case c;
    whole_run(&c, "--tp 2 --pp 2 --sequence-parallel", "parts");
    goes_on(&c, "parts", "--tp 2 --pp 2 --sequence-parallel", 0, 0);
    goes_on(&c, "parts", "--cp 3 --cp-strategy ring --zero-stage 0", 1e-6, 0);
}

/* The report's own case: 3 steps on dp2 x cp2 in fp64; step 4 on cp4, dp4 and one rank: loss, weights and moments. */
static void g22_another_layout_in_fp64(void **state)
{
    (void)state;
    run_case c;
    whole_run(&c, "--precision fp64 --dp 2 --cp 2", "wide");
    goes_on(&c, "wide", "--precision fp64 --cp 4", 1e-12, 1e-12);
    goes_on(&c, "wide", "--precision fp64 --dp 4", 1e-12, 1e-12);
    goes_on(&c, "wide", "--precision fp64", 1e-12, 1e-12);
}

/* With a loss scale that has been doubled, and one good step since. */
static void a_loss_scale_goes_on(void **state)
{
    (void)state;
    run_case c;
    whole_run(&c, "--precision fp16 --loss-scale-interval 2 --dp 2", "narrow");
    assert_true(c.numerics.scaler.scale != 0x1p16 && c.numerics.scaler.good == 1);
    assert_true(c.numerics.spike.seen == SAVED_AT && c.numerics.spike.variance > 0);
    goes_on(&c, "narrow", c.words, 0, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(parts_and_stages_and_back),
                                       cmocka_unit_test(a_loss_scale_goes_on),
                                       cmocka_unit_test(g22_another_layout_in_fp64)};
    resume_open();
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    test_dir_remove(&resume_dir);
    return failed;
}
