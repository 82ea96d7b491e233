/* philox.h — randomness by address: Philox4x32-10 (Salmon et al., SC 2011), key = seed.
 *
 * The 128-bit counter is an address, so a value depends on what it is for and never on who computes it,
 * in which order, or how often:
 *   word 0   position, low 32 bits        (dropout of scores: key token of the row / 4; its output word is token % 4)
 *   word 1   position, high 32 bits       (dropout of scores: query token of the row)
 * (dropout of rows: the token of the row in words 0 and 1, 64 channels per 16 numbers in word 2; weft_drop in kern.h)
 *   word 2   sample (low 16 bits) | head or channel (high 16 bits)
 *   word 3   step (low 20 bits) | layer and site (high 12 bits: layer 8, site 4)
 * Larger numbers wrap inside their field; two addresses that wrap together share a value, which is
 * harmless for dropout and never happens for data order (its sites use words 0 and 1 only). */
#ifndef WEFT_BASE_PHILOX_H
#define WEFT_BASE_PHILOX_H

#include <stdint.h>

typedef struct { uint32_t w[4]; } weft_philox_out;

typedef enum {
    WEFT_SITE_INIT, WEFT_SITE_ORDER, WEFT_SITE_SAMPLE, WEFT_SITE_DROP_EMBED, WEFT_SITE_DROP_ATTENTION,
    WEFT_SITE_DROP_RESIDUAL, /* what attention adds to the residual stream */
    WEFT_SITE_DROP_MLP,      /* what the feed-forward adds to it */
    WEFT_SITE_JITTER         /* of simulated kernels: their number in words 0 and 1, the rank in word 2 */
} weft_site;

static inline uint32_t weft_philox_word2(uint32_t sample, uint32_t head) { return (sample & 0xffffu) | (head << 16); }
static inline uint32_t weft_philox_word3(uint32_t step, uint32_t layer, weft_site site)
{
    return (step & 0xfffffu) | ((layer & 0xffu) << 20) | ((uint32_t)site << 28);
}

/* The multipliers of the rounds, and what the two halves of the key grow by after each (for vector versions). */
#define WEFT_PHILOX_M0 0xD2511F53u
#define WEFT_PHILOX_M1 0xCD9E8D57u
#define WEFT_PHILOX_W0 0x9E3779B9u
#define WEFT_PHILOX_W1 0xBB67AE85u

weft_philox_out weft_philox(uint64_t seed, uint32_t w0, uint32_t w1, uint32_t w2, uint32_t w3);

/* [0, 1), 24 bits. */
static inline float weft_uniform(uint32_t w) { return (float)(w >> 8) * 0x1p-24f; }

/* Two independent normals (Box-Muller) from two words, in double. */
void weft_normal_pair(uint32_t a, uint32_t b, double out[2]);

/* A permutation of 0..n-1 as a function of (seed, epoch): element i, without a table (Feistel network,
 * cycle walking). n >= 1, 0 <= i < n. */
int64_t weft_permute(uint64_t seed, uint32_t epoch, int64_t n, int64_t i);

#endif
