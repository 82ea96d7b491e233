/* sched.h — the door of the room `sched`: what a stage of a pipeline does in a step, as a list of operations.
 *
 * The trainer executes a list blindly; a schedule is a function that writes one. Pure arithmetic, LOCAL.
 *
 * Receives are posted before what would wait for them, sends are begun and waited for later: a transport may complete a
 * send only against a posted receive, so a list in which two stages both waited for their sends would stand still. */
#ifndef WEFT_SCHED_H
#define WEFT_SCHED_H

#include "metrics/metrics.h"

typedef enum weft_op_kind {
    WEFT_OP_FORWARD, WEFT_OP_BACKWARD,
    WEFT_OP_POST_INPUT,      /* post the receive of a micro-batch's input, from the stage before */
    WEFT_OP_WAIT_INPUT,      /* it is here */
    WEFT_OP_SEND_OUTPUT,     /* begin sending the output to the stage after */
    WEFT_OP_POST_GRADIENT,   /* post the receive of the gradient of the output, from the stage after */
    WEFT_OP_WAIT_GRADIENT,
    WEFT_OP_SEND_GRADIENT,   /* begin sending the gradient of the input to the stage before */
    WEFT_OP_WAIT_OUTPUT_SENT, WEFT_OP_WAIT_GRADIENT_SENT, /* the buffer may be used again */
    WEFT_OP_KINDS
} weft_op_kind;
const char *weft_op_name(weft_op_kind kind); /* "forward" */

typedef struct weft_sched_op {
    weft_op_kind kind;
    int64_t micro; /* micro-batch 0 .. micros-1 */
    int slot;      /* where its activations live, free again after its backward pass; micro % slots */
} weft_sched_op;

/* Micro-batches whose activations stage `stage` of `stages` holds at once under 1F1B: min(micros, stages - stage),
 * at least 1. */
int weft_sched_slots(int stages, int stage, int64_t micros);

/* What travels lies in rings: micro-batch m uses buffer m % n of each. Inputs: one more than there are slots, since an
 * input is needed until the backward pass and the next one is already under way; two when the forward pass copies it.
 * Outputs and gradients: one is made or used while the other travels. */
enum { WEFT_SCHED_OUTPUTS = 2, WEFT_SCHED_GRADIENTS = 2 };
static inline int weft_sched_inputs(int slots, bool copied) { return copied ? 2 : slots + 1; }

/* 1F1B ("one forward, one backward", PipeDream-flush; Narayanan et al. 2021): stages - stage - 1 forwards to fill
 * the pipeline, then a forward and a backward in turn, then the backwards that are left. One stage: F0 B0 F1 B1 ...
 * with nothing to send. Refuses stages < 1, a stage outside, micros < 0. ops: [weft_sched_1f1b_ops(...)]. */
int64_t weft_sched_1f1b_ops(int stages, int stage, int64_t micros);
weft_status weft_sched_1f1b(int stages, int stage, int64_t micros, weft_sched_op *ops);

/* Forward passes only, one after the other in slot 0, with rings of two: evaluation. ops: [weft_sched_forward_ops] */
int64_t weft_sched_forward_ops(int stages, int stage, int64_t micros);
weft_status weft_sched_forward(int stages, int stage, int64_t micros, weft_sched_op *ops);

#endif
