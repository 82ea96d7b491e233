/* block.c — one layer: attention, then MLP, each added to the residual stream; and the buffers they need. */
#include "model/model_impl.h"

#include <string.h>

static const char *const recompute_names[WEFT_RECOMPUTE_MODES] = {"none", "attention", "block", "full"};

const char *weft_recompute_name(weft_recompute mode) { return recompute_names[mode]; }

bool weft_recompute_parse(const char *s, weft_recompute *out)
{
    for (int i = 0; i < WEFT_RECOMPUTE_MODES; i++)
        if (!strcmp(s, recompute_names[i])) {
            *out = (weft_recompute)i;
            return true;
        }
    return false;
}

weft_status weft__block_fwd(weft__pass *p, int layer, weft__acts *a, void *x_out)
{
    p->layer = layer;
    WEFT_TRY(weft__attention_inside(p, layer, a, true));
    WEFT_TRY(weft__attention_out(p, layer, a)); /* x_mid = x_in + attention(norm1(x_in)) */
    return weft__mlp_fwd(p, layer, a, x_out);   /* x_out = x_mid + mlp(norm2(x_mid))     */
}

/* Each half is made again right before its backward pass, so the insides of both need no room at the same time, but
 * where x_mid can only be had by running attention, too: what that leaves behind is used afterwards. All of it is the
 * forward pass's own code on the same numbers: the same bits, the same exchanges, on all ranks alike. */
weft_status weft__block_bwd(weft__pass *p, int layer, weft__acts *a)
{
    const weft_model *m = p->m;
    const bool attend = !m->keep_attention, mid = m->recompute == WEFT_RECOMPUTE_FULL, first = mid && attend;
    p->layer = layer;
    if (first) WEFT_TRY(weft__attention_inside(p, layer, a, true));
    if (mid) WEFT_TRY(weft__attention_out(p, layer, a));
    if (m->recompute >= WEFT_RECOMPUTE_BLOCK) WEFT_TRY(weft__mlp_again(p, layer, a));
    WEFT_TRY(weft__mlp_bwd(p, layer, a));
    if (m->recompute >= WEFT_RECOMPUTE_ATTENTION && !first) WEFT_TRY(weft__attention_inside(p, layer, a, attend));
    return weft__attention_bwd(p, layer, a);
}

void weft__residual_copy(const weft__pass *p, void *to, const void *from)
{
    if (to == from) return;
    weft_part outer = weft__part(p, WEFT_PART_RESIDUAL);
    const size_t bytes = (size_t)p->m->config.C * p->m->rs;
    const int64_t rows = weft__stream_count(p);
#pragma omp parallel for num_threads(p->m->ctx->threads) schedule(static)
    for (int64_t i = 0; i < rows; i++)
        memcpy((char *)to + (size_t)i * bytes, (const char *)from + (size_t)i * bytes, bytes);
    weft__part_end(p, outer);
}

weft_status weft__acts_alloc(const weft_model *m, weft_arena *arena, const weft__act_rows *r, int what, weft__acts *a)
{
    const int64_t C = m->config.C, D = m->config.D;
    const bool means = m->family->layernorm;
    const struct {
        int group;
        int64_t elements;
        size_t size;
        const char *label;
        void **at;
    } all[] = {
        {WEFT__IN, r->stream * C, m->rs, "residual", &a->x_in},
        {WEFT__QKV, r->stream * C, m->cs, "normed", &a->n1},
        {WEFT__QKV, r->stream, m->rs, "norm statistics", &a->rstd1},
        {means ? WEFT__QKV : 0, r->stream, m->rs, "norm statistics", &a->mean1},
        {WEFT__QKV, r->rows * weft__qkv_width(m), m->cs, "qkv", &a->qkv},
        {m->family->qk_norm ? WEFT__QKV : 0, r->rows * m->H * D, m->cs, "qk before norm", &a->keep_q},
        {m->family->qk_norm ? WEFT__QKV : 0, r->rows * m->Hkv * D, m->cs, "qk before norm", &a->keep_k},
        {m->family->qk_norm ? WEFT__QKV : 0, r->rows * m->H, m->rs, "norm statistics", &a->rstd_q},
        {m->family->qk_norm ? WEFT__QKV : 0, r->rows * m->Hkv, m->rs, "norm statistics", &a->rstd_k},
        {WEFT__O, r->rows * m->H * D, m->cs, "attention out", &a->o},
        {WEFT__O, r->rows * m->H, m->rs, "attention state", &a->m},
        {WEFT__O, r->rows * m->H, m->rs, "attention state", &a->l},
        {WEFT__MID, r->stream * C, m->rs, "residual", &a->x_mid},
        {WEFT__N2, r->stream * C, m->cs, "normed", &a->n2},
        {WEFT__N2, r->stream, m->rs, "norm statistics", &a->rstd2},
        {means ? WEFT__N2 : 0, r->stream, m->rs, "norm statistics", &a->mean2},
        {WEFT__UP, (r->tile ? r->tile : r->rows) * weft__up_width(m), m->cs, "mlp", &a->up},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (all[i].group & what)
            WEFT_TRY(weft_arena_alloc(arena, all[i].elements, all[i].size, all[i].label, all[i].at));
    return WEFT_OK;
}

void weft__acts_join(weft__acts *a)
{
    a->x_mid = a->x_in;
    a->n2 = a->n1;
    a->rstd2 = a->rstd1;
    a->mean2 = a->mean1;
}

/* What is added to the residual stream is dropped first: rows at a time that stay in the cache until they are used. */
static const int64_t branch_bytes = 1 << 20, branch_rows_min = 64;

weft_status weft__scratch_alloc(const weft_model *m, weft_arena *arena, const weft__act_rows *r, bool backward,
                                weft__scratch *s)
{
    const int64_t C = m->config.C;
    *s = (weft__scratch){0};
    WEFT_TRY(weft_arena_alloc(arena, (r->tile ? r->tile : r->rows) * m->F, m->cs, "scratch", &s->act));
    if (!backward) return WEFT_OK;
    if (m->first_stage && m->last_stage) WEFT_TRY(weft_arena_alloc(arena, r->stream * C, m->rs, "scratch", &s->dx));
    s->dxc = s->dx;
    if (m->rt != m->ct || m->residual_dropout > 0)
        WEFT_TRY(weft_arena_alloc(arena, r->stream * C, m->cs, "scratch", &s->dxc));
    WEFT_TRY(weft_arena_alloc(arena, r->stream * C, m->cs, "scratch", &s->dn));
    if (m->residual_dropout > 0 && m->share.tps == 1) {
        s->branch_rows = weft_min_i64(weft_max_i64(branch_bytes / (C * (int64_t)m->rs), branch_rows_min),
                                      weft_max_i64(r->rows, 1));
        WEFT_TRY(weft_arena_alloc(arena, s->branch_rows * C, m->rs, "scratch", &s->branch));
    }
    WEFT_TRY(weft_arena_alloc(arena, r->rows * m->H * m->config.D, m->cs, "scratch", &s->dout));
    WEFT_TRY(weft_arena_alloc(arena, r->rows * weft__qkv_width(m), m->cs, "scratch", &s->dqkv));
    size_t bytes = weft_norm_work_bytes(m->prec, weft__widest(m), m->ctx->threads);
    return weft_arena_alloc(arena, (int64_t)bytes, 1, "scratch", &s->work);
}
