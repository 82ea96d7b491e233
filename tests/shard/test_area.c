/* Visible areas equal a count over the mask, and the balance of the layouts is the one of the theory. */
/* labels: small */
#include "shard_case.h"

static int64_t brute_force(const weft_mask *m, const weft_segment *q, const weft_segment *k)
{
    int64_t n = 0;
    if (q->row != k->row || q->doc != k->doc) return 0;
    for (int64_t i = 0; i < q->len; i++)
        for (int64_t j = 0; j < k->len; j++)
            n += weft_visible(m, q->start + weft_segment_step(q, i), k->start + weft_segment_step(k, j));
    return n;
}

static int64_t pick(uint64_t seed, int64_t *at, int64_t n)
{
    return weft_permute(seed, 3, 1 << 20, (*at)++ % (1 << 20)) % n;
}

static void segments_match_a_count_over_the_mask(void **state)
{
    (void)state;
    int64_t at = 0, nonzero = 0;
    for (int i = 0; i < 40000; i++) {
        weft_mask m = {pick(1, &at, 2), pick(1, &at, 12) - 1, pick(1, &at, 12) - 1,
                       pick(1, &at, 3) ? 0 : pick(1, &at, 20)};
        int64_t stride = i % 4 == 0 ? 1 : 1 + pick(1, &at, 9), run = stride == 1 ? 1 : 1 + pick(1, &at, stride - 1);
        weft_segment q = {0, 0, pick(1, &at, 20), pick(1, &at, 30), run, stride, 0};
        weft_segment k = {0, 0, pick(1, &at, 20), pick(1, &at, 30), run, stride, 0};
        if (stride > 1 && pick(1, &at, 2)) k.run = 1 + pick(1, &at, stride - 1); /* the owner's may be wider: groups */
        if (pick(1, &at, 4) == 0) q.run = q.stride = 1;                         /* heads, and other layouts */
        if (pick(1, &at, 4) == 0) k.run = k.stride = 1;
        int64_t want = brute_force(&m, &q, &k), got = weft_visible_area(&m, &q, &k);
        if (got != want)
            fail_msg("causal %d window %lld %lld prefix %lld: q %lld+%lldx%lld k %lld+%lldx%lld: %lld, should be %lld",
                     m.causal, (long long)m.left, (long long)m.right, (long long)m.prefix, (long long)q.start,
                     (long long)q.len, (long long)q.stride, (long long)k.start, (long long)k.len, (long long)k.stride,
                     (long long)got, (long long)want);
        nonzero += want > 0;
    }
    assert_true(nonzero > 10000);
    weft_mask full = {false, -1, -1, 0};
    weft_segment a = {0, 0, 0, 5, 1, 1, 0}, other_doc = {0, 1, 0, 5, 1, 1, 5}, other_row = {1, 0, 0, 5, 1, 1, 0};
    assert_int_equal(weft_visible_area(&full, &a, &a), 25);
    assert_int_equal(weft_visible_area(&full, &a, &other_doc), 0);
    assert_int_equal(weft_visible_area(&full, &a, &other_row), 0);
}

static void large_numbers_are_exact(void **state)
{
    (void)state;
    int64_t n = 1 << 20;
    weft_segment s = {0, 0, 0, n, 1, 1, 0};
    weft_mask causal = {true, -1, -1, 0}, full = {false, -1, -1, 0}, window = {true, 4095, -1, 0},
              far = {false, INT64_MAX, INT64_MAX, 0};
    assert_true(weft_visible_area(&causal, &s, &s) == n * (n + 1) / 2);
    assert_true(weft_visible_area(&full, &s, &s) == n * n);
    assert_true(weft_visible_area(&far, &s, &s) == n * n);
    assert_true(weft_visible_area(&window, &s, &s) == 4096 * 4097 / 2 + (n - 4096) * 4096);
}

static void shard_of(shard_world *w, weft_shard *s, weft_layout layout, int64_t T, int P, const int64_t *cu,
                     int64_t docs)
{
    int64_t first[2] = {0, docs + 1};
    weft_docs d = {1, T, cu, first, NULL};
    make_shard(w, s, layout, &d, P, 0);
}

/* area of rank r by going over all of its tokens and all tokens of the owner */
static int64_t brute_rank(const weft_mask *m, const weft_shard *s, int rank, int owner)
{
    int64_t n = 0;
    for (int64_t a = s->first[rank]; a < s->first[rank + 1]; a++)
        for (int64_t b = s->first[owner]; b < s->first[owner + 1]; b++) n += brute_force(m, &s->seg[a], &s->seg[b]);
    return n;
}

static void rank_areas_match_a_count(void **state)
{
    (void)state;
    shard_world w;
    world_open(&w);
    static const int64_t docs[] = {0, 0, 1, 9, 9, 10, 31, 37}, first[] = {0, 8};
    static const weft_docs in_docs = {1, 37, docs, first, NULL};
    static const weft_mask masks[] = {{true, -1, -1, 0}, {false, -1, -1, 0}, {true, 4, -1, 0},
                                      {false, 2, 3, 0},  {true, -1, -1, 5},  {true, 3, -1, 6}};
    for (int l = 0; l < ALL_LAYOUTS; l++)
        for (int P = 1; P <= 9; P++) {
            weft_shard s;
            shard_of(&w, &s, all_layouts[l], 37, P, docs, 7);
            for (size_t m = 0; m < sizeof masks / sizeof *masks; m++)
                for (int r = 0; r < P; r++) {
                    int64_t sum = 0;
                    for (int o = 0; o < P; o++) {
                        int64_t want = brute_rank(&masks[m], &s, r, o);
                        assert_int_equal(weft_shard_area(&masks[m], &s, r, &s, o), want);
                        sum += want;
                    }
                    assert_int_equal(weft_shard_area(&masks[m], &s, r, &s, -1), sum);
                    assert_int_equal(weft_shard_area_in_docs(&masks[m], &s, r, &in_docs), sum);
                }
        }
    world_close(&w);
}

/* contiguous max/mean = 2 - 1/P (in areas b^2/2, without the half of the diagonal);
 * zigzag: the same area on every rank, and every step after the first costs 2h^2 on every rank. */
static void balance_of_the_layouts(void **state)
{
    (void)state;
    shard_world w;
    world_open(&w);
    weft_mask causal = {true, -1, -1, 0};
    for (int P = 2; P <= 16; P *= 2) {
        int64_t h = 32, T = 2 * h * P, cu[2] = {0, T};
        weft_shard s;
        shard_of(&w, &s, (weft_layout){WEFT_LAYOUT_CONTIGUOUS, 0}, T, P, cu, 1);
        int64_t most = 0;
        for (int r = 0; r < P; r++) {
            int64_t a = 2 * h * r, b = 2 * h * (r + 1), area = weft_shard_area(&causal, &s, r, &s, -1);
            assert_int_equal(area, (b * b - a * a) / 2 + (b - a) / 2);
            if (area - h > most) most = area - h; /* h = (b - a) / 2: the diagonal's half */
        }
        /* max / (T^2 / 2P) == 2 - 1/P  <=>  max * 2 P^2 == T^2 (2P - 1) */
        assert_int_equal(most * 2 * P * P, T * T * (2 * P - 1));

        shard_of(&w, &s, (weft_layout){WEFT_LAYOUT_ZIGZAG, 0}, T, P, cu, 1);
        for (int r = 0; r < P; r++) {
            assert_int_equal(weft_shard_area(&causal, &s, r, &s, -1), T * (T + 1) / 2 / P);
            assert_int_equal(weft_shard_area(&causal, &s, r, &s, r), h * h + h * (h + 1));
            for (int i = 1; i < P; i++)
                assert_int_equal(weft_shard_area(&causal, &s, r, &s, (r - i + P) % P), 2 * h * h);
        }
    }
    world_close(&w);
}

/* Queries that are the last part of the keys, and empty rows on either side. */
static void positions_of_the_last_queries(void **state)
{
    (void)state;
    shard_world w;
    world_open(&w);
    int64_t cu_q[2] = {0, 5}, cu_k[2] = {0, 12}, first[2] = {0, 2};
    weft_docs dq = {1, 5, cu_q, first, NULL}, dk = {1, 12, cu_k, first, NULL};
    weft_mask causal = {true, -1, -1, 0};
    for (int P = 1; P <= 9; P++)
        for (int l = 0; l < ALL_LAYOUTS; l++) {
            weft_shard q, k;
            int64_t sum = 0;
            make_shard(&w, &q, all_layouts[l], &dq, P, 12 - 5);
            make_shard(&w, &k, all_layouts[l], &dk, P, 0);
            for (int r = 0; r < P; r++) {
                sum += weft_shard_area(&causal, &q, r, &k, -1);
                assert_int_equal(weft_shard_area_in_docs(&causal, &q, r, &dk), weft_shard_area(&causal, &q, r, &k, -1));
            }
            assert_int_equal(sum, 8 + 9 + 10 + 11 + 12);
        }
    world_close(&w);
}

/* 10,000 documents: the walk must stay near linear (all pairs would be 10^8 per pair of ranks). */
static void many_documents_are_joined_in_one_pass(void **state)
{
    (void)state;
    shard_world w;
    world_open(&w);
    enum { DOCS = 10000 };
    static int64_t cu[DOCS + 1];
    int64_t want = 0;
    for (int i = 0; i < DOCS; i++) {
        int64_t len = i % 7;
        cu[i + 1] = cu[i] + len;
        want += len * (len + 1) / 2;
    }
    weft_mask causal = {true, -1, -1, 0};
    for (int P = 1; P <= 8; P *= 2) {
        weft_shard s;
        shard_of(&w, &s, (weft_layout){WEFT_LAYOUT_ZIGZAG, 0}, cu[DOCS], P, cu, DOCS);
        int64_t sum = 0, groups = 0;
        for (int r = 0; r < P; r++) {
            sum += weft_shard_area(&causal, &s, r, &s, -1);
            weft_join j = weft_join_start(&s, r, &s, r);
            while (weft_join_next(&j)) groups++;
        }
        assert_int_equal(sum, want);
        assert_true(groups <= DOCS + 2 * P);
    }
    world_close(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(segments_match_a_count_over_the_mask),
        cmocka_unit_test(large_numbers_are_exact),
        cmocka_unit_test(rank_areas_match_a_count),
        cmocka_unit_test(balance_of_the_layouts),
        cmocka_unit_test(positions_of_the_last_queries),
        cmocka_unit_test(many_documents_are_joined_in_one_pass),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
