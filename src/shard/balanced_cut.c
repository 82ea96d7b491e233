/* balanced_cut.c — dealing the pool: each rank lacks f tokens and an area d, and takes them from the two ends of the
 * pool, heavy tokens from the tail of the document that reaches furthest, light ones from those that reach least far.
 *
 * For one document that is zigzag with chunks of the right sizes. With short documents around, those stay whole and
 * only the long one is cut. Since light and heavy tokens go in the proportion that every rank needs, those that come
 * later find the same mix; what rounding leaves over or short is spread over them. At its turn a rank takes
 *   y tokens from the tail and z from the head of the heaviest document, and l = f - y - z of the light line:
 * whole short documents, and at its end the head of one more. Each document of the pool stays one piece. */
#include "shard/balanced_impl.h"

/* ---- the two ends of the pool ---------------------------------------------------------------------------- */

static int64_t end_of(const weft_segment *g) { return g->start + g->len; }

static void skip_dealt(weft__deal *x)
{
    while (x->hi <= x->lo && x->seg[x->hi].run != WEFT__POOL) x->hi++;
    while (x->lo >= x->hi && x->seg[x->lo].run != WEFT__POOL) x->lo--;
    while (x->cut.n && x->seg[x->cut.item[0].id].run != WEFT__POOL) weft__heap_pop(&x->cut);
}

/* The piece of the pool that ends at the largest position; a cut one first. */
static int64_t heaviest(const weft__deal *x)
{
    bool uncut = x->hi <= x->lo, cut = x->cut.n > 0;
    if (uncut && cut) uncut = end_of(&x->seg[x->hi]) > end_of(&x->seg[x->cut.item[0].id]);
    return uncut ? x->hi : x->cut.item[0].id;
}

typedef struct line { /* what a rank can take from: the heaviest piece, and light tokens */
    const weft__deal *x;
    int64_t heavy;         /* the piece, an index of seg */
    int64_t other;         /* light tokens: first seg[other], a cut piece, or -1 */
    int64_t top;           /* then documents seg[lo], ... seg[top], lightest first */
    int64_t first, supply; /* tokens of seg[other]; of all light tokens */
} line;

/* The cut piece, but for `heavy`, that is lightest on average; -1: none. */
static int64_t lightest_cut(const weft__deal *x, int64_t heavy)
{
    int64_t best = -1, least = 0;
    for (int64_t i = 0; i < x->cut.n; i++) {
        int64_t at = x->cut.item[i].id, twice_mean = x->seg[at].start + end_of(&x->seg[at]);
        if (at == heavy || x->seg[at].run != WEFT__POOL) continue;
        if (best < 0 || twice_mean < least || (twice_mean == least && at < best)) best = at, least = twice_mean;
    }
    return best;
}

static line line_of(const weft__deal *x)
{
    const int64_t *tokens = x->s->work->tokens;
    line l = {.x = x, .heavy = heaviest(x)};
    l.top = x->hi + (l.heavy == x->hi);
    l.supply = l.top <= x->lo ? tokens[l.top] - tokens[x->lo + 1] : 0;
    l.other = lightest_cut(x, l.heavy);
    /* A piece that is heavier than the next document waits. */
    if (l.other >= 0 && l.supply > 0) {
        const weft_segment *g = &x->seg[l.other], *next = &x->seg[x->lo];
        if (x->heads || g->start + end_of(g) > next->start + end_of(next)) l.other = -1;
    }
    l.first = l.other >= 0 ? x->seg[l.other].len : 0;
    l.supply += l.first;
    return l;
}

/* The first document of the light line that is taken whole when n tokens behind the cut piece are taken; *rest:
 * tokens of the one before it. */
static int64_t first_whole(const line *l, int64_t n, int64_t *rest)
{
    const int64_t *tokens = l->x->s->work->tokens;
    int64_t a = l->top, b = l->x->lo + 1, taken = tokens[b];
    while (a < b) {
        int64_t mid = a + (b - a) / 2;
        if (tokens[mid] - taken <= n) b = mid;
        else a = mid + 1;
    }
    *rest = n - (tokens[a] - taken);
    return a;
}

static int64_t light_area(const line *l, int64_t n)
{
    const weft__deal *x = l->x;
    if (n <= l->first) return n == 0 ? 0 : weft__weight(x->seg[l->other].start, n);
    int64_t rest, i = first_whole(l, n - l->first, &rest), area = x->s->work->area[i] - x->s->work->area[x->lo + 1];
    if (l->other >= 0) area += weft__weight(x->seg[l->other].start, l->first);
    return rest ? area + weft__weight(x->seg[i - 1].start, rest) : area;
}

/* ---- how to take f tokens of area d -------------------------------------------------------------------------- */

typedef struct take { int64_t y, z, light, error; } take; /* tail, head of the heavy piece; light line; |area - d| */

static int64_t area_of(const line *l, const take *t)
{
    const weft_segment *g = &l->x->seg[l->heavy];
    return weft__weight(end_of(g) - t->y, t->y) + weft__weight(g->start, t->z) + light_area(l, t->light);
}

/* The best of at + i * step, 0 <= i <= n, when the area grows with i. */
static take search(const line *l, take at, take step, int64_t n, int64_t d)
{
    int64_t a = 0, b = n;
    take t[2];
    while (a < b) { /* the last i with an area of at most d, or 0 */
        int64_t i = b - (b - a) / 2;
        take m = {at.y + i * step.y, at.z + i * step.z, at.light + i * step.light, 0};
        if (area_of(l, &m) <= d) a = i;
        else b = i - 1;
    }
    for (int k = 0; k < 2; k++) {
        int64_t i = weft_min_i64(a + k, n);
        t[k] = (take){at.y + i * step.y, at.z + i * step.z, at.light + i * step.light, 0};
        int64_t error = area_of(l, &t[k]) - d;
        t[k].error = error < 0 ? -error : error;
    }
    return t[1].error < t[0].error ? t[1] : t[0];
}

/* Without the document at the end of the light line that would be cut: its tokens come from the heavy piece. */
static take without_cut(const line *l, take t, int64_t d)
{
    int64_t rest = 0;
    if (t.light > l->first) first_whole(l, t.light - l->first, &rest);
    if (rest == 0 || t.y + t.z + rest > l->x->seg[l->heavy].len) return t;
    return search(l, (take){t.y, t.z + rest, t.light - rest, 0}, (take){1, -1, 0, 0}, t.z + rest, d);
}

/* Is the head of the heavy piece, as far as t takes it, as light as the light line? Only then may it stand in for
 * that: otherwise what is light stays behind for ranks that have nothing heavy to put with it. */
static bool head_is_light(const line *l, const take *t)
{
    int64_t n = weft_min_i64(t->z, l->supply);
    if (n == 0) return true;
    return (double)weft__weight(l->x->seg[l->heavy].start, t->z) / (double)t->z <= (double)light_area(l, n) / (double)n;
}

/* In the order of how little is cut; the first that comes close enough to d, else the closest. */
static take choose(const line *l, int64_t f, int64_t d)
{
    int64_t len = l->x->seg[l->heavy].len, near = l->x->mean / 128;
    int64_t least = weft_max_i64(0, f - l->supply), most = weft_min_i64(f, len); /* of the heavy piece */
    take best = {0, 0, 0, INT64_MAX}, t;
    if (len >= f) best = search(l, (take){0, f, 0, 0}, (take){1, -1, 0, 0}, f, d);
    if (best.error <= near && (l->x->heads || head_is_light(l, &best))) return best;
    take two = search(l, (take){least, 0, f - least, 0}, (take){1, 0, -1, 0}, most - least, d);
    t = without_cut(l, two, d);
    if (t.error <= near) return t;
    if (two.error <= near) return two;
    if (t.error < best.error) best = t;
    if (two.error < best.error) best = two;
    /* Where single tokens weigh much, fewer of the tail and more of the head may come closer. */
    for (int64_t y = two.y; y >= 0 && y > two.y - 8 && best.error > near; y--) {
        int64_t z = weft_max_i64(0, least - y);
        if (y + z > most) continue;
        t = search(l, (take){y, z, f - y - z, 0}, (take){0, 1, -1, 0}, most - y - z, d);
        if (t.error < best.error) best = t;
    }
    return best;
}

/* ---- taking ------------------------------------------------------------------------------------------------ */

/* A new piece of n tokens, `from` tokens behind the beginning of seg[i], goes to rank r. */
static void cut_piece(weft__deal *x, int64_t i, int64_t from, int64_t n, int64_t r)
{
    x->seg[i].stride = WEFT__PART;
    weft_segment piece = x->seg[i];
    piece.start += from, piece.token += from, piece.len = n, piece.run = r;
    x->seg[x->n++] = piece;
}

static void cut_head(weft__deal *x, int64_t i, int64_t n, int64_t r)
{
    weft_segment *g = &x->seg[i];
    if (n == 0) return;
    if (n == g->len) {
        g->run = r;
        return;
    }
    cut_piece(x, i, 0, n, r);
    g->start += n, g->token += n, g->len -= n;
}

static void cut_tail(weft__deal *x, int64_t i, int64_t n, int64_t r)
{
    if (n == 0) return;
    cut_piece(x, i, x->seg[i].len - n, n, r);
    x->seg[i].len -= n;
}

static void take_light(weft__deal *x, const line *l, int64_t n, int64_t r)
{
    int64_t first = weft_min_i64(n, l->first);
    if (first > 0) cut_head(x, l->other, first, r);
    for (n -= first; n > 0; x->lo--) {
        weft_segment *g = &x->seg[x->lo];
        if (g->run != WEFT__POOL) continue;
        int64_t part = weft_min_i64(n, g->len);
        cut_head(x, x->lo, part, r);
        if (g->run == WEFT__POOL) weft__heap_push(&x->cut, (weft__item){-(double)end_of(g), x->lo});
        n -= part;
    }
}

static void take_heavy(weft__deal *x, int64_t i, int64_t y, int64_t z, int64_t r)
{
    weft_segment *g = &x->seg[i];
    if (y + z == g->len) g->run = r;
    else {
        bool uncut = i == x->hi && x->hi <= x->lo;
        cut_tail(x, i, y, r);
        cut_head(x, i, z, r);
        if (y + z == 0) return;
        if (uncut) weft__heap_push(&x->cut, (weft__item){-(double)end_of(g), i});
        else {
            x->cut.item[0].key = -(double)end_of(g); /* the heaviest cut piece is the heap's first */
            weft__heap_sink(&x->cut);
        }
        if (uncut) x->hi++;
    }
}

/* Rank r takes f tokens of area near d. Returns their area. */
static int64_t fill_rank(weft__deal *x, int64_t r, int64_t f, int64_t d)
{
    int64_t area = 0;
    while (f > 0) {
        skip_dealt(x);
        line l = line_of(x);
        const weft_segment *g = &x->seg[l.heavy];
        take whole = {g->len, 0, f - g->len, 0};
        bool fits = g->len <= f && f - g->len <= l.supply;
        take t = whole;
        if (g->len + l.supply < f) t.light = 0; /* not enough at the ends: go on behind this piece */
        else if (fits && area_of(&l, &whole) <= d - area) t.light = 0; /* whole, and something lighter with it */
        else t = choose(&l, f, d - area);
        area += area_of(&l, &t);
        f -= t.y + t.z + t.light;
        take_heavy(x, l.heavy, t.y, t.z, r);
        take_light(x, &l, t.light, r);
    }
    return area;
}

/* ---- all ranks --------------------------------------------------------------------------------------------- */

typedef struct pool { int64_t tokens, area, lack; } pool; /* lack: sum over ranks still to come of mean - load */

static pool open_pool(weft__deal *x)
{
    int64_t *tokens = x->s->work->tokens, *area = x->s->work->area;
    tokens[x->docs] = area[x->docs] = 0;
    for (int64_t i = x->docs - 1; i >= 0; i--) {
        bool in = x->seg[i].run == WEFT__POOL;
        tokens[i] = tokens[i + 1] + (in ? x->seg[i].len : 0);
        area[i] = area[i + 1] + (in ? weft__weight(x->seg[i].start, x->seg[i].len) : 0);
    }
    x->hi = 0, x->lo = x->docs - 1;
    x->cut = (weft__heap){x->s->work->cut, 0};
    pool p = {tokens[0], area[0], 0};
    for (int r = 0; r < x->s->P; r++)
        if (x->room[r] > 0) p.lack += x->mean - x->load[r];
    return p;
}

/* Ranks that need the heaviest or the lightest tokens come first, while there are such; in eighths of the mean weight,
 * so that ranks alike keep their order and neighbours share documents. */
static weft__heap order_ranks(const weft__deal *x, const pool *p)
{
    weft__heap ranks = {x->s->work->ranks, 0};
    for (int r = 0; r < x->s->P; r++) {
        if (x->room[r] == 0) continue;
        double per_token = (double)(x->mean - x->load[r]) / (double)x->room[r];
        double off = per_token * (double)p->tokens / (double)p->area - 1;
        double eighths = (off < 0 ? -off : off) * 8;
        weft__heap_push(&ranks, (weft__item){-(double)(int64_t)(eighths < 1e9 ? eighths : 1e9), r});
    }
    return ranks;
}

int64_t weft__deal_pool(weft__deal *x)
{
    pool p = open_pool(x);
    int64_t all = p.tokens;
    weft__heap ranks = order_ranks(x, &p);
    while (p.tokens > 0) {
        int64_t r = ranks.item[0].id, f = x->room[r], want = x->mean - x->load[r];
        weft__heap_pop(&ranks);
        double share = (double)(p.area - p.lack) * (double)f / (double)p.tokens;
        int64_t got = fill_rank(x, r, f, want + (int64_t)share);
        x->load[r] += got;
        x->room[r] = 0;
        p.tokens -= f, p.area -= got, p.lack -= want;
    }
    return all;
}
