/* guard.avx512.c — guard.inl on 512-bit registers. */
#include "kern/kern_impl.h"
#include "kern/simd/avx512.h"
#include "kern/simd/rows.h"

#include <math.h>
#include <string.h>

enum { GUARD_CHUNK = 32768 }; /* elements per piece of work for a thread */

#define SIMD_TEMPLATE "kern/guard/guard.inl"
#include "kern/simd_each.inl"
