/* train_api.c — include/weft/train.h: the trainer of this room behind handles that show no type of it. */
#include "weft/train.h"

#include "train/train.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct weft_train_options {
    weft_mem mem;
    weft_arena *arena;
    weft_run_options values;
    weft_opts opts;
};

struct weft_train {
    weft_trainer *trainer;
    weft_run run; /* the trainer keeps pointers to it */
};

enum { BY_CALL = 2 }; /* as strong as a flag: a file never overwrites it */

/* ---- options ---------------------------------------------------------------------------------------- */

static weft_status open_options(weft_train_options *o)
{
    int n = 0;
    const weft_opt *table = weft_run_table(&n);
    WEFT_TRY(weft_arena_create(&o->arena, &o->mem, "options", NULL));
    return weft_opts_init(&o->opts, table, n, WEFT_CMD_TRAIN, &o->values, o->arena);
}

weft_status weft_train_options_create(weft_train_options **out)
{
    weft_train_options *o = calloc(1, sizeof *o);
    if (!o) return weft_fail(WEFT_ERR_MEMORY, "no memory for options");
    weft_status st = open_options(o);
    if (st >= 0) *out = o;
    else weft_train_options_destroy(o);
    return st;
}

void weft_train_options_destroy(weft_train_options *o)
{
    if (!o) return;
    weft_arena_destroy(o->arena);
    free(o);
}

weft_status weft_train_options_set(weft_train_options *o, const char *key, const char *value)
{
    if (!key || !value)
        return weft_fail(WEFT_ERR_REFUSED, "option %s: %s is NULL", key ? key : "", key ? "the value" : "the key");
    return weft_opts_set(&o->opts, key, value, BY_CALL);
}

weft_status weft_train_options_file(weft_train_options *o, const char *path) { return weft_opts_yaml(&o->opts, path); }

size_t weft_train_options_text(const weft_train_options *o, char *text, size_t size)
{
    weft_text t = {0};
    weft_opts_yaml_text(&o->opts, &t);
    if (size) snprintf(text, size, "%s", t.data ? t.data : "");
    size_t need = t.len + 1;
    weft_text_free(&t);
    return need;
}

/* ---- training --------------------------------------------------------------------------------------- */

/* The part of creation that needs no other rank. */
static weft_status prepare(weft_train **out, weft_group *group, const weft_train_options *o)
{
    weft_ctx *ctx = weft_world_ctx(weft_group_world(group));
    weft_train *t = calloc(1, sizeof *t);
    if (!t) return weft_fail(WEFT_ERR_MEMORY, "no memory for a trainer");
    weft_status st = weft_run_resolve(&t->run, &o->opts, &o->values);
    if (st >= 0) st = weft_group_set_timeout(group, o->values.timeout);
    if (st < 0) {
        free(t);
        return st;
    }
    ctx->threads = o->values.threads > 0 ? (int)o->values.threads : weft_group_default_threads(group);
    *out = t;
    return WEFT_OK;
}

/* run.resume: a caller has no folder of a run, so `auto` means nothing here. */
static weft_status resume(weft_train *t, weft_group *group)
{
    const weft_run_options *o = t->run.o;
    char path[4096];
    weft_text differs = {0};
    if (!strcmp(o->resume, "none")) return WEFT_OK;
    if (!strcmp(o->resume, "auto"))
        return weft_fail(WEFT_ERR_REFUSED,
                         "run.resume auto goes on in the folder of weft train; give the path of a checkpoint");
    WEFT_TRY(weft_resume_find(weft_group_world(group), &t->run, "", path, sizeof path));
    weft_status st = weft_trainer_resume(t->trainer, path, &differs);
    weft_text_free(&differs);
    return st;
}

weft_status weft_train_create(weft_train **out, weft_group *group, const weft_train_options *options)
{
    weft_train *t = NULL;
    weft_status st = weft_agree(weft_group_comm(group), prepare(&t, group, options));
    if (st >= 0) st = weft_run_same_options(weft_group_comm(group), "train", &options->opts);
    if (st >= 0) st = weft_trainer_create(&t->trainer, weft_group_world(group), &t->run);
    if (st >= 0) st = resume(t, group);
    if (st >= 0) *out = t;
    else weft_train_destroy(t);
    return st;
}

void weft_train_destroy(weft_train *t)
{
    if (!t) return;
    weft_trainer_destroy(t->trainer);
    free(t);
}

void weft_train_report_init(weft_train_report *report, size_t size)
{
    weft_train_report full = {.size = size};
    memcpy(report, &full, size < sizeof full ? size : sizeof full);
}

weft_status weft_train_step(weft_train *t, weft_train_report *report)
{
    weft_record r;
    if (!report) return weft_fail(WEFT_ERR_REFUSED, "weft_train_step: the report is NULL");
    size_t size = report->size;
    if (size < sizeof(size_t) || size > sizeof *report)
        return weft_fail(
            WEFT_ERR_REFUSED,
            "weft_train_report.size is %zu, this library knows up to %zu; call weft_train_report_init first", size,
            sizeof *report);
    WEFT_TRY(weft_trainer_step(t->trainer, &r));
    weft_train_report full = {.size = size,
                              .step = r.step,
                              .loss = r.loss,
                              .grad_norm = r.grad_norm,
                              .lr = r.lr,
                              .seconds = r.seconds,
                              .tokens = r.tokens,
                              .valid_tokens = r.valid_tokens,
                              .comm_share = r.comm_share,
                              .exposed_share = r.exposed_share,
                              .bytes_logical = r.bytes_logical,
                              .memory_bytes = r.memory_bytes,
                              .skipped = r.skip != WEFT_SKIP_NOT};
    memcpy(report, &full, size);
    return WEFT_OK;
}

weft_status weft_train_eval(weft_train *t, int64_t sequences, double *loss)
{
    if (!loss) return weft_fail(WEFT_ERR_REFUSED, "weft_train_eval: the place of the loss is NULL");
    return weft_trainer_eval(t->trainer, sequences, loss);
}
weft_status weft_train_save(weft_train *t, const char *dir) { return weft_trainer_save(t->trainer, dir); }
int64_t weft_train_parameters(const weft_train *t)
{
    return weft_model_params(&weft_trainer_engine(t->trainer)->config);
}

void weft_train_describe(const weft_train *t, char *text, size_t size)
{
    const weft_text *plan = &weft_trainer_engine(t->trainer)->plan;
    size_t n = plan->len;
    while (n && plan->data[n - 1] == '\n') n--;
    if (size) snprintf(text, size, "%.*s", (int)n, plan->data ? plan->data : "");
}
