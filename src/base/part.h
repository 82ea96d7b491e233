/* part.h — where a rank's time goes, by kind of work. Every second belongs to one part: a part that begins inside
 * another interrupts it, and the outer one goes on when it ends. So the parts add up to the whole, and what nobody
 * claimed shows as "other". Off, it costs a branch; on, a look at the clock per change. */
#ifndef WEFT_BASE_PART_H
#define WEFT_BASE_PART_H

#include <stdbool.h>

#include "base/clock.h"

typedef enum weft_part {
    WEFT_PART_OTHER,      /* between the others */
    WEFT_PART_DATA,       /* reading and cutting token sequences */
    WEFT_PART_EMBED,
    WEFT_PART_NORM,
    WEFT_PART_ROPE,
    WEFT_PART_ACTIVATION,
    WEFT_PART_RESIDUAL,   /* copies of the residual stream, its conversions */
    WEFT_PART_BIAS,
    WEFT_PART_PRODUCTS,
    WEFT_PART_ATTENTION,
    WEFT_PART_LOSS,       /* cross-entropy, without the head's products */
    WEFT_PART_OPTIMIZER,  /* norm, update, zeroing of gradients, 16-bit copies of weights */
    WEFT_PART_GUARD,      /* looking for numbers that are not finite or too large */
    WEFT_PART_EXCHANGE,   /* standing still for other ranks */
    WEFT_PART_OFFLOAD,    /* standing still for blocks that lie outside of the working memory */
    WEFT_PARTS
} weft_part;

typedef struct weft_parts {
    const weft_clock *clock; /* NULL: off */
    weft_part at;
    double since;
    double seconds[WEFT_PARTS];
} weft_parts;

const char *weft_part_name(weft_part part);

/* From now on, in OTHER; all seconds 0. `clock` must outlive it. */
void weft_parts_start(weft_parts *p, const weft_clock *clock);
/* Counts the last stretch and stops. */
void weft_parts_stop(weft_parts *p);

/* Returns the part that this one interrupts, for weft_part_end. */
static inline weft_part weft_part_begin(weft_parts *p, weft_part part)
{
    if (!p->clock) return WEFT_PART_OTHER;
    weft_part outer = p->at;
    double now = weft_now(p->clock);
    p->seconds[outer] += now - p->since;
    p->since = now;
    p->at = part;
    return outer;
}
static inline void weft_part_end(weft_parts *p, weft_part outer) { weft_part_begin(p, outer); }

#endif
