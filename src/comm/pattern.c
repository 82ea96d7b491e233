/* pattern.c — the arithmetic of ring, all-to-all, tree and barrier. */
#include "comm/pattern.h"

static int wrap(int P, int64_t r)
{
    int64_t m = r % P;
    return (int)(m < 0 ? m + P : m);
}

int weft_ring_next(int P, int r) { return wrap(P, (int64_t)r + 1); }
int weft_ring_prev(int P, int r) { return wrap(P, (int64_t)r - 1); }
int weft_ring_owner(int P, int r, int hop) { return wrap(P, (int64_t)r - hop); }

int weft_pairwise_to(int P, int r, int step) { return wrap(P, (int64_t)r + step); }
int weft_pairwise_from(int P, int r, int step) { return wrap(P, (int64_t)r - step); }

/* With v = rank counted from the root, the parent clears v's lowest set bit; the children of v are
 * v + 2^k for every 2^k below that bit. */
int weft_tree_parent(int P, int r, int root)
{
    int v = wrap(P, (int64_t)r - root);
    return v == 0 ? -1 : wrap(P, (int64_t)(v & (v - 1)) + root);
}

int weft_tree_child(int P, int r, int root, int i)
{
    int v = wrap(P, (int64_t)r - root);
    int64_t below = v == 0 ? (int64_t)1 << weft_dissemination_rounds(P) : (v & -v);
    for (int64_t bit = below >> 1; bit > 0; bit >>= 1) {
        if (v + bit < P && i-- == 0) return wrap(P, v + bit + root);
    }
    return -1;
}

int weft_dissemination_rounds(int P)
{
    int rounds = 0;
    while (((int64_t)1 << rounds) < P) rounds++;
    return rounds;
}

int weft_dissemination_to(int P, int r, int round) { return wrap(P, (int64_t)r + ((int64_t)1 << round)); }
int weft_dissemination_from(int P, int r, int round) { return wrap(P, (int64_t)r - ((int64_t)1 << round)); }

/* floor(i n / P) without the product: n = q P + rest. */
int64_t weft_share_begin(int64_t n, int P, int i) { return n / P * i + n % P * i / P; }
