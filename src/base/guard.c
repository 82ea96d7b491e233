/* guard.c — one pass over values; written so that NaN fails the comparison. */
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
