/* sched.h — the door of the room `sched`: the order of forward and backward passes of a stage, as a list.
 *
 * The trainer executes a list blindly; a schedule is a function that writes one. Pure arithmetic, LOCAL. */
#ifndef WEFT_SCHED_H
#define WEFT_SCHED_H

#include "metrics/metrics.h"

typedef enum { WEFT_OP_FORWARD, WEFT_OP_BACKWARD } weft_op_kind;

typedef struct weft_sched_op {
    weft_op_kind kind;
    int64_t micro; /* micro-batch 0 .. micros-1 */
    int slot;      /* where its activations live: micro % slots, free again after its backward pass */
} weft_sched_op;

/* Micro-batches whose activations stage `stage` of `stages` holds at once under 1F1B: min(micros, stages - stage),
 * at least 1. */
int weft_sched_slots(int stages, int stage, int64_t micros);

/* 1F1B ("one forward, one backward", PipeDream-flush; Narayanan et al. 2021): stages - stage - 1 forwards to fill
 * the pipeline, then a forward and a backward in turn, then the backwards that are left. One stage: F0 B0 F1 B1 ...
 * ops: [2 * micros]. Refuses stages < 1, a stage outside, micros < 0. */
weft_status weft_sched_1f1b(int stages, int stage, int64_t micros, weft_sched_op *ops);

#endif
