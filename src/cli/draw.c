/* draw.c — what the pictures of `weft show` have in common: letters, colours, words. */
#include "cli/draw.h"

/* After Okabe and Ito (2008), as the nearest of the 256 colours of terminals; the second eight are darker. Cells are
 * filled and carry their own letters, so they read on light and on dark backgrounds. */
static const weft_draw_shade shades[WEFT_DRAW_COLORS] = {
    {214, true, "#e69f00"},  {75, true, "#56b4e9"},   {36, true, "#009e73"},   {227, true, "#f0e442"},
    {25, false, "#0072b2"},  {166, true, "#d55e00"},  {175, true, "#cc79a7"},  {248, true, "#aaaaaa"},
    {94, false, "#8a5f00"},  {31, false, "#2d6f94"},  {22, false, "#005c43"},  {142, true, "#a69c1e"},
    {17, false, "#003f63"},  {88, false, "#7a3600"},  {96, false, "#7d4564"},  {240, false, "#555555"}};

char weft_draw_symbol(int set)
{
    static const char symbols[] = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
    return symbols[set];
}

const weft_draw_shade *weft_draw_color(int set) { return &shades[set % WEFT_DRAW_COLORS]; }

void weft_draw_set(const weft_show *s, int set, weft_text *out)
{
    int last = (set + 1) * s->unit < s->R ? (set + 1) * s->unit - 1 : s->R - 1;
    weft_show_members m = {.count = last - set * s->unit + 1, .ranges = 1, .first = {set * s->unit}, .last = {last}};
    weft_draw_members(s, &m, out);
}

static weft_draw_blend blend(int64_t part, int64_t all)
{
    return part == all ? WEFT_DRAW_PURE : part > all / 2 ? WEFT_DRAW_MOSTLY : WEFT_DRAW_MANY;
}

/* With only one rank or step asked for, what others compute in the cell is none of its parts, but mixed in. */
weft_draw_blend weft_draw_cell_blend(const weft_show_cell *c)
{
    weft_draw_blend b = blend(c->most, c->shown);
    return b == WEFT_DRAW_PURE && c->shown < c->visible ? WEFT_DRAW_MOSTLY : b;
}

weft_draw_blend weft_draw_owner_blend(const weft_show_axis *a, int i)
{
    return blend(a->most[i], a->cut[i + 1] - a->cut[i]);
}

bool weft_draw_bound(const weft_show_axis *a, int i) { return i == 0 || a->owner[i] != a->owner[i - 1]; }

int64_t weft_draw_masked(const weft_show_cell *c, weft_draw_reason r)
{
    return r == WEFT_DRAW_LATER ? c->later : r == WEFT_DRAW_FAR ? c->far : c->other;
}

weft_draw_reason weft_draw_why(const weft_show_cell *c)
{
    weft_draw_reason best = WEFT_DRAW_LATER;
    for (int r = 1; r < WEFT_DRAW_REASONS; r++)
        if (weft_draw_masked(c, (weft_draw_reason)r) > weft_draw_masked(c, best)) best = (weft_draw_reason)r;
    return best;
}

const char *weft_draw_reason_text(weft_draw_reason r)
{
    static const char *const text[] = {"a later token", "outside the window", "another document"};
    return text[r];
}

static void widen(const weft_show_axis *a, int64_t *least, int64_t *most)
{
    for (int i = 0; i < a->n; i++) {
        *least = weft_min_i64(*least, a->cut[i + 1] - a->cut[i]);
        *most = weft_max_i64(*most, a->cut[i + 1] - a->cut[i]);
    }
}

void weft_draw_cell_size(const weft_show *s, weft_text *out)
{
    int64_t least = INT64_MAX, most = 0;
    widen(&s->q, &least, &most);
    widen(&s->k, &least, &most);
    if (most == 1) return;
    if (least == most) weft_text_add(out, "Cells are of %lld x %lld tokens.\n", (long long)most, (long long)most);
    else weft_text_add(out, "Cells are of %lld to %lld tokens each way.\n", (long long)least, (long long)most);
}

bool weft_draw_documents(const weft_drawing *d) { return d->docs && d->docs->first[1] - 1 <= d->show->k.n; }

int64_t weft_draw_document(const weft_drawing *d, int64_t token)
{
    if (!weft_draw_documents(d)) return -1;
    int64_t low = 0, high = d->docs->first[1] - 1; /* the last offset is the end */
    while (low < high) { /* the last document that begins at or before the token: the one that is not empty */
        int64_t mid = low + (high - low + 1) / 2;
        if (d->docs->cu[mid] <= token) low = mid;
        else high = mid - 1;
    }
    return d->docs->cu[low] == token && low + 1 < d->docs->first[1] ? low : -1;
}

void weft_draw_members(const weft_show *s, const weft_show_members *m, weft_text *out)
{
    int shown = 0, ranges = m->ranges < WEFT_SHOW_RANGES ? m->ranges : WEFT_SHOW_RANGES;
    weft_text_add(out, m->count == 1 ? "rank " : "ranks ");
    for (int i = 0; i < ranges; i++) {
        int first = m->first[i], last = m->last[i], many = last - first + 1;
        shown += many;
        if (i) weft_text_add(out, ", ");
        weft_text_add(out, "%d", s->member[first].rank);
        if (many > 1 && s->U == 1) weft_text_add(out, "-%d", s->member[last].rank);
        else if (many > 1) weft_text_add(out, ", %s%d", many > 2 ? "..., " : "", s->member[last].rank);
    }
    if (shown < m->count) weft_text_add(out, " and %d more", m->count - shown);
}

void weft_draw_idle(const weft_show *s, int step, weft_text *t)
{
    const weft_show_members *idle = &s->step[step].idle;
    if (idle->count == 0) weft_text_add(t, "nobody idle");
    else if (idle->count == s->R) weft_text_add(t, "all idle");
    else {
        weft_draw_members(s, idle, t);
        weft_text_add(t, " idle");
    }
}

double weft_draw_imbalance(const weft_show *s)
{
    double pairs = 0, most = 0, heads = 0, most_heads = 0;
    for (int r = 0; r < s->R; r++) {
        pairs += (double)s->member[r].visible;
        if ((double)s->member[r].visible > most) most = (double)s->member[r].visible;
    }
    for (int u = 0; u < s->U; u++) {
        heads += s->head[u].heads;
        if (s->head[u].heads > most_heads) most_heads = s->head[u].heads;
    }
    return pairs > 0 && heads > 0 ? most * s->R / pairs * (most_heads * s->U / heads) : 1;
}

double weft_draw_busy(const weft_show *s)
{
    double most = 0, mean = 0;
    for (int i = 0; i < s->R; i++) most += (double)s->step[i].most, mean += (double)s->step[i].sum / s->R;
    return most > 0 ? mean / most : 1;
}
