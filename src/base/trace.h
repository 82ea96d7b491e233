/* trace.h — a ring of timed events. Lower rooms emit, `metrics` reads; without room for events it costs one branch.
 *
 * Events hold numbers only, and names lie in a table beside them: what one rank recorded can be sent to another as it
 * is. */
#ifndef WEFT_BASE_TRACE_H
#define WEFT_BASE_TRACE_H

#include "base/clock.h"
#include "base/mem.h"

typedef enum weft_track { /* what a rank does side by side */
    WEFT_TRACK_COMPUTE,
    WEFT_TRACK_IN,        /* messages to this rank */
    WEFT_TRACK_OUT,       /* messages from it */
    WEFT_TRACK_WAIT,      /* standing still for a message */
    WEFT_TRACK_OPTIMIZER, /* sums of gradients, norm, update */
    WEFT_TRACK_DATA,
    WEFT_TRACK_CHECKPOINT,
    WEFT_TRACKS
} weft_track;
const char *weft_track_name(weft_track track); /* "communication in" */
/* Whether it holds messages: they overlap each other, where all else nests. */
static inline bool weft_track_moves(weft_track track) { return track == WEFT_TRACK_IN || track == WEFT_TRACK_OUT; }

typedef struct weft_event {
    double begin, end;     /* seconds of the rank's clock */
    int64_t bytes;         /* of a message */
    int32_t layer, step;   /* where; -1: nowhere. step: of an exchange */
    int32_t peer;          /* world rank at the other end of a message, or that is waited for; -1: none */
    int32_t tag;           /* of a message: between two ranks, those of one tag of one group arrive in order */
    uint32_t group;
    uint8_t track, name, kind; /* indices of names; kind: which collective a message or a wait belongs to */
} weft_event;

enum { WEFT_TRACE_NAMES = 64, WEFT_TRACE_NAME = 32 };

typedef struct weft_trace_names { /* names in use; the first is empty */
    const char *key[WEFT_TRACE_NAMES]; /* what the emitter gave, for a quick look */
    char text[WEFT_TRACE_NAMES][WEFT_TRACE_NAME];
    int n;
} weft_trace_names;

typedef struct weft_trace {
    weft_event *ring;
    weft_trace_names *names;
    int64_t capacity, written; /* event i is ring[i % capacity]; the oldest are overwritten. capacity 0: off */
} weft_trace;

enum { WEFT_TRACE_EVENTS = 1 << 16 }; /* a usual capacity: 4 MB */

weft_status weft_trace_init(weft_trace *trace, weft_arena *arena, int64_t capacity);
static inline bool weft_trace_on(const weft_trace *trace) { return trace->capacity > 0; }
static inline int64_t weft_trace_held(const weft_trace *t) { return weft_min_i64(t->written, t->capacity); }
static inline int64_t weft_trace_lost(const weft_trace *t) { return t->written - weft_trace_held(t); }
/* `name` lives as long as events are emitted. track, name and kind of `e` are filled in from the arguments. */
void weft_trace_add(weft_trace *trace, weft_track track, const char *name, const char *kind, weft_event e);
/* Work of this rank. */
void weft_trace_emit(weft_trace *trace, weft_track track, const char *name, double begin, double end, int64_t layer,
                     int64_t step);

#endif
