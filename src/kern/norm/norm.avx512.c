/* norm.avx512.c — norm.inl on 512-bit registers. */
#include "kern/kern_impl.h"
#include "kern/simd/avx512.h"
#include "kern/simd/rows.h"

#include <math.h>
#include <string.h>

#define SIMD_TEMPLATE "kern/norm/norm.inl"
#include "kern/simd_each.inl"
