/* test_attention_mask.c — which keys a query sees and how many there are, against a count over the mask, for
 * positions in runs.
 * labels: small */
#include "harness/test.h"
#include "kern/attention/attention_impl.h"

typedef struct dice { uint64_t seed; int64_t at; } dice;

static int64_t pick(dice *d, int64_t n) { return weft_permute(d->seed, 3, 1 << 20, d->at++ % (1 << 20)) % n; }

static int64_t position(int64_t pos, int64_t run, int64_t step, int64_t i) { return pos + i / run * step + i % run; }
static bool visible(const weft_mask *m, const weft_attn_pair *p, int64_t i, int64_t j)
{
    return weft_visible(m, position(p->q_pos, p->q_run, p->q_step, i), position(p->k_pos, p->k_run, p->k_step, j));
}

/* Runs of 1 to 4 with gaps of 0 to 5: one contiguous piece, one run that does not end, stripes, and the like. */
static void draw(dice *d, weft_mask *m, weft_attn_pair *p)
{
    *m = (weft_mask){pick(d, 2), pick(d, 12) - 1, pick(d, 12) - 1, pick(d, 3) ? 0 : pick(d, 20)};
    *p = (weft_attn_pair){.nq = pick(d, 9), .q_pos = pick(d, 20), .q_run = 1 + pick(d, 4),
                          .nk = pick(d, 9), .k_pos = pick(d, 20), .k_run = 1 + pick(d, 4)};
    p->q_step = p->q_run + pick(d, 2) * pick(d, 6);
    p->k_step = p->k_run + pick(d, 2) * pick(d, 6);
}

static void say(const weft_mask *m, const weft_attn_pair *p, const char *what)
{
    fail_msg("%s: causal %d window %lld %lld prefix %lld, q %lld rows from %lld in runs of %lld every %lld, "
             "k %lld from %lld in runs of %lld every %lld", what, m->causal, (long long)m->left, (long long)m->right,
             (long long)m->prefix, (long long)p->nq, (long long)p->q_pos, (long long)p->q_run, (long long)p->q_step,
             (long long)p->nk, (long long)p->k_pos, (long long)p->k_run, (long long)p->k_step);
}

static void positions_come_in_runs(void **state)
{
    (void)state;
    weft_attn_pair p = {.nq = 100, .q_pos = 7, .q_run = 3, .q_step = 10,
                        .nk = 100, .k_pos = 7, .k_run = 5, .k_step = 5};
    static const int64_t first[] = {7, 8, 9, 17, 18, 19, 27};
    for (int i = 0; i < 7; i++) assert_int_equal(weft_attn_qpos(&p, i), first[i]);
    for (int64_t begin = 0; begin < 12; begin++) {
        weft_attn_walk q = weft_attn_qwalk(&p, begin), k = weft_attn_kwalk(&p, begin);
        for (int64_t i = begin; i < 100; i++, weft_attn_walk_on(&q), weft_attn_walk_on(&k)) {
            assert_int_equal(q.pos, position(7, 3, 10, i));
            assert_int_equal(k.pos, 7 + i);
            assert_int_equal(weft_attn_kpos(&p, i), k.pos);
        }
    }
}

static void a_query_sees_one_interval_of_keys(void **state)
{
    (void)state;
    dice d = {1, 0};
    for (int n = 0; n < 20000; n++) {
        weft_mask m;
        weft_attn_pair p;
        draw(&d, &m, &p);
        for (int64_t i = 0; i < p.nq; i++) {
            int64_t lo, hi, q = position(p.q_pos, p.q_run, p.q_step, i);
            weft_attn_key_range(&m, &p, q, &lo, &hi);
            for (int64_t j = 0; j < p.nk; j++)
                if (visible(&m, &p, i, j) != (lo <= j && j < hi))
                    say(&m, &p, "keys of a query");
        }
    }
}

/* No query outside the range sees one of the keys, and both ends grow with the keys (the order of dq needs it). */
static void the_queries_of_some_keys(void **state)
{
    (void)state;
    dice d = {2, 0};
    for (int n = 0; n < 10000; n++) {
        weft_mask m;
        weft_attn_pair p;
        draw(&d, &m, &p);
        int64_t width = 1 + pick(&d, 3), last_lo = 0, last_hi = 0;
        for (int64_t j0 = 0; j0 < p.nk; j0 += width) {
            int64_t lo, hi, j1 = weft_min_i64(p.nk, j0 + width);
            weft_attn_query_range(&m, &p, j0, j1, &lo, &hi);
            if (lo < last_lo || hi < last_hi) say(&m, &p, "queries of keys shrink");
            last_lo = lo, last_hi = hi;
            for (int64_t i = 0; i < p.nq; i++)
                for (int64_t j = j0; j < j1; j++)
                    if (visible(&m, &p, i, j) && (i < lo || i >= hi))
                        say(&m, &p, "queries of keys");
        }
    }
}

static void area_equals_a_count_over_the_mask(void **state)
{
    (void)state;
    dice d = {3, 0};
    int64_t nonzero = 0, closed = 0;
    for (int n = 0; n < 40000; n++) {
        weft_mask m;
        weft_attn_pair p;
        draw(&d, &m, &p);
        int64_t want = 0;
        for (int64_t i = 0; i < p.nq; i++)
            for (int64_t j = 0; j < p.nk; j++) want += visible(&m, &p, i, j);
        if (weft_attn_area(&m, &p) != want) say(&m, &p, "area");
        nonzero += want > 0;
        closed += p.q_run == p.q_step && p.k_run == p.k_step && want > 0;
    }
    assert_true(nonzero > 10000 && closed > 2000);
}

/* A million rows in runs, cut at every run: the sum of the closed forms is the area of the whole. Windows without
 * end may be as large as an integer. */
static void area_of_long_ranges(void **state)
{
    (void)state;
    int64_t n = 1 << 20, run = 4096, sum = 0;
    weft_attn_pair whole = {.nq = n, .q_run = n, .q_step = n, .nk = n, .k_run = 1, .k_step = 1};
    weft_mask causal = {true, -1, -1, 0}, endless = {false, INT64_MAX, INT64_MAX, 0}, window = {true, 4095, -1, 0};
    assert_true(weft_attn_area(&causal, &whole) == n * (n + 1) / 2);
    assert_true(weft_attn_area(&endless, &whole) == n * n);
    assert_true(weft_attn_area(&window, &whole) == 4096 * 4097 / 2 + (n - 4096) * 4096);
    weft_attn_pair striped = whole;
    striped.q_run = run, striped.q_step = 3 * run, striped.nq = n / 4;
    for (int64_t i = 0; i < n / 4; i += run) {
        weft_attn_pair piece = whole;
        piece.q_pos = 3 * i, piece.nq = run;
        sum += weft_attn_area(&window, &piece);
    }
    assert_true(weft_attn_area(&window, &striped) == sum);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(positions_come_in_runs),
        cmocka_unit_test(a_query_sees_one_interval_of_keys),
        cmocka_unit_test(the_queries_of_some_keys),
        cmocka_unit_test(area_equals_a_count_over_the_mask),
        cmocka_unit_test(area_of_long_ranges),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
