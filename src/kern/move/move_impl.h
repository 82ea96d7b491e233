/* move_impl.h — what the moving kernels share: walking through selected rows, sharing rows among threads, and the scale
 * of a block of 8-bit floats. */
#ifndef WEFT_KERN_MOVE_IMPL_H
#define WEFT_KERN_MOVE_IMPL_H

#include "kern/move/move.h"

void weft_move_fill_ref(weft_move_ops *ops, weft_prec prec);
void weft_move_fill_avx2(weft_move_ops *ops, weft_prec prec);
void weft_move_fill_avx512(weft_move_ops *ops, weft_prec prec);

/* The reference serves the fast kernels for pairs of types that they do not have. */
void weft_move_copy_ref(void *dst, const weft_rows *to, const void *src, const weft_rows *from, int64_t rows, int64_t n,
                        const weft_attn_run *run);
void weft_move_add_ref(void *dst, const weft_rows *to, const void *src, const weft_rows *from, int64_t rows, int64_t n,
                       const weft_attn_run *run);
void weft_move_zero_ref(void *dst, size_t bytes, const weft_attn_run *run);
void weft_move_f8_encode_ref(void *stream, const weft_f8 *f, const void *src, const weft_rows *from, int64_t rows,
                             const weft_attn_run *run);
void weft_move_f8_decode_ref(void *dst, const weft_rows *to, const void *stream, const weft_f8 *f, int64_t row0,
                             int64_t rows, const weft_attn_run *run);

/* ---- rows ------------------------------------------------------------------------------------------------ */

typedef struct cursor { /* the selected rows from some row on, one after the other */
    const weft_rows *r;
    size_t size;          /* of an element */
    int64_t i;            /* next row; with ranges: next row of the current one */
    const weft_range *range;
} cursor;

/* Looks at no range before a row is asked for: without rows there may be none. */
static inline cursor cursor_at(const weft_rows *r, int64_t i)
{
    return (cursor){r, weft_dtype_size(r->type), i, r->range};
}

static inline int64_t cursor_row(cursor *c)
{
    if (!c->range) {
        int64_t i = c->i++;
        return c->r->map ? c->r->map[i] : i;
    }
    for (; c->i >= c->range->len; c->range++) c->i -= c->range->len;
    return c->range->begin + c->i++;
}

static inline char *cursor_next(cursor *c, void *base)
{
    return (char *)base + (size_t)(cursor_row(c) * c->r->ld) * c->size;
}
static inline const char *cursor_read(cursor *c, const void *base)
{
    return (const char *)base + (size_t)(cursor_row(c) * c->r->ld) * c->size;
}

enum { MOVE_SHARE_BYTES = 1 << 16 }; /* less than this for each thread is not worth waking it */

/* Threads for `rows` rows of `bytes` each. */
static inline int move_threads(const weft_attn_run *run, int64_t rows, int64_t bytes)
{
    int64_t useful = weft_min_i64(rows, rows * bytes / MOVE_SHARE_BYTES + 1);
    return (int)weft_max_i64(1, weft_min_i64(run->threads, useful));
}
static inline int64_t move_part(int64_t n, int t, int threads) { return n / threads * t + n % threads * t / threads; }

/* ---- 8-bit floats ------------------------------------------------------------------------------------------ */

/* The scale byte for a largest magnitude m 2^k, 1 <= m < 2: both types end at 1.75 2^top. */
static inline int f8_scale(weft_dtype type, int k, bool above)
{
    int e = k - (type == WEFT_F8_E4M3 ? 8 : 15) + above;
    return (e < -127 ? -127 : e) + 127;
}

/* 2^(byte - 127) */
static inline float f8_power(int byte)
{
    union { uint32_t u; float f; } x = {byte > 0 ? (uint32_t)byte << 23 : 0x400000u};
    return x.f;
}

#endif
