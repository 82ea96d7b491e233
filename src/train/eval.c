/* eval.c — loss on held-out sequences, sharded and normalised exactly as in training. */
#include "train/trainer_impl.h"

#include <math.h>

weft_status weft_trainer_eval(weft_trainer *t, int64_t sequences, double *loss)
{
    int64_t B = t->run->o->micro_batch, T = t->run->o->seq_length, dp = t->run->mesh.dp;
    int64_t available = weft_batches_windows(t->batches, true);
    if (sequences > available) sequences = available;
    double sum[2] = {0, 0}; /* nll, valid labels */
    for (int64_t i = t->engine.mesh.at.dp * B; i < sequences; i += B * dp) {
        weft_docs docs;
        WEFT_TRY(weft_trainer_load(t, true, 0, i, &docs));
        for (int64_t b = sequences - i; b < B; b++) /* rows past the last sequence have no labels */
            for (int64_t k = 0; k < T; k++) t->target[b * T + k] = -100;
        double nll = 0;
        WEFT_TRY(weft_engine_run(&t->engine, t->token, t->target, &docs, false, 0, &nll, NULL));
        sum[0] += nll;
        if (t->engine.mesh.at.cp == 0)
            for (int64_t k = 0; k < B * T; k++) sum[1] += t->target[k] >= 0;
    }
    WEFT_TRY(weft_all_reduce(t->engine.mesh.dp_cp, sum, 2, WEFT_F64, WEFT_SUM));
    if (!(sum[1] > 0))
        return weft_fail(
            WEFT_ERR_REFUSED,
            "no held-out sequence has a label; raise data.valid_fraction (%lld sequences of %lld tokens are held out)",
            (long long)available, (long long)T);
    *loss = sum[0] / sum[1];
    if (!isfinite(*loss)) /* a number that nobody should compare with */
        return weft_fail(WEFT_ERR_NUMERIC,
                         "the held-out loss is not finite: the weights are damaged, or training diverged");
    return WEFT_OK;
}
