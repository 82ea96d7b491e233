/* move.ref.c — the specification of moving: one row after the other, every pair of floating types through double. */
#include "kern/move/move_impl.h"

#include <math.h>
#include <string.h>

void weft_move_copy_ref(void *dst, const weft_rows *to, const void *src, const weft_rows *from, int64_t rows, int64_t n,
                        const weft_attn_run *run)
{
    int threads = move_threads(run, rows, n * (int64_t)weft_dtype_size(from->type));
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int t = 0; t < threads; t++) {
        int64_t i = move_part(rows, t, threads), end = move_part(rows, t + 1, threads);
        cursor a = cursor_at(to, i), b = cursor_at(from, i);
        for (; i < end; i++) {
            char *y = cursor_next(&a, dst);
            weft_convert(y, to->type, cursor_read(&b, src), from->type, n);
        }
    }
}

static void add_row(void *y, weft_dtype yt, const void *x, weft_dtype xt, int64_t n)
{
    if (yt == WEFT_F64)
        for (int64_t i = 0; i < n; i++) ((double *)y)[i] += weft_load(x, xt, i);
    else
        for (int64_t i = 0; i < n; i++) ((float *)y)[i] += (float)weft_load(x, xt, i);
}

void weft_move_add_ref(void *dst, const weft_rows *to, const void *src, const weft_rows *from, int64_t rows, int64_t n,
                       const weft_attn_run *run)
{
    int threads = move_threads(run, rows, n * (int64_t)weft_dtype_size(to->type));
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int t = 0; t < threads; t++) {
        int64_t i = move_part(rows, t, threads), end = move_part(rows, t + 1, threads);
        cursor a = cursor_at(to, i), b = cursor_at(from, i);
        for (; i < end; i++) {
            char *y = cursor_next(&a, dst);
            add_row(y, to->type, cursor_read(&b, src), from->type, n);
        }
    }
}

void weft_move_zero_ref(void *dst, size_t bytes, const weft_attn_run *run)
{
    int threads = move_threads(run, (int64_t)bytes, 1);
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int t = 0; t < threads; t++) {
        int64_t i = move_part((int64_t)bytes, t, threads), end = move_part((int64_t)bytes, t + 1, threads);
        memset((char *)dst + i, 0, (size_t)(end - i));
    }
}

/* ---- 8-bit blocks ------------------------------------------------------------------------------------------- */

/* What is infinite as a float has no scale that other elements would survive. */
static bool countable(double x) { return isfinite((float)x); }

static int scale_of(const weft_f8 *f, const char *const row[], int rows, weft_dtype type, int64_t at)
{
    double top = 0;
    for (int i = 0; i < rows; i++)
        for (int x = 0; x < f->width; x++) {
            double v = weft_load(row[i], type, at + x);
            if (countable(v)) top = fmax(top, fabs(v));
        }
    if (top == 0) return 127;
    int e;
    double m = 2 * frexp(top, &e);
    return f8_scale(f->type, e - 1, m > 1.75);
}

static void encode_group(char *group, const weft_f8 *f, const char *const row[], int rows, weft_dtype type)
{
    for (int h = 0; h < f->heads; h++) {
        int64_t at = (int64_t)h * f->width;
        int scale = scale_of(f, row, rows, type, at);
        group[f->scale_at + h] = (char)scale;
        for (int i = 0; i < rows; i++) {
            char *y = group + f->scale_bytes + i * f->row_bytes + f->row_at;
            for (int x = 0; x < f->width; x++) {
                double v = weft_load(row[i], type, at + x);
                weft_store(y, f->type, at + x, countable(v) ? ldexp(v, 127 - scale) : (double)NAN);
            }
        }
    }
}

void weft_move_f8_encode_ref(void *stream, const weft_f8 *f, const void *src, const weft_rows *from, int64_t rows,
                             const weft_attn_run *run)
{
    int64_t groups = weft_ceil_div(rows, WEFT_F8_ROWS);
    int threads = move_threads(run, groups, WEFT_F8_ROWS * (int64_t)f->heads * f->width);
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int t = 0; t < threads; t++) {
        int64_t g = move_part(groups, t, threads), end = move_part(groups, t + 1, threads);
        cursor c = cursor_at(from, g * WEFT_F8_ROWS);
        for (; g < end; g++) {
            const char *row[WEFT_F8_ROWS];
            int n = (int)weft_min_i64(WEFT_F8_ROWS, rows - g * WEFT_F8_ROWS);
            for (int i = 0; i < n; i++) row[i] = cursor_read(&c, src);
            encode_group((char *)stream + weft_f8_row(f, g * WEFT_F8_ROWS) - f->scale_bytes, f, row, n, from->type);
        }
    }
}

/* The largest finite number of a type. */
static double largest(weft_dtype t)
{
    switch (t) {
    case WEFT_F64: return 0x1.fffffffffffffp1023;
    case WEFT_BF16: return 0x1.fep127;
    case WEFT_F16: return 65504;
    default: return (double)0x1.fffffep127f;
    }
}

static void decode_row(char *y, weft_dtype type, const char *group, const weft_f8 *f, int64_t row_in_group)
{
    const char *x = group + f->scale_bytes + row_in_group * f->row_bytes + f->row_at;
    double top = largest(type);
    for (int h = 0; h < f->heads; h++) {
        int scale = (unsigned char)group[f->scale_at + h];
        for (int64_t i = (int64_t)h * f->width; i < (int64_t)(h + 1) * f->width; i++) {
            double v = ldexp(weft_load(x, f->type, i), scale - 127);
            weft_store(y, type, i, v > top ? top : v < -top ? -top : v);
        }
    }
}

void weft_move_f8_decode_ref(void *dst, const weft_rows *to, const void *stream, const weft_f8 *f, int64_t row0,
                             int64_t rows, const weft_attn_run *run)
{
    int threads = move_threads(run, rows, (int64_t)f->heads * f->width);
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int t = 0; t < threads; t++) {
        int64_t i = move_part(rows, t, threads), end = move_part(rows, t + 1, threads);
        cursor c = cursor_at(to, i);
        for (; i < end; i++) {
            int64_t in_group = (row0 + i) % WEFT_F8_ROWS, first = row0 + i - in_group;
            const char *group = (const char *)stream + weft_f8_row(f, first) - f->scale_bytes;
            decode_row(cursor_next(&c, dst), to->type, group, f, in_group);
        }
    }
}

void weft_move_fill_ref(weft_move_ops *ops, weft_prec prec)
{
    (void)prec; /* types come with each call */
    *ops = (weft_move_ops){weft_move_copy_ref, weft_move_add_ref, weft_move_zero_ref, weft_move_f8_encode_ref,
                           weft_move_f8_decode_ref};
}
