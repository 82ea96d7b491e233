/* plan.h — the door of the room `plan`: what a run will need, before it runs. Pure functions, LOCAL. */
#ifndef WEFT_PLAN_H
#define WEFT_PLAN_H

#include "sched/sched.h"

typedef struct weft_plan_state { /* bytes on one rank that stay from step to step; exact */
    int64_t weights;   /* masters, R                                       */
    int64_t copies;    /* matrices in C, when C is not R                   */
    int64_t gradients; /* R                                                */
    int64_t moments;   /* AdamW's two, R                                   */
} weft_plan_state;

/* Every rank of dp x cp holds all of the model; R is 8 bytes for fp64 and 4 otherwise. train false: no
 * gradients, no moments. Refuses sizes that do not fit into 64 bits. */
weft_status weft_plan_state_bytes(const weft_model_config *config, weft_prec prec, bool train, weft_plan_state *out);
int64_t weft_plan_state_total(const weft_plan_state *s);

#endif
