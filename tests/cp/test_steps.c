/* What a bound plan tells of itself (weft_cp_steps): over all ranks and steps every visible pair of query, key and head
 * is computed exactly once, and nothing else; what one rank sends another receives, at the same step; and the bytes
 * sent are those of the formulas. Awkward sizes, documents of no token, uneven and empty shares, windows, fewer queries
 * than keys. That runs send what plans say is tested with every strategy (harness/cp_case.c). */
/* labels: small */
#include "harness/test.h"
#include "harness/cp_case.h"
#include "harness/bench.h"

enum { T_MAX = 48, H = 5, HKV = 2, MOVES = 4000 };

typedef struct watch { /* of all ranks of one case */
    int rank;
    int64_t Tq, T;
    unsigned char times[2][T_MAX][T_MAX][H]; /* how often a pair was computed, [row][query][key][head] */
    weft_mask mask;
    int next_step;
    int64_t sent;
    weft_cp_move move[MOVES];
    int from[MOVES], to[MOVES], n;
} watch;

static void see_pair(watch *w, const weft_cp_work *x, const weft_attn_pair *p, int64_t i, int64_t j)
{
    int64_t q = p->q_pos + i / p->q_run * p->q_step + i % p->q_run;
    int64_t k = p->k_pos + j / p->k_run * p->k_step + j % p->k_run;
    int64_t query = p->base + q - (w->T - w->Tq), key = p->base + k;
    if (!weft_visible(&w->mask, q, k)) return; /* the kernel's mask leaves it out */
    assert_in_range(query, 0, w->Tq - 1);
    assert_in_range(key, 0, w->T - 1);
    for (int h = x->head0; h < x->head0 + x->heads; h++) w->times[p->sample][query][key][h]++;
}

static void see_work(void *ud, const weft_cp_work *x)
{
    watch *w = ud;
    assert_int_equal(x->step, w->next_step++);
    for (int64_t n = 0; n < x->n; n++) {
        const weft_attn_pair *p = &x->pairs[n];
        assert_true(p->q_row + p->nq <= x->queries && p->k_row + p->nk <= x->keys);
        for (int64_t i = 0; i < p->nq; i++)
            for (int64_t j = 0; j < p->nk; j++) see_pair(w, x, p, i, j);
    }
}

static void see_move(void *ud, const weft_cp_move *m)
{
    watch *w = ud;
    assert_true(m->bytes > 0 && m->pieces > 0 && m->peer != w->rank && w->n < MOVES);
    w->from[w->n] = m->received ? m->peer : w->rank;
    w->to[w->n] = m->received ? w->rank : m->peer;
    w->move[w->n++] = *m;
    if (!m->received) w->sent += m->bytes;
}

static bool same_message(const watch *w, int a, int b)
{
    const weft_cp_move *x = &w->move[a], *y = &w->move[b];
    return w->from[a] == w->from[b] && w->to[a] == w->to[b] && x->kind == y->kind && x->step == y->step &&
           x->owner == y->owner && x->rows == y->rows && x->bytes == y->bytes;
}

/* Every message has exactly one sender and one receiver, who agree about it. */
static void check_messages(const watch *w, const char *what)
{
    for (int i = 0; i < w->n; i++) {
        int sent = 0, received = 0;
        for (int j = 0; j < w->n; j++)
            if (same_message(w, i, j)) w->move[j].received ? received++ : sent++;
        if (sent != 1 || received != 1)
            fail_msg("%s: message %d -> %d of kind %d at step %d: %d senders, %d receivers", what, w->from[i], w->to[i],
                     w->move[i].kind, w->move[i].step, sent, received);
    }
}

static const int64_t *document_of(const cp_case *c, int64_t b, int64_t token)
{
    const int64_t *cu = c->cu + c->first[b];
    while (cu[1] <= token) cu++;
    return cu;
}

/* By the definition: one document, and the mask at positions that count from its beginning. */
static bool is_visible(const cp_case *c, int64_t b, int64_t q, int64_t k)
{
    if (!c->cu) return weft_visible(&c->mask, q, k);
    const int64_t *doc = document_of(c, b, q);
    return doc == document_of(c, b, k) && weft_visible(&c->mask, q - doc[0], k - doc[0]);
}

static void check_pairs(const cp_case *c, const watch *w, const char *what)
{
    for (int64_t b = 0; b < c->B; b++)
        for (int64_t i = 0; i < c->Tq; i++)
            for (int64_t j = 0; j < c->T; j++)
                for (int h = 0; h < H; h++) {
                    int64_t q = i + c->T - c->Tq;
                    bool seen = is_visible(c, b, q, j);
                    if (w->times[b][i][j][h] != seen)
                        fail_msg("%s: row %lld, query %lld, key %lld, head %d: computed %d times, visible %d", what,
                                 (long long)b, (long long)q, (long long)j, h, w->times[b][i][j][h], seen);
                }
}

static void make_shard(bench *b, weft_shard *s, const cp_case *c, weft_layout layout, int P, int64_t T, int64_t pos0)
{
    cp_docs whole = cp_docs_make(c->B, T, 0);
    weft_docs docs = {c->B, T, c->cu ? c->cu : whole.cu, c->cu ? c->first : whole.first, NULL};
    assert_ok(weft_shard_alloc(s, b->arena, P, weft_shard_capacity(layout, c->B, T, docs.first[c->B] - c->B, P)));
    assert_ok(weft_shard_make(s, layout, &docs, pos0));
    cp_docs_free(&whole);
}

/* All ranks of one way to run it. Returns false where the strategy refuses. */
static bool run(bench *b, const cp_case *c, const char *strategy, weft_layout layout, int P, bool backward)
{
    static watch w;
    weft_shard q, kv;
    char what[160], name[40];
    weft_cp_problem p = {.prec = c->prec, .B = c->B, .Tq = c->Tq, .T = c->T,
                         .max_docs = c->cu ? c->first[c->B] - c->B : c->B, .H = H, .Hkv = HKV, .group = 3, .D = 2,
                         .Dv = 3, .scale = 1, .mask = c->mask, .layout = layout, .need_backward = backward, .slots = 1};
    weft_cp_options o = {.strategy = strategy, .overlap = true};
    make_shard(b, &kv, c, layout, P, c->T, 0);
    make_shard(b, &q, c, layout, P, c->Tq, c->T - c->Tq);
    memset(&w, 0, sizeof w);
    w.Tq = c->Tq, w.T = c->T, w.mask = c->mask;
    snprintf(what, sizeof what, "%s %s P=%d T=%lld/%lld %s", strategy, weft_layout_text(layout, name, sizeof name), P,
             (long long)c->Tq, (long long)c->T, backward ? "backward" : "forward");
    for (int r = 0; r < P; r++) {
        weft_cp_seat seat = {P, r, c->Tq == c->T ? &kv : &q, &kv};
        w.rank = r, w.next_step = 0, w.sent = 0;
        weft_status st = weft_cp_preview_steps(&b->kern, b->comm, &p, &o, &seat, backward,
                                               &(weft_cp_view){&w, see_work, see_move});
        if (st == WEFT_ERR_REFUSED && r == 0) return false;
        assert_ok(st);
        if (c->mask.causal || c->mask.left >= 0 || strstr(strategy, "pairwise")) continue;
        traffic_case t = {.strategy = strategy, .layout = layout, .P = P, .B = c->B, .Tq = c->Tq, .T = c->T, .H = H,
                          .Hkv = HKV, .D = 2, .Dv = 3, .group = 3, .prec = c->prec};
        traffic want = traffic_of(&t, r);
        assert_int_equal(w.sent, backward ? want.backward_bytes : want.forward_bytes);
    }
    check_pairs(c, &w, what);
    check_messages(&w, what);
    return true;
}

static const weft_mask masks[] = {
    {true, -1, -1, 0}, {false, -1, -1, 0}, {true, 4, -1, 0}, {true, -1, -1, 11}, {false, 3, 2, 0}};
static const weft_layout layouts[] = {{WEFT_LAYOUT_ZIGZAG, 0}, {WEFT_LAYOUT_CONTIGUOUS, 0}, {WEFT_LAYOUT_STRIPED, 1},
                                      {WEFT_LAYOUT_STRIPED, 3}, {WEFT_LAYOUT_BALANCED, 0}};
static const int ranks[] = {1, 2, 3, 4, 6, 9};

/* Each strategy and P with masks, layouts, batches and directions in turn. */
static int run_turns(bench *b, const cp_case *base, int every)
{
    int n, ran = 0, turn = 0;
    const char *const *names = weft_cp_names(&n);
    for (int s = 0; s < n; s++)
        for (size_t p = 0; p < sizeof ranks / sizeof *ranks; p++)
            for (size_t m = 0; m < sizeof masks / sizeof *masks; m++)
                for (size_t l = 0; l < sizeof layouts / sizeof *layouts; l++) {
                    cp_case c = *base;
                    weft_mark mark = weft_arena_mark(b->arena);
                    if (turn++ % every) continue;
                    c.mask = masks[m];
                    ran += run(b, &c, names[s], layouts[l], ranks[p], turn / every % 2);
                    weft_arena_release(b->arena, mark);
                }
    return ran;
}

static void whole_rows(void **state)
{
    static const int64_t lengths[] = {1, 5, 19, 33};
    int ran = 0;
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        cp_case c = {.prec = WEFT_PREC_BF16, .B = 1, .Tq = lengths[i], .T = lengths[i]};
        ran += run_turns(*state, &c, 7 * test_every(5));
    }
    assert_true(ran > 400 / (7 * test_every(5)));
}

static void documents_in_two_rows(void **state)
{
    for (int pattern = 1; pattern < 4; pattern++) {
        cp_docs d = cp_docs_make(2, 31, pattern);
        cp_case c = {.prec = WEFT_PREC_F32, .B = 2, .Tq = 31, .T = 31, .cu = d.cu, .first = d.first};
        run_turns(*state, &c, 11 * test_every(5));
        cp_docs_free(&d);
    }
}

static void fewer_queries_than_keys(void **state)
{
    cp_case c = {.prec = WEFT_PREC_F32, .B = 1, .Tq = 7, .T = 29};
    run_turns(*state, &c, 11 * test_every(5));
    c.Tq = 1;
    run_turns(*state, &c, 13 * test_every(5));
}

static void what_is_no_rank_or_not_bound_is_refused(void **state)
{
    bench *b = *state;
    cp_case c = {.prec = WEFT_PREC_F32, .B = 1, .Tq = 8, .T = 8, .mask = {true, -1, -1, 0}};
    weft_layout layout = {WEFT_LAYOUT_ZIGZAG, 0};
    weft_shard kv;
    make_shard(b, &kv, &c, layout, 2, 8, 0);
    weft_cp_problem p = {.prec = c.prec, .B = 1, .Tq = 8, .T = 8, .max_docs = 1, .H = 2, .Hkv = 2, .D = 2, .Dv = 2,
                         .scale = 1, .mask = c.mask, .layout = layout, .slots = 1};
    weft_cp_options o = {.strategy = "ring", .overlap = true};
    weft_cp_view nobody = {0};
    assert_refused(weft_cp_preview_steps(&b->kern, b->comm, &p, &o, &(weft_cp_seat){2, 2, &kv, &kv}, false, &nobody),
                   "there are ranks 0 to 1");
    assert_refused(weft_cp_preview_steps(&b->kern, b->comm, &p, &o, &(weft_cp_seat){2, 0, &kv, &kv}, true, &nobody),
                   "backward was not planned");
    assert_ok(weft_cp_preview_steps(&b->kern, b->comm, &p, &o, &(weft_cp_seat){2, 0, &kv, &kv}, false, &nobody));
    o.strategy = "none";
    weft_cp_plan *plan;
    p.layout = (weft_layout){WEFT_LAYOUT_CONTIGUOUS, 0};
    assert_ok(weft_cp_plan_create(&plan, b->arena, &b->kern, b->comm, &p, &o));
    assert_refused(weft_cp_steps(plan, 0, false, &nobody), "not bound");
    assert_refused(weft_cp_steps(plan, 1, false, &nobody), "slot 1");
    weft_cp_plan_destroy(plan);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(whole_rows), cmocka_unit_test(documents_in_two_rows),
        cmocka_unit_test(fewer_queries_than_keys),
        cmocka_unit_test(what_is_no_rank_or_not_bound_is_refused)};
    return cmocka_run_group_tests(tests, open_bench, close_bench);
}
