/* cp_picture.c — what one sequence looks like to the ranks of a context group: how much of the mask a rank computes,
 * how many rows of others it needs and of how many of them. Pure. */
#include "cp/cp_impl.h"

#include <math.h>
#include <stdlib.h>

int weft__cp_mask_edges(const weft_mask *m) { return (m->left >= 0) + (m->causal || m->right >= 0); }

/* ---- one rank --------------------------------------------------------------------------------------------- */

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

/* Chunks of keys that queries see any of: [first, *end). */
static double chunks_seen(const weft_cp_problem *p, int R, span seen, double *end)
{
    const double width = (double)p->T / (chunks_of(p->layout) * R);
    *end = length(seen) > 0 ? ceil(seen.end / width - 1e-9) : 0;
    return length(seen) > 0 ? floor(seen.begin / width + 1e-9) : 0;
}

/* Rows that rank r needs of others, and from how many of the R - 1 they come. */
static double need_of(const weft_cp_problem *p, int R, int r, double *owners)
{
    int chunks = chunks_of(p->layout);
    double rows = 0, touched = 0;
    span seen[2] = {{0, 0}, {0, 0}};
    for (int c = 0; c < chunks; c++) {
        seen[c] = visible_span(p, query_chunk(p, R, r, c));
        rows += length(seen[c]);
        double end, begin = chunks_seen(p, R, seen[c], &end);
        touched += end - begin;
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

/* ---- of all ranks ---------------------------------------------------------------------------------------- */

typedef struct share { double area, need, owners; } share; /* what of the picture is one rank's */

static share share_of(const weft_cp_problem *p, int R, int r)
{
    share x = {0};
    for (int c = 0; c < chunks_of(p->layout); c++) x.area += area_of(p, query_chunk(p, R, r, c));
    x.need = need_of(p, R, r, &x.owners);
    return x;
}

/* Adds `n` ranks, whose shares lie between those of the first and of the last of them, on a line. */
static void add_run(const weft_cp_problem *p, int R, int first, int n, weft__cp_picture *x, double *most)
{
    const share a = share_of(p, R, first), b = n > 1 ? share_of(p, R, first + n - 1) : a;
    x->area += n * (a.area + b.area) / 2;
    x->need += n * (a.need + b.need) / 2 / R;
    x->owners = fmax(x->owners, fmax(a.owners, b.owners));
    *most = fmax(*most, fmax(a.area, b.area));
}

/* Everything that a rank's share is made of ends at one of these places, each of which is a line in the number of the
 * rank: bounds of chunks, of what they see, and of the sequence. */
enum { ENDS_MAX = 2 * 8 + 5, CUTS_MAX = 4 * ENDS_MAX * ENDS_MAX };

static int ends_of(const weft_cp_problem *p, int R, int r, double end[ENDS_MAX])
{
    const weft_mask *m = &p->mask;
    const double half = 0.5; /* what one query sees is asked for half a token to both sides of it (area_of) */
    int n = 0;
    end[n++] = 0, end[n++] = (double)p->T - half, end[n++] = (double)p->T;
    if (m->causal && m->prefix > 0) end[n++] = (double)m->prefix - half, end[n++] = (double)m->prefix;
    for (int c = 0; c < chunks_of(p->layout); c++) {
        const span q = query_chunk(p, R, r, c);
        end[n++] = q.begin, end[n++] = q.end;
        if (m->left >= 0) end[n++] = q.begin - (double)m->left, end[n++] = q.begin - (double)m->left - half;
        if (m->left >= 0) end[n++] = q.end - (double)m->left - half;
        if (m->right >= 0) end[n++] = q.end + (double)m->right, end[n++] = q.end + (double)m->right + half;
        if (m->right >= 0) end[n++] = q.begin + (double)m->right + half;
    }
    return n;
}

static int by_number(const void *a, const void *b) { return *(const int *)a - *(const int *)b; }

/* Ranks before and behind every crossing of two ends, ascending: between them nothing bends. */
static int cuts_of(const weft_cp_problem *p, int R, int cut[CUTS_MAX])
{
    double at[ENDS_MAX], next[ENDS_MAX];
    const int ends = ends_of(p, R, 0, at);
    int n = 0;
    ends_of(p, R, R - 1, next);
    for (int i = 0; i < ends; i++)
        for (int j = 0; j < i; j++) {
            const double apart = at[i] - at[j], closer = (apart - (next[i] - next[j])) / (R - 1);
            const double r = closer != 0 ? apart / closer : -2;
            for (int k = -1; k <= 2 && r > -2 && r < R + 1; k++) {
                const double rank = floor(r) + k;
                if (rank >= 0 && rank < R) cut[n++] = (int)rank;
            }
        }
    qsort(cut, (size_t)n, sizeof *cut, by_number);
    return n;
}

/* Of how many owners, and in how many parts, a rank's rows see keys, on average. Both chunks of an owner are two parts,
 * but for those that meet in the middle of the sequence. */
static void blocks_of(const weft_cp_problem *p, int R, int r, double *blocks, double *spans)
{
    *blocks = *spans = 0;
    for (int c = 0; c < chunks_of(p->layout); c++) {
        const span q = query_chunk(p, R, r, c);
        double end, begin = chunks_seen(p, R, visible_span(p, q), &end), of_rank = length(q) * R / (double)p->Tq;
        const bool both = chunks_of(p->layout) == 2 && begin < R && end > R; /* sides of the middle */
        *spans += of_rank * (end - begin - both);
        *blocks += of_rank * (both ? fmax(R - begin, end - R) : end - begin);
    }
}

/* All ranks are looked at, which is two spans for each: an area takes SAMPLES of them for a chunk. */
static void add_blocks(const weft_cp_problem *p, int R, weft__cp_picture *x)
{
    for (int r = 0; r < R; r++) {
        double blocks, spans;
        blocks_of(p, R, r, &blocks, &spans);
        x->blocks += blocks / R, x->spans += spans / R;
        x->most_blocks = fmax(x->most_blocks, blocks), x->most_spans = fmax(x->most_spans, spans);
    }
}

/* Few ranks are looked at, whatever their number; all of them where queries are not the keys' own: the chunks of both
 * differ in length then, and what touches how many of the other moves by steps. */
static weft__cp_picture picture_of_chunks(const weft_cp_problem *p, int R)
{
    weft__cp_picture x = {0};
    double most = 0;
    int cut[CUTS_MAX], first = 0;
    const int n = R > 1 && p->Tq == p->T ? cuts_of(p, R, cut) : 0;
    for (int i = 0; i < n; i++) {
        if (cut[i] < first) continue; /* again */
        if (cut[i] > first) add_run(p, R, first, cut[i] - first, &x, &most);
        add_run(p, R, cut[i], 1, &x, &most);
        first = cut[i] + 1;
    }
    if (p->Tq == p->T && first < R) add_run(p, R, first, R - first, &x, &most);
    for (int r = first; r < R && p->Tq != p->T; r++) add_run(p, R, r, 1, &x, &most);
    x.busiest = x.area > 0 ? most * R / x.area : 1;
    add_blocks(p, R, &x);
    return x;
}

/* Every stripe of k tokens sees its window; stripes of one rank lie R k apart, and what lies between them is needed as
 * far as windows reach. A row's last visible key lies among stripes of every rank: it ends at an edge in each block. */
static weft__cp_picture picture_of_stripes(const weft_cp_problem *p, int R, double k)
{
    const weft_mask *m = &p->mask;
    span all = {(double)(p->T - p->Tq), (double)p->T};
    weft__cp_picture x = {.area = area_of(p, all), .owners = R - 1, .edges = (R - 1) * weft__cp_mask_edges(&p->mask)};
    double reach = INFINITY, hull = length(visible_span(p, all));
    if (m->left >= 0 && (m->causal || m->right >= 0))
        reach = (double)m->left + (m->causal ? 0 : (double)m->right);
    x.busiest = m->causal && reach == INFINITY ? 1 + k * (R - 1) / ((double)p->T + 1) : 1;
    double between = fmin(reach, (R - 1) * k); /* tokens of others per stripe */
    x.need = hull / R / k * between;
    x.owners = fmin(R - 1, ceil(between / k));
    x.blocks = x.most_blocks = x.spans = x.most_spans = 1 + x.owners;
    return x;
}

weft__cp_picture weft__cp_picture_of(const weft_cp_problem *p, int R, int U)
{
    if (p->layout.kind != WEFT_LAYOUT_STRIPED) return picture_of_chunks(p, R);
    return picture_of_stripes(p, R, (double)weft_max_i64(p->layout.block, 1) * U);
}
