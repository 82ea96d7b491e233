/* clock.c — the real clocks. */
#include "base/clock.h"

#include <time.h>

static double seconds_of(clockid_t which)
{
    struct timespec t;
    clock_gettime(which, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static double real_now(void *ud)
{
    (void)ud;
    return seconds_of(CLOCK_MONOTONIC);
}

double weft_cpu_seconds(void) { return seconds_of(CLOCK_PROCESS_CPUTIME_ID); }

const weft_clock weft_clock_real = {real_now, NULL, NULL};
