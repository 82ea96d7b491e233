/* clock.h — time in seconds, through a hook that the simulator replaces by a virtual clock. */
#ifndef WEFT_BASE_CLOCK_H
#define WEFT_BASE_CLOCK_H

#include "base/status.h"

typedef struct weft_clock {
    double (*now)(void *ud);                    /* monotonic seconds                                   */
    void (*charge)(void *ud, double seconds);   /* kernels that only charge time call it; NULL: no-op  */
    void *ud;
} weft_clock;

extern const weft_clock weft_clock_real; /* CLOCK_MONOTONIC, charge NULL */

static inline double weft_now(const weft_clock *clock) { return clock->now(clock->ud); }

/* A point in time that a wait must not pass. */
typedef struct weft_deadline { double at; } weft_deadline;
static inline weft_deadline weft_deadline_in(const weft_clock *clock, double seconds)
{
    return (weft_deadline){weft_now(clock) + seconds};
}
static inline bool weft_deadline_passed(const weft_clock *clock, weft_deadline d) { return weft_now(clock) > d.at; }

#endif
