/* Every token lies on exactly one rank, at the position and in the document it should; exhaustively. */
/* labels: small */
#include "shard_case.h"

enum { MAX_P = 9, MAX_T = 40 };

static int64_t document_of(const docs_case *c, int64_t b, int64_t token)
{
    const int64_t *cu = c->cu + c->first[b];
    int64_t d = 0;
    while (cu[d + 1] <= token) d++;
    return d;
}

/* What weft_join, waves and pairs rest on. */
static void check_order_and_pieces(const weft_shard *s, int rank)
{
    int64_t pieces = 1;
    for (int64_t i = s->first[rank] + 1; i < s->first[rank + 1]; i++) {
        const weft_segment *a = &s->seg[i - 1], *b = &s->seg[i];
        int64_t end = a->token + weft_segment_step(a, a->len - 1);
        bool same = a->row == b->row && a->doc == b->doc;
        assert_true(a->row < b->row || (a->row == b->row && end < b->token));
        assert_true(!same || a->stride > 1 || b->stride > 1 || end + 1 < b->token); /* nothing is left to merge */
        pieces = same ? pieces + 1 : 1;
        assert_true(pieces <= weft_layout_pieces(s->layout, 1));
    }
}

static void check_partition(const weft_shard *s, weft_layout layout, const docs_case *c)
{
    static int seen[CASE_MAX_B * MAX_T];
    static int64_t index[CASE_MAX_B * MAX_T], pos[CASE_MAX_B * MAX_T];
    memset(seen, 0, sizeof seen);
    for (int r = 0; r < s->P; r++) {
        int64_t rows = 0;
        check_order_and_pieces(s, r);
        for (int64_t i = s->first[r]; i < s->first[r + 1]; i++) {
            const weft_segment *g = &s->seg[i];
            assert_true(g->len > 0);
            assert_true(1 <= g->run && g->run <= g->stride && (g->run < g->stride || g->stride == 1));
            for (int64_t j = 0; j < g->len; j++)
                assert_int_equal(document_of(c, g->row, g->token + weft_segment_step(g, j)), g->doc);
            rows += g->len;
        }
        assert_int_equal(rows, s->rows[r]);
        assert_int_equal(rows, weft_shard_rows(layout, s->B, s->T, s->P, r));
        weft_shard_tokens(s, r, index, pos);
        for (int64_t i = 0; i < rows; i++) {
            seen[index[i]]++;
            int64_t b = index[i] / s->T, t = index[i] % s->T;
            assert_int_equal(pos[i], t - c->cu[c->first[b] + document_of(c, b, t)] + s->pos0);
        }
    }
    for (int64_t i = 0; i < s->B * s->T; i++) assert_int_equal(seen[i], 1);
}

static void every_token_exactly_once(void **state)
{
    (void)state;
    shard_world w;
    world_open(&w);
    for (int kind = 0; kind < DOCS_KINDS; kind++)
        for (int P = 1; P <= MAX_P; P++)
            for (int64_t T = 1; T <= MAX_T; T++)
                for (int l = 0; l < ALL_LAYOUTS; l++) {
                    docs_case c;
                    weft_shard s;
                    weft_mark mark = weft_arena_mark(w.arena);
                    make_docs(&c, kind, 1 + T % CASE_MAX_B, T);
                    make_shard(&w, &s, all_layouts[l], &c.docs, P, 0);
                    check_partition(&s, all_layouts[l], &c);
                    weft_arena_release(w.arena, mark);
                }
    world_close(&w);
}

static void rows_differ_by_at_most_two_chunks_roundings(void **state)
{
    (void)state;
    for (int l = 0; l < ALL_LAYOUTS; l++)
        for (int P = 1; P <= 64; P++)
            for (int64_t T = 1; T < 300; T += 7) {
                int64_t least = INT64_MAX, sum = 0, most = weft_shard_max_rows(all_layouts[l], 1, T, P);
                for (int r = 0; r < P; r++) {
                    int64_t n = weft_shard_rows(all_layouts[l], 1, T, P, r);
                    if (n < least) least = n;
                    sum += n;
                }
                assert_int_equal(sum, T);
                /* two chunks, each floor or ceiling of T/2P; or a stripe */
                assert_true(most - least <= weft_max_i64(2, all_layouts[l].block));
            }
    /* no product i * T may overflow */
    int64_t huge = (int64_t)1 << 61;
    assert_int_equal(weft_shard_rows((weft_layout){WEFT_LAYOUT_ZIGZAG, 0}, 1, huge, 4096, 4095), huge / 4096);
    assert_int_equal(weft_shard_rows((weft_layout){WEFT_LAYOUT_STRIPED, 1}, 1, huge, 4096, 4095), huge / 4096);
    assert_int_equal(weft_shard_rows((weft_layout){WEFT_LAYOUT_STRIPED, INT64_MAX}, 1, huge, 4096, 0), huge);
    assert_int_equal(weft_shard_rows((weft_layout){WEFT_LAYOUT_STRIPED, huge / 2}, 1, huge, 4096, 1), huge / 2);
    assert_int_equal(weft_shard_rows((weft_layout){WEFT_LAYOUT_STRIPED, huge / 2}, 1, huge, 4096, 2), 0);
}

static void make_one_row(shard_world *w, weft_shard *s, weft_layout_kind kind, int64_t T, int P, int64_t pos0)
{
    int64_t cu[2] = {0, T}, first[2] = {0, 2};
    weft_docs docs = {1, T, cu, first, NULL};
    make_shard(w, s, (weft_layout){kind, 0}, &docs, P, pos0);
}

/* Labels are shifted on the whole row and then picked by index: no label is lost at a shard's edge. */
static void g07_labels(void **state)
{
    (void)state;
    shard_world w;
    world_open(&w);
    static const int64_t want_token[2][2][4] = {{{1, 2, 3, 4}, {5, 6, 7, 8}}, {{1, 2, 7, 8}, {3, 4, 5, 6}}};
    static const int64_t want_label[2][2][4] = {{{2, 3, 4, 5}, {6, 7, 8, -1}}, {{2, 3, 8, -1}, {4, 5, 6, 7}}};
    for (int l = 0; l < 2; l++) {
        weft_shard s;
        make_one_row(&w, &s, (weft_layout_kind)l, 8, 2, 0);
        int valid = 0;
        for (int r = 0; r < 2; r++) {
            int64_t index[4], pos[4];
            assert_int_equal(s.rows[r], 4);
            weft_shard_tokens(&s, r, index, pos);
            for (int i = 0; i < 4; i++) {
                int64_t label = index[i] + 1 < 8 ? index[i] + 2 : -1;
                assert_int_equal(index[i] + 1, want_token[l][r][i]);
                assert_int_equal(label, want_label[l][r][i]);
                valid += label >= 0;
            }
        }
        assert_int_equal(valid, 7);
    }
    world_close(&w);
}

static void g20_positions(void **state)
{
    (void)state;
    shard_world w;
    world_open(&w);
    weft_shard s;
    make_one_row(&w, &s, WEFT_LAYOUT_ZIGZAG, 8, 2, 0);
    static const int64_t want[2][4] = {{0, 1, 6, 7}, {2, 3, 4, 5}};
    int64_t index[4], pos[2][4];
    for (int r = 0; r < 2; r++) {
        weft_shard_tokens(&s, r, index, pos[r]);
        for (int i = 0; i < 4; i++) assert_int_equal(pos[r][i], want[r][i]);
    }
    /* the score of token 7 with token 0, one radian per position: local numbering would give cos 3 = -0.99 */
    assert_true(fabs(cos((double)(pos[0][3] - pos[0][0])) - 0.7539) < 1e-4);
    world_close(&w);
}

/* The chunks that the report writes down, and which rank holds the valid labels. */
static void g11_ranks_without_labels(void **state)
{
    (void)state;
    shard_world w;
    world_open(&w);
    weft_shard s;
    make_one_row(&w, &s, WEFT_LAYOUT_ZIGZAG, 16, 4, 0);
    static const int64_t want[4][4] = {{0, 1, 14, 15}, {2, 3, 12, 13}, {4, 5, 10, 11}, {6, 7, 8, 9}};
    static const int want_valid[4] = {2, 2, 0, 0};
    for (int r = 0; r < 4; r++) {
        int64_t index[4], pos[4];
        int valid = 0;
        weft_shard_tokens(&s, r, index, pos);
        for (int i = 0; i < 4; i++) {
            assert_int_equal(index[i], want[r][i]);
            valid += index[i] < 4;
        }
        assert_int_equal(valid, want_valid[r]);
    }
    world_close(&w);
}

static void more_ranks_than_tokens(void **state)
{
    (void)state;
    shard_world w;
    world_open(&w);
    weft_shard s;
    make_one_row(&w, &s, WEFT_LAYOUT_ZIGZAG, 3, 8, 0);
    int64_t sum = 0, empty = 0;
    for (int r = 0; r < 8; r++) {
        sum += s.rows[r];
        empty += s.rows[r] == 0;
    }
    assert_int_equal(sum, 3);
    assert_true(empty >= 5);
    world_close(&w);
}

static void adjacent_chunks_are_merged(void **state)
{
    (void)state;
    shard_world w;
    world_open(&w);
    weft_shard s;
    make_one_row(&w, &s, WEFT_LAYOUT_ZIGZAG, 64, 4, 0);
    assert_int_equal(s.first[1] - s.first[0], 2);
    assert_int_equal(s.first[4] - s.first[3], 1); /* chunks P-1 and P are neighbours */
    assert_int_equal(s.seg[s.first[3]].len, 16);
    make_one_row(&w, &s, WEFT_LAYOUT_ZIGZAG, 64, 1, 0);
    assert_int_equal(s.first[1], 1);
    world_close(&w);
}

static void bad_input_is_refused(void **state)
{
    (void)state;
    shard_world w;
    world_open(&w);
    weft_shard s;
    int64_t first[2] = {0, 3}, good[3] = {0, 4, 8}, falling[3] = {0, 9, 8}, late[3] = {1, 4, 8}, short_[3] = {0, 4, 7};
    weft_docs docs = {1, 8, good, first, NULL};
    assert_ok(weft_docs_check(&docs));
    docs.cu = falling;
    assert_refused(weft_docs_check(&docs), "below");
    docs.cu = late;
    assert_refused(weft_docs_check(&docs), "must run from 0 to T = 8");
    docs.cu = short_;
    assert_refused(weft_docs_check(&docs), "must run from 0 to T = 8");
    docs.T = 0;
    assert_refused(weft_docs_check(&docs), "at least 1");
    docs = (weft_docs){1, 8, good, first, NULL};
    assert_ok(weft_shard_alloc(&s, w.arena, 2, weft_shard_capacity((weft_layout){WEFT_LAYOUT_ZIGZAG, 0}, 1, 8, 2, 2)));
    assert_refused(weft_shard_make(&s, (weft_layout){WEFT_LAYOUT_ZIGZAG, 0}, &docs, 3), "one document per row");
    assert_ok(weft_shard_alloc(&s, w.arena, 2, 2));
    assert_refused(weft_shard_make(&s, (weft_layout){WEFT_LAYOUT_ZIGZAG, 0}, &docs, 0), "more than 2 segments");
    assert_refused(weft_shard_alloc(&s, w.arena, 0, 2), "0 ranks");
    world_close(&w);
}

/* A body in runs, and a head where a document begins inside a stripe. */
static void striped_segments(void **state)
{
    (void)state;
    shard_world w;
    world_open(&w);
    weft_shard s;
    int64_t cu[] = {0, 3, 5, 30}, first[] = {0, 4};
    weft_docs docs = {1, 30, cu, first, NULL};
    make_shard(&w, &s, (weft_layout){WEFT_LAYOUT_STRIPED, 4}, &docs, 2, 0);
    /* rank 0: 0-3 8-11 16-19 24-27; rank 1: 4-7 12-15 20-23 28-29 */
    static const weft_segment want[] = {{0, 0, 0, 3, 1, 1, 0},  {0, 1, 0, 1, 1, 1, 3}, {0, 2, 3, 12, 4, 8, 8},
                                        {0, 1, 1, 1, 1, 1, 4}, {0, 2, 0, 3, 1, 1, 5}, {0, 2, 7, 10, 4, 8, 12}};
    assert_int_equal(s.first[1], 3);
    assert_int_equal(s.first[2], 6);
    assert_memory_equal(s.seg, want, sizeof want);
    world_close(&w);
}

static void layouts_are_read_and_printed(void **state)
{
    (void)state;
    static const char *const texts[] = {"contiguous", "zigzag", "striped:1", "striped:128"};
    weft_layout layout;
    char text[64];
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        assert_ok(weft_layout_parse(texts[i], &layout));
        assert_string_equal(weft_layout_text(layout, text, sizeof text), texts[i]);
    }
    assert_int_equal(layout.kind, WEFT_LAYOUT_STRIPED);
    assert_int_equal(layout.block, 128);
    assert_ok(weft_layout_parse("striped", &layout));
    assert_int_equal(layout.block, 1);
    assert_string_equal(weft_layout_name(layout), "striped");
    static const char *const bad[] = {"striped:0", "striped:", "striped:-3", "striped:4k", "striped:1:2", "striped: 4",
                                      "striped:99999999999999999999"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_refused(weft_layout_parse(bad[i], &layout), "use striped:128");
    assert_refused(weft_layout_parse("zigzag:3", &layout), "use zigzag, or striped:3");
    assert_refused(weft_layout_parse("zigzig", &layout), "use zigzag");
    assert_refused(weft_layout_parse("", &layout), "contiguous, zigzag");
    assert_refused(weft_layout_parse(NULL, &layout), "contiguous, zigzag");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_token_exactly_once),
        cmocka_unit_test(rows_differ_by_at_most_two_chunks_roundings),
        cmocka_unit_test(g07_labels),
        cmocka_unit_test(g20_positions),
        cmocka_unit_test(g11_ranks_without_labels),
        cmocka_unit_test(more_ranks_than_tokens),
        cmocka_unit_test(adjacent_chunks_are_merged),
        cmocka_unit_test(bad_input_is_refused),
        cmocka_unit_test(striped_segments),
        cmocka_unit_test(layouts_are_read_and_printed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
