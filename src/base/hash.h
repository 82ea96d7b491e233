/* hash.h — 128-bit checksums (XXH3) of files and of what lies in memory: they find damage, not forgery. */
#ifndef WEFT_BASE_HASH_H
#define WEFT_BASE_HASH_H

#include "base/status.h"

typedef struct weft_hash { uint64_t low, high; } weft_hash;

enum { WEFT_HASH_TEXT = 33 }; /* 32 digits, the high half first, and a NUL */

weft_hash weft_hash_of(const void *data, size_t bytes);
static inline bool weft_hash_same(weft_hash a, weft_hash b) { return a.low == b.low && a.high == b.high; }
/* Into buf[WEFT_HASH_TEXT], which it returns. */
const char *weft_hash_text(weft_hash h, char *buf);
/* Exactly 32 small hexadecimal digits. */
bool weft_hash_parse(const char *text, weft_hash *out);

/* What tells two files apart without reading all of them: size, and the checksum of everything up to 64 MiB, of 64
 * pieces of 1 MiB, evenly spread, of what is larger. */
typedef struct weft_glance { weft_hash hash; int64_t bytes; } weft_glance;
weft_glance weft_glance_of(const void *data, size_t bytes);
/* Of several files together, in any order; begins with zeros. */
void weft_glance_add(weft_glance *all, weft_glance one);
static inline bool weft_glance_same(weft_glance a, weft_glance b)
{
    return a.bytes == b.bytes && weft_hash_same(a.hash, b.hash);
}

/* Piece by piece: the same as of the pieces one after the other. */
typedef struct weft_hasher weft_hasher;
weft_hasher *weft_hasher_create(void); /* NULL: no memory */
void weft_hasher_add(weft_hasher *h, const void *data, size_t bytes);
/* So far; begins anew. */
weft_hash weft_hasher_end(weft_hasher *h);
void weft_hasher_destroy(weft_hasher *h);

/* CRC-32C (Castagnoli), of short records. */
uint32_t weft_crc32c(const void *data, size_t bytes);

#endif
