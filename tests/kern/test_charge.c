/* labels: small */
/* Kernels that charge time: what they charge, against the formulas, and that they touch nothing: every pointer they
 * get here is one that must not be followed. */
#include "harness/test.h"
#include "kern/kern.h"

static void charge(void *ud, double seconds) { *(double *)ud += seconds; }
static void poll(void *ud) { ++*(int *)ud; }

static const weft_clock *counting(double *sum)
{
    static weft_clock clock;
    clock = (weft_clock){weft_clock_real.now, charge, sum};
    return &clock;
}

static weft_charge rates(const weft_clock *clock)
{
    return (weft_charge){.clock = clock, .flops_per_second = {1e3, 2e3, 4e3, 8e3}, .backward_factor = 2.5,
                         .memory_bytes_per_second = 1e6};
}

static void *const nowhere = (void *)16; /* not mapped */

static void attention_is_charged_by_visible_pairs(void **state)
{
    (void)state;
    double sum = 0;
    int polls = 0;
    weft_charge r = rates(counting(&sum));
    weft_kern kern;
    assert_ok(weft_kern_init_charge(&kern, &r));
    weft_attn_desc d = {.H = 3, .Hkv = 1, .D = 8, .Dv = 6, .group = 3, .scale = 1, .mask = {true, -1, -1, 0}};
    /* a triangle of 33, and a rectangle of 5 x 7 that lies behind */
    const weft_attn_pair pairs[] = {{0, 33, 0, 1, 1, 0, 33, 0, 1, 1, 0, 0}, {33, 5, 100, 1, 1, 33, 7, 10, 1, 1, 0, 0}};
    const double operations = (33.0 * 34 / 2 + 35) * 3 * 2 * (8 + 6);
    for (int p = 0; p < WEFT_PREC_COUNT; p++) {
        const weft_attn_ops *a = &kern.op[p].attn;
        weft_attn_run run = {.threads = 1, .poll = poll, .poll_ud = &polls, .charge = kern.charge};
        weft_attn_fwd_io f = {nowhere, nowhere, nowhere, 24, 8, 6, nowhere, nowhere, nowhere, 0};
        weft_attn_bwd_io b = {nowhere, nowhere, nowhere, nowhere, 24,      8,       6, 18,
                              nowhere, nowhere, nowhere, nowhere, nowhere, nowhere, 0};
        assert_string_equal(a->name, "charge");
        assert_int_equal(a->work_bytes(&d, 4), 0);
        a->start(&d, nowhere, nowhere, nowhere, 38);
        a->delta(&d, nowhere, nowhere, nowhere, nowhere, 18, nowhere, 18, nowhere, nowhere, 38, 1);
        sum = 0;
        a->forward(&d, &f, pairs, 2, &run);
        assert_at_most(fabs(sum - operations / r.flops_per_second[p]), 1e-12 * sum); /* one rounding per operation */
        sum = 0;
        a->backward(&d, &b, pairs, 2, &run);
        assert_at_most(fabs(sum - 2.5 * operations / r.flops_per_second[p]), 1e-12 * sum);
        a->finish(&d, nowhere, 18, nowhere, nowhere, nowhere, nowhere, nowhere, 38, 1);
    }
    assert_int_equal(polls, 2 * WEFT_PREC_COUNT);
}

/* Of each pair besides its operations; and where the mask cuts a block, keys in vain, not more than the block has. */
static void pairs_and_edges_are_charged(void **state)
{
    (void)state;
    double sum = 0;
    weft_charge r = rates(counting(&sum));
    r.pair_seconds[WEFT_PREC_F32] = 0.25, r.edge_keys = 2;
    weft_kern kern;
    assert_ok(weft_kern_init_charge(&kern, &r));
    const weft_attn_desc d = {.H = 3, .Hkv = 1, .D = 8, .Dv = 6, .group = 3, .scale = 1, .mask = {true, -1, -1, 0}};
    const weft_attn_run run = {.threads = 1, .charge = kern.charge};
    const weft_attn_pair pairs[] = {{0, 33, 0, 1, 1, 0, 33, 0, 1, 1, 0, 0},  /* cut: 2 keys more in each row */
                                    {33, 5, 100, 1, 1, 33, 7, 10, 1, 1, 0, 0}, /* visible as a whole */
                                    {0, 2, 0, 1, 1, 0, 2, 0, 1, 1, 0, 0},    /* cut, with one key that is not visible */
                                    {0, 4, 0, 1, 1, 0, 4, 50, 1, 1, 0, 0}};  /* behind the mask */
    const double computed = (33.0 * 34 / 2 + 66) + 35 + 4;
    kern.op[WEFT_PREC_F32].attn.forward(&d, &(weft_attn_fwd_io){nowhere, nowhere, nowhere, 24, 8, 6, nowhere, nowhere,
                                                                nowhere, 0}, pairs, 4, &run);
    const double want = computed * 3 * (2.0 * (8 + 6) / 2e3 + 0.25);
    assert_at_most(fabs(sum - want), 1e-12 * want);
    /* a window has two edges: here both, the first alone, and none */
    const weft_attn_desc window = {.H = 3, .Hkv = 1, .D = 8, .Dv = 6, .group = 3, .scale = 1, .mask = {true, 9, -1, 0}};
    const weft_attn_pair two[] = {{0, 33, 0, 1, 1, 0, 33, 0, 1, 1, 0, 0},
                                  {33, 20, 40, 1, 1, 33, 20, 20, 1, 1, 0, 0},
                                  {53, 2, 60, 1, 1, 53, 3, 56, 1, 1, 0, 0}};
    const double keys = (10 * 33 - 45 + 2 * 2 * 33) + (45 + 2 * 20) + 6;
    sum = 0;
    kern.op[WEFT_PREC_F32].attn.forward(&window, &(weft_attn_fwd_io){nowhere, nowhere, nowhere, 24, 8, 6, nowhere,
                                                                     nowhere, nowhere, 0}, two, 3, &run);
    assert_at_most(fabs(sum - keys * 3 * (2.0 * (8 + 6) / 2e3 + 0.25)), 1e-9);
}

/* A row takes as long as some keys in each block: forward the parts of a block that the same rows see are one. */
static void rows_are_charged(void **state)
{
    (void)state;
    double sum = 0;
    weft_charge r = rates(counting(&sum));
    r.row_keys = 10;
    weft_kern kern;
    assert_ok(weft_kern_init_charge(&kern, &r));
    const weft_attn_desc d = {.H = 2, .Hkv = 2, .D = 8, .Dv = 6, .group = 1, .scale = 1, .mask = {true, -1, -1, 0}};
    const weft_attn_run run = {.threads = 1, .charge = kern.charge};
    const weft_attn_pair pairs[] = {{0, 3, 50, 1, 1, 0, 7, 0, 1, 1, 0, 0},   /* the same three rows: */
                                    {0, 3, 50, 1, 1, 7, 5, 20, 1, 1, 0, 0},
                                    {3, 2, 60, 1, 1, 0, 7, 0, 1, 1, 0, 0},
                                    {0, 3, 50, 1, 1, 0, 4, 90, 1, 1, 0, 0}}; /* behind the mask */
    const double of_key = 2 * 2.0 * (8 + 6) / 2e3, keys = 3 * 7 + 3 * 5 + 2 * 7;
    kern.op[WEFT_PREC_F32].attn.forward(&d, &(weft_attn_fwd_io){nowhere, nowhere, nowhere, 16, 16, 12, nowhere, nowhere,
                                                                nowhere, 0}, pairs, 4, &run);
    assert_at_most(fabs(sum - (keys + 10 * (3 + 2)) * of_key), 1e-12);
    sum = 0;
    kern.op[WEFT_PREC_F32].attn.backward(&d, &(weft_attn_bwd_io){0}, pairs, 4, &run);
    assert_at_most(fabs(sum - r.backward_factor * (keys + 10 * (3 + 3 + 2)) * of_key), 1e-12);
}

static void rates_must_be_positive(void **state)
{
    (void)state;
    double sum = 0;
    weft_kern kern;
    weft_charge r = rates(counting(&sum));
    r.flops_per_second[WEFT_PREC_BF16] = 0;
    assert_refused(weft_kern_init_charge(&kern, &r), "0 operations per second for bf16");
    r = rates(counting(&sum)), r.backward_factor = NAN;
    assert_refused(weft_kern_init_charge(&kern, &r), "more than 0");
    r = rates(counting(&sum)), r.memory_bytes_per_second = -1;
    assert_refused(weft_kern_init_charge(&kern, &r), "-1 bytes per second");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(attention_is_charged_by_visible_pairs),
        cmocka_unit_test(pairs_and_edges_are_charged),
        cmocka_unit_test(rows_are_charged),
        cmocka_unit_test(rates_must_be_positive),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
