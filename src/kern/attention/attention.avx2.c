/* attention.avx2.c — the fast attention kernels on 256-bit vectors. */
#include "kern/simd/avx2.h"

#include "kern/attention/attention_simd.inl"
