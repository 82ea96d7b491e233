/* labels: small */
/* The picture is what runs: every cell's pairs, visible and masked by reason, against a walk over all tokens; its rank
 * and step against the owners of the tokens and the order of blocks; tables against the cells. Awkward sizes. */
#include "harness/test.h"
#include "harness/cp_case.h"
#include "harness/bench.h"
#include "plan/plan.h"

enum { T_MAX = 80, P_MAX = 12 };

static weft_show_ask ask_of(const char *strategy, weft_layout layout, int cp, int64_t Tq, int64_t T, weft_mask mask)
{
    return (weft_show_ask){.problem = {.prec = WEFT_PREC_BF16, .B = 1, .Tq = Tq, .T = T, .max_docs = 1, .H = 4,
                                       .Hkv = 2, .D = 8, .Dv = 8, .scale = 1, .mask = mask, .layout = layout,
                                       .slots = 1},
                           .options = {.strategy = strategy, .overlap = true}, .cp = cp, .cells = 17, .only_rank = -1,
                           .only_step = -1, .all_work = P_MAX};
}

/* Member that holds each token, after head groups of U ranks. */
static void owners_of(bench *b, const weft_show_ask *a, int U, int64_t T, int64_t pos0, bool docs, int owner[T_MAX])
{
    weft_shard s;
    weft_docs whole;
    int64_t index[T_MAX], pos[T_MAX];
    assert_ok(weft_docs_whole(&whole, b->arena, 1, T));
    assert_ok(weft_shard_create(&s, b->arena, a->problem.layout, a->cp, docs ? a->docs : &whole, pos0));
    for (int r = 0; r < a->cp; r++) {
        weft_shard_tokens(&s, r, index, pos);
        for (int64_t i = 0; i < s.rows[r]; i++) owner[index[i]] = r / U;
    }
}

static int64_t document_of(const weft_docs *d, int64_t token)
{
    int64_t n = 0;
    while (d && d->cu[n + 1] <= token) n++;
    return n;
}

typedef struct counts {
    int64_t visible, later, far, other;
    int64_t of[P_MAX][P_MAX]; /* [set of members][set of steps] */
} counts;

static void count_pair(const weft_show_ask *a, const weft_show *s, const int *q_owner, const int *k_owner, int64_t q,
                       int64_t k, counts *n)
{
    const weft_mask *m = &a->problem.mask;
    int64_t doc = document_of(a->docs, q), begin = a->docs ? a->docs->cu[doc] : 0;
    int member = q_owner[q - (a->problem.T - a->problem.Tq)], step = (member - k_owner[k] + s->R) % s->R;
    bool asked = (a->only_step < 0 || step == a->only_step) &&
                 (a->only_rank < 0 || s->member[member].rank == a->only_rank);
    if (doc != document_of(a->docs, k)) n->other++;
    else if (m->causal && k > q && k - begin >= m->prefix) n->later++;
    else if (!weft_visible(m, q - begin, k - begin)) n->far++;
    else {
        n->visible++;
        if (asked) n->of[member / s->unit][(step + s->unit / 2) / s->unit % s->sets]++;
    }
}

static void check_cell(const weft_show_ask *a, const weft_show *s, const int *q_owner, const int *k_owner, int i, int j)
{
    const weft_show_cell *c = &s->cell[(int64_t)i * s->k.n + j];
    counts n = {0};
    int64_t most = 0, shown = 0;
    for (int64_t q = s->q.cut[i]; q < s->q.cut[i + 1]; q++)
        for (int64_t k = s->k.cut[j]; k < s->k.cut[j + 1]; k++) count_pair(a, s, q_owner, k_owner, q, k, &n);
    assert_int_equal(c->visible, n.visible);
    assert_int_equal(c->later, n.later);
    assert_int_equal(c->far, n.far);
    assert_int_equal(c->other, n.other);
    assert_int_equal(c->all, n.visible + n.later + n.far + n.other);
    for (int r = 0; r < s->sets; r++)
        for (int t = 0; t < s->sets; t++) {
            shown += n.of[r][t];
            if (n.of[r][t] > most) most = n.of[r][t];
        }
    assert_int_equal(c->shown, shown);
    assert_int_equal(c->most, most);
    if (most == 0) assert_true(c->set == -1 && c->step == -1);
    else assert_int_equal(n.of[c->set][c->step], most);
}

static void check_axis(const weft_show_axis *x, const int *owner, int64_t begin, int64_t end, int cells, int unit)
{
    assert_true(x->n >= 1 && x->n <= cells);
    assert_int_equal(x->cut[0], begin);
    assert_int_equal(x->cut[x->n], end);
    for (int i = 0; i < x->n; i++) {
        int held[P_MAX] = {0}, most = 0;
        assert_true(x->cut[i] < x->cut[i + 1]);
        for (int64_t t = x->cut[i]; t < x->cut[i + 1]; t++) held[owner[t - begin] / unit]++;
        for (int r = 0; r < P_MAX; r++)
            if (held[r] > most) most = held[r];
        assert_int_equal(held[x->owner[i]], most);
        assert_int_equal(x->most[i], most);
    }
}

/* What tables say is what the cells say. */
static void check_tables(const weft_show_ask *a, const weft_show *s)
{
    int64_t steps = 0, members = 0, works = 0;
    for (int i = 0; i < s->R; i++) steps += s->step[i].sum, members += s->member[i].visible;
    assert_int_equal(steps, s->sum.visible);
    assert_int_equal(members, s->sum.visible);
    for (int64_t i = 0; i < s->works; i++) {
        const weft_show_work *w = &s->work[i];
        works += w->visible;
        assert_true(w->visible <= s->step[w->step].most && w->visible <= w->queries * w->keys);
        assert_int_equal(w->owner, (w->member - w->step + s->R) % s->R);
        if (a->only_step >= 0) assert_int_equal(w->step, a->only_step);
        if (a->only_rank >= 0) assert_int_equal(s->member[w->member].rank, a->only_rank);
    }
    assert_int_equal(works, s->sum.shown);
}

static void check(bench *b, const weft_show_ask *a, int *grouped)
{
    weft_show s;
    int q_owner[T_MAX], k_owner[T_MAX];
    int64_t ahead = a->problem.T - a->problem.Tq;
    weft_mark mark = weft_arena_mark(b->arena);
    assert_ok(weft_show_make(&s, b->arena, &b->kern, b->comm, a));
    assert_int_equal(s.U * s.R, s.P);
    owners_of(b, a, s.U, a->problem.T, 0, a->docs != NULL, k_owner);
    owners_of(b, a, s.U, a->problem.Tq, ahead, a->docs != NULL, q_owner);
    check_axis(&s.k, k_owner, 0, a->problem.T, a->cells, s.unit);
    check_axis(&s.q, q_owner, ahead, a->problem.T, a->cells, s.unit);
    assert_true(s.unit >= 1 && s.unit * s.sets >= s.R && s.unit * (s.sets - 1) < s.R && s.sets <= 62);
    *grouped += s.unit > 1;
    for (int i = 0; i < s.q.n; i++)
        for (int j = 0; j < s.k.n; j++) check_cell(a, &s, q_owner, k_owner, i, j);
    check_tables(a, &s);
    weft_text_free(&s.plan);
    weft_arena_release(b->arena, mark);
}

static const weft_layout layouts[] = {{WEFT_LAYOUT_ZIGZAG, 0}, {WEFT_LAYOUT_CONTIGUOUS, 0}, {WEFT_LAYOUT_STRIPED, 1},
                                      {WEFT_LAYOUT_STRIPED, 3}, {WEFT_LAYOUT_BALANCED, 0}};
static const weft_mask masks[] = {{true, -1, -1, 0}, {true, 6, -1, 0}, {true, -1, -1, 9}, {false, 5, 3, 0}};
static const char *const strategies[] = {"ring", "pcp", "pairwise", "dcp", "ulysses", "dcp-ring", "dcp-pairwise"};

static void cells_are_what_is_computed(void **state)
{
    static const int64_t lengths[] = {1, 3, 16, 17, 33, 79};
    int turn = 0, grouped = 0;
    for (size_t t = 0; t < sizeof lengths / sizeof *lengths; t++)
        for (int P = 1; P <= P_MAX; P += P < 4 ? 1 : 4)
            for (size_t l = 0; l < sizeof layouts / sizeof *layouts; l++)
                for (size_t m = 0; m < sizeof masks / sizeof *masks; m++) {
                    weft_show_ask a = ask_of(strategies[turn % 4], layouts[l], P, lengths[t], lengths[t], masks[m]);
                    turn++;
                    if (turn % 5 == 0) a.only_step = 0;
                    if (turn % 4 == 0) a.cells = 9;
                    if (turn % 7 == 0) a.only_rank = P - 1;
                    if (turn % 3 == 0) a.problem.Tq = (lengths[t] + 2) / 3;
                    if (turn % test_every(5) == 0) check(*state, &a, &grouped);
                }
    assert_true(grouped > 20 / test_every(5)); /* more ranks than cells can tell apart */
}

static void documents_and_head_groups(void **state)
{
    bench *b = *state;
    int turn = 0, grouped = 0;
    for (int pattern = 1; pattern < 4; pattern++) {
        cp_docs d = cp_docs_make(1, 47, pattern);
        weft_docs docs = {1, 47, d.cu, d.first, NULL};
        for (size_t l = 0; l < sizeof layouts / sizeof *layouts; l++)
            for (int P = 2; P <= 4; P += 2)
                for (size_t s = 0; s < sizeof strategies / sizeof *strategies; s++) {
                    weft_show_ask a = ask_of(strategies[s], layouts[l], P, 47, 47, masks[turn++ % 4]);
                    a.docs = &docs;
                    a.cells = turn % 2 ? 11 : 60;
                    if (turn % test_every(5) == 0) check(b, &a, &grouped);
                }
        cp_docs_free(&d);
    }
}

static void what_cannot_be_drawn_is_refused(void **state)
{
    bench *b = *state;
    weft_show s;
    weft_mask causal = {true, -1, -1, 0};
    weft_layout zigzag = {WEFT_LAYOUT_ZIGZAG, 0};
    weft_show_ask a = ask_of("ring", zigzag, 4, 8, 8, causal);
    a.only_rank = 4;
    assert_refused(weft_show_make(&s, b->arena, &b->kern, b->comm, &a), "ranks 0 to 3");
    a = ask_of("ring", zigzag, 4, 8, 8, causal);
    a.only_step = 4;
    assert_refused(weft_show_make(&s, b->arena, &b->kern, b->comm, &a), "steps 0 to 3");
    a = ask_of("ulysses", zigzag, 8, 8, 8, causal);
    assert_refused(weft_show_make(&s, b->arena, &b->kern, b->comm, &a), "use dcp");
    a = ask_of("ring", zigzag, 4, 9, 8, causal);
    assert_refused(weft_show_make(&s, b->arena, &b->kern, b->comm, &a), "at most as many as keys");
    a = ask_of("ring", zigzag, 4, 8, 8, causal);
    a.problem.B = 2;
    assert_refused(weft_show_make(&s, b->arena, &b->kern, b->comm, &a), "one at a time");
    a = ask_of("ring", zigzag, 4, 8, 8, causal);
    a.cells = 0;
    assert_refused(weft_show_make(&s, b->arena, &b->kern, b->comm, &a), "0 cells");
}

/* Stripes of many ranks meet in every cell; chunks of as many do not, nor do short stripes of short documents. */
static void what_takes_minutes_is_refused(void **state)
{
    bench *b = *state;
    weft_show s;
    const weft_mask causal = {true, -1, -1, 0};
    const int64_t T = INT32_MAX;
    weft_show_ask a = ask_of("ring", (weft_layout){WEFT_LAYOUT_STRIPED, 1}, 4096, T, T, causal);
    assert_refused(weft_show_make(&s, b->arena, &b->kern, b->comm, &a), "ranks of this layout can be drawn");
    a = ask_of("ring", (weft_layout){WEFT_LAYOUT_STRIPED, 1 << 16}, 64, T, T, causal);
    assert_refused(weft_show_make(&s, b->arena, &b->kern, b->comm, &a), "zigzag or contiguous");
    a = ask_of("ring", (weft_layout){WEFT_LAYOUT_ZIGZAG, 0}, 256, T, T, causal);
    assert_ok(weft_show_make(&s, b->arena, &b->kern, b->comm, &a));
    weft_text_free(&s.plan);
}

/* Idle members as ranges: contiguous and causal, rank r has nothing at steps after r. */
static void idle_ranks_are_named(void **state)
{
    bench *b = *state;
    weft_show s;
    weft_show_ask a = ask_of("ring", (weft_layout){WEFT_LAYOUT_CONTIGUOUS, 0}, 7, 70, 70, (weft_mask){true, -1, -1, 0});
    assert_ok(weft_show_make(&s, b->arena, &b->kern, b->comm, &a));
    for (int i = 0; i < 7; i++) {
        const weft_show_members *idle = &s.step[i].idle;
        assert_int_equal(idle->count, i);
        assert_int_equal(idle->ranges, i > 0);
        if (i > 0) assert_true(idle->first[0] == 0 && idle->last[0] == i - 1);
    }
    weft_text_free(&s.plan);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cells_are_what_is_computed), cmocka_unit_test(documents_and_head_groups),
        cmocka_unit_test(what_cannot_be_drawn_is_refused), cmocka_unit_test(what_takes_minutes_is_refused),
        cmocka_unit_test(idle_ranks_are_named)};
    return cmocka_run_group_tests(tests, open_bench, close_bench);
}
