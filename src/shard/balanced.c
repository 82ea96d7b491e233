/* balanced.c — as many tokens per rank as `contiguous` has, and the same causal area, whatever the documents are.
 *
 * A query at position p sees p + 1 keys, wherever those keys lie: a token has the weight p + 1, and each rank needs
 * room_r tokens of total weight mean = (all weights) / P. Documents of all rows are dealt together, in two steps:
 *   1. whole documents, heaviest first, each to the rank with the least so far that has room;
 *   2. the rest, the pool, by cutting (balanced_cut.c): each rank takes what it lacks from the two ends of the pool.
 * The more is placed whole, the less has to travel, but the less freedom is left to the second step. So variants are
 * tried from all room downwards to none (then the pool is everything), until one is even enough. Everything is a
 * function of the documents: all ranks find the same.
 *
 * The mean cannot always be met: the rank with the heaviest token has at least its weight and 1 for each other token.
 * With 64 ranks of 256 tokens and one document of 65 among single tokens that is 1.11 of the mean. */
#include "shard/balanced_impl.h"

typedef struct variant {
    int fill;       /* sixteenths of a rank's tokens and area that whole documents may take */
    bool by_tokens; /* least area and tokens together, or least area */
    bool heads;     /* weft__deal.heads */
} variant;

static const variant variants[] = {
    {16, false, false}, {16, true, false}, {16, true, true}, {15, true, false}, {15, true, true},
    {13, true, false}, {13, true, true},  {10, true, false}, {10, true, true},  {6, true, false},
    {6, true, true},   {0, true, false},  {0, true, true}};
enum { VARIANTS = sizeof variants / sizeof *variants };

/* Largest area / mean to be content with: when documents had to be cut, and when not. */
static const double even_enough = 1.03, even_whole = 1.05;

/* From the document that reaches furthest, which has the heaviest token, to the one of light tokens alone. Where all
 * documents begin at their first token that is: longest first. */
static bool reaches_further(const weft_segment *a, const weft_segment *b)
{
    int64_t x = a->start + a->len, y = b->start + b->len;
    return x != y ? x > y : weft__by_token(a, b);
}

static bool by_rank(const weft_segment *a, const weft_segment *b)
{
    return a->run != b->run ? a->run < b->run : weft__by_token(a, b);
}

/* All documents with tokens, heaviest first, on no rank. */
static weft_status list_documents(weft__deal *x, const weft_docs *docs)
{
    x->docs = x->n = 0;
    for (int64_t b = 0; b < docs->B; b++) {
        const int64_t *cu = docs->cu + docs->first[b];
        for (int64_t d = 0; d + 1 < docs->first[b + 1] - docs->first[b]; d++) {
            weft_segment whole = {.row = b, .doc = d, .start = weft__doc_start(x->s, docs, b, d), .token = cu[d],
                                  .len = cu[d + 1] - cu[d], .run = WEFT__POOL, .stride = WEFT__WHOLE};
            if (whole.len == 0) continue;
            if (x->n == x->s->capacity)
                return weft_fail(WEFT_ERR_REFUSED, "shard: more than %lld segments; plan for more documents per "
                                 "micro-batch", (long long)x->s->capacity);
            x->seg[x->n++] = whole;
        }
    }
    x->docs = x->n;
    weft__sort(x->seg, x->n, reaches_further);
    return WEFT_OK;
}

/* Takes back what a variant has done. */
static void start_again(weft__deal *x, const weft_docs *docs)
{
    x->n = x->docs;
    for (int64_t i = 0; i < x->docs; i++) {
        weft_segment *g = &x->seg[i];
        const int64_t *cu = docs->cu + docs->first[g->row] + g->doc;
        g->start = weft__doc_start(x->s, docs, g->row, g->doc), g->token = cu[0], g->len = cu[1] - cu[0];
        g->run = WEFT__POOL, g->stride = WEFT__WHOLE;
    }
    for (int r = 0; r < x->s->P; r++) x->room[r] = x->s->rows[r], x->load[r] = 0;
}

/* ---- whole documents ----------------------------------------------------------------------------------- */

static double rank_key(const weft__deal *x, const variant *v, int64_t r)
{
    double area = (double)x->load[r] / (double)x->mean, tokens = (double)(x->s->rows[r] - x->room[r]);
    return v->by_tokens ? area + tokens / (double)x->s->rows[r] : area;
}

/* Ranks wait in `ranks`, least first; those without room for documents of the present length in `full`, most room
 * first, until a document fits. */
static void place_whole(weft__deal *x, const variant *v)
{
    weft__heap ranks = {x->s->work->ranks, 0}, full = {x->s->work->full, 0};
    double limit = (double)x->mean * even_enough * v->fill / 16;
    x->reserve = 16 - v->fill;
    for (int r = 0; r < x->s->P; r++)
        if (x->s->rows[r] > 0) weft__heap_push(&ranks, (weft__item){0, r});
    for (int64_t i = 0; i < x->docs && v->fill > 0; i++) {
        weft_segment *g = &x->seg[i];
        int64_t area = weft__weight(g->start, g->len);
        while (full.n && -full.item[0].key >= (double)g->len) {
            int64_t r = full.item[0].id;
            weft__heap_pop(&full);
            weft__heap_push(&ranks, (weft__item){rank_key(x, v, r), r});
        }
        while (ranks.n && weft__room_for_whole(x, ranks.item[0].id) < g->len) {
            int64_t r = ranks.item[0].id;
            weft__heap_pop(&ranks);
            weft__heap_push(&full, (weft__item){-(double)weft__room_for_whole(x, r), r});
        }
        if (!ranks.n || (double)(x->load[ranks.item[0].id] + area) > limit) continue;
        int64_t r = ranks.item[0].id;
        g->run = r;
        x->room[r] -= g->len;
        x->load[r] += area;
        ranks.item[0].key = rank_key(x, v, r);
        weft__heap_sink(&ranks);
    }
}

/* ---- the whole ------------------------------------------------------------------------------------------- */

static double most_over_mean(const weft__deal *x)
{
    int64_t most = 0;
    for (int r = 0; r < x->s->P; r++) most = weft_max_i64(most, x->load[r]);
    return (double)most / ((double)x->total / x->s->P);
}

/* Largest area / mean of this variant. */
static double deal(weft__deal *x, const weft_docs *docs, const variant *v, bool *whole)
{
    start_again(x, docs);
    x->heads = v->heads;
    place_whole(x, v);
    *whole = weft__deal_pool(x) == 0;
    double ratio = most_over_mean(x);
    if (ratio <= (*whole ? even_whole : even_enough)) return ratio;
    weft__deal_even(x, even_enough);
    *whole = false;
    return most_over_mean(x);
}

static void deal_best(weft__deal *x, const weft_docs *docs)
{
    double least = 0;
    int best = 0, last = -1;
    for (int i = 0; i < VARIANTS; i++) {
        bool whole;
        double ratio = deal(x, docs, &variants[i], &whole);
        if (i == 0 || ratio < least) least = ratio, best = i;
        last = i;
        if (ratio <= (whole ? even_whole : even_enough)) {
            best = i;
            break;
        }
    }
    bool whole;
    if (best != last) deal(x, docs, &variants[best], &whole);
}

/* From pieces that know their ranks to the ranks' lists. */
static weft_status write_segments(weft__deal *x)
{
    weft__writer w = {x->s, 0, 0};
    int64_t i = 0;
    weft__sort(x->seg, x->n, by_rank);
    for (int r = 0; r < x->s->P; r++) {
        x->s->first[r] = w.rank_begin = w.n;
        for (; i < x->n && x->seg[i].run == r; i++) {
            weft_segment g = x->seg[i];
            g.run = g.stride = 1;
            WEFT_TRY(weft__append(&w, g)); /* never overtakes i */
        }
    }
    x->s->first[x->s->P] = w.n;
    return WEFT_OK;
}

static weft_status make(weft_shard *s, const weft_docs *docs)
{
    int64_t tokens = docs->B * docs->T, reach = docs->T + s->pos0, most;
    for (int64_t i = 0; docs->start && i < docs->first[docs->B]; i++)
        reach = weft_max_i64(reach, docs->T + s->pos0 + docs->start[i]);
    if (!weft_mul_i64(tokens, reach, &most))
        return weft_fail(WEFT_ERR_REFUSED, "shard: %lld rows of %lld tokens have too large areas for layout balanced; "
                         "use zigzag", (long long)docs->B, (long long)docs->T);
    weft__deal x = {.s = s, .seg = s->seg, .room = s->work->room, .load = s->work->load};
    WEFT_TRY(list_documents(&x, docs));
    for (int64_t i = 0; i < x.n; i++) x.total += weft__weight(x.seg[i].start, x.seg[i].len);
    x.mean = weft_max_i64(1, x.total / s->P);
    deal_best(&x, docs);
    return write_segments(&x);
}

/* Each rank's turn at the pool cuts at most three times, and each of the 2P exchanges at most twice. */
static int64_t capacity(weft_layout l, int64_t B, int64_t T, int64_t docs, int P)
{
    (void)l, (void)B, (void)T;
    return docs + 7 * (int64_t)P;
}

const weft__layout_ops weft__layout_balanced = {
    "balanced", false, WEFT__BALANCED_PIECES, false, 1, weft__contiguous_run, capacity, make};
