/* traffic.c — see traffic.h. */
#include "harness/traffic.h"

#include <string.h>

static int64_t chunk(int64_t T, int P, int i) { return (i + 1) * T / (2 * P) - i * T / (2 * P); }

int64_t traffic_rows(weft_layout layout, int64_t B, int64_t T, int P, int rank)
{
    if (layout.kind == WEFT_LAYOUT_ZIGZAG) return B * (chunk(T, P, rank) + chunk(T, P, 2 * P - 1 - rank));
    if (layout.kind != WEFT_LAYOUT_STRIPED) return B * (chunk(T, P, 2 * rank) + chunk(T, P, 2 * rank + 1));
    int64_t k = layout.block > 0 ? layout.block : 1, rest = T % (k * P) - rank * k;
    return B * (T / (k * P) * k + (rest < 0 ? 0 : rest > k ? k : rest));
}

int64_t traffic_pieces(int64_t bytes, size_t piece)
{
    if (bytes == 0) return 0;
    return piece ? (bytes + (int64_t)piece - 1) / (int64_t)piece : 1;
}

/* ---- heads ----------------------------------------------------------------------------------------------- */

static int head_ranks(const traffic_case *c)
{
    if (!strcmp(c->strategy, "ulysses")) return c->P;
    if (strncmp(c->strategy, "dcp", 3)) return 1;
    int U = c->U ? c->U : c->P < c->Hkv ? c->P : c->Hkv;
    while (c->P % U) U--;
    return U;
}

/* Query heads of the members before u: as even as can be, the larger shares first. */
static int heads_before(int H, int U, int u) { return u * (H / U) + (u < H % U ? u : H % U); }

typedef struct member { int64_t q, kv, heads, width; } member; /* rows; query heads; values of a K,V row */

static member member_of(const traffic_case *c, int U, int rank)
{
    int u = rank % U, first = heads_before(c->H, U, u), end = heads_before(c->H, U, u + 1);
    int g = c->group ? c->group : c->H / c->Hkv;
    first += c->head0, end += c->head0;
    return (member){traffic_rows(c->layout, c->B, c->Tq, c->P, rank), traffic_rows(c->layout, c->B, c->T, c->P, rank),
                    end - first, ((end - 1) / g - first / g + 1) * (int64_t)(c->D + c->Dv)};
}

/* ---- the two stages -------------------------------------------------------------------------------------- */

static void forward(const traffic_case *c, traffic *t, int64_t bytes)
{
    t->forward_bytes += bytes;
    t->forward_messages += traffic_pieces(bytes, c->piece);
}

static void backward(const traffic_case *c, traffic *t, int64_t bytes)
{
    t->backward_bytes += bytes;
    t->backward_messages += traffic_pieces(bytes, c->piece);
}

/* One message to each other member: q, k, v and back o, m, l; dO, delta (and q, k, v, m, l once more) and back dq, dk,
 * dv. */
static void head_stage(const traffic_case *c, traffic *t, int U, int rank, int64_t e, int64_t eR)
{
    int64_t held = 0;
    member me = member_of(c, U, rank);
    for (int j = 0; j < U; j++) held += member_of(c, U, j).width;
    int64_t e_home = held > (int64_t)c->Hkv * (c->D + c->Dv) ? eR : e; /* heads of several members come home as sums */
    for (int j = 0; j < U; j++) {
        if (j == rank % U) continue;
        member m = member_of(c, U, rank - rank % U + j);
        int64_t qkv = me.q * m.heads * c->D * e + me.kv * m.width * e;
        forward(c, t, qkv);
        forward(c, t, m.q * me.heads * (c->Dv * e + 2 * eR));
        backward(c, t, me.q * m.heads * (c->Dv * e + eR) + (c->keep_heads ? 0 : qkv + me.q * m.heads * 2 * eR));
        backward(c, t, m.q * me.heads * c->D * e + m.kv * me.width * e_home);
    }
}

/* Rows of context rank r: those of its whole head group. */
static int64_t group_rows(const traffic_case *c, int U, int r, bool queries)
{
    int64_t n = 0;
    for (int j = 0; j < U; j++) {
        member m = member_of(c, U, r * U + j);
        n += queries ? m.q : m.kv;
    }
    return n;
}

/* Among R = P / U ranks: the own block goes to the others, or every block but the next rank's goes on; a part or sum of
 * every other block goes home. Pairwise has nothing for, and wants nothing from, a rank without queries. */
static void context_stage(const traffic_case *c, traffic *t, int U, int rank, int64_t e, int64_t eR)
{
    int R = c->P / U, r = rank / U;
    bool ring = strstr(c->strategy, "ring") != NULL, pairwise = strstr(c->strategy, "pairwise") != NULL;
    int64_t W = member_of(c, U, rank).width, mine = group_rows(c, U, r, false);
    for (int o = 0; o < R; o++) {
        int64_t theirs = group_rows(c, U, o, false), kv = ring ? theirs : mine;
        bool blind = pairwise && group_rows(c, U, o, true) == 0;
        if (!blind && (ring ? o != (r + 1) % R : o != r)) {
            forward(c, t, kv * W * e);
            backward(c, t, kv * W * e);
        }
        if (o != r && !(pairwise && group_rows(c, U, r, true) == 0)) backward(c, t, theirs * W * eR);
    }
}

traffic traffic_of(const traffic_case *c, int rank)
{
    traffic t = {0, 0, 0, 0};
    int64_t e = (int64_t)weft_dtype_size(weft_prec_compute(c->prec));
    int64_t eR = (int64_t)weft_dtype_size(weft_prec_real(c->prec));
    int U = head_ranks(c);
    if (!strcmp(c->strategy, "none") || c->P == 1) return t;
    head_stage(c, &t, U, rank, e, eR);
    context_stage(c, &t, U, rank, e, eR);
    return t;
}

/* ---- causal masks ---------------------------------------------------------------------------------------- */

/* Rows of `owner` of R that `reader` sees. Contiguous: all of a rank before it, or the last of the rank next before it.
 * Zigzag: all of the owner's first chunk, which lies before the reader's second; of the owner's second chunk, number 2R
 * - 1 - owner, all when the reader's second comes later, which is when reader < owner. With a window the last rows of
 * the chunk before one of the reader's: chunk r follows r - 1, chunk 2R - 1 - r follows that of r + 1. */
static int64_t rows_seen(const traffic_case *c, int R, int owner, int reader, int64_t window)
{
    if (c->layout.kind == WEFT_LAYOUT_CONTIGUOUS) {
        if (window >= 0) return reader == owner + 1 ? c->B * window : 0;
        return reader > owner ? traffic_rows(c->layout, c->B, c->T, R, owner) : 0;
    }
    if (window >= 0) return reader == owner + 1 || reader == owner - 1 ? c->B * window : 0;
    return c->B * (c->T / (2 * R)) * (1 + (reader < owner));
}

traffic traffic_causal_pairwise(const traffic_case *c, int rank, int64_t window)
{
    traffic t = {0, 0, 0, 0};
    int64_t e = (int64_t)weft_dtype_size(weft_prec_compute(c->prec));
    int64_t eR = (int64_t)weft_dtype_size(weft_prec_real(c->prec));
    int U = head_ranks(c), R = c->P / U, r = rank / U; /* chunks of neighbours are chunks of their group */
    int64_t W = member_of(c, U, rank).width;
    head_stage(c, &t, U, rank, e, eR);
    for (int o = 0; o < R; o++) {
        if (o == r) continue;
        int64_t kv = rows_seen(c, R, r, o, window) * W * e;
        forward(c, &t, kv);
        backward(c, &t, kv);
        backward(c, &t, rows_seen(c, R, o, r, window) * W * eR);
    }
    return t;
}
