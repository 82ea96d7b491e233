/* labels: small */
/* The loss scale: halved by an overflow, doubled after a run of good steps, between its bounds. */
#include "harness/test.h"
#include "optim/optim.h"

static void halves_and_doubles(void **state)
{
    (void)state;
    weft_scaler s = weft_scaler_start(0, 3);
    assert_true(s.scale == 65536);
    static const struct { bool finite; double scale; int64_t good; } step[] = {
        {true, 65536, 1}, {true, 65536, 2}, {true, 131072, 0}, {true, 131072, 1}, {false, 65536, 0}, {false, 32768, 0},
        {true, 32768, 1}, {true, 32768, 2}, {false, 16384, 0}, {true, 16384, 1},  {true, 16384, 2},  {true, 32768, 0}};
    for (size_t i = 0; i < sizeof step / sizeof *step; i++) {
        assert_int_equal(weft_scaler_update(&s, step[i].finite), step[i].finite);
        assert_true(s.scale == step[i].scale && s.good == step[i].good);
    }
    assert_int_equal(s.skipped, 3);
}

static void stays_between_its_bounds(void **state)
{
    (void)state;
    weft_scaler s = weft_scaler_start(1024, 1);
    assert_true(s.scale == 1024);
    for (int i = 0; i < 100; i++) assert_true(weft_scaler_update(&s, true) && s.scale <= s.most);
    assert_true(s.scale == s.most && s.most == 0x1p24);
    for (int i = 0; i < 100; i++) assert_true(!weft_scaler_update(&s, false) && s.scale >= s.least);
    assert_true(s.scale == s.least && s.least == 0x1p-24);
    assert_int_equal(s.skipped, 100);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(halves_and_doubles),
                                       cmocka_unit_test(stays_between_its_bounds)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
