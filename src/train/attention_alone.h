/* attention_alone.h — the same attention on one rank that has all keys and values at hand. */
#ifndef WEFT_ATTENTION_ALONE_H
#define WEFT_ATTENTION_ALONE_H

#include "train/attention_case.h"

typedef struct weft__alone {
    weft_world *world;     /* of this rank alone */
    weft_attention_case c; /* the case with all keys */
    weft_shard queries;
    weft_cp_plan *plan;
    weft_cp_io io;
} weft__alone;

/* c is prepared for its ranks; queries: those of this rank, or all of them. Buffers come from c's arena. LOCAL */
weft_status weft__alone_open(weft__alone *a, const weft_attention_case *c, const weft_kern *kern, bool whole);
weft_status weft__alone_run(const weft__alone *a); /* forward and backward. LOCAL */
void weft__alone_close(weft__alone *a);            /* zeroed: nothing */

#endif
