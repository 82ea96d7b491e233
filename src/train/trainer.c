/* trainer.c — opens everything a training run needs, and closes it again. The step itself is step.c. */
#include "train/trainer_impl.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

weft_status weft_run_accumulation(const weft_run *run, int64_t *out)
{
    const weft_run_options *o = run->o;
    int64_t unit = o->micro_batch * run->mesh.dp;
    int64_t global = o->global_batch ? o->global_batch : unit;
    if (global % unit)
        return weft_fail(WEFT_ERR_REFUSED,
                         "--global-batch-size %lld is no multiple of micro-batch %lld x dp %d; use %lld or %lld",
                         (long long)global, (long long)o->micro_batch, run->mesh.dp,
                         (long long)(global / unit > 0 ? global / unit * unit : unit),
                         (long long)((global / unit + 1) * unit));
    *out = global / unit;
    return WEFT_OK;
}

static weft_status open_data(weft_trainer *t)
{
    const weft_run_options *o = t->run->o;
    if (!o->data_path) return weft_fail(WEFT_ERR_REFUSED, "no data: give --data FILE (a text file or a token file)");
    WEFT_TRY(weft_tokens_open(&t->tokens, t->arena, o->data_path, o->separator, t->config.V));
    weft_batch_options bo = {.T = o->seq_length,
                             .seed = (uint64_t)o->seed,
                             .valid_fraction = o->valid_fraction,
                             .document_mask = o->document_mask};
    return weft_batches_create(&t->batches, t->arena, t->tokens, &bo);
}

/* Room for all sequences of this rank's part of a step: the number of valid labels is needed before the
 * first backward pass, since gradients are scaled by one over their count. */
static weft_status alloc_sequences(weft_trainer *t)
{
    int64_t B = t->run->o->micro_batch, T = t->run->o->seq_length, n = t->accumulation * B;
    t->max_docs = weft_batches_max_docs(t->batches);
    WEFT_TRY(WEFT_NEW(t->arena, n * T, "step tokens", &t->token));
    WEFT_TRY(WEFT_NEW(t->arena, n * T, "step targets", &t->target));
    WEFT_TRY(WEFT_NEW(t->arena, n * (t->max_docs + 1), "step documents", &t->cu));
    WEFT_TRY(WEFT_NEW(t->arena, t->accumulation * (B + 1), "step documents", &t->first));
    return WEFT_NEW(t->arena, t->accumulation, "step areas", &t->area);
}

static weft_status open_weights(weft_trainer *t)
{
    if (t->run->o->model_dir) return weft_engine_load(&t->engine, t->run->o->model_dir);
    if (t->run->o->model_config) weft_engine_warn(&t->engine, t->run->o->model_config);
    weft_model_init_weights(t->engine.model, (uint64_t)t->run->o->seed);
    weft_model_weights_changed(t->engine.model);
    return WEFT_OK;
}

static weft_status open_optimizer(weft_trainer *t)
{
    const weft_run_options *o = t->run->o;
    int64_t warmup = o->warmup_steps >= 0 ? o->warmup_steps : weft_min_i64(o->steps / 10, 200);
    t->optim_options = (weft_optim_options){.lr = o->lr,
                                            .min_lr = o->min_lr,
                                            .beta1 = o->beta1,
                                            .beta2 = o->beta2,
                                            .eps = o->adam_eps,
                                            .weight_decay = o->weight_decay,
                                            .clip = o->clip,
                                            .warmup_steps = warmup,
                                            .decay_steps = o->decay_steps ? o->decay_steps : o->steps};
    WEFT_TRY(weft_optim_check(&t->optim_options));
    return weft_engine_optimizer(&t->engine, &t->optim_options, &t->optim);
}

static weft_status open_all(weft_trainer *t, weft_world *world, bool train)
{
    const weft_run_options *o = t->run->o;
    WEFT_TRY(weft_run_model_config(t->run, &t->config));
    WEFT_TRY(weft_run_accumulation(t->run, &t->accumulation));
    weft__numerics_open(&t->numerics, t->run);
    WEFT_TRY(weft_arena_create(&t->arena, &t->ctx->mem, "trainer", NULL));
    WEFT_TRY(weft_agree(weft_world_all(world), open_data(t)));
    WEFT_TRY(weft_run_same_data(weft_world_all(world), t->tokens, o->data_path));
    WEFT_TRY(alloc_sequences(t));
    weft_engine_options eo = {.B = o->micro_batch,
                              .T = o->seq_length,
                              .max_docs = o->micro_batch * t->max_docs,
                              .micros = t->accumulation,
                              .train = train};
    WEFT_TRY(weft_engine_open(&t->engine, world, t->run, &t->config, &eo));
    WEFT_TRY(weft_pipeline_create(&t->pipeline, &t->engine, t->accumulation));
    WEFT_TRY(open_weights(t));
    return train ? open_optimizer(t) : WEFT_OK;
}

static weft_status create(weft_trainer **out, weft_world *world, const weft_run *run, bool train)
{
    weft_trainer *t = calloc(1, sizeof *t);
    if (!t) return weft_fail(WEFT_ERR_MEMORY, "no memory for a trainer");
    t->ctx = weft_world_ctx(world);
    t->world = world;
    t->run = run;
    weft_status st = open_all(t, world, train);
    if (st < 0) {
        weft_trainer_destroy(t);
        return st;
    }
    *out = t;
    return WEFT_OK;
}

weft_status weft_trainer_create(weft_trainer **out, weft_world *world, const weft_run *run)
{
    return create(out, world, run, true);
}
weft_status weft_evaluator_create(weft_trainer **out, weft_world *world, const weft_run *run)
{
    return create(out, world, run, false);
}

void weft_trainer_destroy(weft_trainer *t)
{
    if (!t) return;
    weft_ckpt_writer_destroy(t->writer);
    if (t->optim) weft_optim_destroy(t->optim);
    weft_engine_close(&t->engine);
    if (t->tokens) weft_tokens_close(t->tokens);
    weft_arena_destroy(t->arena);
    free(t);
}

const weft_engine *weft_trainer_engine(const weft_trainer *t) { return &t->engine; }
int64_t weft_trainer_windows(const weft_trainer *t, bool valid) { return weft_batches_windows(t->batches, valid); }

weft_status weft_trainer_unigram_entropy(weft_trainer *t, double *nats)
{
    enum { BLOCK = 4096 };
    int32_t id[BLOCK];
    int64_t total = weft_tokens_count(t->tokens), *count = NULL;
    WEFT_TRY(WEFT_NEW0(t->arena, t->config.V, "token counts", &count));
    for (int64_t at = 0; at < total; at += BLOCK) {
        int64_t n = weft_min_i64(BLOCK, total - at);
        WEFT_TRY(weft_tokens_read(t->tokens, at, n, id));
        for (int64_t i = 0; i < n; i++) count[id[i]]++;
    }
    *nats = 0;
    for (int64_t i = 0; i < t->config.V; i++)
        if (count[i]) *nats -= (double)count[i] / (double)total * log((double)count[i] / (double)total);
    return WEFT_OK;
}
int64_t weft_trainer_steps_done(const weft_trainer *t) { return t->step; }
