/* From segments to kernel calls: each visible (query, key) is in exactly one pair, those of the same queries follow one
 * another, pairs of one wave share no rows, and the number of pairs stays below the bound that plans allocate. */
/* labels: small */
#include "harness/test.h"
#include "harness/cp_case.h"
#include "cp/cp_impl.h"

enum { MAX_ROWS = 128 };

typedef struct fixture { weft_mem mem; weft_arena *arena; } fixture;

/* A plan of which only what bind reads is filled. */
static void make_plan(fixture *f, weft_cp_plan *plan, weft__cp_slot *slot, const weft_shard *s, int rank, int64_t docs,
                      weft_mask mask, weft_layout layout, int group)
{
    *plan = (weft_cp_plan){.P = s->P, .rank = rank, .group = group, .waves = (int)weft_layout_pieces(layout, group),
                           .problem = {.B = s->B, .T = s->T, .max_docs = docs, .layout = layout},
                           .desc = {.mask = mask}};
    plan->pair_capacity = weft__cp_pair_capacity(plan);
    *slot = (weft__cp_slot){0};
    assert_ok(WEFT_NEW0(f->arena, plan->pair_capacity, "pairs", &slot->pairs));
    assert_ok(WEFT_NEW0(f->arena, plan->pair_capacity, "waves", &slot->wave));
    assert_ok(WEFT_NEW0(f->arena, (int64_t)s->P + 1, "first", &slot->first));
}

static void make_shard(fixture *f, weft_shard *s, weft_layout layout, const weft_docs *docs, int P)
{
    int64_t total = docs->first[docs->B] - docs->B;
    assert_ok(weft_shard_alloc(s, f->arena, P, weft_shard_capacity(layout, docs->B, docs->T, total, P)));
    assert_ok(weft_shard_make(s, layout, docs, 0));
}

static void check_wave_is_disjoint(const weft_attn_pair *pairs, const int *wave, int w, int64_t n)
{
    bool q[MAX_ROWS] = {0}, k[MAX_ROWS] = {0};
    for (int64_t i = 0; i < n; i++) {
        if (wave[i] != w) continue;
        for (int64_t a = 0; a < pairs[i].nq; a++) {
            assert_false(q[pairs[i].q_row + a]);
            q[pairs[i].q_row + a] = true;
        }
        for (int64_t b = 0; b < pairs[i].nk; b++) {
            assert_false(k[pairs[i].k_row + b]);
            k[pairs[i].k_row + b] = true;
        }
    }
}

/* Runs of pairs with the same queries share no query row. */
static void check_runs_are_disjoint(const weft_attn_pair *pairs, int64_t n)
{
    bool q[MAX_ROWS] = {0};
    for (int64_t i = 0; i < n; i++) {
        const weft_attn_pair *p = &pairs[i], *before = i ? p - 1 : NULL;
        if (before && before->q_row == p->q_row) {
            assert_true(before->nq == p->nq && before->q_pos == p->q_pos && before->q_run == p->q_run);
            assert_true(before->q_step == p->q_step && before->base == p->base && before->sample == p->sample);
            continue;
        }
        for (int64_t a = 0; a < p->nq; a++) {
            assert_false(q[p->q_row + a]);
            q[p->q_row + a] = true;
        }
    }
}

typedef struct rows { int64_t n, index[MAX_ROWS], pos[MAX_ROWS], doc[MAX_ROWS]; } rows;

static void read_rows(rows *x, const weft_shard *s, int rank)
{
    x->n = 0;
    weft_shard_tokens(s, rank, x->index, x->pos);
    for (int64_t i = s->first[rank]; i < s->first[rank + 1]; i++)
        for (int64_t j = 0; j < s->seg[i].len; j++) x->doc[x->n++] = s->seg[i].row * 1000 + s->seg[i].doc;
}

static void check_block(const weft_cp_plan *plan, const weft__cp_slot *slot, const weft_shard *s, int step)
{
    static int seen[MAX_ROWS][MAX_ROWS];
    rows q, k;
    read_rows(&q, s, plan->rank);
    read_rows(&k, s, weft__cp_owner(plan, step));
    memset(seen, 0, sizeof seen);
    const weft_attn_pair *pairs = slot->pairs + slot->first[step];
    const int *wave = slot->wave + slot->first[step];
    int64_t n = slot->first[step + 1] - slot->first[step];
    check_runs_are_disjoint(pairs, n);
    for (int w = 0; w < plan->waves; w++) check_wave_is_disjoint(pairs, wave, w, n);
    for (const weft_attn_pair *p = pairs; p < pairs + n; p++) {
        assert_true(wave[p - pairs] >= 0 && wave[p - pairs] < plan->waves);
        for (int64_t a = 0; a < p->nq; a++)
            for (int64_t b = 0; b < p->nk; b++) {
                assert_int_equal(q.pos[p->q_row + a], p->q_pos + a / p->q_run * p->q_step + a % p->q_run);
                assert_int_equal(k.pos[p->k_row + b], p->k_pos + b / p->k_run * p->k_step + b % p->k_run);
                assert_int_equal(k.index[p->k_row + b] % s->T, k.pos[p->k_row + b] + p->base);
                assert_int_equal(q.index[p->q_row + a] / s->T, p->sample);
                seen[p->q_row + a][p->k_row + b] +=
                    weft_visible(&plan->desc.mask, q.pos[p->q_row + a], k.pos[p->k_row + b]);
            }
    }
    for (int64_t a = 0; a < q.n; a++)
        for (int64_t b = 0; b < k.n; b++)
            assert_int_equal(seen[a][b], q.doc[a] == k.doc[b] && weft_visible(&plan->desc.mask, q.pos[a], k.pos[b]));
}

static const weft_layout layouts[] = {{WEFT_LAYOUT_CONTIGUOUS, 0}, {WEFT_LAYOUT_ZIGZAG, 0}, {WEFT_LAYOUT_STRIPED, 1},
                                      {WEFT_LAYOUT_STRIPED, 3}, {WEFT_LAYOUT_BALANCED, 0}};

static const weft_mask masks[] = {
    {true, -1, -1, 0}, {false, -1, -1, 0}, {true, 3, -1, 0}, {false, 1, 2, 0}, {true, 2, 1, 7}};

/* Groups of U ranks, as an inner plan binds them. */
static void check_groups(fixture *f, const weft_shard *ranks, weft_layout layout, int U, int64_t docs)
{
    weft_shard s;
    assert_ok(weft_shard_alloc(&s, f->arena, ranks->P / U, ranks->capacity));
    assert_ok(weft_shard_group(&s, ranks, U));
    for (size_t m = 0; m < sizeof masks / sizeof *masks; m++)
        for (int r = 0; r < s.P; r++) {
            weft_mark mark = weft_arena_mark(f->arena);
            weft_cp_plan plan;
            weft__cp_slot slot;
            make_plan(f, &plan, &slot, &s, r, docs, masks[m], layout, U);
            assert_ok(weft__cp_bind_pairs(&plan, &slot, &s, &s));
            for (int i = 0; i < s.P; i++) check_block(&plan, &slot, &s, i);
            weft_arena_release(f->arena, mark);
        }
}

static void check_shard(fixture *f, int64_t B, int64_t T, int pattern, int P, weft_layout layout)
{
    cp_docs d = cp_docs_make(B, T, pattern);
    weft_docs docs = {B, T, d.cu, d.first, NULL};
    weft_mark mark = weft_arena_mark(f->arena);
    weft_shard s;
    make_shard(f, &s, layout, &docs, P);
    for (int U = 1; U <= P; U++)
        if (P % U == 0) check_groups(f, &s, layout, U, d.total);
    weft_arena_release(f->arena, mark);
    cp_docs_free(&d);
}

static void every_visible_pair_once(void **state)
{
    (void)state;
    static const int ranks[] = {1, 2, 3, 4, 5, 6, 8, 12, 16};
    fixture f = {0};
    assert_ok(weft_arena_create(&f.arena, &f.mem, "test", NULL));
    for (int64_t T = 1; T <= 33; T += T < 9 ? 1 : 12)
        for (int pattern = 0; pattern < 4; pattern++)
            for (size_t p = 0; p < sizeof ranks / sizeof *ranks; p++)
                for (size_t l = 0; l < sizeof layouts / sizeof *layouts; l++)
                    check_shard(&f, 1 + T / 2 % 2, T, pattern, ranks[p], layouts[l]);
    weft_arena_destroy(f.arena);
}

/* Contiguous and causal: what later ranks hold is never computed, and with a window nor what lies far behind. */
static void blocks_that_nobody_sees_are_empty(void **state)
{
    (void)state;
    fixture f = {0};
    assert_ok(weft_arena_create(&f.arena, &f.mem, "test", NULL));
    enum { P = 5, T = 50 };
    int64_t cu[2] = {0, T}, first[2] = {0, 2};
    weft_docs docs = {1, T, cu, first, NULL};
    weft_shard s;
    make_shard(&f, &s, layouts[0], &docs, P);
    for (int window = 0; window < 2; window++)
        for (int r = 0; r < P; r++) {
            weft_cp_plan plan;
            weft__cp_slot slot;
            make_plan(&f, &plan, &slot, &s, r, 1, (weft_mask){true, window ? 9 : -1, -1, 0}, s.layout, 1);
            assert_ok(weft__cp_bind_pairs(&plan, &slot, &s, &s));
            for (int i = 0; i < P; i++) {
                bool seen = i <= r && (!window || i <= 1);
                assert_int_equal(slot.first[i + 1] - slot.first[i], seen);
            }
        }
    weft_arena_destroy(f.arena);
}

/* 10,000 documents: a walk over all pairs of documents would take 10^8 steps per rank and block. */
static void many_documents(void **state)
{
    (void)state;
    enum { DOCS = 10000 };
    fixture f = {0};
    assert_ok(weft_arena_create(&f.arena, &f.mem, "test", NULL));
    static int64_t cu[DOCS + 1];
    int64_t first[2] = {0, DOCS + 1}, filled = 0, T = 0;
    for (int i = 0; i < DOCS; i++) {
        cu[i + 1] = T += i % 13;
        filled += i % 13 > 0;
    }
    weft_docs docs = {1, T, cu, first, NULL};
    for (int P = 1; P <= 16; P *= 4) {
        weft_shard s;
        int64_t pairs = 0;
        make_shard(&f, &s, layouts[1], &docs, P);
        for (int r = 0; r < P; r++) {
            weft_cp_plan plan;
            weft__cp_slot slot;
            make_plan(&f, &plan, &slot, &s, r, DOCS, (weft_mask){true, -1, -1, 0}, s.layout, 1);
            assert_ok(weft__cp_bind_pairs(&plan, &slot, &s, &s));
            pairs += slot.first[P];
        }
        assert_true(pairs >= filled && pairs <= filled + 8 * P); /* a document more per cut, seen from both sides */
    }
    weft_arena_destroy(f.arena);
}

static void more_documents_than_planned_are_refused(void **state)
{
    (void)state;
    fixture f = {0};
    assert_ok(weft_arena_create(&f.arena, &f.mem, "test", NULL));
    int64_t cu[31], first[2] = {0, 31};
    for (int i = 0; i < 31; i++) cu[i] = i;
    weft_docs docs = {1, 30, cu, first, NULL};
    weft_shard s;
    weft_cp_plan plan;
    weft__cp_slot slot;
    make_shard(&f, &s, layouts[0], &docs, 1);
    make_plan(&f, &plan, &slot, &s, 0, 2, (weft_mask){true, -1, -1, 0}, s.layout, 1);
    assert_refused(weft__cp_bind_pairs(&plan, &slot, &s, &s), "made for 2 documents");
    weft_arena_destroy(f.arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_visible_pair_once), cmocka_unit_test(many_documents),
        cmocka_unit_test(blocks_that_nobody_sees_are_empty),
        cmocka_unit_test(more_documents_than_planned_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
