/* shard_case.h — documents and shards for the tests of this room. */
#ifndef WEFT_TEST_SHARD_CASE_H
#define WEFT_TEST_SHARD_CASE_H

#include "harness/test.h"
#include "shard/shard.h"

enum { CASE_DOCS = 20, CASE_MAX_B = 3 };

typedef struct shard_world { weft_mem mem; weft_arena *arena; } shard_world;

static inline void world_open(shard_world *w)
{
    memset(w, 0, sizeof *w);
    assert_ok(weft_arena_create(&w->arena, &w->mem, "test", NULL));
}
static inline void world_close(shard_world *w) { weft_arena_destroy(w->arena); }

typedef struct docs_case {
    weft_docs docs;
    int64_t cu[CASE_MAX_B * (CASE_DOCS + 2)], first[CASE_MAX_B + 1], total;
} docs_case;

enum { DOCS_WHOLE, DOCS_AWKWARD, DOCS_SINGLE_TOKENS, DOCS_LONG, DOCS_KINDS };

/* DOCS_WHOLE: one document per row. AWKWARD: empty documents and documents of one token, different in every row.
 * SINGLE_TOKENS: every token its own document, up to a limit. LONG: a few that are longer than the stripes in use. */
static inline void make_docs(docs_case *c, int kind, int64_t B, int64_t T)
{
    static const int64_t awkward[] = {0, 1, 5, 0, 0, 3, 1, 11}, longer[] = {17, 0, 29, 8, 23, 1, 31, 2};
    int64_t n = 0;
    for (int64_t b = 0; b < B; b++) {
        c->first[b] = n;
        c->cu[n++] = 0;
        for (int64_t at = 0, step = 0; kind != DOCS_WHOLE && at < T && n - c->first[b] < CASE_DOCS; step++) {
            int64_t len = kind == DOCS_SINGLE_TOKENS ? 1 : (kind == DOCS_LONG ? longer : awkward)[(step + b) % 8];
            at = weft_min_i64(at + len, T);
            c->cu[n++] = at;
        }
        if (c->cu[n - 1] != T || n - c->first[b] < 2) c->cu[n++] = T;
    }
    c->first[B] = n;
    c->total = n - B;
    c->docs = (weft_docs){B, T, c->cu, c->first, NULL};
    assert_ok(weft_docs_check(&c->docs));
}

/* With exactly the promised capacity: it must be enough. */
static inline void make_shard(shard_world *w, weft_shard *s, weft_layout layout, const weft_docs *docs, int P,
                              int64_t pos0)
{
    int64_t total = docs->first[docs->B] - docs->B;
    assert_ok(weft_shard_alloc(s, w->arena, P, weft_shard_capacity(layout, docs->B, docs->T, total, P)));
    assert_ok(weft_shard_make(s, layout, docs, pos0));
}

/* Every layout, striped with several blocks. */
static const weft_layout all_layouts[] = {
    {WEFT_LAYOUT_CONTIGUOUS, 0}, {WEFT_LAYOUT_ZIGZAG, 0}, {WEFT_LAYOUT_STRIPED, 1}, {WEFT_LAYOUT_STRIPED, 2},
    {WEFT_LAYOUT_STRIPED, 3},    {WEFT_LAYOUT_STRIPED, 7}, {WEFT_LAYOUT_STRIPED, 1000}, {WEFT_LAYOUT_BALANCED, 0}};
enum { ALL_LAYOUTS = sizeof all_layouts / sizeof *all_layouts };

#endif
