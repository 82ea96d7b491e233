/* The rows that pairwise sends are those that some query sees, and no others. */
/* labels: small */
#include "shard_case.h"

enum { MAX_ROWS = 512, MAX_RANGES = 256 };

typedef struct side { int64_t n, pos[MAX_ROWS], doc[MAX_ROWS], segments, runs; } side;

static void read_side(side *x, const weft_shard *s, int rank)
{
    static int64_t index[MAX_ROWS];
    weft_shard_tokens(s, rank, index, x->pos);
    x->n = x->runs = 0;
    x->segments = s->first[rank + 1] - s->first[rank];
    for (int64_t i = s->first[rank]; i < s->first[rank + 1]; i++) {
        x->runs += s->seg[i].run == s->seg[i].stride ? 1 : weft_ceil_div(s->seg[i].len, s->seg[i].run);
        for (int64_t j = 0; j < s->seg[i].len; j++) x->doc[x->n++] = s->seg[i].row * 1000 + s->seg[i].doc;
    }
}

static bool is_seen(const weft_mask *m, const side *q, int64_t doc, int64_t pos)
{
    for (int64_t i = 0; i < q->n; i++)
        if (q->doc[i] == doc && weft_visible(m, q->pos[i], pos)) return true;
    return false;
}

static void check_pair(const weft_mask *m, const weft_shard *qs, int rank, const weft_shard *ks, int owner)
{
    static side q, k;
    weft_range out[MAX_RANGES];
    read_side(&q, qs, rank);
    read_side(&k, ks, owner);
    int64_t n = weft_shard_need(m, qs, rank, ks, owner, out, MAX_RANGES), at = 0;
    assert_true(n >= 0 && n <= q.runs + k.segments);
    for (int64_t i = 0; i < n; i++) {
        assert_true(out[i].len > 0);
        assert_true(i == 0 || out[i].begin > out[i - 1].begin + out[i - 1].len); /* not touching */
    }
    for (int64_t row = 0; row < k.n; row++) {
        while (at < n && row >= out[at].begin + out[at].len) at++;
        bool in = at < n && row >= out[at].begin;
        if (in != is_seen(m, &q, k.doc[row], k.pos[row]))
            fail_msg("causal %d window %lld %lld prefix %lld, layout %d:%lld T=%lld P=%d: row %lld of rank %d for rank "
                     "%d: %d",
                     m->causal, (long long)m->left, (long long)m->right, (long long)m->prefix, (int)qs->layout.kind,
                     (long long)qs->layout.block, (long long)qs->T, qs->P, (long long)row, owner, rank, in);
    }
    if (n > 0) assert_int_equal(weft_shard_need(m, qs, rank, ks, owner, out, n - 1), -1);
    assert_int_equal(weft_shard_need(m, qs, rank, ks, owner, out, n), n);
}

static const weft_mask masks[] = {
    {true, -1, -1, 0}, {false, -1, -1, 0}, {true, 0, -1, 0}, {true, 2, -1, 0}, {true, 9, -1, 0}, {false, 1, 2, 0},
    {false, -1, 0, 0}, {false, 6, 6, 0},   {true, -1, -1, 5}, {true, 3, -1, 6}, {true, 1, 2, 11}, {true, -1, 4, 20}};

static void check_all(const weft_shard *q, const weft_shard *k)
{
    for (size_t m = 0; m < sizeof masks / sizeof *masks; m++)
        for (int r = 0; r < q->P; r++)
            for (int o = 0; o < q->P; o++) check_pair(&masks[m], q, r, k, o);
}

static void rows_in_ranges_are_the_rows_seen(void **state)
{
    (void)state;
    shard_world w;
    docs_case c;
    weft_shard s;
    world_open(&w);
    for (int64_t T = 1; T <= 61; T += T < 8 ? 1 : 13)
        for (int kind = 0; kind < DOCS_KINDS; kind++)
            for (int P = 1; P <= 5; P++)
                for (int l = 0; l < ALL_LAYOUTS; l++) {
                    weft_mark mark = weft_arena_mark(w.arena);
                    make_docs(&c, kind, 1 + T % 2, T);
                    make_shard(&w, &s, all_layouts[l], &c.docs, P, 0);
                    check_all(&s, &s);
                    weft_arena_release(w.arena, mark);
                }
    world_close(&w);
}

/* Queries that are the last part of the keys, and groups of ranks. */
static void shards_of_other_lengths_and_groups(void **state)
{
    (void)state;
    shard_world w;
    docs_case cq, ck;
    weft_shard q, k, group_q, group_k;
    world_open(&w);
    for (int64_t Tq = 1; Tq <= 33; Tq += 8)
        for (int P = 2; P <= 6; P += 2)
            for (int l = 0; l < ALL_LAYOUTS; l++) {
                weft_mark mark = weft_arena_mark(w.arena);
                make_docs(&cq, DOCS_WHOLE, 2, Tq);
                make_docs(&ck, DOCS_WHOLE, 2, 41);
                make_shard(&w, &q, all_layouts[l], &cq.docs, P, 41 - Tq);
                make_shard(&w, &k, all_layouts[l], &ck.docs, P, 0);
                check_all(&q, &k);
                assert_ok(weft_shard_alloc(&group_q, w.arena, P / 2, q.capacity));
                assert_ok(weft_shard_alloc(&group_k, w.arena, P / 2, k.capacity));
                assert_ok(weft_shard_group(&group_q, &q, 2));
                assert_ok(weft_shard_group(&group_k, &k, 2));
                check_all(&group_q, &group_k);
                weft_arena_release(w.arena, mark);
            }
    world_close(&w);
}

/* Theory c4: causal zigzag asks for 0.75 of the rows in the mean, contiguous for 0.5, striped for all but a few. */
static void shares_of_causal_layouts(void **state)
{
    (void)state;
    shard_world w;
    docs_case c;
    weft_shard s;
    weft_range out[MAX_RANGES];
    weft_mask causal = {true, -1, -1, 0};
    world_open(&w);
    for (int P = 2; P <= 8; P *= 2)
        for (int l = 0; l < 3; l++) {
            int64_t T = 64 * P, need = 0;
            make_docs(&c, DOCS_WHOLE, 1, T);
            make_shard(&w, &s, all_layouts[l], &c.docs, P, 0);
            for (int r = 0; r < P; r++)
                for (int o = 0; o < P; o++) {
                    int64_t n = r == o ? 0 : weft_shard_need(&causal, &s, r, &s, o, out, MAX_RANGES);
                    for (int64_t i = 0; i < n; i++) need += out[i].len;
                }
            int64_t all = T * (P - 1), missed = P * (P - 1) / 2; /* striped: the last token of each earlier rank */
            int64_t want[] = {all / 2, all / 4 * 3, all - missed};
            assert_int_equal(need, want[l]);
        }
    world_close(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_in_ranges_are_the_rows_seen),
        cmocka_unit_test(shards_of_other_lengths_and_groups),
        cmocka_unit_test(shares_of_causal_layouts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
