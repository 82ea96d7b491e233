/* model_preview.c — a model made without memory, to say what it will need: the code that makes a model counts, so
 * that the estimate cannot drift from it. Small tables are real; buffers are addresses that nobody owns, and nobody
 * touches them before the first pass. */
#include "model/model_impl.h"

static weft_status preview_plans(weft_model *m, weft_model_sizes *out, weft_comm *any, const weft_model_options *o,
                                 int cp_ranks, int cp_rank)
{
    weft_layer_attention kind[WEFT__MAX_PLANS];
    int n = weft_model_attention(&m->config, &m->share, o, kind);
    for (int i = 0; i < n; i++) {
        weft_cp_sizes sizes;
        weft_span here;
        if (!weft__plan_layers(m, &kind[i], &here)) continue;
        WEFT_TRY(weft_cp_preview_sizes(m->kern, any, &kind[i].problem, &o->cp, cp_ranks, cp_rank, &sizes));
        out->attention += sizes.held;
        m->plan_keeps[m->plans] = sizes.kept;
        m->plan_of[1] = m->plans++;
    }
    return WEFT_OK;
}

weft_status weft__preview_open(weft__preview *x, const weft_kern *kern, int threads, const weft_model_config *config,
                               const weft_model_share *share, const weft_model_options *o, int cp_ranks)
{
    *x = (weft__preview){.m = {.ctx = &x->ctx, .kern = kern, .op = &kern->op[o->prec]}};
    weft_ctx_init(&x->ctx);
    x->ctx.threads = threads;
    x->provider = weft_mem_nowhere(&x->space); /* buffers are not touched while a plan is made */
    WEFT_TRY(weft__model_check(config, share, o));
    WEFT_TRY(weft_arena_create(&x->m.arena, &x->ctx.mem, "model", NULL));
    WEFT_TRY(weft_arena_create(&x->m.buffers, &x->ctx.mem, "model", &x->provider));
    WEFT_TRY(weft_arena_create(&x->m.pool, &x->ctx.mem, "offload", &x->provider));
    return weft__model_size(&x->m, config, share, o, cp_ranks);
}

void weft__preview_close(weft__preview *x)
{
    weft_arena_destroy(x->m.pool);
    weft_arena_destroy(x->m.buffers);
    weft_arena_destroy(x->m.arena);
}

static weft_status count(weft_model *m, weft_model_sizes *out, weft_comm *any, const weft_model_options *o,
                         int cp_ranks, int cp_rank)
{
    out->file = weft_model_file_bytes(m);
    out->products = weft__packed_bytes(m);
    WEFT_TRY(preview_plans(m, out, any, o, cp_ranks, cp_rank));
    for (int i = 0; i < m->buckets; i++) out->bucket = weft_max_i64(out->bucket, m->bucket[i + 1] - m->bucket[i]);
    for (int i = 0; i < m->par.n; i++) out->summed += weft_spec_summed(&m->spec[i]);
    return weft__slots_alloc_kept(m);
}

weft_status weft_model_preview(weft_model_sizes *out, const weft_kern *kern, weft_comm *any, int threads,
                               const weft_model_config *config, const weft_model_share *share,
                               const weft_model_options *o, int cp_ranks, int cp_rank)
{
    weft__preview x;
    *out = (weft_model_sizes){0};
    weft_status st = weft__preview_open(&x, kern, threads, config, share, o, cp_ranks);
    if (st >= 0) st = count(&x.m, out, any, o, cp_ranks, cp_rank);
    weft__preview_close(&x);
    out->account = x.ctx.mem; /* peaks: all is given back by now */
    return st;
}
