/* drop.avx2.c — drop_real.inl and drop.inl on 256-bit registers. */
#include "kern/kern_impl.h"
#include "kern/simd/avx2.h"
#include "kern/simd/rows.h"


#include <math.h>

#include "kern/drop/drop_real.inl"

#define SIMD_TEMPLATE "kern/drop/drop.inl"
#include "kern/simd_each.inl"
