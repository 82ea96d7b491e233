/* trace.h — a ring of timed events. Lower rooms emit, `metrics` reads; a NULL trace costs one branch. */
#ifndef WEFT_BASE_TRACE_H
#define WEFT_BASE_TRACE_H

#include "base/clock.h"
#include "base/mem.h"

typedef struct weft_event {
    const char *name;    /* string constant */
    const char *track;   /* "compute", "comm", "step" */
    double begin, end;   /* seconds */
    int64_t arg[2];      /* what they mean is the emitter's (layer and step, bytes and peer) */
} weft_event;

typedef struct weft_trace {
    weft_event *ring;
    int64_t capacity, written; /* event i is ring[i % capacity]; the oldest are overwritten */
} weft_trace;

weft_status weft_trace_init(weft_trace *trace, weft_arena *arena, int64_t capacity);
void weft_trace_emit(weft_trace *trace, const char *track, const char *name, double begin, double end, int64_t arg0,
                     int64_t arg1);

#endif
