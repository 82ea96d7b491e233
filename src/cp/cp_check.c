/* cp_check.c — what is refused before a byte moves, and the hash by which ranks find out that they were asked for
 * different things. Pure functions of the problem. */
#include "cp/cp_impl.h"

#include <limits.h>
#include <math.h>
#include <string.h>

static weft_status check_sizes(const weft_cp_problem *p)
{
    if (p->B < 1 || p->T < 1 || p->Tq < 1)
        return weft_fail(WEFT_ERR_REFUSED, "attention: batch %lld, %lld queries, %lld keys; each must be at least 1",
                         (long long)p->B, (long long)p->Tq, (long long)p->T);
    if (p->max_docs < p->B)
        return weft_fail(WEFT_ERR_REFUSED,
                         "attention: at most %lld documents for %lld sequences; at least %lld are needed",
                         (long long)p->max_docs, (long long)p->B, (long long)p->B);
    if (p->slots < 1) return weft_fail(WEFT_ERR_REFUSED, "attention: %d slots; at least 1 is needed", p->slots);
    return WEFT_OK;
}

static weft_status check_all_heads(const weft_cp_problem *p)
{
    if (p->head0)
        return weft_fail(WEFT_ERR_REFUSED, "attention: first head %d without the model's query heads per key/value "
                         "head; give group, or head0 = 0 for all heads", p->head0);
    if (p->H < 1 || p->Hkv < 1 || p->H % p->Hkv != 0)
        return weft_fail(WEFT_ERR_REFUSED,
                         "attention: %d query heads on %d key/value heads; query heads must be a multiple, as %d on %d",
                         p->H, p->Hkv, p->Hkv > 0 ? p->Hkv * (p->H > p->Hkv ? p->H / p->Hkv : 1) : 1,
                         p->Hkv > 0 ? p->Hkv : 1);
    return WEFT_OK;
}

/* Heads [head0, head0 + H) of the model need not begin or end with a group, but the key/value heads here are exactly
 * those that they read: one that nobody reads would travel for nothing. */
static weft_status check_part(const weft_cp_problem *p)
{
    if (p->H < 1 || p->Hkv < 1 || p->group < 1 || p->head0 < 0 || p->head0 > INT_MAX - p->H)
        return weft_fail(WEFT_ERR_REFUSED, "attention: %d query heads from number %d on, %d key/value heads, %d query "
                         "heads to each; a part has at least 1 of each, numbered from 0", p->H, p->head0, p->Hkv,
                         p->group);
    int last = (p->head0 + p->H - 1) / p->group;
    if (p->Hkv == last - weft__cp_kv_head0(p) + 1) return WEFT_OK;
    return weft_fail(WEFT_ERR_REFUSED, "attention: query heads %d..%d in groups of %d read key/value heads %d..%d, but "
                     "%d are here; give those %d", p->head0, p->head0 + p->H - 1, p->group, weft__cp_kv_head0(p), last,
                     p->Hkv, last - weft__cp_kv_head0(p) + 1);
}

/* What is not built yet is refused, not ignored. */
static weft_status check_options(weft_prec prec, const weft_cp_options *o)
{
    if (o->buffer_bytes && o->buffer_bytes < WEFT_CP_PIECE_MIN)
        return weft_fail(WEFT_ERR_REFUSED,
                         "attention: exchange in pieces of %zu bytes; at least %d, or 0 for whole messages",
                         o->buffer_bytes, WEFT_CP_PIECE_MIN);
    WEFT_TRY(weft__cp_wire_check(prec, o));
    if (o->head_size < 0)
        return weft_fail(WEFT_ERR_REFUSED, "attention: head group size %d; at least 1, or 0 to have it chosen",
                         o->head_size);
    return WEFT_OK;
}

/* Everything that is allocated later is smaller than these products of 8-byte elements. */
static weft_status check_products(const weft_cp_problem *p)
{
    int64_t bytes, longest = weft_max_i64(p->T, p->Tq);
    int64_t shape[5] = {p->B, longest, p->H, p->D + p->Dv, 16};
    WEFT_TRY(weft_count_of(shape, 5, "attention rows", &bytes));
    return weft_count_of((int64_t[2]){p->max_docs, 1024}, 2, "attention documents", &bytes);
}

static weft_status check_alibi(const weft_cp_problem *p)
{
    for (int h = 0; p->alibi && h < p->H; h++) {
        double slope = weft_load(p->alibi, weft_prec_real(p->prec), h);
        if (!isfinite(slope))
            return weft_fail(WEFT_ERR_REFUSED, "attention: the ALiBi slope of head %d is %g; finite slopes are needed",
                             h, slope);
    }
    return WEFT_OK;
}

weft_status weft__cp_check(const weft_cp_problem *p, const weft_cp_options *o, weft_attn_desc *desc)
{
    WEFT_TRY(check_options(p->prec, o));
    WEFT_TRY(check_sizes(p));
    WEFT_TRY(p->group ? check_part(p) : check_all_heads(p));
    *desc = (weft_attn_desc){.H = p->H, .Hkv = p->Hkv, .D = p->D, .Dv = p->Dv, .group = weft__cp_group(p),
                             .head0 = p->head0, .kv_head0 = weft__cp_kv_head0(p), .scale = p->scale,
                             .softcap = p->softcap, .mask = p->mask, .alibi = p->alibi, .dropout = p->dropout,
                             .seed = p->seed};
    WEFT_TRY(weft_attn_check(desc, p->prec));
    WEFT_TRY(check_alibi(p));
    return check_products(p);
}

/* ---- hash ------------------------------------------------------------------------------------------ */

static uint64_t mix(uint64_t h, const void *data, size_t n) /* FNV-1a */
{
    const unsigned char *byte = data;
    for (size_t i = 0; i < n; i++) h = (h ^ byte[i]) * 0x100000001b3u;
    return h;
}

int64_t weft__cp_hash(const weft_cp_problem *p, const weft_cp_options *o, const char *strategy)
{
    /* Field by field: a struct's padding is not defined. */
    const int64_t whole[] = {p->prec, p->B, p->Tq, p->T, p->max_docs, p->H, p->Hkv, p->group, p->head0, p->D, p->Dv,
                             p->mask.causal, p->mask.left, p->mask.right, p->mask.prefix, p->alibi != NULL, p->sinks,
                             p->layout.kind, p->layout.block, p->need_backward, p->slots, (int64_t)p->seed, o->overlap,
                             o->head_size, o->keep_heads, o->comm_dtype, o->grad_dtype, o->fp8,
                             (int64_t)o->buffer_bytes};
    const double real[] = {p->scale, p->softcap, p->dropout};
    uint64_t h = mix(0xcbf29ce484222325u, whole, sizeof whole);
    h = mix(h, real, sizeof real);
    h = mix(h, strategy, strlen(strategy));
    if (p->alibi) h = mix(h, p->alibi, (size_t)p->H * weft_dtype_size(weft_prec_real(p->prec)));
    return (int64_t)(h >> 2); /* may be negated without overflow */
}
