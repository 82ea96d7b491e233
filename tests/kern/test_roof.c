/* test_roof.c — every arithmetic unit of this machine has a rate, and wider units are not slower than narrower ones.
 * labels: small */
#include "harness/test.h"
#include "kern/kern.h"

static void rates(void **state)
{
    (void)state;
    double rate[WEFT_ROOF_COUNT] = {0};
    for (int u = 0; u < WEFT_ROOF_COUNT; u++) {
        assert_non_null(weft_roof_name((weft_roof_unit)u));
        if (!weft_roof_available((weft_roof_unit)u)) continue;
        for (int i = 0; i < 5; i++) { /* the best: others use the machine, too */
            double x = weft_roof_measure((weft_roof_unit)u, &weft_clock_real, 1, 0.005);
            if (x > rate[u]) rate[u] = x;
        }
        assert_true(rate[u] > 1e8 && rate[u] < 1e14);
    }
    /* 512-bit units that are split in two are as fast as 256-bit ones; a busy machine may take half of a measurement */
    if (rate[WEFT_ROOF_FMA512] > 0) assert_true(rate[WEFT_ROOF_FMA512] > 0.4 * rate[WEFT_ROOF_FMA256]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(rates)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
