/* parts_case.h — a toy model's tensors, cut over the ranks of any mesh as the model does it: uneven, with empty shares
 * and with copies. The value of an element tells where it belongs. */
#ifndef WEFT_TEST_PARTS_CASE_H
#define WEFT_TEST_PARTS_CASE_H

#include "ckpt/ckpt.h"
#include "harness/ranks.h"
#include "harness/test.h"

enum { N = 6 };

typedef struct shape {
    const char *name;
    int nd;
    int64_t whole[3];
    int dim;
    int64_t shared;
} shape;
/* cut along dim (-1: copies); shared: indices that every rank of tp has, owned by the first; an empty one */
static const shape shapes[N] = {{"rows", 2, {7, 5}, 0, 0},  {"columns", 2, {3, 13}, 1, 0},
                                {"norm", 1, {33}, -1, 0},   {"middle", 3, {2, 5, 3}, 1, 0},
                                {"heads", 2, {6, 2}, 0, 2}, {"none", 2, {0, 4}, -1, 0}};

static inline void whole_table(weft_spec *table)
{
    for (int i = 0; i < N; i++) {
        table[i] = (weft_spec){.name = shapes[i].name, .nd = shapes[i].nd, .count = 1, .number = i};
        memcpy(table[i].shape, shapes[i].whole, sizeof shapes[i].whole);
        for (int d = 0; d < shapes[i].nd; d++) table[i].count *= shapes[i].whole[d];
        weft_spec_uncut(&table[i]);
    }
}

static inline void keep(weft_spec *s, int dim, weft_span span)
{
    int64_t inner = 1;
    s->cut_dim = dim;
    s->cuts = 1;
    s->cut[0] = span;
    s->shape[dim] = span.end - span.begin;
    s->count = 1;
    for (int d = 0; d < s->nd; d++) s->count *= s->shape[d];
    for (int d = dim + 1; d < s->nd; d++) inner *= s->shape[d];
    s->own_first = 0;
    s->own_count = s->count;
}

/* Tensor i lies on stage i mod pp; cut over tp as the model does it, uneven and with empty shares. */
static inline int my_table(const weft_mesh *m, weft_spec *out, int64_t *count)
{
    weft_spec all[N];
    int n = 0;
    whole_table(all);
    *count = 0;
    for (int i = 0; i < N; i++) {
        weft_spec s = all[i];
        if (i % m->size.pp != m->at.pp) continue;
        if (shapes[i].shared) {
            /* every rank has the first two indices and its share of the others */
            weft_span rest = weft_model_cut(s.whole[0] - 2, m->size.tp, m->at.tp);
            weft_spec head = s;
            keep(&head, 0, (weft_span){0, 2 + (m->size.tp == 1 ? s.whole[0] - 2 : 0)});
            if (m->size.tp > 1) { /* two ranges: the shared one, and its own */
                head.cuts = 2;
                head.cut[1] = (weft_span){2 + rest.begin, 2 + rest.end};
                head.shape[0] = 2 + rest.end - rest.begin;
                head.count = head.shape[0] * s.whole[1];
                head.own_first = m->at.tp == 0 ? 0 : 2 * s.whole[1];
                head.own_count = head.count - head.own_first;
            }
            s = head;
        } else if (shapes[i].dim >= 0) {
            keep(&s, shapes[i].dim, weft_model_cut(s.whole[shapes[i].dim], m->size.tp, m->at.tp));
        } else if (m->at.tp > 0) {
            s.own_count = 0;
        }
        s.offset = *count;
        *count += s.count;
        out[n++] = s;
    }
    return n;
}

static inline void fill(const weft_spec *s, double *x)
{
    weft_spec_walk w = weft_spec_walk_of(s, 0, s->count);
    weft_stretch t;
    while (weft_spec_walk_next(&w, &t))
        for (int64_t i = 0; i < t.n; i++) x[s->offset + t.at + i] = (double)(1000 * s->number + t.whole + i);
}

/* The slices of this rank in an array of `count` that is cut over dp x cp. */
static inline int slices(const weft_spec *spec, int n, int64_t count, const weft_mesh *m, double *array,
                         weft_piece *out)
{
    int k = 0, parts = m->size.dp * m->size.cp, mine = m->at.cp + m->size.cp * m->at.dp;
    weft_span slice = weft_model_cut(count, parts, mine);
    for (int i = 0; i < n; i++) {
        int64_t begin = weft_max_i64(spec[i].offset, slice.begin),
                end = weft_min_i64(spec[i].offset + spec[i].count, slice.end);
        if (begin < end) out[k++] = (weft_piece){i, begin - spec[i].offset, end - begin, array + begin};
    }
    return k;
}

#endif
