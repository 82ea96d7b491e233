/* attention.avx512.c — the fast attention kernels on 512-bit vectors. */
#include "kern/simd/avx512.h"

#include "kern/attention/attention_simd.inl"
