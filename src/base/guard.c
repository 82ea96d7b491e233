/* guard.c — one pass over values, written so that NaN fails the comparison; acting on what was found. */
#include "base/guard.h"

#include <math.h>

int64_t weft_guard_f32(const float *x, int64_t n, float limit)
{
    for (int64_t i = 0; i < n; i++)
        if (!(fabsf(x[i]) <= limit)) return i;
    return -1;
}

int64_t weft_guard_f64(const double *x, int64_t n, double limit)
{
    for (int64_t i = 0; i < n; i++)
        if (!(fabs(x[i]) <= limit)) return i;
    return -1;
}

const char *weft_guard_policy_name(weft_guard_policy policy)
{
    static const char *const names[WEFT_GUARD_POLICIES] = {"off", "warn", "skip", "stop"};
    return policy >= 0 && policy < WEFT_GUARD_POLICIES ? names[policy] : "unknown";
}

void weft_guard_begin(weft_guard *guard, int64_t step, double scale, bool scaler_acts)
{
    guard->step = step;
    guard->scale = scale;
    guard->scaler_acts = scaler_acts;
    guard->found = false;
}

weft_status weft_guard_found(weft_guard *guard, const weft_log *log, const char *what)
{
    if (!guard->found) {
        int64_t n = ++guard->steps_found;
        guard->found = true;
        if (guard->policy != WEFT_GUARD_STOP && (n & (n - 1)) == 0)
            weft_logf(log, WEFT_LOG_WARN, "numerics guard: %s", what);
    }
    return guard->policy == WEFT_GUARD_STOP ? weft_fail(WEFT_ERR_NUMERIC, "numerics guard: %s", what) : WEFT_OK;
}
