/* move.avx2.c — move.inl on 256-bit registers. */
#include "kern/kern_impl.h"
#include "kern/simd/avx2.h"
#include "kern/simd/rows.h"

#include "kern/move/move.inl"
