/* labels: small */
/* Spikes of the loss on made-up series: noise, a single jump, a new level, a falling loss, a run that goes on from its
 * state, and losses that are not finite. */
#include "harness/test.h"
#include "metrics/metrics.h"

static weft_spike detector(void) { return (weft_spike){.zscore = 6, .window = 64, .warmup = 32}; }

static double noisy(double level, int64_t i) { return level + 0.05 * test_normal(3, i); }

/* Steps of the series [from, to) that are spikes. */
static int count(weft_spike *s, double level, int64_t from, int64_t to)
{
    int n = 0;
    double z;
    for (int64_t i = from; i < to; i++) n += weft_spike_step(s, noisy(level, i), &z);
    return n;
}

static void noise_has_none(void **state)
{
    (void)state;
    weft_spike s = detector();
    assert_int_equal(count(&s, 3, 0, 5000), 0);
    assert_at_most(fabs(s.mean - 3), 0.05);
    assert_at_most(fabs(sqrt(s.variance) - 0.05), 0.02);
}

/* The first numbers are those of all steps so far; a spike is impossible before `warmup` of them. */
static void starts_with_plain_mean_and_variance(void **state)
{
    (void)state;
    weft_spike s = detector();
    double z, sum = 0, squares = 0;
    for (int i = 0; i < 31; i++) {
        double x = i % 3 + 1e6 * (i == 5);
        assert_false(weft_spike_step(&s, x, &z));
        assert_true(z == 0);
        sum += x, squares += x * x;
    }
    assert_at_most(fabs(s.mean - sum / 31), 1e-9 * s.mean);
    assert_at_most(fabs(s.variance - (squares / 31 - sum / 31 * sum / 31)), 1e-9 * s.variance);
}

static void a_single_jump_is_one_spike(void **state)
{
    (void)state;
    weft_spike s = detector();
    double z;
    assert_int_equal(count(&s, 3, 0, 200), 0);
    for (int turn = 0; turn < 2; turn++) { /* the second is seen as well, soon after the first */
        double mean = s.mean, want = (6 - s.mean) / sqrt(s.variance);
        assert_true(weft_spike_step(&s, 6, &z));
        assert_at_most(fabs(z - want), 1e-9 * want);
        assert_true(z > 20);
        assert_at_most(fabs(s.mean - mean), 0.02); /* a jump of 3 with weight 1/32 would move it by 0.09 */
        assert_int_equal(count(&s, 3, 200 + 30 * turn, 230 + 30 * turn), 0);
    }
}

static void a_new_level_is_soon_normal(void **state)
{
    (void)state;
    weft_spike s = detector();
    count(&s, 3, 0, 200);
    int first = count(&s, 5, 200, 220);
    assert_true(first >= 3 && first <= 15);
    assert_int_equal(count(&s, 5, 220, 400), 0);
    assert_at_most(fabs(s.mean - 5), 0.1);
    assert_int_equal(count(&s, 3, 400, 600), 0); /* downwards is no spike */
}

static void training_falls_without_spikes(void **state)
{
    (void)state;
    weft_spike s = detector();
    double z;
    for (int i = 0; i < 2000; i++) assert_false(weft_spike_step(&s, noisy(2 + 9 * exp(-i / 40.0), i), &z));
}

/* A nearly constant loss: what is less than a few thousandths of it is no news. */
static void a_flat_loss_has_a_least_deviation(void **state)
{
    (void)state;
    weft_spike s = detector();
    double z;
    for (int i = 0; i < 100; i++) assert_false(weft_spike_step(&s, 2, &z));
    assert_false(weft_spike_step(&s, 2 + 5 * 2e-3, &z));
    assert_true(z > 4.9);
    assert_true(weft_spike_step(&s, 2.5, &z));
}

static void goes_on_from_its_state(void **state)
{
    (void)state;
    weft_spike a = detector(), b = detector();
    double z, again;
    count(&a, 3, 0, 100);
    b.seen = a.seen, b.mean = a.mean, b.variance = a.variance;
    for (int64_t i = 100; i < 300; i++) {
        double x = noisy(3, i) + (i % 70 == 0);
        assert_int_equal(weft_spike_step(&a, x, &z), weft_spike_step(&b, x, &again));
        assert_memory_equal(&z, &again, sizeof z);
    }
}

static void not_finite_is_a_spike_and_not_taken_in(void **state)
{
    (void)state;
    weft_spike s = detector(), off = {.zscore = 0, .window = 64, .warmup = 2};
    double z;
    assert_true(weft_spike_step(&s, NAN, &z)); /* the first loss of all, too */
    assert_true(isinf(z) && s.seen == 0);
    count(&s, 3, 0, 100);
    weft_spike before = s;
    assert_true(weft_spike_step(&s, INFINITY, &z));
    assert_memory_equal(&s, &before, sizeof s);
    for (int i = 0; i < 9; i++) assert_false(weft_spike_step(&off, i == 7 ? 1e9 : i == 8 ? (double)NAN : 1, &z));
    assert_true(z == 0 && off.seen == 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(noise_has_none),
        cmocka_unit_test(starts_with_plain_mean_and_variance),
        cmocka_unit_test(a_single_jump_is_one_spike),
        cmocka_unit_test(a_new_level_is_soon_normal),
        cmocka_unit_test(training_falls_without_spikes),
        cmocka_unit_test(a_flat_loss_has_a_least_deviation),
        cmocka_unit_test(goes_on_from_its_state),
        cmocka_unit_test(not_finite_is_a_spike_and_not_taken_in),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
