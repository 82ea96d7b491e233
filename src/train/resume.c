/* resume.c — going on from a checkpoint: which one, whether all ranks see it alike, whether this run may go on from it,
 * and its parts on this rank. */
#include "train/trainer_impl.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PATH_BYTES = 4096, WHY_BYTES = 400, HOST_BYTES = 64 };

/* ---- what each rank sees ---------------------------------------------------------------------------- */

typedef struct sight {           /* of one rank, as it travels */
    int64_t good, count, newest; /* checkpoints in the folder; the newest step of them, or that of the one looked at */
    weft_hash hash;
    char host[HOST_BYTES], why[WHY_BYTES];
} sight;

static weft_status look_together(weft_world *world, const sight *mine, sight *all)
{
    weft_comm *comm = weft_world_all(world);
    int n = weft_comm_size(comm);
    size_t *bytes = malloc((size_t)n * sizeof *bytes);
    if (!bytes) return weft_fail(WEFT_ERR_MEMORY, "no memory to compare what %d ranks see", n);
    for (int r = 0; r < n; r++) bytes[r] = sizeof *all;
    weft_status st = weft_all_gather(comm, mine, all, bytes);
    free(bytes);
    return st;
}

static sight sight_of(weft_status st)
{
    sight s = {.good = st >= 0, .newest = -1};
    gethostname(s.host, sizeof s.host - 1);
    if (st < 0) snprintf(s.why, sizeof s.why, "%s", weft_last_error());
    return s;
}

static int first_that_differs(const sight *all, int n)
{
    for (int r = 1; r < n; r++)
        if (all[r].good != all[0].good || all[r].count != all[0].count || all[r].newest != all[0].newest ||
            !weft_hash_same(all[r].hash, all[0].hash))
            return r;
    return -1;
}

/* ---- the folder of a run ---------------------------------------------------------------------------- */

static void describe_list(const sight *s, char *text, size_t n)
{
    if (s->count == 0) snprintf(text, n, "no checkpoint");
    else
        snprintf(text, n, "%lld checkpoint%s, the newest of step %lld", (long long)s->count, s->count > 1 ? "s" : "",
                 (long long)s->newest);
}

static weft_status list_together(weft_world *world, const char *dir, int64_t **step, int *n, sight *all)
{
    struct stat there;
    char a[96], b[96];
    weft_status st = stat(dir, &there) ? WEFT_OK : weft_ckpt_list(dir, step, n);
    sight mine = sight_of(st);
    mine.count = *n;
    if (*n) mine.newest = (*step)[0], mine.hash = weft_hash_of(*step, (size_t)*n * sizeof **step);
    WEFT_TRY(look_together(world, &mine, all));
    int odd = first_that_differs(all, weft_world_size(world));
    if (odd >= 0 && all[odd].good && all[0].good) {
        describe_list(&all[0], a, sizeof a);
        describe_list(&all[odd], b, sizeof b);
        return weft_fail(WEFT_ERR_REFUSED,
                         "ranks see different folders %s: rank 0 on %s sees %s, rank %d on %s sees %s; a run goes on "
                         "from a folder that all ranks see",
                         dir, all[0].host, a, odd, all[odd].host, b);
    }
    return weft_agree(weft_world_all(world), st < 0 ? weft_fail(st, "%s", mine.why) : WEFT_OK);
}

/* ---- one checkpoint --------------------------------------------------------------------------------- */

/* Ranks of a node share the reading of its files, so that every node reads every byte once. */
static weft_status verify_share(weft_world *world, const weft_ckpt *c, const sight *all)
{
    int me = weft_world_rank(world), part = 0, parts = 0;
    for (int r = 0; r < weft_world_size(world); r++) {
        if (strcmp(all[r].host, all[me].host)) continue;
        if (r == me) part = parts;
        parts++;
    }
    return weft_ckpt_verify(c, part, parts);
}

/* Whether all ranks find the checkpoint good, then of step all[0].newest; `why` says who does not. A sight that differs
 * is refused. */
static weft_status try_one(weft_world *world, const char *path, bool verify, sight *all, bool *good, char *why)
{
    weft_ckpt *c = NULL;
    weft_ckpt_about about = {.step = -1};
    int n = weft_world_size(world);
    sight mine = sight_of(weft_ckpt_open(&c, path));
    if (c) {
        weft_ckpt_tell(c, &about);
        mine.hash = about.hash;
        mine.newest = about.step;
    }
    weft_status st = look_together(world, &mine, all);
    int odd = st < 0 ? -1 : first_that_differs(all, n);
    if (odd >= 0)
        st = weft_fail(WEFT_ERR_REFUSED, "ranks see different checkpoints %s: rank 0 on %s %s%s, rank %d on %s %s%s",
                       path, all[0].host, all[0].good ? "finds one that is complete" : "does not: ", all[0].why, odd,
                       all[odd].host, all[odd].good ? "finds one that is complete" : "does not: ", all[odd].why);
    *good = st >= 0 && all[0].good;
    if (*good && verify) {
        mine = sight_of(verify_share(world, c, all));
        mine.newest = about.step;
        st = look_together(world, &mine, all);
        for (odd = 0; st >= 0 && odd < n && all[odd].good;) odd++;
        *good = st >= 0 && odd == n;
    } else odd = 0;
    if (st >= 0 && !*good) snprintf(why, WHY_BYTES, "%s", all[odd].why);
    weft_ckpt_close(c);
    return st;
}

static void tell_passed_over(weft_world *world, const char *why)
{
    weft_ctx *ctx = weft_world_ctx(world);
    if (ctx->rank == 0 && ctx->log.write && why) weft_logf(&ctx->log, WEFT_LOG_WARN, "resume passes over %s", why);
}

/* The newest of `dir` that is good; `path` empty when there is none at all. */
static weft_status newest_of(weft_world *world, const char *dir, bool verify, sight *all, char *path)
{
    int64_t *step = NULL;
    int n = 0;
    bool good = false;
    char why[WHY_BYTES] = "";
    weft_text passed = {0};
    weft_status st = list_together(world, dir, &step, &n, all);
    for (int i = 0; st >= 0 && i < n && !good; i++) {
        st = weft_ckpt_path(dir, step[i], path, PATH_BYTES);
        if (st >= 0) st = try_one(world, path, verify, all, &good, why);
        if (st >= 0 && good && all[0].newest != step[i]) {
            good = false;
            snprintf(why, sizeof why, "%.*s is of step %lld: its folder was renamed", WHY_BYTES - 80, path,
                     (long long)all[0].newest);
        }
        if (st >= 0 && !good) weft_text_add(&passed, "%s%s", i ? "; " : "", why);
    }
    free(step);
    if (st >= 0 && good) tell_passed_over(world, passed.data);
    if (st >= 0 && n && !good)
        st = weft_fail(WEFT_ERR_REFUSED,
                       "none of the %d checkpoint%s in %s can be used: %s; another --name, or --resume none "
                       "--overwrite, begins anew",
                       n, n > 1 ? "s" : "", dir, passed.data ? passed.data : "");
    if (st >= 0 && !good) *path = '\0';
    weft_text_free(&passed);
    return st;
}

/* ---- the door: which checkpoint --------------------------------------------------------------------- */

static bool has_manifest(const char *dir)
{
    char path[PATH_BYTES];
    return (size_t)snprintf(path, sizeof path, "%s/manifest.json", dir) < sizeof path && access(path, F_OK) == 0;
}

/* A checkpoint's folder or a run's. */
static weft_status find_path(weft_world *world, const char *given, bool verify, sight *all, char *path)
{
    char why[WHY_BYTES] = "";
    bool good = false;
    int64_t is_one =
        has_manifest(given) || weft_ckpt_is_name(strrchr(given, '/') ? strrchr(given, '/') + 1 : given, true);
    WEFT_TRY(weft_broadcast(weft_world_all(world), &is_one, sizeof is_one, 0));
    if (is_one) {
        if ((size_t)snprintf(path, PATH_BYTES, "%s", given) >= PATH_BYTES)
            return weft_fail(WEFT_ERR_REFUSED, "--resume: the path is too long");
        WEFT_TRY(try_one(world, path, verify, all, &good, why));
        return good ? WEFT_OK : weft_fail(WEFT_ERR_REFUSED, "--resume %s: %s", given, why);
    }
    WEFT_TRY(newest_of(world, given, verify, all, path));
    if (*path) return WEFT_OK;
    return weft_fail(WEFT_ERR_REFUSED,
                     "--resume %s: there is no checkpoint in it; give a folder step-NUMBER, a run's "
                     "folder, auto or none",
                     given);
}

weft_status weft_resume_find(weft_world *world, const weft_run *run, const char *run_dir, char *path, size_t size)
{
    const weft_run_options *o = run->o;
    char found[PATH_BYTES] = "";
    *path = '\0';
    if (!strcmp(o->resume, "none")) return WEFT_OK;
    sight *all = malloc((size_t)weft_world_size(world) * sizeof *all);
    if (!all) return weft_fail(WEFT_ERR_MEMORY, "no memory to compare what the ranks see");
    weft_place(world, "look for a checkpoint", -1, -1);
    weft_status st = !strcmp(o->resume, "auto") ? newest_of(world, run_dir, o->verify_checkpoint, all, found)
                                                : find_path(world, o->resume, o->verify_checkpoint, all, found);
    free(all);
    if (st >= 0 && (size_t)snprintf(path, size, "%s", found) >= size)
        st = weft_fail(WEFT_ERR_REFUSED, "--resume: the path is too long");
    return st;
}

/* ---- whether this run may go on from it ------------------------------------------------------------- */

static weft_status check_config(const weft_trainer *t, const char *dir)
{
    char path[PATH_BYTES];
    weft_model_config saved;
    if ((size_t)snprintf(path, sizeof path, "%s/config.json", dir) >= sizeof path)
        return weft_fail(WEFT_ERR_REFUSED, "%s: the path is too long", dir);
    WEFT_TRY(weft_model_config_read(&saved, path));
    weft_text now = {0}, then = {0};
    weft_status st = weft_model_config_text(&t->config, "", &now);
    if (st >= 0) st = weft_model_config_text(&saved, "", &then);
    if (st >= 0 && strcmp(now.data, then.data)) {
        const char *a = now.data, *b = then.data, *line_a = a, *line_b = b;
        for (; *a == *b; a++, b++)
            if (*a == '\n') line_a = a + 1, line_b = b + 1;
        line_a += strspn(line_a, " ");
        line_b += strspn(line_b, " ");
        st = weft_fail(WEFT_ERR_REFUSED,
                       "%s is another model: it has %.*s, this run %.*s; give its options, or --model-config %s", dir,
                       (int)strcspn(line_b, ",\n"), line_b, (int)strcspn(line_a, ",\n"), line_a, path);
    }
    weft_text_free(&now);
    weft_text_free(&then);
    return st;
}

static weft_status check_data(weft_trainer *t, const weft_train_state *s, const char *dir)
{
    if (t->ctx->rank == 0) weft__know_data(t); /* one reads it, and the others hear of it */
    if (s->data_tokens == weft_tokens_count(t->tokens) && s->data_docs == weft_tokens_docs(t->tokens) &&
        (t->ctx->rank != 0 || weft_hash_same(s->data_hash, t->state.data_hash)))
        return WEFT_OK;
    return weft_fail(
        WEFT_ERR_REFUSED,
        "%s was trained on other data than %s (it had %lld tokens in %lld documents, this has %lld in %lld): "
        "its place in the data would mean nothing; to train on with other data, begin a run with --model",
        dir, t->run->o->data_path, (long long)s->data_tokens, (long long)s->data_docs,
        (long long)weft_tokens_count(t->tokens), (long long)weft_tokens_docs(t->tokens));
}

static weft_status read_state(weft_trainer *t, const weft_ckpt *c, const char *dir, weft_train_state *s,
                              weft_text *differs)
{
    char where[PATH_BYTES], *text = NULL;
    size_t bytes = 0;
    json_t *options = NULL;
    snprintf(where, sizeof where, "%s/state.json", dir);
    WEFT_TRY(weft_ckpt_text(c, "state.json", &text, &bytes));
    weft_status st = weft_train_state_read(s, &options, where, text, bytes);
    free(text);
    if (st >= 0) st = weft_train_state_compare(options, t->run->o, where, differs);
    json_decref(options);
    return st < 0 ? st : check_data(t, s, dir);
}

/* ---- its parts -------------------------------------------------------------------------------------- */

static weft_status load_tensors(weft_trainer *t, weft_ckpt *c, weft_dtype type, weft_text *differs)
{
    weft_held held;
    bool master;
    const weft_dtype R = weft_prec_real(t->run->prec);
    if (weft_dtype_size(type) > weft_dtype_size(R))
        weft_text_add(differs, "%sweights and moments are rounded from %s to %s", differs->len ? "; " : "",
                      weft_dtype_name(type), weft_dtype_name(R));
    WEFT_TRY(weft_ckpt_has(c, WEFT__MASTER, &master, &type));
    WEFT_TRY(weft_engine_held(&t->engine, weft_model_weights(t->engine.model), &held));
    WEFT_TRY(weft_ckpt_read(c, master ? WEFT__MASTER : "", &held));
    for (int which = 0; which < 2 && !WEFT_PLANTED(moments_forgotten); which++) {
        weft__moments(t, which, &held);
        WEFT_TRY(weft_ckpt_read(c, which ? WEFT__MOMENT_2 : WEFT__MOMENT_1, &held));
    }
    weft_model_weights_changed(t->engine.model);
    return WEFT_OK;
}

static weft_status load(weft_trainer *t, const char *dir, weft_train_state *s, weft_text *differs)
{
    weft_ckpt *c = NULL;
    weft_dtype type = WEFT_F32;
    bool moments = false;
    WEFT_TRY(weft_ckpt_open(&c, dir));
    weft_status st = weft_ckpt_has(c, WEFT__MOMENT_1, &moments, &type);
    if (st >= 0 && !moments)
        st = weft_fail(WEFT_ERR_REFUSED,
                       "%s holds a model without the state of an optimizer: begin a run with --model %s", dir, dir);
    if (st >= 0) st = read_state(t, c, dir, s, differs);
    if (st >= 0) st = check_config(t, dir);
    if (st >= 0) st = load_tensors(t, c, type, differs);
    weft_ckpt_close(c);
    return st;
}

/* A scale that finds itself goes on where it was; one that was asked for acts. */
static void take_numerics(weft_trainer *t, const weft_train_state *s)
{
    weft_numerics *n = &t->numerics;
    n->updates = s->updates;
    n->skips = s->skips;
    n->scaler.skipped = s->scaler.skipped;
    n->spike.seen = s->spike.seen;
    n->spike.mean = s->spike.mean;
    n->spike.variance = s->spike.variance;
    if (!s->scale_dynamic || !t->run->loss_scale_dynamic) return;
    n->scaler.scale = fmin(fmax(s->scaler.scale, n->scaler.least), n->scaler.most);
    n->scaler.good = s->scaler.good;
}

weft_status weft_trainer_resume(weft_trainer *t, const char *dir, weft_text *differs)
{
    weft_train_state s = {0};
    weft_mark mark = weft_arena_mark(t->engine.arena);
    weft_status st = weft_agree(t->engine.mesh.all, load(t, dir, &s, differs));
    weft_arena_release(t->engine.arena, mark);
    WEFT_TRY(st);
    t->state = s;
    t->step = s.step;
    if (WEFT_PLANTED(data_from_the_start)) t->state.sequence = 0;
    take_numerics(t, &s);
    return WEFT_OK;
}
