/* model_preview.c — a model made without memory, to say what it will need: the code that makes a model counts, so
 * that the estimate cannot drift from it. Small tables are real; buffers are addresses that nobody owns, and nobody
 * touches them before the first pass. */
#include "model/model_impl.h"

static weft_status preview_plans(weft_model *m, weft_model_sizes *out, weft_comm *any, const weft_model_options *o,
                                 int cp_ranks)
{
    weft_layer_attention kind[WEFT__MAX_PLANS];
    int n = weft_model_attention(&m->config, &m->share, o, kind);
    for (int i = 0; i < n; i++) {
        weft_text text = {0};
        weft_cp_sizes sizes;
        weft_span here;
        if (!weft__plan_layers(m, &kind[i], &here)) continue;
        weft_status st = weft_cp_preview(m->kern, any, &kind[i].problem, &o->cp, cp_ranks, &text, &sizes);
        weft_text_free(&text);
        if (st < 0) return st;
        out->attention += sizes.held;
        m->plan_keeps[m->plans] = sizes.kept;
        m->plan_of[1] = m->plans++;
    }
    return WEFT_OK;
}

static weft_status preview(weft_model *m, weft_model_sizes *out, weft_comm *any, const weft_model_config *config,
                           const weft_model_share *share, const weft_model_options *o, int cp_ranks)
{
    weft_nowhere space;
    const weft_mem_provider provider = weft_mem_nowhere(&space); /* buffers are not touched while a plan is made */
    weft_status st;
    WEFT_TRY(weft_arena_create(&m->arena, &m->ctx->mem, "model", NULL));
    WEFT_TRY_OR(st, weft_arena_create(&m->buffers, &m->ctx->mem, "model", &provider), done);
    WEFT_TRY_OR(st, weft_arena_create(&m->pool, &m->ctx->mem, "offload", &provider), done);
    WEFT_TRY_OR(st, weft__model_size(m, config, share, o, cp_ranks), done);
    out->file = weft_model_file_bytes(m);
    WEFT_TRY_OR(st, preview_plans(m, out, any, o, cp_ranks), done);
    for (int i = 0; i < m->buckets; i++) out->bucket = weft_max_i64(out->bucket, m->bucket[i + 1] - m->bucket[i]);
    for (int i = 0; i < m->par.n; i++) out->summed += weft_spec_summed(&m->spec[i]);
    st = weft__slots_alloc_kept(m);
done:
    weft_arena_destroy(m->pool);
    weft_arena_destroy(m->buffers);
    weft_arena_destroy(m->arena);
    return st;
}

weft_status weft_model_preview(weft_model_sizes *out, const weft_kern *kern, weft_comm *any, int threads,
                               const weft_model_config *config, const weft_model_share *share,
                               const weft_model_options *o, int cp_ranks)
{
    weft_ctx ctx;
    weft_ctx_init(&ctx);
    ctx.threads = threads;
    weft_model m = {.ctx = &ctx, .kern = kern, .op = &kern->op[o->prec]};
    *out = (weft_model_sizes){0};
    WEFT_TRY(weft__model_check(config, share, o));
    WEFT_TRY(preview(&m, out, any, config, share, o, cp_ranks));
    out->account = ctx.mem;
    return WEFT_OK;
}
