/* train_tell.c — TensorBoard's files and time lines of steps, for `weft train`. */
#include "cli/train_tell.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

enum { STEPS = 64, PATH_BYTES = 2200 };

static double wall(void)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* ---- TensorBoard ------------------------------------------------------------------------------------------- */

/* auto: one file, whatever the number of ranks. */
static bool has_board(const weft_train_tell *t)
{
    const char *which = t->cli->options.tensorboard;
    return !strcmp(which, "on") || (!strcmp(which, "auto") && t->ctx->rank == 0);
}

static weft_status open_board(weft_train_tell *t, int64_t from)
{
    char path[PATH_BYTES];
    if (!has_board(t)) return WEFT_OK;
    if ((size_t)snprintf(path, sizeof path, "%s/tb/rank-%05d", t->dir, t->ctx->rank) >= sizeof path)
        return weft_fail(WEFT_ERR_REFUSED, "%s: the path is too long", t->dir);
    return weft_tensorboard_open(&t->board, path, wall(), from);
}

/* As for metrics.jsonl: a disk that is full, or away, need not end a run. */
static weft_status after_failure(weft_train_tell *t, weft_status st, int64_t step)
{
    char why[1024];
    if (st != WEFT_ERR_IO) return st;
    snprintf(why, sizeof why, "%s", weft_last_error());
    if (strcmp(t->cli->options.save_failure, "warn"))
        return weft_fail(st, "%s; --save-failure warn trains on without, and --tensorboard off does, too", why);
    if (!t->unwritten++)
        weft_logf(&t->ctx->log, WEFT_LOG_WARN, "step %lld: %s; training goes on", (long long)step, why);
    return WEFT_OK;
}

weft_status weft_tell_step(weft_train_tell *t, const weft_record *r)
{
    const weft_tensorboard_value all[] = {
        {"rank/compute_share", 1 - r->exposed_share}, {"rank/communication_share", r->comm_share},
        {"rank/exposed_share", r->exposed_share},     {"rank/idle_share", r->idle_share},
        {"rank/memory_bytes", r->memory_bytes},       {"rank/resident_bytes", r->resident_bytes},
        {"rank/sent_bytes", (double)r->bytes_logical},
        {"train/loss", r->loss},                      {"train/grad_norm", r->grad_norm},
        {"train/lr", r->lr},                          {"train/tokens_per_second", weft_record_throughput(r)},
        {"train/step_seconds", r->seconds},           {"train/imbalance", r->imbalance},
        {"train/model_flops_per_second", r->flops / r->seconds}, {"train/mfu", r->mfu},
    };
    enum { OF_RANK = 7, ALL = sizeof all / sizeof *all }; /* the rest is the job's; the last two may not be known */
    const int known = ALL - (r->flops > 0 ? r->mfu > 0 ? 0 : 1 : 2), n = t->ctx->rank ? OF_RANK : known;
    if (!t->board) return WEFT_OK;
    return after_failure(t, weft_tensorboard_write(t->board, wall(), r->step, all, n), r->step);
}

weft_status weft_tell_eval(weft_train_tell *t, int64_t step, double loss)
{
    if (!t->board || t->ctx->rank) return WEFT_OK;
    return after_failure(t, weft_tensorboard_write(t->board, wall(), step,
                                                   &(weft_tensorboard_value){"eval/loss", loss}, 1),
                         step);
}

/* ---- time lines -------------------------------------------------------------------------------------------- */

static weft_status steps_of(const weft_run_options *o, weft_numbers *steps, int *n)
{
    weft_status st = weft_parse_numbers(o->trace_steps, steps, STEPS, n);
    if (st < 0) return weft_fail_at(st, "--trace-steps %s: ", o->trace_steps);
    for (int i = 0; i < *n; i++)
        if (steps[i].first < 1 || steps[i].last > o->steps)
            return weft_fail(WEFT_ERR_REFUSED, "--trace-steps %s: the run has steps 1 to %lld", o->trace_steps,
                             (long long)o->steps);
    return WEFT_OK;
}

static weft_status ranks_of(const weft_cli *cli, weft_arena *arena, int **rank, int *n)
{
    return weft_run_traced_ranks(&cli->opts, &cli->options, weft_launch_ranks(cli), arena, rank, n);
}

weft_status weft_tell_check(const weft_cli *cli)
{
    weft_numbers steps[STEPS];
    int n, *rank;
    if (cli->options.trace_steps) {
        WEFT_TRY(steps_of(&cli->options, steps, &n));
        return ranks_of(cli, cli->arena, &rank, &n);
    }
    if (weft_opts_given(&cli->opts, "trace.ranks"))
        return weft_fail(WEFT_ERR_REFUSED, "--trace-ranks could not act without --trace-steps");
    return WEFT_OK;
}

static weft_status open_trace(weft_train_tell *t, weft_trainer *trainer)
{
    weft_arena *arena = weft_trainer_engine(trainer)->arena;
    weft_numbers *steps;
    int *rank, ranks, n;
    if (!t->cli->options.trace_steps) return WEFT_OK;
    WEFT_TRY(WEFT_NEW(arena, STEPS, "trace", &steps));
    WEFT_TRY(steps_of(&t->cli->options, steps, &n));
    WEFT_TRY(ranks_of(t->cli, arena, &rank, &ranks));
    return weft_step_trace_open(&t->trace, trainer, rank, ranks, steps, n);
}

weft_status weft_tell_begin(weft_train_tell *t, int64_t step) { return weft_step_trace_begin(t->trace, step); }

static void tell_of_trace(const weft_train_tell *t, int64_t step, const char *path, const weft_step_traced *traced,
                          weft_live *live)
{
    weft_text line = {0};
    if (traced->file < 0)
        weft_logf(&t->ctx->log, WEFT_LOG_WARN, "no time line of step %lld: %s; training goes on", (long long)step,
                  weft_last_error());
    else {
        weft_text_add(&line, "step %5lld | time line in %s", (long long)step, path);
        if (traced->told.lost)
            weft_text_add(&line, "; its first %lld events did not fit (a rank keeps its last %d)",
                          (long long)traced->told.lost, WEFT_TRACE_EVENTS);
        weft_live_note(live, line.data ? line.data : "");
    }
    weft_text_free(&line);
}

weft_status weft_tell_end(weft_train_tell *t, int64_t step, weft_live *live)
{
    char path[PATH_BYTES];
    weft_step_traced traced;
    snprintf(path, sizeof path, "%s/trace-step-%08lld.json", t->dir, (long long)step);
    WEFT_TRY(weft_step_trace_end(t->trace, path, &traced));
    if (traced.written && t->ctx->rank == 0) tell_of_trace(t, step, path, &traced, live);
    return WEFT_OK;
}

/* ---- both -------------------------------------------------------------------------------------------------- */

weft_status weft_tell_open(weft_train_tell *t, const weft_cli *cli, weft_world *world, weft_trainer *trainer,
                           const char *dir, int64_t from)
{
    *t = (weft_train_tell){.cli = cli, .ctx = weft_world_ctx(world), .dir = dir};
    WEFT_TRY(weft_agree(weft_world_all(world), open_board(t, from)));
    return open_trace(t, trainer);
}

void weft_tell_close(weft_train_tell *t)
{
    weft_step_trace_close(t->trace);
    weft_tensorboard_close(t->board);
}
