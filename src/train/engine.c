/* engine.c — one rank's machinery: kernels, products, mesh, model, and the cut of a micro-batch. */
#include "train/train.h"

#include <stdio.h>
#include <string.h>

static weft_status alloc_rows(weft_engine *e, const weft_engine_options *o)
{
    int P = e->mesh.size.cp;
    e->rows = weft_shard_max_rows(e->run->layout, o->B, o->T, P);
    WEFT_TRY(weft_shard_alloc(&e->shard, e->arena, P, weft_shard_capacity(e->run->layout, o->B, o->T, o->max_docs, P)));
    WEFT_TRY(WEFT_NEW(e->arena, e->rows, "token index", &e->index));
    WEFT_TRY(WEFT_NEW(e->arena, e->rows, "positions", &e->pos));
    WEFT_TRY(WEFT_NEW(e->arena, e->rows, "tokens", &e->token));
    return WEFT_NEW(e->arena, e->rows, "targets", &e->target);
}

static weft_status open_model(weft_engine *e, const weft_model_config *config, const weft_engine_options *o)
{
    weft_model_options mo = {.prec = e->run->prec,
                             .B = o->B,
                             .T = o->T,
                             .max_docs = o->max_docs,
                             .layout = e->run->layout,
                             .cp = e->run->cp,
                             .dropout = e->run->o->attention_dropout,
                             .seed = (uint64_t)e->run->o->seed,
                             .train = o->train,
                             .slots = 1};
    e->config = *config;
    e->B = o->B;
    e->T = o->T;
    WEFT_TRY(alloc_rows(e, o));
    const weft_model_place place = {.cp = e->mesh.cp, .tp = e->mesh.tp, .stage = e->mesh.at.pp,
                                    .stages = e->mesh.size.pp};
    return weft_model_create(&e->model, e->ctx, &e->kern, e->gemm, &place, config, &mo);
}

weft_status weft_engine_open(weft_engine *e, weft_world *world, const weft_run *run, const weft_model_config *config,
                             const weft_engine_options *o)
{
    memset(e, 0, sizeof *e);
    e->ctx = weft_world_ctx(world);
    e->run = run;
    weft_status st;
    WEFT_TRY_OR(st, weft_kern_init(&e->kern, run->isa), fail);
    WEFT_TRY_OR(st, weft_gemm_create(&e->gemm, e->ctx, (int)run->isa), fail);
    WEFT_TRY_OR(st, weft_arena_create(&e->arena, &e->ctx->mem, "engine", NULL), fail);
    WEFT_TRY_OR(st, weft_mesh_create(&e->mesh, world, run->mesh), fail);
    WEFT_TRY_OR(st, open_model(e, config, o), fail);
    return WEFT_OK;
fail:
    weft_engine_close(e);
    return st;
}

void weft_engine_close(weft_engine *e)
{
    if (e->model) weft_model_destroy(e->model);
    if (e->mesh.world) weft_mesh_destroy(&e->mesh);
    weft_arena_destroy(e->arena);
    if (e->gemm) weft_gemm_destroy(e->gemm);
    memset(e, 0, sizeof *e);
}

/* What a config asks for and Weft does not do is said once, by rank 0; it may matter, and it may not. */
void weft_engine_warn(const weft_engine *e, const char *path)
{
    weft_text unknown = {0};
    if (e->ctx->rank != 0 || !e->ctx->log.write) return;
    if (e->config.dropout_asked > 0)
        weft_logf(&e->ctx->log, WEFT_LOG_WARN, "%s asks for dropout %g; this version of weft trains without dropout",
                  path, e->config.dropout_asked);
    if (weft_model_config_unknown(path, &unknown) >= 0 && unknown.len)
        weft_logf(&e->ctx->log, WEFT_LOG_WARN, "%s: not read: %s", path, unknown.data);
    weft_text_free(&unknown);
}

weft_status weft_engine_held(weft_engine *e, void *array, weft_held *out)
{
    int n = 0;
    weft_piece *piece = NULL;
    const weft_spec *spec = weft_model_spec(e->model, &n);
    const weft_dtype R = weft_prec_real(e->run->prec);
    WEFT_TRY(WEFT_NEW(e->arena, n, "parts of tensors", &piece));
    weft_pieces_of(spec, n, array, R, piece);
    *out = (weft_held){.spec = spec, .n = n, .piece = piece, .pieces = n, .dtype = R, .copies = true};
    return WEFT_OK;
}

weft_status weft_engine_load(weft_engine *e, const char *dir)
{
    int n = 0;
    char path[4096];
    if ((size_t)snprintf(path, sizeof path, "%s/config.json", dir) < sizeof path) weft_engine_warn(e, path);
    weft_held held;
    WEFT_TRY(weft_engine_held(e, weft_model_weights(e->model), &held));
    weft_spec *whole = NULL;
    WEFT_TRY(weft_model_whole_spec(&e->config, e->arena, &whole, &n));
    WEFT_TRY(weft_ckpt_load_parts(dir, whole, n, e->config.tied, &held));
    weft_model_weights_changed(e->model);
    return WEFT_OK;
}

/* This rank's part of the visible area. Layers with a window count once, as they follow the same documents. */
static double own_area(const weft_engine *e, const weft_docs *docs)
{
    weft_mask mask = {.causal = true, .left = e->config.window ? e->config.window - 1 : -1, .right = -1};
    return (double)weft_shard_area_in_docs(&mask, &e->shard, e->mesh.at.cp, docs);
}

static weft_micro micro_of(const weft_engine *e)
{
    return (weft_micro){.slot = 0, .shard = &e->shard, .token = e->token, .target = e->target,
                        .step = (uint32_t)e->step};
}

weft_status weft_engine_forward(weft_engine *e, const int32_t *token, const int32_t *target, const weft_docs *docs,
                                bool for_backward, double grad_scale, double *nll_sum, void *token_nll)
{
    int me = e->mesh.at.cp;
    WEFT_TRY(weft_shard_make(&e->shard, e->run->layout, docs, 0));
    e->shard.sample0 = e->sequence;
    weft_shard_tokens(&e->shard, me, e->index, e->pos);
    for (int64_t i = 0; i < e->shard.rows[me]; i++) {
        e->token[i] = token[e->index[i]];
        e->target[i] = target[e->index[i]];
        if (WEFT_PLANTED(label_at_shard_edge) && i + 1 < e->shard.rows[me] && e->index[i + 1] != e->index[i] + 1)
            e->target[i] = token[e->index[i + 1]];
    }
    e->area = own_area(e, docs);
    weft_micro micro = micro_of(e);
    return weft_model_forward(e->model, &micro, for_backward, grad_scale, nll_sum, token_nll);
}

weft_status weft_engine_backward(weft_engine *e)
{
    weft_micro micro = micro_of(e);
    return weft_model_backward(e->model, &micro, NULL, NULL, NULL);
}

weft_status weft_engine_run(weft_engine *e, const int32_t *token, const int32_t *target, const weft_docs *docs,
                            bool backward, double grad_scale, double *nll_sum, void *token_nll)
{
    WEFT_TRY(weft_engine_forward(e, token, target, docs, backward, grad_scale, nll_sum, token_nll));
    return backward ? weft_engine_backward(e) : WEFT_OK;
}
