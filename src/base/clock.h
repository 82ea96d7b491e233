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

/* Processor time of all threads of this process so far: what it worked, without what it waited. */
double weft_cpu_seconds(void);

static inline double weft_now(const weft_clock *clock) { return clock->now(clock->ud); }

/* Whether times come from a program and not from the machine. */
static inline bool weft_clock_virtual(const weft_clock *clock) { return clock->charge != NULL; }

/* A point in time that a wait must not pass. */
typedef struct weft_deadline { double at, looked; } weft_deadline;
static inline weft_deadline weft_deadline_in(const weft_clock *clock, double seconds)
{
    double now = weft_now(clock);
    return (weft_deadline){now + seconds, now};
}
static inline bool weft_deadline_passed(const weft_clock *clock, weft_deadline d) { return weft_now(clock) > d.at; }

/* The same for who looks many times a second. Time between two looks that are a second apart does not count: this
 * process did not run then (Ctrl-Z, a suspended job, a laptop that slept), and whoever it waits for had stopped with
 * it. */
static inline bool weft_deadline_look(const weft_clock *clock, weft_deadline *d)
{
    double now = weft_now(clock), gap = now - d->looked;
    if (gap > 1.0 && !weft_clock_virtual(clock)) d->at += gap;
    d->looked = now;
    return now > d->at;
}

#endif
