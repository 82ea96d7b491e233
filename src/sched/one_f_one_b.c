/* one_f_one_b.c — the 1F1B schedule: as much overlap as filling and draining allows, with activations of at most
 * as many micro-batches as there are stages ahead, whatever the number of micro-batches. */
#include "sched/sched.h"

int weft_sched_slots(int stages, int stage, int64_t micros)
{
    return (int)weft_max_i64(1, weft_min_i64(micros, stages - stage));
}

weft_status weft_sched_1f1b(int stages, int stage, int64_t micros, weft_sched_op *ops)
{
    if (stages < 1 || stage < 0 || stage >= stages || micros < 0)
        return weft_fail(WEFT_ERR_REFUSED, "schedule: stage %d of %d with %lld micro-batches; stages count from 0",
                         stage, stages, (long long)micros);
    int slots = weft_sched_slots(stages, stage, micros);
    int64_t warm_up = slots - 1, n = 0;
    for (int64_t f = 0, b = 0; b < micros;) {
        bool forward = f < micros && f <= b + warm_up;
        int64_t micro = forward ? f++ : b++;
        ops[n++] = (weft_sched_op){forward ? WEFT_OP_FORWARD : WEFT_OP_BACKWARD, micro, (int)(micro % slots)};
    }
    return WEFT_OK;
}
