/* guard.h — finds the first value that is NaN, infinite or larger than a limit. */
#ifndef WEFT_BASE_GUARD_H
#define WEFT_BASE_GUARD_H

#include "base/status.h"

/* Index of the first value with !(|x| <= limit), or -1. */
int64_t weft_guard_f32(const float *x, int64_t n, float limit);
int64_t weft_guard_f64(const double *x, int64_t n, double limit);

#endif
