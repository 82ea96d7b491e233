/* trace.c — the ring of events. */
#include "base/trace.h"

weft_status weft_trace_init(weft_trace *trace, weft_arena *arena, int64_t capacity)
{
    *trace = (weft_trace){0};
    WEFT_TRY(WEFT_NEW0(arena, capacity, "trace", &trace->ring));
    trace->capacity = capacity;
    return WEFT_OK;
}

void weft_trace_emit(weft_trace *trace, const char *track, const char *name, double begin, double end, int64_t arg0,
                     int64_t arg1)
{
    if (!trace || !trace->capacity) return;
    trace->ring[trace->written++ % trace->capacity] =
        (weft_event){.name = name, .track = track, .begin = begin, .end = end, .arg = {arg0, arg1}};
}
