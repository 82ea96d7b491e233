/* labels: small */
/* A part of a tensor, walked: every element is found once, at the place in the whole that indices say. */
#include "harness/test.h"
#include "tensor/tensor.h"

/* Where element i of the part lies in the whole, by its indices. */
static int64_t by_indices(const weft_spec *s, int64_t i)
{
    int64_t at[WEFT_MAX_DIMS], whole = 0;
    for (int d = s->nd - 1; d >= 0; d--) at[d] = i % s->shape[d], i /= s->shape[d];
    for (int c = 0, before = 0; s->cut_dim >= 0 && c < s->cuts; c++) {
        int len = (int)(s->cut[c].end - s->cut[c].begin);
        if (at[s->cut_dim] < before + len) {
            at[s->cut_dim] += s->cut[c].begin - before;
            break;
        }
        before += len;
    }
    for (int d = 0; d < s->nd; d++) whole = whole * s->whole[d] + at[d];
    return whole;
}

static void check(const weft_spec *s)
{
    static const int64_t steps[] = {1, 2, 3, 7, 1001};
    for (size_t k = 0; k < sizeof steps / sizeof *steps; k++)
        for (int64_t first = 0, at = 0; first <= s->count; first += steps[k]) {
            int64_t n = weft_min_i64(steps[k], s->count - first);
            weft_spec_walk w = weft_spec_walk_of(s, first, n);
            weft_stretch x;
            while (weft_spec_walk_next(&w, &x)) {
                assert_int_equal(x.at, at);
                assert_true(x.n > 0);
                for (int64_t i = 0; i < x.n; i++, at++) assert_int_equal(x.whole + i, by_indices(s, at));
            }
            assert_int_equal(at, first + n);
        }
}

static weft_spec part(int nd, const int64_t *whole, int dim, int cuts, const weft_span *cut)
{
    weft_spec s = {.nd = nd, .count = 1};
    for (int d = 0; d < nd; d++) s.shape[d] = whole[d], s.count *= whole[d];
    weft_spec_uncut(&s);
    if (dim < 0) return s;
    s.cut_dim = dim;
    s.cuts = cuts;
    s.shape[dim] = 0;
    for (int c = 0; c < cuts; c++) s.cut[c] = cut[c], s.shape[dim] += cut[c].end - cut[c].begin;
    s.count = 1;
    for (int d = 0; d < nd; d++) s.count *= s.shape[d];
    return s;
}

static void parts_lie_where_indices_say(void **state)
{
    (void)state;
    static const weft_span one[] = {{2, 5}}, all[] = {{0, 7}}, three[] = {{1, 2}, {3, 3}, {4, 7}}, none[] = {{3, 3}};
    static const struct { int cuts; const weft_span *cut; } ways[] = {{1, one}, {1, all}, {3, three}, {1, none}};
    static const int64_t shapes[][3] = {{7, 1, 1}, {7, 5, 1}, {5, 7, 1}, {3, 7, 2}, {1, 7, 1}};
    static const int dims[] = {0, 0, 1, 1, 1};
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++)
        for (size_t w = 0; w < sizeof ways / sizeof *ways; w++)
            for (int nd = dims[s] + 1; nd <= 3; nd++) {
                weft_spec x = part(nd, shapes[s], dims[s], ways[w].cuts, ways[w].cut);
                check(&x);
            }
    weft_spec whole = part(2, (const int64_t[]){33, 7}, -1, 0, NULL);
    check(&whole);
    assert_int_equal(weft_spec_whole_count(&whole), 231);
    assert_int_equal(whole.own_count, 231);
    weft_spec cut = part(2, (const int64_t[]){33, 7}, 1, 1, one);
    assert_int_equal(weft_spec_whole_count(&cut), 231);
    assert_int_equal(cut.count, 99);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(parts_lie_where_indices_say)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
