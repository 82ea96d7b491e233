/* train_tell.h — what `weft train` tells beside its lines and metrics.jsonl: TensorBoard's files, time lines of
 * steps. */
#ifndef WEFT_CLI_TRAIN_TELL_H
#define WEFT_CLI_TRAIN_TELL_H

#include "cli/cli.h"

typedef struct weft_train_tell {
    const weft_cli *cli;
    weft_ctx *ctx;
    const char *dir;          /* the run's folder */
    weft_tensorboard *board;  /* NULL: none on this rank */
    weft_step_trace *trace;   /* NULL: no steps were asked for */
    int64_t unwritten;        /* steps whose numbers the board lacks */
} weft_train_tell;

/* Refuses steps and ranks that the run does not have, before any rank is started. LOCAL */
weft_status weft_tell_check(const weft_cli *cli);
/* from: steps that are done. After the folder was made. COLLECTIVE */
weft_status weft_tell_open(weft_train_tell *t, const weft_cli *cli, weft_world *world, weft_trainer *trainer,
                           const char *dir, int64_t from);
void weft_tell_close(weft_train_tell *t); /* before the trainer is destroyed */
/* Around a step with all that follows it, evaluation and checkpoint. COLLECTIVE */
weft_status weft_tell_begin(weft_train_tell *t, int64_t step);
weft_status weft_tell_end(weft_train_tell *t, int64_t step, weft_live *live);
/* Numbers of a step, and of an evaluation, for the board. LOCAL */
weft_status weft_tell_step(weft_train_tell *t, const weft_record *r);
weft_status weft_tell_eval(weft_train_tell *t, int64_t step, double loss);

#endif
