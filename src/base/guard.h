/* guard.h — numbers that are NaN, infinite or too large: finding the first, and what shall happen then. */
#ifndef WEFT_BASE_GUARD_H
#define WEFT_BASE_GUARD_H

#include "base/log.h"

/* Index of the first value with !(|x| <= limit), or -1. */
int64_t weft_guard_f32(const float *x, int64_t n, float limit);
int64_t weft_guard_f64(const double *x, int64_t n, double limit);

typedef enum weft_guard_policy {
    WEFT_GUARD_OFF,  /* nobody looks */
    WEFT_GUARD_WARN, /* named in the log; the step goes on as it is */
    WEFT_GUARD_SKIP, /* named in the log; zeros travel instead, and all ranks leave the step out */
    WEFT_GUARD_STOP, /* named by the failure that ends all ranks, before a byte of the exchange */
    WEFT_GUARD_POLICIES
} weft_guard_policy;
const char *weft_guard_policy_name(weft_guard_policy policy); /* "skip" */

/* One rank's guard over what leaves it in a training step. Zeros: off. */
typedef struct weft_guard {
    weft_guard_policy policy;
    double limit;        /* larger magnitudes are too large */
    double scale;        /* the loss scale of this step: gradients are that much larger, and so is their limit */
    bool scaler_acts;    /* gradients that overflow are left to the loss scaler */
    int64_t step;        /* for messages, from 1 */
    bool found;          /* something in this step */
    int64_t steps_found; /* steps in which something was */
} weft_guard;

/* Before each step. */
void weft_guard_begin(weft_guard *guard, int64_t step, double scale, bool scaler_acts);
/* A tensor holds what it should not, `what` says which and where. The first one of a step is logged if it is the
 * first, second, fourth, eighth ... step with one: numbers that are too large for good would fill the log. With STOP
 * every finding is the failure WEFT_ERR_NUMERIC. */
weft_status weft_guard_found(weft_guard *guard, const weft_log *log, const char *what);

#endif
