/* cmd_train.c — `weft train`: the run's folder, its table, its lines, its checkpoints, its proof. */
#include "cli/train_tell.h"

#include <ctype.h>
#include <math.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

typedef struct saving { /* the checkpoint that is being written */
    bool under_way;
    int64_t step, last; /* its step; that of the last complete one, -1 none */
    double begun, held; /* when, and how long training stood still for it */
} saving;

typedef struct session { /* one rank's run */
    weft_cli *cli;
    weft_world *world;
    weft_trainer *trainer;
    weft_jsonl *jsonl;
    weft_live *live;    /* NULL on other ranks than 0 */
    weft_train_tell tell;
    bool terminal;
    char dir[2048];
    int lock;           /* of that folder; -1 on other ranks */
    int64_t compared;   /* first steps that will be run again on one rank */
    double *losses;     /* [compared] */
    double first, last; /* loss of the first and of the last step */
    double entropy;     /* unigram, of the text; rank 0 */
    double last_eval;   /* NaN: none */
    weft_memory_report memory;
    bool root;
    weft_interrupt *interrupt;
    int64_t from;       /* steps that were done when the run went on */
    char resumed[2112]; /* the checkpoint from which it went on; empty: none */
    saving saving;
    int64_t unrecorded; /* steps whose line could not be written */
    bool lost;          /* the folder is not where it was: said */
} session;

/* ---- the run's folder ----------------------------------------------------------------------------- */

static weft_status name_dir(session *s)
{
    const weft_run_options *o = &s->cli->options;
    char stamp[64];
    time_t now = time(NULL);
    struct tm tm;
    localtime_r(&now, &tm);
    strftime(stamp, sizeof stamp, "train-%Y%m%d-%H%M%S", &tm);
    const char *name = o->run_name ? o->run_name : stamp;
    if ((size_t)snprintf(s->dir, sizeof s->dir, "%s/%s", o->run_root, name) >= sizeof s->dir - 64)
        return weft_fail(WEFT_ERR_REFUSED, "run.root and run.name: the path is too long");
    return weft_broadcast(weft_world_all(s->world), s->dir, sizeof s->dir, 0); /* clocks differ */
}

static weft_status write_resolved(session *s)
{
    char path[2112];
    weft_text t = {0};
    weft_opts_yaml_text(&s->cli->opts, &t);
    snprintf(path, sizeof path, "%s/config.yaml", s->dir);
    weft_status st = t.data ? weft_write_file(path, t.data, t.len)
                            : weft_fail(WEFT_ERR_MEMORY, "no memory for the resolved configuration");
    weft_text_free(&t);
    return st;
}

/* A model that lies in the folder would be removed with it, and is needed until the end. */
static weft_status check_model_outside(const session *s, const char *model)
{
    char *dir = realpath(s->dir, NULL), *path = model ? realpath(model, NULL) : NULL;
    size_t n = dir ? strlen(dir) : 0;
    bool inside = dir && path && !strncmp(path, dir, n) && (path[n] == '/' || !path[n]);
    free(dir);
    free(path);
    if (!inside) return WEFT_OK;
    return weft_fail(WEFT_ERR_REFUSED, "the model %s lies in %s, which --overwrite clears; choose another --name",
                     model, s->dir);
}

/* A run goes on in its own folder; one that begins from the checkpoint of another gets a new one. */
static weft_run_dir_how how(const session *s)
{
    const weft_run_options *o = &s->cli->options;
    if (o->overwrite) return WEFT_RUN_OVERWRITE;
    if (!strcmp(o->resume, "auto")) return WEFT_RUN_CONTINUE;
    char *own = realpath(s->dir, NULL), *from = *s->resumed ? realpath(s->resumed, NULL) : NULL;
    size_t n = own ? strlen(own) : 0;
    bool same = own && from && !strncmp(own, from, n) && from[n] == '/' && !strchr(from + n + 1, '/');
    free(own);
    free(from);
    return same ? WEFT_RUN_CONTINUE : WEFT_RUN_NEW;
}

/* An earlier run's numbers are never mixed with, or replaced by, this one's unless that is asked for. */
static weft_status open_dir_on_root(session *s)
{
    const weft_run_options *o = &s->cli->options;
    char path[2112];
    if (!s->root) return WEFT_OK;
    if (o->overwrite) {
        WEFT_TRY(check_model_outside(s, o->model_dir));
        WEFT_TRY(check_model_outside(s, o->model_config));
    }
    WEFT_TRY(weft_run_dir_open(s->dir, how(s), s->from, &s->lock));
    WEFT_TRY(write_resolved(s));
    snprintf(path, sizeof path, "%s/metrics.jsonl", s->dir);
    return weft_jsonl_open(&s->jsonl, path);
}

/* ---- checkpoints ---------------------------------------------------------------------------------- */

static double now(const session *s) { return weft_now(&weft_world_ctx(s->world)->clock); }

static bool goes_on_without_disk(const session *s) { return !strcmp(s->cli->options.save_failure, "warn"); }

/* A disk that is full, or away, need not end a run that can save again later. */
static weft_status after_failure(session *s, weft_status st, bool last)
{
    if (st != WEFT_ERR_IO || last || !goes_on_without_disk(s)) return st;
    if (s->root)
        weft_logf(&weft_world_ctx(s->world)->log, WEFT_LOG_WARN, "no checkpoint of step %lld: %s; training goes on",
                  (long long)s->saving.step, weft_last_error());
    return WEFT_OK;
}

static void trace_saving(const session *s, const char *name, double begin)
{
    weft_trace_emit(&weft_world_ctx(s->world)->trace, WEFT_TRACK_CHECKPOINT, name, begin, now(s), -1, -1);
}

static weft_status finish_save(session *s, bool last)
{
    const weft_run_options *o = &s->cli->options;
    char line[160];
    if (!s->saving.under_way) return WEFT_OK;
    double begin = now(s);
    s->saving.under_way = false;
    weft_status st = weft_trainer_save_finish(s->trainer);
    if (st < 0) return after_failure(s, st, last);
    s->saving.last = s->saving.step;
    s->saving.held += now(s) - begin;
    trace_saving(s, "finish checkpoint", begin);
    trace_saving(s, "write checkpoint", s->saving.begun);
    if (!s->root) return WEFT_OK;
    weft_format(line, sizeof line, "step %5lld | checkpoint complete %.2f s after it, of which training waited %.2f s",
                (long long)s->saving.step, now(s) - s->saving.begun, s->saving.held);
    if (!last) weft_live_note(s->live, line);
    return weft_ckpt_prune(s->dir, o->keep_last, o->keep_every, &weft_world_ctx(s->world)->log);
}

static weft_status save(session *s, int64_t step, bool last)
{
    char path[2112];
    WEFT_TRY(weft_agree(weft_world_all(s->world), finish_save(s, false)));
    if (s->saving.last == step) return WEFT_OK;
    WEFT_TRY(weft_ckpt_path(s->dir, step, path, sizeof path));
    double begin = now(s);
    s->saving.step = step;
    weft_status st = weft_trainer_save_begin(s->trainer, path);
    if (st < 0) return after_failure(s, st, last);
    s->saving.under_way = true;
    s->saving.begun = begin;
    s->saving.held = now(s) - begin;
    trace_saving(s, "begin checkpoint", begin);
    if (s->cli->options.save_background && !last) return WEFT_OK;
    return weft_agree(weft_world_all(s->world), finish_save(s, last));
}

/* Between two steps: whether anybody was asked to stop, and what the threads that write have come to; the same on all
 * ranks. */
static weft_status look_around(session *s, bool *stop)
{
    weft_ckpt_stage stage = weft_trainer_save_stage(s->trainer);
    int64_t flag[3] = {weft_interrupted(s->interrupt), stage == WEFT_CKPT_WRITING, stage == WEFT_CKPT_FAILED};
    WEFT_TRY(weft_all_reduce(weft_world_all(s->world), flag, 3, WEFT_I64, WEFT_MAX));
    *stop = flag[0];
    if (!s->saving.under_way || (flag[1] && !flag[2])) return WEFT_OK;
    return weft_agree(weft_world_all(s->world), finish_save(s, false));
}

/* ---- what is printed ------------------------------------------------------------------------------ */

/* On a terminal the first useful line has to be in sight: what was not asked for is left to the record of the run. A
 * log has room for all of it. */
static void add_options(session *s, weft_text *t)
{
    weft_text table = {0};
    int left_out = weft_opts_table(&s->cli->opts, s->terminal, &table);
    if (left_out)
        weft_text_add(t, "options given (%d more at their defaults: %s/config.yaml has all)\n", left_out, s->dir);
    else weft_text_add(t, "options (* given)\n");
    weft_text_add(t, "%s", table.data ? table.data : "");
    weft_text_free(&table);
}

static void print_start(session *s)
{
    const weft_engine *e = weft_trainer_engine(s->trainer);
    const weft_run_options *o = &s->cli->options;
    weft_text t = {0};
    if (!s->root) return;
    add_options(s, &t);
    char transport[160];
    int cpus, sharers;
    weft_world_describe(s->world, transport, sizeof transport);
    weft_world_cpus(s->world, &cpus, &sharers);
    weft_text_add(&t, "\nranks        %d (%s): ", weft_world_size(s->world), weft_world_transport(s->world));
    weft_mesh_describe(e->mesh.size, &t);
    weft_text_add(&t, "%s, %d thread%s each, kernels %s\n", e->run->sequence_parallel ? ", sequence parallel" : "",
                  e->ctx->threads, e->ctx->threads > 1 ? "s" : "", weft_isa_name(e->kern.isa));
    weft_text_add(&t, "processors   %d for rank 0, shared by %d rank%s", cpus, sharers, sharers > 1 ? "s" : "");
    weft_text_add(&t, strcmp(transport, weft_world_transport(s->world)) ? "; %s\n" : "\n", transport);
    weft_text_add(&t, "model        %lld parameters\n", (long long)weft_model_params(&e->config));
    weft_text_add_under(&t, "attention    ", e->plan.data ? e->plan.data : "\n");
    weft_text_add(&t,
                  "data         %lld sequences of %lld tokens to train on, %lld held out; unigram entropy %.4f nats\n",
                  (long long)weft_trainer_windows(s->trainer, false), (long long)o->seq_length,
                  (long long)weft_trainer_windows(s->trainer, true), s->entropy);
    if (*s->resumed) weft_text_add(&t, "goes on      after step %lld of %s\n", (long long)s->from, s->resumed);
    weft_add_memory_plan(&s->memory, &t);
    weft_text_add(&t, "folder       %s\n\n", s->dir);
    weft_print_lines(t.data ? t.data : "", WEFT_FOLD_UNDER);
    weft_text_free(&t);
}

/* Only a warning: what else the machine does, and whether it swaps, is not known here. */
static void warn_of_memory(const session *s)
{
    const weft_memory_machine *m = &s->memory.tightest;
    char planned[32], room[32];
    if (!s->root || m->planned <= m->room) return;
    weft_logf(&weft_world_ctx(s->world)->log, WEFT_LOG_WARN,
              "memory: %d rank%s on %s will hold %s, and %s can be had there: the system may end one of them. "
              "--recompute full --recompute-keep-attention, --mlp-rows, a smaller --micro-batch-size or more machines "
              "need less (weft info --memory)",
              m->ranks, m->ranks > 1 ? "s" : "", m->host,
              weft_format_bytes((double)m->planned, planned, sizeof planned),
              weft_format_bytes((double)m->room, room, sizeof room));
}

/* ---- the run -------------------------------------------------------------------------------------- */

static bool due(int64_t interval, int64_t step) { return interval > 0 && step % interval == 0; }

static weft_status evaluate(session *s, int64_t step)
{
    if (!s->cli->options.eval_sequences || !weft_trainer_windows(s->trainer, true)) return WEFT_OK;
    const double begin = now(s);
    WEFT_TRY(weft_trainer_eval(s->trainer, s->cli->options.eval_sequences, &s->last_eval));
    weft_trace_emit(&weft_world_ctx(s->world)->trace, WEFT_TRACK_COMPUTE, "evaluate", begin, now(s), -1, -1);
    char line[80];
    snprintf(line, sizeof line, "step %5lld | held-out loss %.4f", (long long)step,
             weft_unsigned_nan(s->last_eval));
    if (s->root) weft_live_note(s->live, line);
    return weft_tell_eval(&s->tell, step, s->last_eval);
}

/* Somebody cleared up, or renamed the folder: no error of the run, which makes the folder anew for its checkpoints. */
static void look_for_folder(session *s)
{
    if (s->lost || !weft_jsonl_lost(s->jsonl)) return;
    s->lost = true;
    weft_logf(&weft_world_ctx(s->world)->log, WEFT_LOG_WARN,
              "%s/metrics.jsonl was moved or removed: lines of this run go to the old file; training goes on, and "
              "checkpoints go to %s",
              s->dir, s->dir);
}

/* Numbers of a step that find no room on the disk are less than a checkpoint that does not. */
static weft_status keep_record(session *s, const weft_record *r)
{
    char why[1024];
    weft_status st = weft_jsonl_write(s->jsonl, r);
    look_for_folder(s);
    if (st != WEFT_ERR_IO) return st;
    snprintf(why, sizeof why, "%s", weft_last_error());
    if (!goes_on_without_disk(s)) return weft_fail(st, "%s; --save-failure warn trains on without", why);
    if (!s->unrecorded++)
        weft_logf(&weft_world_ctx(s->world)->log, WEFT_LOG_WARN, "no metrics of step %lld: %s; training goes on",
                  (long long)r->step, why);
    return WEFT_OK;
}

static void tell_unrecorded(const session *s)
{
    if (s->root && s->unrecorded)
        weft_say("\nmetrics      of %lld step%s could not be written: %s/metrics.jsonl lacks them\n",
                 (long long)s->unrecorded, s->unrecorded > 1 ? "s" : "", s->dir);
}

/* The first step warms up; the second is compared with the plan, once a run. */
static bool compares_plan(const session *s, int64_t step)
{
    return step == weft_min_i64(s->from + 2, s->cli->options.steps);
}

/* A line each, folded on terminals: the live line makes way. */
static void note_plan(session *s, const weft_plan_check *check, int64_t step)
{
    enum { LEFT = 13 }; /* where the second column begins */
    weft_text lines = {0}, folded = {0};
    char *rest = NULL;
    weft_add_plan_check(check, step, &lines);
    weft_text_fold(&folded, lines.data ? lines.data : "", LEFT, s->terminal ? weft_columns(stdout) : 0);
    for (char *line = strtok_r(folded.data, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest))
        weft_live_note(s->live, line);
    weft_text_free(&folded);
    weft_text_free(&lines);
}

static weft_status keep_with_plan(session *s, weft_record *r, const weft_plan_check *check)
{
    weft_text object = {0};
    if (check) weft_add_plan_json(check, &object);
    r->plan = object.data;
    weft_status st = keep_record(s, r);
    r->plan = NULL;
    weft_text_free(&object);
    return st;
}

static weft_status one_step(session *s, int64_t step)
{
    weft_record r;
    weft_plan_check check;
    const bool compares = compares_plan(s, step);
    WEFT_TRY(weft_trainer_step(s->trainer, &r));
    if (compares) WEFT_TRY(weft_trainer_check(s->trainer, &check));
    if (step <= s->compared) s->losses[step - 1] = r.loss;
    if (step == s->from + 1) s->first = r.loss;
    s->last = r.loss;
    if (s->root) WEFT_TRY(keep_with_plan(s, &r, compares ? &check : NULL));
    WEFT_TRY(weft_tell_step(&s->tell, &r));
    if (!s->root) return WEFT_OK;
    weft_live_step(s->live, &r);
    if (compares) note_plan(s, &check, step);
    return WEFT_OK;
}

static weft_status train_steps(session *s, bool *stopped)
{
    const weft_run_options *o = &s->cli->options;
    for (int64_t step = s->from + 1; step <= o->steps && !*stopped; step++) {
        WEFT_TRY(weft_tell_begin(&s->tell, step));
        WEFT_TRY(one_step(s, step));
        WEFT_TRY(look_around(s, stopped));
        bool last = step == o->steps || *stopped;
        if (step == o->steps || (due(o->eval_interval, step) && !*stopped)) WEFT_TRY(evaluate(s, step));
        if (last || due(o->save_interval, step)) WEFT_TRY(save(s, step, last));
        WEFT_TRY(weft_tell_end(&s->tell, step, s->live));
    }
    return WEFT_OK;
}

static void emit_text(void *ud, int32_t token) { weft_byte_decode(&token, 1, ud); }

/* Control bytes of an untrained model must not reach the terminal. */
static void clean(char *text)
{
    for (unsigned char *p = (unsigned char *)text; *p; p++)
        if (*p != '\n' && (*p < 32 || *p >= 127)) *p = '?';
}

static weft_status print_sample(session *s)
{
    const weft_engine *e = weft_trainer_engine(s->trainer);
    const weft_run_options *o = &s->cli->options;
    if (!s->root || !o->sample_tokens) return WEFT_OK;
    static const char prompt[] = "And ";
    int32_t ids[sizeof prompt];
    weft_text t = {0};
    weft_sampling how = {.temperature = 0.8,
                         .top_p = 0.95,
                         .seed = (uint64_t)o->seed,
                         .max_new = o->sample_tokens,
                         .eos = e->config.eos};
    int64_t n = weft_byte_encode(prompt, sizeof prompt - 1, ids);
    weft_text_add(&t, "%s", prompt);
    WEFT_TRY(weft_generate(e->model, &e->config, s->cli->run.prec, ids, n, &how, emit_text, &t));
    weft_say("\nsample       \"%s\" continues (temperature 0.8, top-p 0.95):\n", prompt);
    if (t.data) clean(t.data);
    weft_print_lines(t.data ? t.data : "", 0);
    printf("\n");
    weft_text_free(&t);
    return WEFT_OK;
}

static void compare_progress(void *ud, int64_t step)
{
    session *s = ud;
    if (!s->terminal) return;
    printf("\rone rank     step %lld of %lld", (long long)step, (long long)s->cli->options.compare_steps);
    fflush(stdout);
}

/* The other ranks have nothing left to do, so this one takes all cores. */
static weft_status take_all_cores(const session *s, int *threads)
{
    const weft_run_options *o = &s->cli->options;
    cpu_set_t all;
    CPU_ZERO(&all);
    for (int i = 0; i < CPU_SETSIZE; i++) CPU_SET((size_t)i, &all);
    sched_setaffinity(0, sizeof all, &all); /* the kernel keeps to what this process may use */
    int cpus = weft_launch_cpus();
    *threads = o->threads > 0 && o->threads < cpus ? (int)o->threads : cpus;
    return weft_launch_threads(*threads, weft_world_ctx(s->world)->threads);
}

static weft_status compare_one_rank(session *s)
{
    int64_t steps = weft_min_i64(s->cli->options.compare_steps, s->cli->options.steps);
    double worst = 0, limit = weft_compare_limit(s->cli->run.prec);
    int threads;
    if (!s->root || !steps) return WEFT_OK;
    WEFT_TRY(take_all_cores(s, &threads));
    WEFT_TRY(weft_compare_one_rank(&s->cli->run, threads, &weft_world_ctx(s->world)->log, s->losses, steps, &worst,
                                   compare_progress, s));
    bool holds = worst <= limit;
    if (s->terminal) putchar('\r');
    weft_say("one rank     the same %lld steps: losses within %.1e (limit %.0e): %s\n", (long long)steps, worst, limit,
             holds ? "holds" : "DOES NOT HOLD");
    if (!holds) /* what tells amplified rounding, at a high learning rate, from a fault */
        weft_say(
            "             rounding grows with every step of a restless run: compare fewer steps, or all of them with "
            "--precision fp64\n");
    return holds ? WEFT_OK : weft_fail(WEFT_ERR_COMPARE, "losses differ by %.1e from one rank", worst);
}

static weft_status finish(session *s)
{
    if (s->root) {
        weft_say("\nlast loss    %.4f (first %.4f; unigram entropy of the text %.4f)\n", weft_unsigned_nan(s->last),
                 weft_unsigned_nan(s->first), s->entropy);
        weft_say("checkpoint   %s/step-%08lld (Hugging Face layout)\n", s->dir,
                 (long long)weft_trainer_steps_done(s->trainer));
    }
    int64_t skips = weft_trainer_skips(s->trainer);
    if (s->root && skips)
        weft_say("steps        %lld left out; skip_reason in %s/metrics.jsonl says why\n", (long long)skips, s->dir);
    WEFT_TRY(print_sample(s));
    return compare_one_rank(s);
}

/* Where the run goes on, and what is not as it was. */
static weft_status resume(session *s)
{
    weft_text differs = {0};
    if (!*s->resumed) return WEFT_OK;
    weft_status st = weft_trainer_resume(s->trainer, s->resumed, &differs);
    if (st >= 0) s->from = weft_trainer_steps_done(s->trainer);
    if (st >= 0 && s->root && differs.len)
        weft_logf(&weft_world_ctx(s->world)->log, WEFT_LOG_WARN, "not as in %s: %s", s->resumed, differs.data);
    if (st >= 0 && s->from && s->cli->options.compare_steps)
        st = weft_fail(WEFT_ERR_REFUSED,
                       "--compare-one-rank runs the first steps again, and this run goes on after step "
                       "%lld; leave it out",
                       (long long)s->from);
    weft_text_free(&differs);
    return st;
}

static void print_stopped(const session *s)
{
    int64_t done = weft_trainer_steps_done(s->trainer);
    weft_say(
        "\nstopped      after step %lld of %lld, as asked; the same command with --name %s --resume auto goes on\n",
        (long long)done, (long long)s->cli->options.steps, strrchr(s->dir, '/') + 1);
    weft_say("checkpoint   %s/step-%08lld\n", s->dir, (long long)done);
}

static weft_status run_session(session *s)
{
    const weft_run_options *o = &s->cli->options;
    const weft_engine *e = weft_trainer_engine(s->trainer);
    bool stopped = false;
    s->compared = weft_min_i64(o->compare_steps, o->steps);
    WEFT_TRY(WEFT_NEW(e->arena, s->compared, "losses", &s->losses));
    if (s->root) WEFT_TRY(weft_trainer_unigram_entropy(s->trainer, &s->entropy));
    WEFT_TRY(weft_agree(e->mesh.all, open_dir_on_root(s)));
    WEFT_TRY(weft_tell_open(&s->tell, s->cli, s->world, s->trainer, s->dir, s->from));
    WEFT_TRY(weft_trainer_memory(s->trainer, &s->memory));
    print_start(s);
    warn_of_memory(s);
    if (s->from >= o->steps) {
        if (s->root)
            weft_say("nothing to do: %s is of step %lld of %lld; a larger --steps trains on\n", s->resumed,
                     (long long)s->from, (long long)o->steps);
        return WEFT_OK;
    }
    weft_status trained = train_steps(s, &stopped);
    if (s->root) weft_live_done(s->live);
    tell_unrecorded(s);
    WEFT_TRY(trained);
    WEFT_TRY(weft_trainer_memory(s->trainer, &s->memory));
    if (s->root) weft_print_memory(&s->memory);
    if (stopped && weft_trainer_steps_done(s->trainer) < o->steps) {
        if (s->root) print_stopped(s);
        return WEFT_OK;
    }
    /* Rank 0 samples and compares by itself for a while; the others wait for its verdict. */
    WEFT_TRY(weft_world_set_timeout(s->world, INFINITY));
    /* a comparison that failed included: rank 0 alone knows of it */
    weft_status st = weft_agree(e->mesh.all, finish(s));
    WEFT_TRY(weft_world_set_timeout(s->world, o->timeout));
    return st;
}

static weft_status start_live(session *s)
{
    if (!s->root) return WEFT_OK;
    WEFT_TRY(weft_live_start(&s->live, &weft_world_ctx(s->world)->clock));
    weft_trainer_watch(s->trainer, weft_live_at, s->live);
    return WEFT_OK;
}

static weft_status train_body(weft_cli *cli, weft_world *world)
{
    session s =
        {.cli = cli, .world = world, .root = weft_is_root(world), .last_eval = NAN, .lock = -1, .saving.last = -1};
    s.terminal = weft_on_terminal(stdout);
    weft_status st = weft_interrupt_start(&s.interrupt, s.root);
    if (st >= 0) st = name_dir(&s);
    if (st >= 0) st = weft_resume_find(world, &cli->run, s.dir, s.resumed, sizeof s.resumed);
    if (st >= 0) st = weft_trainer_create(&s.trainer, world, &cli->run);
    if (st >= 0) st = resume(&s);
    if (st >= 0) st = weft_agree(weft_world_all(world), start_live(&s));
    if (st >= 0) st = run_session(&s);
    weft_tell_close(&s.tell);
    weft_live_stop(s.live);
    weft_interrupt_stop(s.interrupt);
    if (s.jsonl) weft_jsonl_close(s.jsonl);
    if (s.lock >= 0) close(s.lock);
    weft_trainer_destroy(s.trainer);
    return st;
}

/* A name is typed in shells, stands in tables and is a folder: no blanks, nothing that a shell takes for more than
 * itself. What is beyond ASCII has been found to be text. */
static weft_status check_name(const char *name)
{
    static const char marks[] = "._-+=,@:%";
    for (const char *p = name; *p; p++)
        if (!isalnum((unsigned char)*p) && (unsigned char)*p < 0x80 && !strchr(marks, *p))
            return weft_fail(WEFT_ERR_REFUSED,
                             "--name: its byte %lld (0x%02x) cannot be in a name; letters, digits and %s can",
                             (long long)(p - name + 1), (unsigned)(unsigned char)*p, marks);
    if (*name == '-')
        return weft_fail(WEFT_ERR_REFUSED,
                         "--name %s: a name cannot begin with a dash, which programs take for an option", name);
    if (strlen(name) > 200) return weft_fail(WEFT_ERR_REFUSED, "--name: %zu bytes; at most 200", strlen(name));
    return WEFT_OK;
}

/* An empty root would be the machine's root folder, an empty name the folder of all runs. */
static weft_status check_names(const weft_run_options *o)
{
    if (!*o->run_root) return weft_fail(WEFT_ERR_REFUSED, "--runs is empty; give a folder, as . or runs");
    if (o->run_name && !*o->run_name)
        return weft_fail(WEFT_ERR_REFUSED, "--name is empty; give the name of a folder, or leave it out");
    if (o->run_name && (strchr(o->run_name, '/') || !strcmp(o->run_name, ".") || !strcmp(o->run_name, "..")))
        return weft_fail(WEFT_ERR_REFUSED, "--name %s is a path; give one folder's name, and --runs for where it lies",
                         o->run_name);
    return o->run_name ? check_name(o->run_name) : WEFT_OK;
}

/* What cannot be meant together. */
static weft_status check_resume(const weft_run_options *o)
{
    bool automatic = !strcmp(o->resume, "auto"), none = !strcmp(o->resume, "none");
    if (!*o->resume) return weft_fail(WEFT_ERR_REFUSED, "--resume is empty; give auto, none, or a path");
    if (automatic && !o->run_name)
        return weft_fail(WEFT_ERR_REFUSED, "--resume auto needs --name: it goes on in the folder of that run");
    if (!none && o->overwrite)
        return weft_fail(WEFT_ERR_REFUSED,
                         "--resume goes on from checkpoints and --overwrite removes them; leave one out");
    if (o->keep_every && !o->keep_last)
        return weft_fail(WEFT_ERR_REFUSED, "--keep-every acts with --keep-last N only: without it all are kept");
    return WEFT_OK;
}

static weft_status train_check(weft_cli *cli)
{
    const weft_run_options *o = &cli->options;
    weft_model_config config;
    WEFT_TRY(check_resume(o));
    if (!o->data_path) return weft_fail(WEFT_ERR_REFUSED, "no data: give --data FILE (a text file or a token file)");
    WEFT_TRY(weft_need_file(o->data_path, "data"));
    WEFT_TRY(check_names(o));
    WEFT_TRY(weft_tell_check(cli));
    WEFT_TRY(weft_run_model_config(&cli->run, &config));
    if (o->sample_tokens && config.V != WEFT_BYTE_VOCAB)
        return weft_fail(WEFT_ERR_REFUSED, "--sample-tokens needs the byte vocabulary (%d); this model has %lld",
                         WEFT_BYTE_VOCAB, (long long)config.V);
    return WEFT_OK;
}

const weft_command weft_cmd_train = {"train",
                                     "train [CONFIG.yaml] --data FILE [--cp N] [--dp N] [options]",
                                     "train a model, each sequence cut over ranks",
                                     WEFT_CMD_TRAIN,
                                     0,
                                     1,
                                     true,
                                     true,
                                     train_check,
                                     train_body};
