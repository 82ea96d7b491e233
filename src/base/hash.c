/* hash.c — XXH3-128 behind a type that others can hold; the library's own stays here. */
#include "base/hash.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <xxhash.h>

static weft_hash of_library(XXH128_hash_t h) { return (weft_hash){h.low64, h.high64}; }

weft_hash weft_hash_of(const void *data, size_t bytes) { return of_library(XXH3_128bits(data, bytes)); }

weft_glance weft_glance_of(const void *data, size_t bytes)
{
    enum { BLOCK = 1 << 20, BLOCKS = 64 };
    weft_hash part[BLOCKS];
    weft_glance g = {.bytes = (int64_t)bytes};
    if (bytes <= (size_t)BLOCK * BLOCKS) {
        g.hash = weft_hash_of(data, bytes);
        return g;
    }
    for (size_t i = 0; i < BLOCKS; i++) /* the first begins with the file, the last ends with it */
        part[i] = weft_hash_of((const char *)data + (bytes - BLOCK) / (BLOCKS - 1) * i +
                                   (i == BLOCKS - 1 ? (bytes - BLOCK) % (BLOCKS - 1) : 0),
                               BLOCK);
    g.hash = weft_hash_of(part, sizeof part);
    return g;
}

void weft_glance_add(weft_glance *all, weft_glance one)
{
    all->bytes += one.bytes;
    all->hash.low += one.hash.low;
    all->hash.high += one.hash.high;
}

const char *weft_hash_text(weft_hash h, char *buf)
{
    snprintf(buf, WEFT_HASH_TEXT, "%016" PRIx64 "%016" PRIx64, h.high, h.low);
    return buf;
}

static bool half(const char *text, uint64_t *out)
{
    *out = 0;
    for (int i = 0; i < 16; i++) {
        static const char digits[] = "0123456789abcdef";
        const char *at = text[i] ? strchr(digits, text[i]) : NULL;
        if (!at) return false;
        *out = *out << 4 | (uint64_t)(at - digits);
    }
    return true;
}

bool weft_hash_parse(const char *text, weft_hash *out)
{
    weft_hash h;
    if (!half(text, &h.high) || !half(text + 16, &h.low) || text[32]) return false;
    *out = h;
    return true;
}

weft_hasher *weft_hasher_create(void)
{
    XXH3_state_t *state = XXH3_createState(); /* 64-byte aligned, as it must be */
    if (state) XXH3_128bits_reset(state);
    return (weft_hasher *)state;
}

void weft_hasher_add(weft_hasher *h, const void *data, size_t bytes)
{
    if (bytes) XXH3_128bits_update((XXH3_state_t *)h, data, bytes);
}

weft_hash weft_hasher_end(weft_hasher *h)
{
    weft_hash out = of_library(XXH3_128bits_digest((XXH3_state_t *)h));
    XXH3_128bits_reset((XXH3_state_t *)h);
    return out;
}

void weft_hasher_destroy(weft_hasher *h) { XXH3_freeState((XXH3_state_t *)h); }

/* Four bits at a time: the remainders of 0 to 15, each times x^28. */
uint32_t weft_crc32c(const void *data, size_t bytes)
{
    static const uint32_t remainder[16] = {0x00000000, 0x105ec76f, 0x20bd8ede, 0x30e349b1, 0x417b1dbc, 0x5125dad3,
                                           0x61c69362, 0x7198540d, 0x82f63b78, 0x92a8fc17, 0xa24bb5a6, 0xb21572c9,
                                           0xc38d26c4, 0xd3d3e1ab, 0xe330a81a, 0xf36e6f75};
    const unsigned char *p = data;
    uint32_t crc = 0xffffffffu;
    for (size_t i = 0; i < bytes; i++) {
        crc ^= p[i];
        crc = crc >> 4 ^ remainder[crc & 15];
        crc = crc >> 4 ^ remainder[crc & 15];
    }
    return ~crc;
}
