/* attention_impl.h — what the attention kernels share among themselves; nobody outside includes it,
 * except the manifest of kernels, which takes the fill functions from here. */
#ifndef WEFT_KERN_ATTENTION_IMPL_H
#define WEFT_KERN_ATTENTION_IMPL_H

#include "kern/attention/attention.h"

#ifdef _OPENMP
#include <omp.h>
static inline int weft_attn_thread(void) { return omp_get_thread_num(); }
#else
static inline int weft_attn_thread(void) { return 0; }
#endif

/* Each fills the whole table of a precision. The fast ones have no fp64 (the manifest does not list it). */
void weft_attn_fill_ref(weft_attn_ops *ops, weft_prec prec);
void weft_attn_fill_avx2(weft_attn_ops *ops, weft_prec prec);
void weft_attn_fill_avx512(weft_attn_ops *ops, weft_prec prec);
void weft_attn_fill_amx(weft_attn_ops *ops, weft_prec prec); /* bf16 */

/* The local query heads [*h0, *h1) that read local K,V head g: the inverse of weft_attn_kv_head. */
static inline void weft_attn_heads_of(const weft_attn_desc *d, int g, int *h0, int *h1)
{
    int64_t first = ((int64_t)d->kv_head0 + g) * d->group - d->head0;
    *h0 = (int)weft_max_i64(0, weft_min_i64(d->H, first));
    *h1 = (int)weft_max_i64(0, weft_min_i64(d->H, first + d->group));
}

/* Pairs of a forward that begin the list `p` of n > 0 and have the same queries: a run of pairs. */
static inline int64_t weft_attn_run_of(const weft_attn_pair *p, int64_t n)
{
    int64_t i = 1;
    while (i < n && p[i].q_row == p->q_row && p[i].nq == p->nq) i++;
    return i;
}

static inline int64_t weft_attn_qpos(const weft_attn_pair *p, int64_t i)
{
    return p->q_pos + i / p->q_run * p->q_step + i % p->q_run;
}
static inline int64_t weft_attn_kpos(const weft_attn_pair *p, int64_t j)
{
    return p->k_pos + j / p->k_run * p->k_step + j % p->k_run;
}

/* Positions of one row after the other, without a division for each. */
typedef struct weft_attn_walk {
    int64_t pos, in_run, run, gap; /* gap: from the last row of a run to the first of the next, less 1 */
} weft_attn_walk;

static inline weft_attn_walk weft_attn_walk_from(int64_t pos, int64_t run, int64_t step, int64_t i)
{
    return (weft_attn_walk){pos + i / run * step + i % run, i % run, run, step - run};
}
static inline weft_attn_walk weft_attn_qwalk(const weft_attn_pair *p, int64_t i)
{
    return weft_attn_walk_from(p->q_pos, p->q_run, p->q_step, i);
}
static inline weft_attn_walk weft_attn_kwalk(const weft_attn_pair *p, int64_t j)
{
    return weft_attn_walk_from(p->k_pos, p->k_run, p->k_step, j);
}
static inline void weft_attn_walk_on(weft_attn_walk *w)
{
    w->pos++;
    if (++w->in_run == w->run) w->in_run = 0, w->pos += w->gap;
}

/* Every mask lets a query at position q see one interval of key positions, because with a prefix the
 * causal rule reads kpos <= max(q, prefix - 1). Both ends grow with q. Returned as key indices of the
 * pair, clamped to it: [*lo, *hi), empty when *lo >= *hi. */
void weft_attn_key_range(const weft_mask *m, const weft_attn_pair *p, int64_t qpos, int64_t *lo, int64_t *hi);

/* The query indices [*lo, *hi) outside of which no query sees any of the keys [j0, j1), j0 < j1. Both ends
 * grow with j0 and j1; a query inside may still see none of them (steps larger than a window). */
void weft_attn_query_range(const weft_mask *m, const weft_attn_pair *p, int64_t j0, int64_t j1, int64_t *lo,
                           int64_t *hi);

#endif
