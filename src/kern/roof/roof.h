/* roof.h — how many operations a second the arithmetic units do when nothing else slows them down: what the speed of
 * a kernel is a share of.
 *
 * Each unit is measured by a loop in assembly whose operands stay in registers, with more independent chains than an
 * operation's latency asks for. A loop of intrinsics would do when the compiler keeps all of it in registers; when it
 * does not, the roof reads lower and every kernel looks better than it is. */
#ifndef WEFT_KERN_ROOF_H
#define WEFT_KERN_ROOF_H

#include "base/base.h"

typedef enum weft_roof_unit {
    WEFT_ROOF_FMA256,   /* fp32 multiply-adds, 8 lanes  */
    WEFT_ROOF_FMA512,   /* the same, 16 lanes           */
    WEFT_ROOF_DOT512,   /* pairs of bf16 into 16 fp32 lanes (AVX512-BF16) */
    WEFT_ROOF_AMX_BF16, /* tiles of bf16 into fp32      */
    WEFT_ROOF_COUNT
} weft_roof_unit;

const char *weft_roof_name(weft_roof_unit unit);
/* Whether this machine has the unit; asks for the permission to use tiles. LOCAL */
bool weft_roof_available(weft_roof_unit unit);
/* Operations per second (a multiply-add is two) of `threads` threads that run the unit's loop at the same time for
 * about `seconds`. The unit must be available. LOCAL */
double weft_roof_measure(weft_roof_unit unit, const weft_clock *clock, int threads, double seconds);

#endif
