/* move.h — kernels that move content without changing what it means: copies and conversions of rows, zeros, sums, and
 * blocks of 8-bit floats with scales.
 *
 * Code that exchanges buffers between ranks touches them through these alone. So one provider of memory may hand
 * out memory of a device, or, in a simulated world, addresses without memory: there the table holds kernels that only
 * charge time. All are LOCAL, allocate nothing, and give the same bits for any number of threads and every
 * instruction set (but for the payload of a NaN).
 *
 * 8-bit blocks. Rows of `heads` x `width` elements are cut into groups of WEFT_F8_ROWS rows. Each (group, head) has one
 * scale 2^(byte - 127), in one byte that lies before the group's rows, so that any prefix of a stream is a prefix of
 * rows:
 *   group g:  scales [all heads of all tensors in the stream]   then up to 16 rows, each [row of tensor 0 | tensor 1 |
 * ...] The scale is the smallest power of two for which the largest finite element of its group and head does not
 * exceed the largest number of the type: nothing saturates. All zeros (or nothing finite): scale 1. NaN, and what is
 * infinite as a float, becomes NaN: it must show up, not turn into a large number. Decoded finite numbers stay finite:
 * where rounding up left the range of the target, its largest number stands. */
#ifndef WEFT_KERN_MOVE_H
#define WEFT_KERN_MOVE_H

#include "kern/attention/attention.h"

typedef struct weft_range { int64_t begin, len; } weft_range; /* rows [begin, begin + len) */

/* Which rows of an array, and of what type (floating). Row i lies at element ld * row(i):
 *   map: row(i) = map[i];  range: the rows of range[0], range[1], ... one after the other;  neither: row(i) = i. */
typedef struct weft_rows {
    weft_dtype type;
    int64_t ld;
    const int64_t *map;
    const weft_range *range;
} weft_rows;

enum { WEFT_F8_ROWS = 16 };

typedef struct weft_f8 { /* one tensor in a stream of 8-bit groups */
    weft_dtype type;             /* F8_E4M3 or F8_E5M2 */
    int heads, width;
    int64_t scale_at, row_at;    /* bytes: of its first scale in a group, of its first element in a row */
    int64_t scale_bytes, row_bytes; /* of all tensors: scales of a group, one row */
} weft_f8;

typedef struct weft_move_ops {
    /* dst row i [0, n) = src row i [0, n) for `rows` rows, rounded once to nearest even. The rows of dst are distinct;
     * memory must not overlap. */
    void (*copy)(void *dst, const weft_rows *to, const void *src, const weft_rows *from, int64_t rows, int64_t n,
                 const weft_attn_run *run);
    /* dst row i += src row i; dst is fp32 or fp64, src of the same or a narrower type. */
    void (*add)(void *dst, const weft_rows *to, const void *src, const weft_rows *from, int64_t rows, int64_t n,
                const weft_attn_run *run);
    void (*zero)(void *dst, size_t bytes, const weft_attn_run *run);
    /* src [rows, heads * width] into its place in a stream; other tensors' places stay as they are. */
    void (*f8_encode)(void *stream, const weft_f8 *f, const void *src, const weft_rows *from, int64_t rows,
                      const weft_attn_run *run);
    /* Rows [row0, row0 + rows) of the stream to dst rows 0 .. rows - 1. */
    void (*f8_decode)(void *dst, const weft_rows *to, const void *stream, const weft_f8 *f, int64_t row0, int64_t rows,
                      const weft_attn_run *run);
} weft_move_ops;

/* Bytes of a stream of `rows` rows; byte at which the row begins (its scales are before that). */
static inline int64_t weft_f8_bytes(const weft_f8 *f, int64_t rows)
{
    return weft_ceil_div(rows, WEFT_F8_ROWS) * f->scale_bytes + rows * f->row_bytes;
}
static inline int64_t weft_f8_row(const weft_f8 *f, int64_t row)
{
    return (row / WEFT_F8_ROWS + 1) * f->scale_bytes + row * f->row_bytes;
}

#endif
