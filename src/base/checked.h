/* checked.h — sizes that are checked before they are multiplied.
 * 64 sequences x 16 heads x 2048^2 scores are already 2^32: every product of sizes goes through here. */
#ifndef WEFT_BASE_CHECKED_H
#define WEFT_BASE_CHECKED_H

#include "base/status.h"

static inline bool weft_mul_size(size_t a, size_t b, size_t *out) { return !__builtin_mul_overflow(a, b, out); }
static inline bool weft_add_size(size_t a, size_t b, size_t *out) { return !__builtin_add_overflow(a, b, out); }
static inline bool weft_mul_i64(int64_t a, int64_t b, int64_t *out) { return !__builtin_mul_overflow(a, b, out); }

/* count x size, or WEFT_ERR_REFUSED with `what` in the message. */
static inline weft_status weft_size_of(int64_t count, size_t size, const char *what, size_t *out)
{
    size_t bytes = 0; /* outputs are written on success only */
    if (count < 0 || !weft_mul_size((size_t)count, size, &bytes))
        return weft_fail(WEFT_ERR_REFUSED, "%s: %lld elements of %zu bytes do not fit into memory sizes", what,
                         (long long)count, size);
    *out = bytes;
    return WEFT_OK;
}

static inline int64_t weft_min_i64(int64_t a, int64_t b) { return a < b ? a : b; }
static inline size_t weft_min_size(size_t a, size_t b) { return a < b ? a : b; }
static inline size_t weft_max_size(size_t a, size_t b) { return a > b ? a : b; }
static inline int64_t weft_max_i64(int64_t a, int64_t b) { return a > b ? a : b; }
/* a, b >= 0, b > 0 */
static inline int64_t weft_ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

#endif
