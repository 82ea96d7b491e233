/* engine.c — one rank's machinery: kernels, products, mesh, model, and the cut of a micro-batch. */
#include "train/train.h"

#include "sched/sched.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static weft_status alloc_slot(weft_engine *e, const weft_engine_options *o, weft_engine_slot *s)
{
    int P = e->mesh.size.cp;
    WEFT_TRY(weft_shard_alloc(&s->shard, e->arena, P, weft_shard_capacity(e->run->layout, o->B, o->T, o->max_docs, P)));
    WEFT_TRY(WEFT_NEW(e->arena, e->rows, "token index", &s->index));
    WEFT_TRY(WEFT_NEW(e->arena, e->rows, "tokens", &s->token));
    return WEFT_NEW(e->arena, e->rows, "targets", &s->target);
}

static weft_status alloc_slots(weft_engine *e, const weft_engine_options *o)
{
    e->rows = weft_shard_max_rows(e->run->layout, o->B, o->T, e->mesh.size.cp);
    e->slots = o->train ? weft_sched_slots(e->mesh.size.pp, e->mesh.at.pp, o->micros) : 1;
    WEFT_TRY(WEFT_NEW0(e->arena, e->slots, "tables", &e->slot));
    for (int i = 0; i < e->slots; i++) WEFT_TRY(alloc_slot(e, o, &e->slot[i]));
    return WEFT_NEW(e->arena, e->rows, "positions", &e->pos);
}

weft_model_options weft_engine_model_options(const weft_run *run, const weft_engine_options *o)
{
    return (weft_model_options){.prec = run->prec,
                                .B = o->B,
                                .T = o->T,
                                .max_docs = o->max_docs,
                                .layout = run->layout,
                                .cp = run->cp,
                                .dropout = run->o->attention_dropout,
                                .embedding_dropout = run->o->embedding_dropout,
                                .residual_dropout = run->o->residual_dropout,
                                .recompute = run->recompute,
                                .keep_attention = run->o->keep_attention,
                                .mlp_rows = run->o->mlp_rows,
                                .offload = o->train ? run->offload : WEFT_OFFLOAD_NONE,
                                .offload_folder = run->offload_folder,
                                .seed = (uint64_t)run->o->seed,
                                .train = o->train};
}

weft_status weft_run_check_offload(const weft_run *run, const weft_model_config *config, int64_t micros)
{
    const weft_engine_options eo = {.B = 1, .T = 1, .max_docs = 1, .train = true};
    weft_model_options mo = weft_engine_model_options(run, &eo);
    const int stages = run->mesh.pp;
    for (int stage = 0; stage < stages; stage++) {
        const weft_model_share share = {.tps = 1, .stage = stage, .stages = stages};
        mo.slots = weft_sched_slots(stages, stage, micros);
        if (run->offload == WEFT_OFFLOAD_NONE || weft_model_offloads(config, &share, &mo)) return WEFT_OK;
    }
    return weft_fail(WEFT_ERR_REFUSED, "--offload %s could not act: with %lld layers on %d stage%s no rank has more "
                     "than two inputs of layers at a time, and two are in use; leave it out, or use more layers",
                     run->o->offload, (long long)config->L, stages, stages > 1 ? "s" : "");
}

static weft_status open_model(weft_engine *e, const weft_model_config *config, const weft_engine_options *o)
{
    e->config = *config;
    e->B = o->B;
    e->T = o->T;
    if (o->train) WEFT_TRY(weft_run_check_offload(e->run, config, o->micros));
    WEFT_TRY(alloc_slots(e, o));
    weft_model_options mo = weft_engine_model_options(e->run, o);
    mo.slots = e->slots;
    const weft_model_place place = {.cp = e->mesh.cp, .tp = e->mesh.tp, .stage = e->mesh.at.pp,
                                    .stages = e->mesh.size.pp, .sequence_parallel = e->run->sequence_parallel};
    /* a disk may be full for one rank of all */
    return weft_agree(e->mesh.all, weft_model_create(&e->model, e->ctx, &e->kern, e->gemm, &place, config, &mo));
}

/* Each stage knows its own layers: their texts, one after the other. */
static weft_status describe_stages(weft_engine *e, weft_text *mine, int64_t *length, size_t *bytes)
{
    int stages = e->mesh.size.pp;
    size_t sum = 0;
    char *all = NULL;
    length[e->mesh.at.pp] = (int64_t)mine->len;
    for (int i = 0; i < stages; i++) bytes[i] = sizeof *length;
    WEFT_TRY(weft_all_gather(e->mesh.pp, &length[e->mesh.at.pp], length, bytes));
    for (int i = 0; i < stages; i++) sum += bytes[i] = (size_t)length[i];
    WEFT_TRY(WEFT_NEW(e->arena, (int64_t)sum, "plan in words", &all));
    WEFT_TRY(weft_all_gather(e->mesh.pp, mine->data, all, bytes));
    size_t at = 0;
    for (int i = 0; i < stages; at += bytes[i++]) {
        if (stages > 1) weft_text_add(&e->plan, "stage %d of %d, ", i, stages);
        weft_text_add(&e->plan, "%.*s", (int)bytes[i], all + at);
    }
    return WEFT_OK;
}

static weft_status describe(weft_engine *e)
{
    weft_text mine = {0};
    int64_t *length = NULL;
    size_t *bytes = NULL;
    WEFT_TRY(WEFT_NEW(e->arena, e->mesh.size.pp, "plan in words", &length));
    WEFT_TRY(WEFT_NEW(e->arena, e->mesh.size.pp, "plan in words", &bytes));
    weft_model_describe(e->model, &mine);
    weft_status st = describe_stages(e, &mine, length, bytes);
    weft_text_free(&mine);
    return st;
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
    WEFT_TRY_OR(st, weft_run_same_model(e->mesh.all, config), fail);
    WEFT_TRY_OR(st, open_model(e, config, o), fail);
    WEFT_TRY_OR(st, describe(e), fail);
    return WEFT_OK;
fail:
    weft_engine_close(e);
    return st;
}

void weft_engine_close(weft_engine *e)
{
    weft_text_free(&e->plan);
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
    const weft_run_options *o = e->run->o;
    if (e->config.dropout_asked > fmax(o->attention_dropout, fmax(o->embedding_dropout, o->residual_dropout)))
        weft_logf(&e->ctx->log, WEFT_LOG_WARN, "%s asks for dropout %g; this run drops %g of the embedding, %g of the "
                  "residual stream, %g of attention, as --embedding-dropout, --residual-dropout and "
                  "--attention-dropout say", path, e->config.dropout_asked, o->embedding_dropout, o->residual_dropout,
                  o->attention_dropout);
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

static weft_status load_own(weft_engine *e, const char *dir, weft_glance *files)
{
    int n = 0;
    weft_held held;
    WEFT_TRY(weft_engine_held(e, weft_model_weights(e->model), &held));
    weft_spec *whole = NULL;
    WEFT_TRY(weft_model_whole_spec(&e->config, e->arena, &whole, &n));
    WEFT_TRY(weft_ckpt_load_parts(dir, whole, n, e->config.tied, &held));
    return weft_comm_size(e->mesh.all) > 1 ? weft_ckpt_glance_weights(dir, files) : WEFT_OK;
}

weft_status weft_engine_load(weft_engine *e, const char *dir)
{
    weft_glance files = {0};
    char path[4096];
    if ((size_t)snprintf(path, sizeof path, "%s/config.json", dir) < sizeof path) weft_engine_warn(e, path);
    WEFT_TRY(weft_agree(e->mesh.all, load_own(e, dir, &files)));
    WEFT_TRY(weft_run_same_file(e->mesh.all, "weights", dir, files));
    weft_model_weights_changed(e->model);
    return WEFT_OK;
}

/* This rank's part of the visible area. Layers with a window count once, as they follow the same documents. */
static double own_area(const weft_engine *e, const weft_shard *shard, const weft_docs *docs)
{
    weft_mask mask = {.causal = true, .left = e->config.window ? e->config.window - 1 : -1, .right = -1};
    return (double)weft_shard_area_in_docs(&mask, shard, e->mesh.at.cp, docs);
}

static weft_micro micro_of(const weft_engine *e, const weft_engine_pass *pass)
{
    const weft_engine_slot *s = &e->slot[pass->slot];
    return (weft_micro){.slot = pass->slot, .shard = &s->shard, .token = s->token, .target = s->target,
                        .step = (uint32_t)e->step, .input = pass->input, .output = pass->output,
                        .watch = pass->watch};
}

/* This rank's rows of the micro-batch, into its slot. */
static weft_status cut(weft_engine *e, weft_engine_slot *s, int64_t sequence, const int32_t *token,
                       const int32_t *target, const weft_docs *docs)
{
    int me = e->mesh.at.cp;
    WEFT_TRY(weft_shard_make(&s->shard, e->run->layout, docs, 0));
    s->shard.sample0 = sequence;
    weft_shard_tokens(&s->shard, me, s->index, e->pos);
    for (int64_t i = 0; i < s->shard.rows[me]; i++) {
        s->token[i] = token[s->index[i]];
        s->target[i] = target[s->index[i]];
        if (WEFT_PLANTED(label_at_shard_edge) && i + 1 < s->shard.rows[me] && s->index[i + 1] != s->index[i] + 1)
            s->target[i] = token[s->index[i + 1]];
    }
    s->area = own_area(e, &s->shard, docs);
    return WEFT_OK;
}

weft_status weft_engine_forward(weft_engine *e, const weft_engine_pass *pass, const int32_t *token,
                                const int32_t *target, const weft_docs *docs, double *nll_sum)
{
    WEFT_TRY(cut(e, &e->slot[pass->slot], pass->sequence, token, target, docs));
    weft_micro micro = micro_of(e, pass);
    return weft_model_forward(e->model, &micro, pass->for_backward, pass->grad_scale, nll_sum, pass->token_nll);
}

typedef struct outlet { /* of gradients that are final */
    weft_model *model;
    weft_optim *optim;
    weft_status st;
} outlet;

/* The guard sees a range before any of it leaves this rank. What it refuses stays here; the others learn of it when
 * this rank fails, after its pass. */
static void gradients_final(void *ud, int64_t offset, int64_t count)
{
    outlet *x = ud;
    if (x->st >= 0) x->st = weft_model_guard_gradients(x->model, offset, count);
    if (x->st >= 0) weft_optim_ready(x->optim, offset, count);
}

weft_status weft_engine_backward(weft_engine *e, const weft_engine_pass *pass)
{
    weft_micro micro = micro_of(e, pass);
    outlet x = {e->model, pass->optim, WEFT_OK};
    WEFT_TRY(weft_model_backward(e->model, &micro, pass->stream, pass->optim ? gradients_final : NULL, &x));
    return x.st;
}

weft_status weft_engine_optimizer(weft_engine *e, const weft_optim_options *options, weft_optim **out)
{
    weft_optim_options oo = *options;
    weft_optim_parts parts = {.prec = e->run->prec, .count = weft_model_weight_count(e->model),
                              .weights = weft_model_weights(e->model), .gradients = weft_model_gradients(e->model),
                              .mesh = &e->mesh};
    parts.spec = weft_model_spec(e->model, &parts.n);
    parts.bucket = weft_model_buckets(e->model, &parts.buckets);
    oo.zero = (int)e->run->o->zero_stage;
    oo.overlap = e->run->o->overlap_grad_reduce;
    return weft_optim_create(out, e->ctx, &e->kern, &parts, &oo);
}
