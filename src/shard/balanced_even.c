/* balanced_even.c — evening out what dealing left uneven, without changing any rank's number of tokens.
 *
 * The rank with the most area gives x tokens, the tail or the head of one piece, to the rank with the least, and gets
 * that one's x lightest tokens. x is chosen so that the nearer of the two comes to the mean. Each exchange cuts at
 * most two pieces, so few are needed: a rank that has come to the mean is not touched again. */
#include "shard/balanced_impl.h"

enum { CANDIDATES = 8, PARTNERS = 8, NONE = -1 };

/* Each rank's pieces as a list, lightest first. The sums over the pool and the rooms have done their duty. */
static int64_t *next_of(const weft__deal *x) { return x->s->work->tokens; }
static int64_t *list_of(const weft__deal *x) { return x->room; }

static int64_t twice_mean(const weft_segment *g) { return 2 * g->start + g->len; }

static void insert(weft__deal *x, int64_t i)
{
    int64_t *at = &list_of(x)[x->seg[i].run];
    while (*at != NONE && twice_mean(&x->seg[*at]) < twice_mean(&x->seg[i])) at = &next_of(x)[*at];
    next_of(x)[i] = *at;
    *at = i;
}

static void take_out(weft__deal *x, int64_t i)
{
    int64_t *at = &list_of(x)[x->seg[i].run];
    while (*at != i) at = &next_of(x)[*at];
    *at = next_of(x)[i];
}

static int64_t pieces_of(const weft__deal *x, int64_t rank, const weft_segment *g)
{
    int64_t n = 0;
    for (int64_t i = list_of(x)[rank]; i != NONE; i = next_of(x)[i])
        n += x->seg[i].row == g->row && x->seg[i].doc == g->doc;
    return n;
}

/* ---- one exchange --------------------------------------------------------------------------------------- */

typedef struct swap { /* x tokens of seg[piece], its tail or its head, for as many of seg[back], or the lightest */
    int64_t piece, back, x, error;
    bool tail, back_tail;
} swap;

static int64_t given(const weft_segment *g, bool tail, int64_t x)
{
    return weft__weight(tail ? g->start + g->len - x : g->start, x);
}

/* The best x in (0, n], when x0 tokens of area `light` were exchanged before: q is given back, its tail or its head.
 * The area moved grows with x; where it does not, the error will show it. Returns whether x < n was the limit. */
static bool try_tokens(swap *best, swap s, const weft_segment *g, int64_t x0, int64_t light, const weft_segment *q,
                       int64_t n, int64_t want)
{
    int64_t a = 0, b = n;
    while (a < b) {
        int64_t x = b - (b - a) / 2;
        if (given(g, s.tail, x0 + x) - light - given(q, s.back_tail, x) <= want) a = x;
        else b = x - 1;
    }
    for (s.x = a; s.x <= weft_min_i64(a + 1, n); s.x++) {
        int64_t moved = given(g, s.tail, x0 + s.x) - light - given(q, s.back_tail, s.x);
        s.error = moved < want ? want - moved : moved - want;
        if (s.x > 0 && s.error < best->error) *best = s, best->x += x0;
    }
    return a < n;
}

/* Tokens of seg[s.piece] for the lightest of `rank`. */
static void try_lightest(const weft__deal *x, swap *best, swap s, int64_t rank, int64_t want)
{
    const weft_segment *g = &x->seg[s.piece];
    int64_t taken = 0, light = 0;
    for (int64_t i = list_of(x)[rank]; i != NONE && taken < g->len; i = next_of(x)[i]) {
        const weft_segment *q = &x->seg[i];
        int64_t n = weft_min_i64(q->len, g->len - taken);
        if (try_tokens(best, s, g, taken, light, q, n, want)) return;
        taken += n;
        light += weft__weight(q->start, n);
    }
}

/* All of seg[s.piece] for as many of q. */
static void try_whole(swap *best, swap s, const weft_segment *g, const weft_segment *q, int64_t want)
{
    int64_t moved = weft__weight(g->start, g->len) - given(q, s.back_tail, g->len);
    s.x = g->len, s.error = moved < want ? want - moved : moved - want;
    if (s.error < best->error) *best = s;
}

/* Tokens of seg[s.piece] for as many of a heavy piece: by the distance of the two, small areas can be moved too. A rank
 * that may hold no further piece of that document can still give a whole one for it. */
static void try_heavy(const weft__deal *x, swap *best, swap s, const int64_t *last, int64_t n, int64_t want)
{
    const weft_segment *g = &x->seg[s.piece];
    for (int64_t k = 0; k < n; k++) {
        const weft_segment *q = &x->seg[last[k]];
        bool full = pieces_of(x, g->run, q) >= WEFT__BALANCED_PIECES;
        if (full && !(q->row == g->row && q->doc == g->doc && g->len <= q->len)) continue;
        s.back = last[k];
        for (int tail = 0; tail < 2; tail++) {
            s.back_tail = tail;
            if (full) try_whole(best, s, g, q, want);
            else try_tokens(best, s, g, 0, 0, q, weft_min_i64(g->len, q->len), want);
        }
    }
}

/* The heaviest pieces of a rank; returns how many. */
static int64_t heaviest(const weft__deal *x, int64_t rank, int64_t *last)
{
    int64_t n = 0;
    for (int64_t i = list_of(x)[rank]; i != NONE; i = next_of(x)[i]) last[n++ % CANDIDATES] = i;
    return weft_min_i64(n, CANDIDATES);
}

/* Would the lightest tokens of `to` fit to what `from` holds? See WEFT__BALANCED_PIECES. */
static bool pieces_fit(const weft__deal *x, int64_t from, int64_t to, int64_t tokens)
{
    for (int64_t i = list_of(x)[to]; tokens > 0; i = next_of(x)[i]) {
        const weft_segment *g = &x->seg[i];
        if (g->stride != WEFT__WHOLE && pieces_of(x, from, g) + pieces_of(x, to, g) > WEFT__BALANCED_PIECES)
            return false;
        tokens -= g->len;
    }
    return true;
}

/* The best that the heaviest pieces of `from` offer. */
static swap find_swap(const weft__deal *x, int64_t from, int64_t to, int64_t want)
{
    int64_t last[CANDIDATES], last_to[CANDIDATES], n = heaviest(x, from, last), n_to = heaviest(x, to, last_to);
    swap best = {.piece = NONE, .error = want - want / 8};
    for (int64_t k = 0; k < n; k++) {
        if (pieces_of(x, to, &x->seg[last[k]]) >= WEFT__BALANCED_PIECES) continue;
        for (int tail = 0; tail < 2; tail++) {
            swap s = {.piece = last[k], .back = NONE, .tail = tail}, light = best;
            try_lightest(x, &light, s, to, want);
            if (light.error < best.error && pieces_fit(x, from, to, light.x)) best = light;
            if (best.error > want / 8) try_heavy(x, &best, s, last_to, n_to, want);
        }
    }
    return best;
}

/* n tokens of seg[i], its tail or its head, go to a rank. */
static void move(weft__deal *x, int64_t i, bool tail, int64_t n, int64_t rank)
{
    weft_segment *g = &x->seg[i];
    take_out(x, i);
    if (n < g->len) {
        weft_segment *rest = &x->seg[x->n];
        g->stride = WEFT__PART;
        *rest = *g;
        int64_t shift = tail ? 0 : n, cut = tail ? g->len - n : 0;
        rest->start += shift, rest->token += shift, rest->len -= n;
        g->start += cut, g->token += cut, g->len = n;
        insert(x, x->n++);
    }
    g->run = rank;
    insert(x, i);
}

/* Moves an area near `want`. False when nothing comes near enough. */
static bool exchange(weft__deal *x, int64_t from, int64_t to, int64_t want)
{
    if (want <= 0 || x->n + 2 > x->s->capacity) return false;
    swap s = find_swap(x, from, to, want);
    if (s.piece == NONE) return false;
    int64_t gain = given(&x->seg[s.piece], s.tail, s.x);
    if (s.back != NONE) {
        gain -= given(&x->seg[s.back], s.back_tail, s.x);
        move(x, s.back, s.back_tail, s.x, from);
    } else {
        for (int64_t left = s.x, i = list_of(x)[to]; left > 0;) {
            int64_t next = next_of(x)[i], n = weft_min_i64(left, x->seg[i].len);
            gain -= weft__weight(x->seg[i].start, n);
            move(x, i, false, n, from);
            left -= n;
            i = next;
        }
    }
    move(x, s.piece, s.tail, s.x, to);
    x->load[from] -= gain;
    x->load[to] += gain;
    return true;
}

/* ---- who with whom -------------------------------------------------------------------------------------- */

/* The rank with tokens that has the least area, after rank `last` in the order of (area, rank); -1: none. */
static int next_least(const weft__deal *x, int last)
{
    int best = -1;
    for (int r = 0; r < x->s->P; r++) {
        if (x->s->rows[r] == 0) continue;
        if (last >= 0 && (x->load[r] < x->load[last] || (x->load[r] == x->load[last] && r <= last))) continue;
        if (best < 0 || x->load[r] < x->load[best]) best = r;
    }
    return best;
}

/* Brings the nearer of the two to the mean, or where single tokens weigh too much for that, makes the worse better. */
static bool relieve(weft__deal *x, int most)
{
    for (int k = 0, to = next_least(x, -1); k < PARTNERS && to >= 0 && to != most; k++, to = next_least(x, to)) {
        int64_t excess = x->load[most] - x->mean, lack = x->mean - x->load[to];
        if (exchange(x, most, to, weft_min_i64(excess, lack))) return true;
        if (exchange(x, most, to, (excess + lack) / 2)) return true;
    }
    return false;
}

void weft__deal_even(weft__deal *x, double limit)
{
    int P = x->s->P;
    for (int r = 0; r < P; r++) list_of(x)[r] = NONE;
    for (int64_t i = 0; i < x->n; i++) insert(x, i); /* heaviest first: most go to the front */
    for (int64_t turn = 0; turn < 2 * (int64_t)P; turn++) {
        int most = 0;
        for (int r = 0; r < P; r++)
            if (x->load[r] > x->load[most]) most = r;
        if ((double)x->load[most] <= limit * (double)x->mean || !relieve(x, most)) return;
    }
}
