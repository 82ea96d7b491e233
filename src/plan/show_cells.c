/* show_cells.c — from ranges of rows that see each other to cells of the picture. */
#include "plan/show_impl.h"

weft_status weft__show_cells_open(weft__cells *c, weft_arena *arena)
{
    int64_t n = (int64_t)c->show->q.n * c->show->k.n;
    WEFT_TRY(WEFT_NEW0(arena, n, "cells", &c->show->cell));
    return WEFT_NEW0(arena, n * c->show->sets, "cells", &c->count);
}

/* ---- what is computed -------------------------------------------------------------------------------------- */

/* Visible pairs of two lines of one document, whose position 0 is token `base`. */
static int64_t area(const weft_mask *mask, const weft__line *q, const weft__line *k, int64_t base)
{
    const weft_attn_pair pair = {.nq = q->n, .q_pos = q->first - base, .q_run = q->run, .q_step = q->step,
                                 .nk = k->n, .k_pos = k->first - base, .k_run = k->run, .k_step = k->step};
    switch (weft_classify(mask, pair.q_pos, weft__line_end(q) - 1 - base, pair.k_pos, weft__line_end(k) - 1 - base)) {
    case WEFT_TILE_EMPTY: return 0;
    case WEFT_TILE_FULL: return q->n * k->n;
    default: return weft_attn_area(mask, &pair);
    }
}

static void add_to_cell(weft__cells *c, int64_t at, int64_t visible)
{
    weft_show_cell *x = &c->show->cell[at];
    x->visible += visible;
    if (!c->shown) return;
    x->shown += visible;
    c->count[at * c->show->sets + c->step] += visible;
}

void weft__show_cells_settle(weft__cells *c)
{
    const weft_show *s = c->show;
    for (int64_t at = 0; at < (int64_t)s->q.n * s->k.n; at++)
        for (int i = 0; i < s->sets; i++) {
            weft_show_cell *x = &s->cell[at];
            int64_t *n = &c->count[at * s->sets + i];
            if (*n > x->most) x->most = *n, x->set = c->set, x->step = i;
            *n = 0;
        }
}

/* The keys of a pair beside one row of cells, which holds these of its queries. */
static int64_t add_row(weft__cells *c, int row, const weft__line *q, int n, const weft__line *k, int64_t base)
{
    const weft_show_axis *a = &c->show->k;
    int64_t all = 0;
    for (int j = weft__show_cell_of(a, k->first); j < a->n && a->cut[j] < weft__line_end(k); j++) {
        weft__line part[2];
        int parts = weft__line_cut(k, a->cut[j], a->cut[j + 1], part);
        int64_t visible = 0;
        for (int x = 0; x < n; x++)
            for (int y = 0; y < parts; y++) visible += area(c->mask, &q[x], &part[y], base);
        add_to_cell(c, (int64_t)row * a->n + j, visible);
        all += visible;
    }
    return all;
}

int64_t weft__show_cells_add(weft__cells *c, const weft_attn_pair *p)
{
    const weft_show_axis *a = &c->show->q;
    const weft__line q = {p->nq, p->base + p->q_pos, p->q_run, p->q_step},
                     k = {p->nk, p->base + p->k_pos, p->k_run, p->k_step};
    int64_t all = 0;
    for (int i = weft__show_cell_of(a, q.first); i < a->n && a->cut[i] < weft__line_end(&q); i++) {
        weft__line part[2];
        int parts = weft__line_cut(&q, a->cut[i], a->cut[i + 1], part);
        if (parts) all += add_row(c, i, part, parts, &k, p->base);
    }
    return all;
}

/* ---- what is not visible, and why ---------------------------------------------------------------------------- */

typedef struct span { int64_t begin, end; } span;

static span overlap(span a, span b)
{
    return (span){weft_max_i64(a.begin, b.begin), weft_min_i64(a.end, b.end)};
}

/* First document that ends behind a token. */
static int64_t document_at(const weft_docs *docs, int64_t token)
{
    int64_t low = 0, high = docs->first[1] - 2;
    while (low < high) {
        int64_t mid = low + (high - low) / 2;
        if (docs->cu[mid + 1] > token) high = mid;
        else low = mid + 1;
    }
    return low;
}

/* Pairs of one document in a cell: all, and those that causality lets through. */
static void add_document(const weft__cells *c, span q, span k, span doc, int64_t *same, int64_t *reached)
{
    const weft_mask causal = {c->mask->causal, -1, -1, c->mask->prefix};
    span x = overlap(q, doc), y = overlap(k, doc);
    if (x.begin >= x.end || y.begin >= y.end) return;
    const weft__line lx = {x.end - x.begin, x.begin, 1, 1}, ly = {y.end - y.begin, y.begin, 1, 1};
    *same += lx.n * ly.n;
    *reached += area(&causal, &lx, &ly, doc.begin);
}

static void explain(const weft__cells *c, span q, span k, weft_show_cell *x)
{
    int64_t same = 0, reached = 0;
    for (int64_t d = document_at(c->docs, weft_max_i64(q.begin, k.begin));
         d + 1 < c->docs->first[1] && c->docs->cu[d] < weft_min_i64(q.end, k.end); d++)
        add_document(c, q, k, (span){c->docs->cu[d], c->docs->cu[d + 1]}, &same, &reached);
    x->all = (q.end - q.begin) * (k.end - k.begin);
    x->other = x->all - same;
    x->later = same - reached;
    x->far = reached - x->visible;
}

void weft__show_cells_close(weft__cells *c)
{
    weft_show *s = c->show;
    for (int i = 0; i < s->q.n; i++)
        for (int j = 0; j < s->k.n; j++) {
            int64_t at = (int64_t)i * s->k.n + j;
            weft_show_cell *x = &s->cell[at], *sum = &s->sum;
            if (x->shown == 0) x->set = x->step = -1;
            explain(c, (span){s->q.cut[i], s->q.cut[i + 1]}, (span){s->k.cut[j], s->k.cut[j + 1]}, x);
            sum->all += x->all, sum->visible += x->visible, sum->shown += x->shown;
            sum->later += x->later, sum->far += x->far, sum->other += x->other;
        }
}
