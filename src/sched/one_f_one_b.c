/* one_f_one_b.c — the 1F1B schedule: as much overlap as filling and draining allows, with activations of at most
 * as many micro-batches as there are stages ahead, whatever the number of micro-batches. */
#include "sched/list.h"

int weft_sched_slots(int stages, int stage, int64_t micros)
{
    return (int)weft_max_i64(1, weft_min_i64(micros, stages - stage));
}

/* A pass in each direction, and at each end one receive and one send, of two operations each. */
int64_t weft_sched_1f1b_ops(int stages, int stage, int64_t micros)
{
    int neighbours = (stage > 0) + (stage + 1 < stages);
    return weft_max_i64(micros, 0) * (2 + 4 * neighbours);
}

weft_status weft_sched_1f1b(int stages, int stage, int64_t micros, weft_sched_op *ops)
{
    weft__list l;
    int slots = weft_sched_slots(stages, stage, micros);
    WEFT_TRY(weft__list_begin(&l, stages, stage, micros, slots, true, ops));
    for (int64_t f = 0, b = 0; b < micros;) {
        bool forward = f < micros && f < b + slots;
        if (forward) weft__list_forward(&l, f++);
        else weft__list_backward(&l, b++);
    }
    weft__list_end(&l);
    return WEFT_OK;
}

int64_t weft_sched_forward_ops(int stages, int stage, int64_t micros)
{
    int neighbours = (stage > 0) + (stage + 1 < stages);
    return weft_max_i64(micros, 0) * (1 + 2 * neighbours);
}

weft_status weft_sched_forward(int stages, int stage, int64_t micros, weft_sched_op *ops)
{
    weft__list l;
    WEFT_TRY(weft__list_begin(&l, stages, stage, micros, 1, false, ops));
    for (int64_t m = 0; m < micros; m++) weft__list_forward(&l, m);
    weft__list_end(&l);
    return WEFT_OK;
}
