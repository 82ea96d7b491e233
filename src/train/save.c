/* save.c — a checkpoint of a run: its arrays, its config, its state. How they come to the disk is ckpt's. */
#include "train/trainer_impl.h"

#include <string.h>

typedef struct saved_type {
    const char *name;
    weft_dtype dtype;
    const char *torch;
} saved_type;

static const saved_type *type_of(const char *name)
{
    static const saved_type types[] = {{"fp32", WEFT_F32, "float32"},
                                       {"bf16", WEFT_BF16, "bfloat16"},
                                       {"fp16", WEFT_F16, "float16"},
                                       {"fp64", WEFT_F64, "float64"}};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (!strcmp(name, types[i].name)) return &types[i];
    return &types[0];
}

void weft__moments(weft_trainer *t, int which, weft_held *out)
{
    *out = (weft_held){.dtype = weft_prec_real(t->run->prec), .copies = t->run->o->zero_stage == 0};
    out->spec = weft_model_spec(t->engine.model, &out->n);
    out->piece = weft_optim_state(t->optim, which, &out->pieces);
}

/* Weights, moments, and the weights once more in R where the model's file rounds them; which tensors this rank has of
 * them is another matter. */
static int kinds_of_arrays(const weft_run *run, weft_ckpt_array *array)
{
    const weft_dtype R = weft_prec_real(run->prec), file = type_of(run->o->save_dtype)->dtype;
    int n = 0;
    array[n++] = (weft_ckpt_array){.prefix = "", .file_dtype = file, .held.dtype = R};
    array[n++] = (weft_ckpt_array){.prefix = WEFT__MOMENT_1, .file_dtype = R, .held.dtype = R};
    array[n++] = (weft_ckpt_array){.prefix = WEFT__MOMENT_2, .file_dtype = R, .held.dtype = R};
    if (weft_dtype_size(file) < weft_dtype_size(R))
        array[n++] = (weft_ckpt_array){.prefix = WEFT__MASTER, .file_dtype = R, .held.dtype = R};
    return n;
}

static weft_status arrays(weft_trainer *t, weft_ckpt_array *array, int *n)
{
    weft_held weights;
    *n = kinds_of_arrays(t->run, array);
    WEFT_TRY(weft_engine_held(&t->engine, weft_model_weights(t->engine.model), &weights));
    for (int i = 0; i < *n; i++) {
        if (!strcmp(array[i].prefix, WEFT__MOMENT_1)) weft__moments(t, 0, &array[i].held);
        else if (!strcmp(array[i].prefix, WEFT__MOMENT_2)) weft__moments(t, 1, &array[i].held);
        else array[i].held = weights;
    }
    return WEFT_OK;
}

static weft_ckpt_writers writers_of(const char *name)
{
    return !strcmp(name, "all") ? WEFT_CKPT_ALL : !strcmp(name, "node") ? WEFT_CKPT_NODE : WEFT_CKPT_ONE;
}

weft_status weft_run_writers(const weft_run *run, weft_comm *all, weft_arena *arena, int **writer, int *n)
{
    return weft_ckpt_choose_writers(all, arena, writers_of(run->o->save_writers), writer, n);
}

weft_status weft_run_checkpoint_bytes(const weft_run *run, const weft_model_config *config, weft_arena *arena,
                                      const int *writer, int writers, int ranks, int64_t *bytes)
{
    const weft_run_options *o = run->o;
    weft_ckpt_array array[4];
    weft_ckpt_save save = {.array = array, .max_shard_bytes = o->save_shard, .buffer_bytes = o->save_buffer};
    weft_spec *whole = NULL;
    weft_mark mark = weft_arena_mark(arena);
    save.arrays = kinds_of_arrays(run, array);
    weft_status st = weft_model_whole_spec(config, arena, &whole, &save.n_whole);
    save.whole = whole;
    if (st >= 0) st = weft_ckpt_snapshot_bytes(&save, arena, writer, writers, ranks, bytes);
    weft_arena_release(arena, mark);
    return st;
}

/* Reads all of the data, so once in a run. */
void weft__know_data(weft_trainer *t)
{
    if (!t->data_known) t->state.data_hash = weft_tokens_hash(t->tokens);
    t->data_known = true;
}

static void fill_state(weft_trainer *t, weft_train_state *s)
{
    weft__know_data(t);
    *s = t->state;
    s->step = t->step;
    s->updates = t->numerics.updates;
    s->skips = t->numerics.skips;
    s->scale_dynamic = t->run->loss_scale_dynamic;
    s->scaler = t->numerics.scaler;
    s->spike = t->numerics.spike;
    s->data_tokens = weft_tokens_count(t->tokens);
    s->data_docs = weft_tokens_docs(t->tokens);
}

/* What rank 0 writes beside the tensors. */
static weft_status texts(weft_trainer *t, const saved_type *type, weft_text *config, weft_text *state)
{
    weft_train_state s;
    if (t->ctx->rank != 0) return WEFT_OK;
    WEFT_TRY(weft_model_config_text(&t->config, type->torch, config));
    fill_state(t, &s);
    return weft_train_state_text(&s, t->run->o, state);
}

static weft_status begin(weft_trainer *t, const char *dir, const weft_text *config, const weft_text *state)
{
    const weft_run_options *o = t->run->o;
    weft_ckpt_array array[4];
    weft_ckpt_save save = {.dir = dir,
                           .step = t->step,
                           .mesh = &t->engine.mesh,
                           .array = array,
                           .config_json = config->data,
                           .state_json = state->data,
                           .max_shard_bytes = o->save_shard,
                           .buffer_bytes = o->save_buffer,
                           .writers = writers_of(o->save_writers)};
    weft_spec *whole = NULL;
    weft_status st = t->writer ? WEFT_OK : weft_ckpt_writer_create(&t->writer, t->ctx);
    if (st >= 0) st = arrays(t, array, &save.arrays);
    if (st >= 0) st = weft_model_whole_spec(&t->config, t->engine.arena, &whole, &save.n_whole);
    WEFT_TRY(weft_agree(t->engine.mesh.all, st));
    save.whole = whole;
    return weft_ckpt_begin(t->writer, &save);
}

weft_status weft_trainer_save_begin(weft_trainer *t, const char *dir)
{
    weft_text config = {0}, state = {0};
    weft_mark mark = weft_arena_mark(t->engine.arena);
    weft_status st = texts(t, type_of(t->run->o->save_dtype), &config, &state);
    st = weft_agree(t->engine.mesh.all, st);
    if (st >= 0) st = begin(t, dir, &config, &state);
    weft_arena_release(t->engine.arena, mark);
    weft_text_free(&config);
    weft_text_free(&state);
    return st;
}

weft_ckpt_stage weft_trainer_save_stage(const weft_trainer *t)
{
    return t->writer ? weft_ckpt_stage_of(t->writer) : WEFT_CKPT_IDLE;
}

weft_status weft_trainer_save_finish(weft_trainer *t) { return t->writer ? weft_ckpt_finish(t->writer) : WEFT_OK; }

weft_status weft_trainer_save(weft_trainer *t, const char *dir)
{
    WEFT_TRY(weft_trainer_save_begin(t, dir));
    return weft_trainer_save_finish(t);
}
