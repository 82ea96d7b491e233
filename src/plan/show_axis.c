/* show_axis.c — the tokens of an axis of the picture in a few dozen cells.
 *
 * A cell of one share and one document has one owner, so bounds of shares and documents are bounds of cells wherever
 * there are fewer than cells: each interval between them is then cut evenly into as many as the finest common size
 * allows. Where there are more (stripes, many documents), cells are even and may be mixed. */
#include "plan/show_impl.h"

#include <string.h>

/* ---- lines of tokens --------------------------------------------------------------------------------------- */

int64_t weft__line_below(const weft__line *l, int64_t token)
{
    int64_t d = token - l->first;
    return d <= 0 ? 0 : weft_min_i64(l->n, d / l->step * l->run + weft_min_i64(d % l->step, l->run));
}

static int64_t token_at(const weft__line *l, int64_t i) { return l->first + i / l->run * l->step + i % l->run; }

int weft__line_cut(const weft__line *l, int64_t begin, int64_t end, weft__line out[2])
{
    int64_t i = weft__line_below(l, begin), last = weft__line_below(l, end);
    int n = 0;
    if (i >= last) return 0;
    int64_t into = l->run == l->step ? 0 : i % l->run, head = into ? weft_min_i64(l->run - into, last - i) : 0;
    if (head) out[n++] = (weft__line){head, token_at(l, i), 1, 1};
    i += head;
    if (i < last) out[n++] = (weft__line){last - i, token_at(l, i), l->run, l->step};
    return n;
}

/* ---- bounds ---------------------------------------------------------------------------------------------------- */

typedef struct bounds { /* ascending, each once; full: there are more than fit */
    int64_t *at;
    int n, room;
    bool full;
} bounds;

static void add_bound(bounds *b, int64_t token)
{
    int low = 0, high = b->n;
    while (low < high) {
        int mid = (low + high) / 2;
        if (b->at[mid] < token) low = mid + 1;
        else high = mid;
    }
    if (b->full || (low < b->n && b->at[low] == token)) return;
    if (b->n == b->room) {
        b->full = true;
        return;
    }
    memmove(b->at + low + 1, b->at + low, (size_t)(b->n - low) * sizeof *b->at);
    b->at[low] = token;
    b->n++;
}

/* Where runs of the sets' segments begin and end. */
static void add_segments(bounds *b, const weft__axis_ask *ask)
{
    const weft_shard *s = ask->sets;
    if (!s) b->full = true;
    for (int64_t g = 0; s && g < s->first[s->P] && !b->full; g++) {
        const weft_segment *x = &s->seg[g];
        int64_t run = x->run == x->stride ? x->len : x->run;
        for (int64_t i = 0; i < x->len && !b->full; i += run) {
            int64_t token = ask->ahead + x->token + weft_segment_step(x, i);
            add_bound(b, token);
            add_bound(b, token + weft_min_i64(run, x->len - i));
        }
    }
}

static void add_documents(bounds *b, const weft__axis_ask *ask)
{
    int64_t n = ask->docs ? ask->docs->first[1] : 0;
    for (int64_t d = 0; d < n && !b->full; d++) add_bound(b, ask->docs->cu[d]);
}

/* Cells when no cell has more than `size` tokens. */
static int64_t cells_of_size(const bounds *b, int64_t size)
{
    int64_t n = 0;
    for (int i = 0; i + 1 < b->n; i++) n += weft_ceil_div(b->at[i + 1] - b->at[i], size);
    return n;
}

static void cut_cells(weft_show_axis *out, const bounds *b, int cells)
{
    int64_t low = 1, high = b->at[b->n - 1] - b->at[0];
    while (low < high) {
        int64_t mid = low + (high - low) / 2;
        if (cells_of_size(b, mid) <= cells) high = mid;
        else low = mid + 1;
    }
    out->n = 0;
    for (int i = 0; i + 1 < b->n; i++) {
        int64_t len = b->at[i + 1] - b->at[i], n = weft_ceil_div(len, low);
        for (int64_t k = 0; k < n; k++) out->cut[out->n++] = b->at[i] + k * (len / n) + k * (len % n) / n;
    }
    out->cut[out->n] = b->at[b->n - 1];
}

static weft_status make_cuts(weft_show_axis *out, weft_arena *arena, const weft__axis_ask *ask)
{
    int64_t begin = ask->ahead, end = begin + ask->groups->T;
    bounds b = {.room = ask->cells + 1};
    WEFT_TRY(WEFT_NEW0(arena, b.room, "bounds", &b.at));
    add_bound(&b, begin);
    add_bound(&b, end);
    add_segments(&b, ask);
    add_documents(&b, ask);
    if (b.full) {
        b.at[0] = begin, b.at[1] = end;
        b.n = 2;
    }
    WEFT_TRY(WEFT_NEW0(arena, ask->cells + 1, "cells", &out->cut));
    cut_cells(out, &b, ask->cells);
    return WEFT_OK;
}

/* ---- owners -------------------------------------------------------------------------------------------------- */

int weft__show_cell_of(const weft_show_axis *a, int64_t token)
{
    int low = 0, high = a->n - 1;
    while (low < high) {
        int mid = (low + high + 1) / 2;
        if (a->cut[mid] <= token) low = mid;
        else high = mid - 1;
    }
    return low;
}

static void count_segment(const weft_show_axis *a, const weft_segment *g, int64_t ahead, int64_t *held)
{
    const weft__line l = {g->len, ahead + g->token, g->run, g->stride};
    if (g->len == 0) return;
    for (int i = weft__show_cell_of(a, l.first); i < a->n && a->cut[i] < weft__line_end(&l); i++)
        held[i] += weft__line_below(&l, a->cut[i + 1]) - weft__line_below(&l, a->cut[i]);
}

static weft_status find_owners(weft_show_axis *out, weft_arena *arena, const weft__axis_ask *ask)
{
    const weft_shard *s = ask->groups;
    int64_t *held;
    WEFT_TRY(WEFT_NEW0(arena, out->n, "owners", &out->owner));
    WEFT_TRY(WEFT_NEW0(arena, out->n, "owners", &held));
    WEFT_TRY(WEFT_NEW0(arena, out->n, "owners", &out->most));
    for (int r = 0; r < s->P; r++) {
        if (r % ask->unit == 0) memset(held, 0, (size_t)out->n * sizeof *held);
        for (int64_t g = s->first[r]; g < s->first[r + 1]; g++) count_segment(out, &s->seg[g], ask->ahead, held);
        for (int i = 0; i < out->n; i++)
            if (held[i] > out->most[i]) out->most[i] = held[i], out->owner[i] = r / ask->unit;
    }
    return WEFT_OK;
}

weft_status weft__show_axis(weft_show_axis *out, weft_arena *arena, const weft__axis_ask *ask)
{
    WEFT_TRY(make_cuts(out, arena, ask));
    return find_owners(out, arena, ask);
}
