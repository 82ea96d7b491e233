/* eval.c — loss on held-out sequences, sharded and normalised exactly as in training. */
#include "train/trainer_impl.h"

#include <math.h>

typedef struct evaluation { weft_trainer *t; int64_t sequences; double valid; } evaluation;

/* Micro-batch `micro` of this data-parallel rank; rows past the last sequence have no labels. */
static weft_status batch_of_eval(void *ud, int64_t micro, weft_batch *out)
{
    evaluation *v = ud;
    weft_trainer *t = v->t;
    int64_t B = t->run->o->micro_batch, T = t->run->o->seq_length, dp = t->run->mesh.dp;
    int64_t first = (micro * dp + t->engine.mesh.at.dp) * B;
    *out = (weft_batch){.token = t->token, .target = t->target};
    WEFT_TRY(weft_trainer_load(t, true, 0, first, &out->docs));
    for (int64_t b = weft_max_i64(v->sequences - first, 0); b < B; b++)
        for (int64_t k = 0; k < T; k++) t->target[b * T + k] = -100;
    if (t->engine.mesh.at.cp == 0)
        for (int64_t k = 0; k < B * T; k++) v->valid += t->target[k] >= 0;
    return WEFT_OK;
}

weft_status weft_trainer_eval(weft_trainer *t, int64_t sequences, double *loss)
{
    int64_t B = t->run->o->micro_batch, stride = B * t->run->mesh.dp;
    int64_t available = weft_batches_windows(t->batches, true);
    if (sequences > available) sequences = available;
    evaluation v = {.t = t, .sequences = sequences};
    int64_t left = sequences - t->engine.mesh.at.dp * B, micros = left > 0 ? weft_ceil_div(left, stride) : 0;
    const weft_pipeline_job job = {.sequences = micros * B, .B = B, .batch = batch_of_eval, .ud = &v};
    double sum[2] = {0, 0}; /* nll, valid labels */
    WEFT_TRY(weft_pipeline_run(t->pipeline, &job, &sum[0]));
    sum[1] = v.valid;
    WEFT_TRY(weft_all_reduce(t->engine.mesh.dp_cp, sum, 2, WEFT_F64, WEFT_SUM));
    if (!(sum[1] > 0))
        return weft_fail(
            WEFT_ERR_REFUSED,
            "no held-out sequence has a label; raise data.valid_fraction (%lld sequences of %lld tokens are held out)",
            (long long)available, (long long)t->run->o->seq_length);
    *loss = sum[0] / sum[1];
    if (!isfinite(*loss)) /* a number that nobody should compare with */
        return weft_fail(WEFT_ERR_NUMERIC,
                         "the held-out loss is not finite: the weights are damaged, or training diverged");
    return WEFT_OK;
}
