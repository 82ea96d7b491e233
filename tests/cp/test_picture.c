/* What ranks see of a sequence, for thousands of them at the price of a few: the same as rank by rank. Numbers agree
 * but for the order in which doubles are added up: 1e-12. */
/* labels: small */
#include "harness/test.h"
#include "cp/cp_impl.h"

#include <math.h>

/* ---- rank by rank ------------------------------------------------------------------------------------------ */

enum { SAMPLES = 32 }; /* midpoints per chunk: exact where the number of visible keys is linear in the query */

typedef struct span { double begin, end; } span;

static double length(span s) { return fmax(0, s.end - s.begin); }
static span overlap(span a, span b) { return (span){fmax(a.begin, b.begin), fmin(a.end, b.end)}; }

/* The key positions that queries at positions [q.begin, q.end) see: one span, because a span of queries is one. */
static span visible_span(const weft_cp_problem *p, span q)
{
    const weft_mask *m = &p->mask;
    span k = {0, (double)p->T};
    if (length(q) == 0) return (span){0, 0};
    if (m->left >= 0) k.begin = fmax(k.begin, q.begin - (double)m->left);
    if (m->right >= 0) k.end = fmin(k.end, q.end + (double)m->right);
    if (m->causal) k.end = fmin(k.end, fmax(q.end, (double)m->prefix));
    return k;
}

/* Layouts come down to three: one chunk per rank, two that lie as mirror images (zigzag; and balanced, of which no more
 * is known before the documents are), or stripes. */
static int chunks_of(weft_layout layout) { return layout.kind == WEFT_LAYOUT_CONTIGUOUS ? 1 : 2; }

/* Chunk c of rank r of R, of a sequence of n tokens. */
static span chunk(weft_layout layout, double n, int R, int r, int c)
{
    if (chunks_of(layout) == 1) return (span){n * r / R, n * (r + 1) / R};
    int at = c == 0 ? r : 2 * R - 1 - r;
    return (span){n * at / (2 * R), n * (at + 1) / (2 * R)};
}

/* ... of the queries, in positions: they are the last part of the keys. */
static span query_chunk(const weft_cp_problem *p, int R, int r, int c)
{
    span s = chunk(p->layout, (double)p->Tq, R, r, c);
    double first = (double)(p->T - p->Tq);
    return (span){first + s.begin, first + s.end};
}

/* Visible (query, key) pairs of one head of one sequence, for the queries in q. */
static double area_of(const weft_cp_problem *p, span q)
{
    double sum = 0, width = length(q) / SAMPLES;
    for (int i = 0; i < SAMPLES; i++) {
        double at = q.begin + (i + 0.5) * width;
        /* a query is one token wide: half a token to both sides of its middle */
        sum += width * length(visible_span(p, (span){at - 0.5, at + 0.5}));
    }
    return sum;
}

/* Rows that rank r needs of others, and from how many of the R - 1 they come. */
static double need_of(const weft_cp_problem *p, int R, int r, double *owners)
{
    int chunks = chunks_of(p->layout);
    double rows = 0, touched = 0, width = (double)p->T / (chunks * R);
    span seen[2] = {{0, 0}, {0, 0}};
    for (int c = 0; c < chunks; c++) {
        seen[c] = visible_span(p, query_chunk(p, R, r, c));
        rows += length(seen[c]);
        if (length(seen[c]) > 0) touched += ceil(seen[c].end / width - 1e-9) - floor(seen[c].begin / width + 1e-9);
    }
    if (chunks == 2) rows -= length(overlap(seen[0], seen[1]));
    for (int c = 0; c < chunks; c++) {
        span own = chunk(p->layout, (double)p->T, R, r, c);
        span a = overlap(own, seen[0]), b = overlap(own, seen[1]);
        rows -= length(a) + length(b) - length(overlap(a, b));
        if (length(a) + length(b) > 0) touched -= 1;
    }
    *owners = fmin(R - 1, touched);
    return rows;
}

/* Key chunks that the queries of a chunk see, one by one: their owners, and how many do not go on from the one before
 * of the same owner. */
static void blocks_of(const weft_cp_problem *p, int R, int r, int c, double *blocks, double *spans)
{
    const span q = query_chunk(p, R, r, c), seen = visible_span(p, q);
    const double share = length(q) * R / (double)p->Tq, e = 1e-9 * (double)p->T;
    bool of[1024] = {false};
    assert_true(R <= 1024);
    for (int owner = 0; owner < R; owner++)
        for (int k = 0; k < chunks_of(p->layout); k++) {
            const span keys = chunk(p->layout, (double)p->T, R, owner, k);
            if (!(length(overlap(keys, seen)) > e)) continue;
            const bool on = k == 1 && owner == R - 1 && of[owner]; /* chunks R - 1 and R meet */
            *spans += on ? 0 : share;
            *blocks += of[owner] ? 0 : share;
            of[owner] = true;
        }
}

static weft__cp_picture rank_by_rank(const weft_cp_problem *p, int R)
{
    weft__cp_picture x = {0};
    double most = 0;
    for (int r = 0; r < R; r++) {
        double area = 0, owners, blocks = 0, spans = 0;
        for (int c = 0; c < chunks_of(p->layout); c++) {
            area += area_of(p, query_chunk(p, R, r, c));
            blocks_of(p, R, r, c, &blocks, &spans);
        }
        x.blocks += blocks / R, x.spans += spans / R;
        x.most_blocks = fmax(x.most_blocks, blocks), x.most_spans = fmax(x.most_spans, spans);
        x.area += area;
        most = fmax(most, area);
        x.need += need_of(p, R, r, &owners) / R;
        x.owners = fmax(x.owners, owners);
    }
    x.busiest = x.area > 0 ? most * R / x.area : 1;
    return x;
}

/* ---- together ---------------------------------------------------------------------------------------------- */

static void check(const weft_cp_problem *p, int R)
{
    const weft__cp_picture a = weft__cp_picture_of(p, R, 1), b = rank_by_rank(p, R);
    const double e = 1e-12;
    if (fabs(a.area - b.area) <= e * b.area && fabs(a.busiest - b.busiest) <= e * b.busiest &&
        fabs(a.need - b.need) <= e * (double)p->T && a.owners == b.owners && fabs(a.blocks - b.blocks) <= e * R &&
        fabs(a.most_blocks - b.most_blocks) <= e * R && fabs(a.spans - b.spans) <= e * R &&
        fabs(a.most_spans - b.most_spans) <= e * R)
        return;
    fail_msg("layout %d, causal %d, window %lld, %lld, prefix %lld, Tq %lld, T %lld, R %d: area %.17g, busiest %.17g, "
             "need %.17g, owners %g, blocks %.17g, %.17g, spans %.17g, %.17g; rank by rank %.17g, %.17g, %.17g, %g, "
             "%.17g, %.17g, %.17g, %.17g", (int)p->layout.kind, p->mask.causal, (long long)p->mask.left,
             (long long)p->mask.right, (long long)p->mask.prefix, (long long)p->Tq, (long long)p->T, R, a.area,
             a.busiest, a.need, a.owners, a.blocks, a.most_blocks, a.spans, a.most_spans, b.area, b.busiest, b.need,
             b.owners, b.blocks, b.most_blocks, b.spans, b.most_spans);
}

static void check_masks(int64_t T, int64_t Tq, int R)
{
    static const weft_layout_kind layouts[] = {WEFT_LAYOUT_CONTIGUOUS, WEFT_LAYOUT_ZIGZAG};
    const int64_t far[] = {-1, 0, 7, T / 9, T / 2 + 3, T};
    for (int l = 0; l < 2; l++)
        for (int causal = 0; causal < 2; causal++)
            for (int left = 0; left < 6; left++)
                for (int other = 0; other < 6; other++) { /* right of a window, or the prefix of a causal mask */
                    const weft_mask m = causal ? (weft_mask){true, far[left], -1, far[other] < 0 ? 0 : far[other]}
                                               : (weft_mask){false, far[left], far[other], 0};
                    const weft_cp_problem p = {.T = T, .Tq = Tq, .mask = m, .layout = {layouts[l], 0}};
                    check(&p, R);
                }
}

static void all_masks_and_layouts(void **state)
{
    (void)state;
    static const int64_t T[] = {33, 1001, 4096};
    static const int R[] = {1, 2, 3, 7, 64, 129};
    for (int i = 0; i < 3; i++)
        for (int k = 0; k < 6; k++) check_masks(T[i], T[i], R[k]);
    check_masks(1001, 37, 7);
}

static void lengths_of_real_clusters(void **state)
{
    (void)state;
    const int64_t T = 1 << 20;
    const weft_cp_problem p = {.T = T, .Tq = T, .mask = {true, -1, -1, 0}, .layout = {WEFT_LAYOUT_ZIGZAG, 0}};
    weft_cp_problem window = p;
    window.mask.left = 4095;
    check(&p, 1024);
    check(&window, 1024);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_masks_and_layouts),
        cmocka_unit_test(lengths_of_real_clusters),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
