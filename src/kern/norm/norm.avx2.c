/* norm.avx2.c — norm.inl on 256-bit registers. */
#include "kern/kern_impl.h"
#include "kern/simd/avx2.h"
#include "kern/simd/rows.h"

#include <math.h>
#include <string.h>

#define SIMD_TEMPLATE "kern/norm/norm.inl"
#include "kern/simd_each.inl"
