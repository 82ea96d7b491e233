/* trace.c — the ring of events, and the table of their names. */
#include "base/trace.h"

#include <stdio.h>
#include <string.h>

static const char *const tracks[WEFT_TRACKS] = {"compute",   "communication in", "communication out", "waits",
                                                "optimizer", "data",             "checkpoint"};

const char *weft_track_name(weft_track track) { return track < WEFT_TRACKS ? tracks[track] : "unknown"; }

weft_status weft_trace_init(weft_trace *trace, weft_arena *arena, int64_t capacity)
{
    weft_trace t = {.capacity = capacity};
    WEFT_TRY(WEFT_NEW(arena, capacity, "trace", &t.ring)); /* pages that no event comes to are never touched */
    WEFT_TRY(WEFT_NEW0(arena, 1, "trace", &t.names));
    t.names->key[0] = t.names->text[0];
    t.names->n = 1;
    *trace = t;
    return WEFT_OK;
}

/* The last place is for all names that find none. */
static uint8_t name_of(weft_trace_names *t, const char *name)
{
    if (!name) return 0;
    for (int i = 0; i < t->n; i++)
        if (t->key[i] == name && !strncmp(t->text[i], name, WEFT_TRACE_NAME - 1)) return (uint8_t)i;
    for (int i = 0; i < t->n; i++)
        if (!strncmp(t->text[i], name, WEFT_TRACE_NAME - 1)) return (uint8_t)i;
    const bool full = t->n == WEFT_TRACE_NAMES - 1;
    if (t->n == WEFT_TRACE_NAMES) return WEFT_TRACE_NAMES - 1;
    snprintf(t->text[t->n], WEFT_TRACE_NAME, "%s", full ? "other" : name);
    t->key[t->n] = name;
    return (uint8_t)t->n++;
}

void weft_trace_add(weft_trace *trace, weft_track track, const char *name, const char *kind, weft_event e)
{
    if (!weft_trace_on(trace)) return;
    e.track = (uint8_t)track;
    e.name = name_of(trace->names, name);
    e.kind = name_of(trace->names, kind);
    trace->ring[trace->written++ % trace->capacity] = e;
}

void weft_trace_emit(weft_trace *trace, weft_track track, const char *name, double begin, double end, int64_t layer,
                     int64_t step)
{
    weft_trace_add(trace, track, name, NULL,
                   (weft_event){.begin = begin, .end = end, .layer = (int32_t)layer, .step = (int32_t)step,
                                .peer = -1});
}
