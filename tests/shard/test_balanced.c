/* Layout balanced: the token counts of contiguous, even areas, whole documents where they fit; whatever the
 * documents. */
/* labels: small */
#include "shard_case.h"

enum { MAX_CU = 150000 };

typedef struct made { int64_t cu[MAX_CU], first[CASE_MAX_B + 1]; weft_docs docs; } made;

static double fraction(uint64_t *at) { return (test_uniform(77, (int64_t)(*at)++) + 1) / 2; }

enum { KINDS = 9 };

/* One long document, even ones, power laws, one long among single tokens, a few long ones, empty ones, ... */
static int64_t length_of(int kind, int64_t k, int64_t T, int P, double size, double u)
{
    switch (kind) {
    case 0: return T;
    case 1: return 1 + (int64_t)(u * size * (double)T);
    case 2: return (int64_t)pow(u + 1e-9, -1 / (0.5 + 2 * size));
    case 3: return k == 0 ? (int64_t)(sqrt(2.0 * (double)T) * exp(2 * size - 1)) : 1;
    case 4: return k < 3 ? (int64_t)(sqrt(2.0 * (double)T) * exp(2 * size - 1)) : (int64_t)(u * 3);
    case 5: return weft_ceil_div(T, P);
    case 6: return 1 + (int64_t)((double)T * pow(u, 6));
    case 7: return k == 0 ? T / 2 : 1 + (int64_t)(u * (double)T / P);
    default: return k % 5 == 0 ? 2 * T / (3 * P) : (int64_t)(u * 60);
    }
}

static void make_case(made *c, int kind, int64_t B, int64_t T, int P, uint64_t *at)
{
    int64_t n = 0;
    for (int64_t b = 0; b < B; b++) {
        double size = fraction(at);
        c->first[b] = n;
        c->cu[n++] = 0;
        for (int64_t k = 0, token = 0; token < T; k++) {
            int64_t len = length_of(kind, k, T, P, size, fraction(at));
            if (n >= (b + 1) * MAX_CU / B - 2) len = T; /* the room for offsets ends */
            token += weft_min_i64(len, T - token);
            c->cu[n++] = token;
        }
    }
    c->first[B] = n;
    c->docs = (weft_docs){B, T, c->cu, c->first, NULL};
    assert_ok(weft_docs_check(&c->docs));
}

typedef struct evenness { double ratio, bound, token; int64_t extra; } evenness;

/* Largest area / mean; what it is at least, whoever deals; the heaviest token / mean; pieces more than documents. */
static evenness measure(const weft_shard *s, const weft_docs *docs)
{
    int64_t most = 0, total = 0, longest = 0, filled = 0;
    for (int64_t b = 0; b < docs->B; b++)
        for (int64_t i = docs->first[b]; i + 1 < docs->first[b + 1]; i++) {
            longest = weft_max_i64(longest, docs->cu[i + 1] - docs->cu[i]);
            filled += docs->cu[i + 1] > docs->cu[i];
        }
    for (int r = 0; r < s->P; r++) {
        int64_t area = 0;
        for (int64_t i = s->first[r]; i < s->first[r + 1]; i++)
            area += s->seg[i].len * s->seg[i].start + s->seg[i].len * (s->seg[i].len + 1) / 2;
        most = weft_max_i64(most, area);
        total += area;
    }
    double mean = (double)total / s->P, heaviest = (double)(longest + s->pos0);
    return (evenness){(double)most / mean, ((double)(docs->B * docs->T / s->P - 1) + heaviest) / mean, heaviest / mean,
                      s->first[s->P] - filled};
}

/* Every token of every row once, in the right document, as many on each rank as under contiguous. */
static void check_shares(const weft_shard *s, const weft_docs *docs)
{
    static uint8_t seen[CASE_MAX_B * 200000];
    weft_layout contiguous = {WEFT_LAYOUT_CONTIGUOUS, 0};
    assert_true(docs->B * docs->T <= (int64_t)sizeof seen);
    memset(seen, 0, (size_t)(docs->B * docs->T));
    for (int r = 0; r < s->P; r++) {
        int64_t rows = 0, pieces = 0;
        for (int64_t i = s->first[r]; i < s->first[r + 1]; i++) {
            const weft_segment *g = &s->seg[i], *last = g - (i > s->first[r]);
            const int64_t *cu = docs->cu + docs->first[g->row] + g->doc;
            assert_true(g->len > 0 && g->run == 1 && g->stride == 1);
            assert_true(g->start == g->token - cu[0] + s->pos0 && g->token >= cu[0] && g->token + g->len <= cu[1]);
            assert_true(last == g || last->row < g->row || (last->row == g->row && last->token < g->token));
            pieces = last != g && last->row == g->row && last->doc == g->doc ? pieces + 1 : 1;
            assert_true(pieces <= weft_layout_pieces(s->layout, 1));
            for (int64_t j = 0; j < g->len; j++) assert_true(seen[g->row * s->T + g->token + j]++ == 0);
            rows += g->len;
        }
        assert_int_equal(rows, s->rows[r]);
        assert_int_equal(rows, weft_shard_rows(contiguous, s->B, s->T, s->P, r));
    }
    assert_null(memchr(seen, 0, (size_t)(docs->B * docs->T)));
}

/* How even areas are over many cases: within 1.05 of the mean; where no deal can be, because the rank with the heaviest
 * token has as many tokens as the others, within 6 % of what it has at least; how many are neither, and the worst of
 * those. Only tokens of more than an eighth of the mean, which no exchange moves by halves, excuse a case. */
/* extra: pieces that cuts added */
typedef struct tally { int cases, heavy, uneven; double worst; int64_t extra, ranks; } tally;

static void judge(tally *t, const weft_shard *s, const weft_docs *docs)
{
    evenness e = measure(s, docs);
    t->cases++;
    t->heavy += e.ratio > 1.05 && e.ratio <= 1.06 * e.bound;
    t->extra += e.extra, t->ranks += s->P;
    if (e.ratio <= fmax(1.05, 1.06 * e.bound)) return;
    t->uneven++;
    t->worst = fmax(t->worst, e.ratio / fmax(1, e.bound));
    if (e.token <= 0.125)
        fail_msg("P=%d T=%lld B=%lld: %.4f of the mean, at least %.4f, a token %.3f", s->P, (long long)docs->T,
                 (long long)docs->B, e.ratio, e.bound, e.token);
}

static tally judge_many(const int *ranks, size_t n, const double *spans, int rounds, uint64_t at)
{
    static made c;
    shard_world w;
    weft_shard s;
    tally t = {0};
    world_open(&w);
    for (size_t p = 0; p < n; p++)
        for (int i = 0; i < rounds * KINDS; i++) {
            int P = ranks[p];
            int64_t T = 256 * P + (int64_t)(fraction(&at) * spans[i / KINDS]),
                    B = 1 + (int64_t)(fraction(&at) * CASE_MAX_B);
            weft_mark mark = weft_arena_mark(w.arena);
            make_case(&c, i % KINDS, B, T, P, &at);
            make_shard(&w, &s, (weft_layout){WEFT_LAYOUT_BALANCED, 0}, &c.docs, P, 0);
            check_shares(&s, &c.docs);
            judge(&t, &s, &c.docs);
            weft_arena_release(w.arena, mark);
        }
    world_close(&w);
    return t;
}

/* 1.05 of the mean from 256 tokens per rank and row on. */
static void areas_are_even(void **state)
{
    (void)state;
    static const int ranks[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 31, 64};
    static const double spans[] = {1, 1000, 20000};
    tally t = judge_many(ranks, sizeof ranks / sizeof *ranks, spans, 3, 0);
    assert_true(t.heavy + t.uneven <= t.cases / 200);
    assert_at_most(t.worst, 1.15);
    assert_true(t.extra <= 2 * t.ranks);
}

/* On very many ranks a document of sqrt(2 T) tokens among single ones has tokens of the weight of a whole share. */
static void areas_on_very_many_ranks(void **state)
{
    (void)state;
    static const int ranks[] = {100, 128, 256, 512};
    static const double spans[] = {1, 1000};
    tally t = judge_many(ranks, sizeof ranks / sizeof *ranks, spans, 2, 9999);
    assert_true(t.heavy >= 1);
    assert_true(t.uneven <= t.cases / 20);
    assert_at_most(t.worst, 1.15);
}

/* Thousands of small cases, below what evenness can be promised for: shares must be exact all the same. */
static void any_case_is_exact(void **state)
{
    (void)state;
    static made c;
    shard_world w;
    weft_shard s;
    uint64_t at = 1 << 20;
    world_open(&w);
    for (int i = 0; i < 4000; i++) {
        int64_t T = 1 + (int64_t)(fraction(&at) * (i % 4 ? 60 : 600)), B = 1 + (int64_t)(fraction(&at) * CASE_MAX_B);
        int P = 1 + (int)(fraction(&at) * 20);
        weft_mark mark = weft_arena_mark(w.arena);
        make_case(&c, i % KINDS, B, T, P, &at);
        make_shard(&w, &s, (weft_layout){WEFT_LAYOUT_BALANCED, 0}, &c.docs, P, i % KINDS == 0 ? i % 100 : 0);
        check_shares(&s, &c.docs);
        weft_arena_release(w.arena, mark);
    }
    world_close(&w);
}

static void equal_documents(made *c, int64_t T, int64_t n, const int64_t *len, int kinds)
{
    c->cu[0] = 0;
    for (int64_t i = 0; i < n; i++) c->cu[i + 1] = c->cu[i] + len[i % kinds];
    c->first[0] = 0, c->first[1] = n + 1;
    c->docs = (weft_docs){1, T, c->cu, c->first, NULL};
    assert_ok(weft_docs_check(&c->docs));
}

/* Documents that pack exactly stay whole: nothing has to travel. */
static void what_packs_is_not_cut(void **state)
{
    (void)state;
    static made c;
    static const int64_t lengths[][4] = {{256}, {128}, {40, 88, 128}, {1, 2, 203, 50}, {64}};
    static const int kinds[] = {1, 1, 3, 4, 1};
    shard_world w;
    weft_shard s;
    weft_range range[4];
    weft_mask full = {false, -1, -1, 0};
    world_open(&w);
    for (int P = 1; P <= 17; P++)
        for (int k = 0; k < 5; k++) {
            int64_t T = 256 * P, sum = 0;
            for (int i = 0; i < kinds[k]; i++) sum += lengths[k][i];
            equal_documents(&c, T, T / sum * kinds[k], lengths[k], kinds[k]);
            make_shard(&w, &s, (weft_layout){WEFT_LAYOUT_BALANCED, 0}, &c.docs, P, 0);
            for (int r = 0; r < P; r++)
                for (int o = 0; o < P; o++)
                    if (r != o) assert_int_equal(weft_shard_need(&full, &s, r, &s, o, range, 4), 0);
        }
    world_close(&w);
}

/* One document: zigzag. Also when the queries are the last part of the keys. */
static void one_document_is_even(void **state)
{
    (void)state;
    static made c;
    shard_world w;
    weft_shard s;
    world_open(&w);
    for (int P = 2; P <= 64; P += P < 17 ? 1 : 47)
        for (int64_t pos0 = 0; pos0 < 5000; pos0 += 1234) {
            int64_t T = 256 * P + 77;
            equal_documents(&c, T, 1, &T, 1);
            make_shard(&w, &s, (weft_layout){WEFT_LAYOUT_BALANCED, 0}, &c.docs, P, pos0);
            check_shares(&s, &c.docs);
            assert_at_most(measure(&s, &c.docs).ratio, 1.03);
            assert_true(s.first[P] <= 2 * P); /* no rank has more than a head and a tail */
        }
    world_close(&w);
}

static void areas_that_do_not_fit_are_refused(void **state)
{
    (void)state;
    shard_world w;
    weft_shard s;
    int64_t cu[] = {0, (int64_t)1 << 40}, first[] = {0, 2};
    weft_docs docs = {1, cu[1], cu, first, NULL};
    world_open(&w);
    assert_ok(weft_shard_alloc(&s, w.arena, 2, 100));
    assert_refused(weft_shard_make(&s, (weft_layout){WEFT_LAYOUT_BALANCED, 0}, &docs, 0), "use zigzag");
    world_close(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(areas_are_even),       cmocka_unit_test(areas_on_very_many_ranks),
        cmocka_unit_test(any_case_is_exact),
        cmocka_unit_test(what_packs_is_not_cut), cmocka_unit_test(one_document_is_even),
        cmocka_unit_test(areas_that_do_not_fit_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
