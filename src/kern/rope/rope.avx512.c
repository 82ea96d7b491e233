/* rope.avx512.c — rope.inl on 512-bit registers. */
#include "kern/kern_impl.h"
#include "kern/simd/avx512.h"
#include "kern/simd/rows.h"

#define SIMD_TEMPLATE "kern/rope/rope.inl"
#include "kern/simd_each.inl"
