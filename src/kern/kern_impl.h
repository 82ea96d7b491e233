/* kern_impl.h — for files of the room `kern` only: prototypes of all kernels (from the manifest, with the
 * types of the table) and what the kernels of several folders share. */
#ifndef WEFT_KERN_IMPL_H
#define WEFT_KERN_IMPL_H

#include "kern/kern.h"

/* typeof of a member of the table: a kernel whose signature drifts from the door does not compile. */
#define KERN(op, prec, isa, symbol) __typeof__(*((weft_kern_ops *)0)->op) symbol;
#define KERN_ATTN(prec, isa, fill) void fill(weft_attn_ops *ops, weft_prec p);
#define KERN_MOVE(prec, isa, fill) void fill(weft_move_ops *ops, weft_prec p);
#include "kern/kern_list.inc"
#undef KERN
#undef KERN_ATTN
#undef KERN_MOVE

/* Column sums over rows (dw, db) are cut into blocks of rows that depend on the number of rows only; each
 * block has one row of partial sums in `work`, and the partial rows are added in order. So the result is
 * the same bits for any number of threads. */
enum { WEFT_NORM_BLOCKS = 64, WEFT_NORM_BLOCK_ROWS = 16 };

static inline int64_t weft_norm_blocks(int64_t rows)
{
    return weft_min_i64(WEFT_NORM_BLOCKS, weft_ceil_div(rows, WEFT_NORM_BLOCK_ROWS));
}
/* First row of block b of `blocks`. */
static inline int64_t weft_norm_block_row(int64_t b, int64_t blocks, int64_t rows)
{
    return rows / blocks * b + weft_min_i64(b, rows % blocks);
}

/* A long array is reduced in at most this many pieces, whose size depends on n only. */
enum { WEFT_REDUCE_PIECES = 256, WEFT_REDUCE_GRAIN = 1024 };

static inline int64_t weft_reduce_piece(int64_t n)
{
    const int64_t piece = weft_ceil_div(n, WEFT_REDUCE_PIECES);
    return weft_ceil_div(piece, WEFT_REDUCE_GRAIN) * WEFT_REDUCE_GRAIN;
}

#endif
