/* A group of neighbouring ranks holds what its ranks hold, once each, in token order, in as few pieces as can be. */
/* labels: small */
#include "shard_case.h"

enum { MAX_ROWS = 4096 };

static void fail_at(weft_layout layout, int64_t T, int P, int U, int kind, const char *what)
{
    char text[64];
    fail_msg("%s T=%lld P=%d U=%d docs %d: %s", weft_layout_text(layout, text, sizeof text), (long long)T, P, U, kind,
             what);
}

/* Same rows as the ranks have together, ascending, at the right positions. */
static bool rows_match(const weft_shard *group, const weft_shard *ranks, int U)
{
    static int64_t index[MAX_ROWS], pos[MAX_ROWS], part[MAX_ROWS], part_pos[MAX_ROWS], pos_of[MAX_ROWS];
    for (int r = 0; r < group->P; r++) {
        int64_t n = 0;
        memset(pos_of, -1, sizeof pos_of);
        for (int u = r * U; u < (r + 1) * U; u++) {
            weft_shard_tokens(ranks, u, part, part_pos);
            for (int64_t i = 0; i < ranks->rows[u]; i++) pos_of[part[i]] = part_pos[i];
            n += ranks->rows[u];
        }
        weft_shard_tokens(group, r, index, pos);
        if (n != group->rows[r]) return false;
        for (int64_t i = 0; i < n; i++)
            if ((i && index[i] <= index[i - 1]) || pos_of[index[i]] != pos[i]) return false;
    }
    return true;
}

/* Nothing is left to join, and no document is in more pieces than promised. */
static bool pieces_fit(const weft_shard *s, int rank, int64_t most)
{
    int64_t pieces = 1;
    for (int64_t i = s->first[rank] + 1; i < s->first[rank + 1]; i++) {
        const weft_segment *a = &s->seg[i - 1], *b = &s->seg[i];
        bool same = a->row == b->row && a->doc == b->doc;
        if (same && a->stride == 1 && b->stride == 1 && a->token + a->len == b->token) return false;
        pieces = same ? pieces + 1 : 1;
        if (pieces > most) return false;
    }
    return true;
}

static bool same_segments(const weft_shard *a, const weft_shard *b)
{
    size_t n = (size_t)a->first[a->P];
    return memcmp(a->first, b->first, ((size_t)a->P + 1) * sizeof *a->first) == 0 &&
           memcmp(a->rows, b->rows, (size_t)a->P * sizeof *a->rows) == 0 &&
           memcmp(a->seg, b->seg, n * sizeof *a->seg) == 0;
}

static weft_layout wider(weft_layout l, int U)
{
    if (l.kind == WEFT_LAYOUT_STRIPED) l.block *= U;
    return l;
}

static void check_group(shard_world *w, const docs_case *c, weft_layout layout, int P, int U, int kind, int64_t pos0)
{
    weft_shard ranks, group, want;
    weft_mark mark = weft_arena_mark(w->arena);
    make_shard(w, &ranks, layout, &c->docs, P, pos0);
    assert_ok(weft_shard_alloc(&group, w->arena, P / U, ranks.capacity));
    assert_ok(weft_shard_group(&group, &ranks, U));
    if (!rows_match(&group, &ranks, U)) fail_at(layout, c->docs.T, P, U, kind, "wrong rows");
    for (int r = 0; r < group.P; r++)
        if (!pieces_fit(&group, r, weft_layout_pieces(layout, U)))
            fail_at(layout, c->docs.T, P, U, kind, "too many pieces");
    if (layout.kind == WEFT_LAYOUT_BALANCED) { /* dealt anew for R ranks it would be another shard */
        weft_arena_release(w->arena, mark);
        return;
    }
    make_shard(w, &want, wider(layout, U), &c->docs, P / U, pos0);
    if (!same_segments(&group, &want)) fail_at(layout, c->docs.T, P, U, kind, "not the layout of R ranks");
    weft_arena_release(w->arena, mark);
}

static void a_group_is_the_layout_on_fewer_ranks(void **state)
{
    (void)state;
    shard_world w;
    docs_case c;
    world_open(&w);
    for (int64_t T = 1; T <= 257; T += T < 50 ? 1 : 69)
        for (int kind = 0; kind < DOCS_KINDS; kind++)
            for (int P = 1; P <= 12; P++)
                for (int U = 1; U <= P; U++) {
                    if (P % U) continue;
                    make_docs(&c, kind, 1 + T % CASE_MAX_B, T);
                    for (int l = 0; l < ALL_LAYOUTS; l++)
                        check_group(&w, &c, all_layouts[l], P, U, kind, kind == DOCS_WHOLE ? T % 5 : 0);
                }
    world_close(&w);
}

static void bad_groups_are_refused(void **state)
{
    (void)state;
    shard_world w;
    docs_case c;
    weft_shard ranks, group;
    world_open(&w);
    make_docs(&c, DOCS_AWKWARD, 2, 40);
    make_shard(&w, &ranks, all_layouts[0], &c.docs, 6, 0);
    assert_ok(weft_shard_alloc(&group, w.arena, 2, ranks.capacity));
    assert_refused(weft_shard_group(&group, &ranks, 4), "groups of 4");
    assert_refused(weft_shard_group(&group, &ranks, 0), "groups of 0");
    assert_refused(weft_shard_group(&group, &ranks, 2), "do not make 2");
    assert_ok(weft_shard_alloc(&group, w.arena, 2, 3));
    assert_refused(weft_shard_group(&group, &ranks, 3), "room for 3 segments");
    world_close(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_group_is_the_layout_on_fewer_ranks),
        cmocka_unit_test(bad_groups_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
