/* philox.c — Philox4x32-10, normals, and a permutation by cycle walking. */
#include "base/philox.h"

#include <math.h>

static void mul_hi_lo(uint32_t a, uint32_t b, uint32_t *hi, uint32_t *lo)
{
    uint64_t p = (uint64_t)a * b;
    *hi = (uint32_t)(p >> 32);
    *lo = (uint32_t)p;
}

weft_philox_out weft_philox(uint64_t seed, uint32_t w0, uint32_t w1, uint32_t w2, uint32_t w3)
{
    uint32_t k0 = (uint32_t)seed, k1 = (uint32_t)(seed >> 32);
    for (int round = 0; round < 10; round++) {
        uint32_t h0, l0, h1, l1;
        mul_hi_lo(WEFT_PHILOX_M0, w0, &h0, &l0);
        mul_hi_lo(WEFT_PHILOX_M1, w2, &h1, &l1);
        w0 = h1 ^ w1 ^ k0;
        w1 = l1;
        w2 = h0 ^ w3 ^ k1;
        w3 = l0;
        k0 += WEFT_PHILOX_W0; /* Weyl constants of the paper */
        k1 += WEFT_PHILOX_W1;
    }
    return (weft_philox_out){{w0, w1, w2, w3}};
}

void weft_normal_pair(uint32_t a, uint32_t b, double out[2])
{
    double u = ((double)a + 0.5) * 0x1p-32; /* in (0, 1): the logarithm is finite */
    double v = (double)b * 0x1p-32;
    double r = sqrt(-2.0 * log(u));
    out[0] = r * cos(6.283185307179586 * v);
    out[1] = r * sin(6.283185307179586 * v);
}

/* Four Feistel rounds over 2h bits permute [0, 4^h); values >= n walk on until they fall below n. The walk
 * ends because a permutation's cycle through i < n comes back to i. h is minimal: under four steps on average. */
int64_t weft_permute(uint64_t seed, uint32_t epoch, int64_t n, int64_t i)
{
    int half = 1;
    while (half < 31 && (int64_t)1 << (2 * half) < n) half++;
    uint32_t mask = (uint32_t)(((uint64_t)1 << half) - 1);
    uint64_t x = (uint64_t)i;
    do {
        uint32_t left = (uint32_t)(x >> half) & mask, right = (uint32_t)x & mask;
        for (uint32_t round = 0; round < 4; round++) {
            uint32_t f = weft_philox(seed, right, round, epoch, weft_philox_word3(0, 0, WEFT_SITE_ORDER)).w[0] & mask;
            uint32_t next = left ^ f;
            left = right;
            right = next;
        }
        x = (uint64_t)left << half | right;
    } while (x >= (uint64_t)n);
    return (int64_t)x;
}
