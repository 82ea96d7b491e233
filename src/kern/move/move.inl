/* move.inl — moving rows on a SIMD vocabulary (simd/avx2.h or simd/avx512.h and simd/rows.h): pairs of fp32, bf16 and
 * fp16, and 8-bit blocks from and to them. What has another type goes to the reference. */

#include "kern/move/move_impl.h"

#include <string.h>

typedef void (*row_fn)(void *y, const void *x, int64_t n);

static inline V ld_f32(const void *p, int64_t i, int64_t left) { return vld((const float *)p + i, left); }
static inline void st_f32(void *p, int64_t i, V v, int64_t left) { vst((float *)p + i, v, left); }
static inline V ld_bf16(const void *p, int64_t i, int64_t left)
{
    return left >= VLEN ? vload_bf16((const uint16_t *)p + i) : vload_bf16n((const uint16_t *)p + i, left);
}
static inline void st_bf16(void *p, int64_t i, V v, int64_t left)
{
    if (left >= VLEN) vstore_bf16((uint16_t *)p + i, v);
    else vstore_bf16n((uint16_t *)p + i, v, left);
}
static inline V ld_f16(const void *p, int64_t i, int64_t left)
{
    return left >= VLEN ? vload_f16((const uint16_t *)p + i) : vload_f16n((const uint16_t *)p + i, left);
}
static inline void st_f16(void *p, int64_t i, V v, int64_t left)
{
    if (left >= VLEN) vstore_f16((uint16_t *)p + i, v);
    else vstore_f16n((uint16_t *)p + i, v, left);
}

#define CONVERT(name, ld, st) \
    static void name(void *y, const void *x, int64_t n) \
    { \
        for (int64_t i = 0; i < n; i += VLEN) st(y, i, ld(x, i, n - i), n - i); \
    }
CONVERT(f32_to_bf16, ld_f32, st_bf16)
CONVERT(f32_to_f16, ld_f32, st_f16)
CONVERT(bf16_to_f32, ld_bf16, st_f32)
CONVERT(bf16_to_f16, ld_bf16, st_f16)
CONVERT(f16_to_f32, ld_f16, st_f32)
CONVERT(f16_to_bf16, ld_f16, st_bf16)
#undef CONVERT

#define ADD(name, ld) \
    static void name(void *y, const void *x, int64_t n) \
    { \
        for (int64_t i = 0; i < n; i += VLEN) st_f32(y, i, vadd(ld_f32(y, i, n - i), ld(x, i, n - i)), n - i); \
    }
ADD(add_f32, ld_f32)
ADD(add_bf16, ld_bf16)
ADD(add_f16, ld_f16)
#undef ADD

static void same_2(void *y, const void *x, int64_t n) { memcpy(y, x, (size_t)n * 2); }
static void same_4(void *y, const void *x, int64_t n) { memcpy(y, x, (size_t)n * 4); }
static void same_8(void *y, const void *x, int64_t n) { memcpy(y, x, (size_t)n * 8); }
static void same_1(void *y, const void *x, int64_t n) { memcpy(y, x, (size_t)n); }

static row_fn convert_fn(weft_dtype to, weft_dtype from)
{
    if (to == from) {
        size_t size = weft_dtype_size(to);
        return size == 8 ? same_8 : size == 4 ? same_4 : size == 2 ? same_2 : same_1;
    }
    if (from == WEFT_F32) return to == WEFT_BF16 ? f32_to_bf16 : to == WEFT_F16 ? f32_to_f16 : NULL;
    if (from == WEFT_BF16) return to == WEFT_F32 ? bf16_to_f32 : to == WEFT_F16 ? bf16_to_f16 : NULL;
    if (from == WEFT_F16) return to == WEFT_F32 ? f16_to_f32 : to == WEFT_BF16 ? f16_to_bf16 : NULL;
    return NULL;
}

static row_fn add_fn(weft_dtype to, weft_dtype from)
{
    if (to != WEFT_F32) return NULL;
    return from == WEFT_F32 ? add_f32 : from == WEFT_BF16 ? add_bf16 : from == WEFT_F16 ? add_f16 : NULL;
}

static void move_rows(row_fn fn, void *dst, const weft_rows *to, const void *src, const weft_rows *from, int64_t rows,
                      int64_t n, const weft_attn_run *run)
{
    int threads = move_threads(run, rows, n * (int64_t)weft_dtype_size(from->type));
#pragma omp parallel for num_threads(threads) schedule(static) if (threads > 1)
    for (int t = 0; t < threads; t++) {
        int64_t i = move_part(rows, t, threads), end = move_part(rows, t + 1, threads);
        cursor a = cursor_at(to, i), b = cursor_at(from, i);
        for (; i < end; i++) {
            char *y = cursor_next(&a, dst);
            fn(y, cursor_read(&b, src), n);
        }
    }
}

static void copy(void *dst, const weft_rows *to, const void *src, const weft_rows *from, int64_t rows, int64_t n,
                 const weft_attn_run *run)
{
    row_fn fn = convert_fn(to->type, from->type);
    if (fn) move_rows(fn, dst, to, src, from, rows, n, run);
    else weft_move_copy_ref(dst, to, src, from, rows, n, run);
}

static void add(void *dst, const weft_rows *to, const void *src, const weft_rows *from, int64_t rows, int64_t n,
                const weft_attn_run *run)
{
    row_fn fn = add_fn(to->type, from->type);
    if (fn) move_rows(fn, dst, to, src, from, rows, n, run);
    else weft_move_add_ref(dst, to, src, from, rows, n, run);
}

/* ---- 8-bit blocks: loops over bits without branches, which the compiler turns into vectors -------------------- */

enum { F8_WIDTH = 256 }; /* columns of a head at a time */

/* Bits of the largest finite magnitude. */
static uint32_t top_bits(const float *x, int n)
{
    uint32_t top = 0;
    for (int i = 0; i < n; i++) {
        uint32_t u;
        memcpy(&u, x + i, sizeof u);
        u &= 0x7fffffffu;
        u = u < 0x7f800000u ? u : 0;
        top = u > top ? u : top;
    }
    return top;
}

/* |x| by <= the largest number of the type, or not finite. `mantissa` bits, smallest normal exponent emin. Normal
 * results: half of the lost bits is added, ties to even, and a carry runs into the exponent. Others: a float whose last
 * bit stands for the smallest subnormal is added, so that the addition itself rounds. */
static inline void encode_bits(uint8_t *y, const float *x, float by, int n, const int mantissa, const int emin)
{
    const int lost = 23 - mantissa;
    const uint32_t half = (1u << (lost - 1)) - 1, bias = (uint32_t)(127 + emin - 1) << mantissa;
    const union { uint32_t u; float f; } least = {(uint32_t)(127 + emin) << 23},
                                         magic = {(uint32_t)(127 + emin - mantissa + 23) << 23};
    for (int i = 0; i < n; i++) {
        union { float f; uint32_t u; } v = {x[i]}, s = {x[i] * by}, small;
        uint32_t a = s.u & 0x7fffffffu, whole = (v.u & 0x7fffffffu) < 0x7f800000u;
        small.u = a;
        small.f += magic.f;
        uint32_t normal = ((a + half + (a >> lost & 1u)) >> lost) - bias;
        uint32_t code = a < least.u ? small.u - magic.u : normal;
        code = whole ? code : 0x7fu;
        y[i] = (uint8_t)(code | (v.u >> 24 & 0x80u));
    }
}

static void encode_row(uint8_t *y, const float *x, float by, int n, weft_dtype type)
{
    if (type == WEFT_F8_E4M3) encode_bits(y, x, by, n, 3, -6);
    else encode_bits(y, x, by, n, 2, -14);
}

/* byte * by, within +-top; a NaN stays one. */
static inline void decode_bits(float *y, const uint8_t *x, float by, float top, int n, const int mantissa,
                               const int emin, const uint32_t last)
{
    const union { uint32_t u; float f; } unit = {(uint32_t)(127 + emin - mantissa) << 23};
    for (int i = 0; i < n; i++) {
        uint32_t m = x[i] & 0x7fu;
        union { uint32_t u; float f; } v = {(m << (23 - mantissa)) + ((uint32_t)(127 + emin - 1) << 23)},
                                       small = {0}, sign;
        small.f = (float)(int32_t)m * unit.f;
        v.f = m < (1u << mantissa) ? small.f : v.f;
        v.f *= by;
        v.f = v.f > top ? top : v.f;
        v.u = m > last ? 0x7fc00000u : v.u;
        sign.u = v.u | (uint32_t)(x[i] & 0x80u) << 24;
        y[i] = sign.f;
    }
}

static void decode_row(float *y, const uint8_t *x, float by, float top, int n, weft_dtype type)
{
    if (type == WEFT_F8_E4M3) decode_bits(y, x, by, top, n, 3, -6, 0x7e);
    else decode_bits(y, x, by, top, n, 2, -14, 0x7b);
}

static row_fn to_float(weft_dtype t) { return convert_fn(WEFT_F32, t); }

static void encode_head(char *group, const weft_f8 *f, const char *const row[], int rows, weft_dtype type, int h)
{
    float x[WEFT_F8_ROWS][F8_WIDTH];
    const size_t size = weft_dtype_size(type);
    const int64_t at = (int64_t)h * f->width;
    uint32_t top = 0;
    for (int i = 0; i < rows; i++) {
        to_float(type)(x[i], row[i] + (size_t)at * size, f->width);
        uint32_t t = top_bits(x[i], f->width);
        top = t > top ? t : top;
    }
    int scale = top ? f8_scale(f->type, (int)(top >> 23) - 127, (top & 0x7fffffu) > 0x600000u) : 127;
    group[f->scale_at + h] = (char)scale;
    for (int i = 0; i < rows; i++)
        encode_row((uint8_t *)group + f->scale_bytes + i * f->row_bytes + f->row_at + at, x[i], f8_power(254 - scale),
                   f->width, f->type);
}

static void f8_encode(void *stream, const weft_f8 *f, const void *src, const weft_rows *from, int64_t rows,
                      const weft_attn_run *run)
{
    if (!to_float(from->type) || f->width > F8_WIDTH) {
        weft_move_f8_encode_ref(stream, f, src, from, rows, run);
        return;
    }
    int64_t groups = weft_ceil_div(rows, WEFT_F8_ROWS);
    int threads = move_threads(run, groups, WEFT_F8_ROWS * (int64_t)f->heads * f->width);
#pragma omp parallel for num_threads(threads) schedule(static) if (threads > 1)
    for (int t = 0; t < threads; t++) {
        int64_t g = move_part(groups, t, threads), end = move_part(groups, t + 1, threads);
        cursor c = cursor_at(from, g * WEFT_F8_ROWS);
        for (; g < end; g++) {
            const char *row[WEFT_F8_ROWS];
            char *group = (char *)stream + weft_f8_row(f, g * WEFT_F8_ROWS) - f->scale_bytes;
            int n = (int)weft_min_i64(WEFT_F8_ROWS, rows - g * WEFT_F8_ROWS);
            for (int i = 0; i < n; i++) row[i] = cursor_read(&c, src);
            for (int h = 0; h < f->heads; h++) encode_head(group, f, row, n, from->type, h);
        }
    }
}

static void f8_decode(void *dst, const weft_rows *to, const void *stream, const weft_f8 *f, int64_t row0, int64_t rows,
                      const weft_attn_run *run)
{
    row_fn fn = convert_fn(to->type, WEFT_F32);
    if (!fn || f->width > F8_WIDTH) {
        weft_move_f8_decode_ref(dst, to, stream, f, row0, rows, run);
        return;
    }
    const float top = to->type == WEFT_F16 ? 65504.0f : to->type == WEFT_BF16 ? 0x1.fep127f : 0x1.fffffep127f;
    const size_t size = weft_dtype_size(to->type);
    int threads = move_threads(run, rows, (int64_t)f->heads * f->width);
#pragma omp parallel for num_threads(threads) schedule(static) if (threads > 1)
    for (int t = 0; t < threads; t++) {
        int64_t i = move_part(rows, t, threads), end = move_part(rows, t + 1, threads);
        cursor c = cursor_at(to, i);
        for (; i < end; i++) {
            int64_t in_group = (row0 + i) % WEFT_F8_ROWS;
            const char *group = (const char *)stream + weft_f8_row(f, row0 + i - in_group) - f->scale_bytes;
            const uint8_t *x = (const uint8_t *)group + f->scale_bytes + in_group * f->row_bytes + f->row_at;
            char *y = cursor_next(&c, dst);
            for (int h = 0; h < f->heads; h++) {
                float v[F8_WIDTH];
                int64_t at = (int64_t)h * f->width;
                decode_row(v, x + at, f8_power((unsigned char)group[f->scale_at + h]), top, f->width, f->type);
                fn(y + (size_t)at * size, v, f->width);
            }
        }
    }
}

void SIMD_NAME(weft_move_fill)(weft_move_ops *ops, weft_prec prec)
{
    (void)prec; /* types come with each call */
    *ops = (weft_move_ops){copy, add, weft_move_zero_ref, f8_encode, f8_decode};
}
