/* clock.c — the real clock. */
#include "base/clock.h"

#include <time.h>

static double real_now(void *ud)
{
    (void)ud;
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

const weft_clock weft_clock_real = {real_now, NULL, NULL};
