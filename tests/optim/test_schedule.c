/* The learning rate: values by hand, limits, and options that are refused. */
#include "harness/test.h"
#include "optim/optim.h"

static weft_optim_options base(void)
{
    return (weft_optim_options){.lr = 1e-3, .min_lr = 1e-4, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8,
                                .weight_decay = 0.1, .clip = 1, .warmup_steps = 10, .decay_steps = 110};
}

static void values_by_hand(void **state)
{
    (void)state;
    weft_optim_options o = base();
    const double ulp = 1e-18; /* a few roundings of numbers near 1e-3 */
    assert_at_most(fabs(weft_lr_at(&o, 0) - 1e-4), ulp);   /* the first step moves */
    assert_at_most(fabs(weft_lr_at(&o, 4) - 5e-4), ulp);
    assert_at_most(fabs(weft_lr_at(&o, 9) - 1e-3), ulp);   /* the warm-up ends at the peak */
    assert_at_most(fabs(weft_lr_at(&o, 10) - 1e-3), ulp);
    assert_at_most(fabs(weft_lr_at(&o, 60) - 5.5e-4), ulp); /* half-way: the mean */
    assert_at_most(fabs(weft_lr_at(&o, 35) - (1e-4 + 9e-4 * (1 + sqrt(0.5)) / 2)), ulp);
    assert_true(weft_lr_at(&o, 109) > 1e-4);
    assert_true(weft_lr_at(&o, 110) == 1e-4);
    assert_true(weft_lr_at(&o, 1000000000000) == 1e-4);
}

static void rises_then_falls(void **state)
{
    (void)state;
    weft_optim_options o = base();
    for (int64_t s = 1; s < 10; s++) assert_true(weft_lr_at(&o, s) > weft_lr_at(&o, s - 1));
    for (int64_t s = 11; s <= 110; s++) assert_true(weft_lr_at(&o, s) < weft_lr_at(&o, s - 1));
}

static void constant_without_decay(void **state)
{
    (void)state;
    weft_optim_options o = base();
    o.decay_steps = 0;
    assert_true(weft_lr_at(&o, 10) == o.lr && weft_lr_at(&o, 1 << 30) == o.lr);
    o.warmup_steps = 0;
    assert_true(weft_lr_at(&o, 0) == o.lr);
    o.decay_steps = 1;
    assert_true(weft_lr_at(&o, 0) == o.lr && weft_lr_at(&o, 1) == o.min_lr);
}

static void bad_options_are_refused(void **state)
{
    (void)state;
    weft_optim_options o = base();
    assert_ok(weft_optim_check(&o));
#define BAD(field, value, part) \
    do { \
        o = base(); \
        o.field = (value); \
        assert_refused(weft_optim_check(&o), part); \
    } while (0)
    BAD(lr, -1e-3, "learning rate -0.001");
    BAD(lr, NAN, "learning rate nan");
    BAD(lr, INFINITY, "learning rate inf");
    BAD(min_lr, -1, "least learning rate -1");
    BAD(min_lr, 0.999999999999, "least learning rate 0.999999999999 is above the learning rate 0.001");
    BAD(min_lr, 2e-3, "least learning rate 0.002 is above the learning rate 0.001");
    BAD(beta1, 1, "beta1 1 is outside its range [0, 1)");
    BAD(beta2, -0.1, "beta2 -0.1");
    BAD(eps, 0, "epsilon 0");
    BAD(weight_decay, -1, "weight decay");
    BAD(clip, NAN, "clipping norm nan");
    BAD(warmup_steps, -1, "numbers of steps");
    BAD(decay_steps, -5, "numbers of steps");
    BAD(decay_steps, 10, "inside the warm-up of 10 steps");
    o = base();
    o.beta1 = o.beta2 = o.clip = o.weight_decay = o.lr = o.min_lr = 0; /* the ends that are allowed */
    assert_ok(weft_optim_check(&o));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values_by_hand), cmocka_unit_test(rises_then_falls), cmocka_unit_test(constant_without_decay),
        cmocka_unit_test(bad_options_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
