/* simulated_case.h — a few steps of a run, the same on threads and in the simulated world: what every rank reports. */
#ifndef WEFT_TEST_SIMULATED_CASE_H
#define WEFT_TEST_SIMULATED_CASE_H

#include "harness/text_case.h"
#include "harness/run.h"

enum { STEPS = 2, RANKS_MAX = 64 };

typedef struct job {
    const weft_run *run;
    double loss[RANKS_MAX][STEPS], norm[RANKS_MAX][STEPS];
} job;

static weft_status body(weft_ctx *ctx, weft_world *world, void *ud)
{
    job *j = ud;
    weft_trainer *t = NULL;
    WEFT_TRY(weft_trainer_create(&t, world, j->run));
    weft_status st = WEFT_OK;
    for (int s = 0; s < STEPS && st >= 0; s++) {
        weft_record record;
        st = weft_trainer_step(t, &record);
        j->loss[ctx->rank][s] = record.loss, j->norm[ctx->rank][s] = record.grad_norm;
    }
    weft_trainer_destroy(t);
    return st;
}

#endif
