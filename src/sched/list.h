/* list.h — how a schedule writes its list: passes in order, each with what has to travel before and after it.
 *
 * The rule is the same for every schedule and in both directions: the receive of the next micro-batch is posted before
 * this one's is waited for, so a transfer has the whole of a pass to happen in; a send is waited for when its buffer is
 * needed again. */
#ifndef WEFT_SCHED_LIST_H
#define WEFT_SCHED_LIST_H

#include "sched/sched.h"

typedef struct weft__list {
    weft_sched_op *op;
    int64_t n, micros;
    int slots;
    bool before, after;  /* is there a stage before, one after? */
    bool gradients;      /* do backward passes follow? */
} weft__list;

weft_status weft__list_begin(weft__list *l, int stages, int stage, int64_t micros, int slots, bool backward,
                             weft_sched_op *op);
void weft__list_forward(weft__list *l, int64_t micro);
void weft__list_backward(weft__list *l, int64_t micro);
/* Waits for the sends that are still under way. */
void weft__list_end(weft__list *l);

#endif
