/* parts.h — an array cut over the ranks of a group, for collectives: who has which elements (private to this room). */
#ifndef WEFT_COMM_PARTS_H
#define WEFT_COMM_PARTS_H

#include "comm/comm.h"
#include "comm/pattern.h"

/* One part per rank, in rank order: as counted, or as even as can be. */
typedef struct parts {
    const int64_t *counts; /* NULL: even shares of `total` */
    int64_t total;
    int P;
} parts;

static inline int64_t part_len(const parts *p, int i)
{
    return p->counts ? p->counts[i] : weft_share_begin(p->total, p->P, i + 1) - weft_share_begin(p->total, p->P, i);
}

static inline weft_status count_parts(parts *out, const int64_t *counts, int P, size_t size, const char *what)
{
    *out = (parts){.counts = counts, .P = P};
    for (int i = 0; i < P; i++)
        if (counts[i] < 0 || __builtin_add_overflow(out->total, counts[i], &out->total))
            return weft_fail(WEFT_ERR_REFUSED, "%s: the counts do not fit into memory sizes", what);
    size_t bytes;
    return weft_size_of(out->total, size, what, &bytes);
}

/* A rank and where its part begins, kept while going from rank to rank: P places in P steps. */
typedef struct walk { const parts *p; int i; int64_t begin; } walk;

static inline walk walk_from(const parts *p, int i)
{
    walk w = {p, i, 0};
    if (!p->counts) w.begin = weft_share_begin(p->total, p->P, i);
    for (int j = 0; j < i && p->counts; j++) w.begin += p->counts[j];
    return w;
}

static inline void walk_up(walk *w)
{
    w->begin += part_len(w->p, w->i);
    if (++w->i == w->p->P) w->i = 0, w->begin = 0;
}

static inline void walk_down(walk *w)
{
    if (w->i == 0) w->i = w->p->P, w->begin = w->p->total;
    w->begin -= part_len(w->p, --w->i);
}

/* base + n elements; an empty buffer may be NULL, to which C allows to add nothing, not even 0. */
static inline char *shifted(const void *base, int64_t n, size_t size)
{
    char *p = (char *)(uintptr_t)base;
    return n == 0 ? p : p + (size_t)n * size;
}

static inline size_t len_bytes(const walk *w, size_t size) { return (size_t)part_len(w->p, w->i) * size; }

#endif
