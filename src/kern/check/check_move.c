/* check_move.c — copies, sums and 8-bit blocks of rows: every instruction set gives the bits of the reference. */
#include "kern/check/check_impl.h"

#include <math.h>
#include <string.h>

enum { ROWS = 37, HEADS = 3, WIDTH = 13, N = HEADS * WIDTH, GAP = 5 };

/* Numbers of all sizes, with zeros and what is no number. */
static double number(int64_t i)
{
    static const double odd[] = {0, 1, 448, -65504, 0x1p-14, 3e38, INFINITY, NAN, 0x1.8p-10, 61440};
    if (i % 5 == 3) return odd[i / 5 % 10];
    return ldexp(weft__check_number(3, i), (int)(i % 7) * 4 - 12);
}

static void *numbers(weft_check_memory *m, weft_dtype t, int64_t n)
{
    void *x = weft__check_take(m, (size_t)n * weft_dtype_size(t), 64);
    for (int64_t i = 0; i < n; i++) weft_store(x, t, i, number(i));
    return x;
}

/* As numbers: any NaN is like any other. */
static bool same(weft_dtype t, const void *a, const void *b, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        const double x = weft_load(a, t, i), y = weft_load(b, t, i);
        if (!((isnan(x) && isnan(y)) || (x == y && signbit(x) == signbit(y)))) return false;
    }
    return true;
}

static bool same_bytes(const uint8_t *a, const uint8_t *b, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        if (a[i] != b[i] && !((a[i] & 0x7f) == 0x7f && (b[i] & 0x7f) == 0x7f)) return false;
    return true;
}

typedef struct moves { const weft_move_ops *a, *b; weft_attn_run how; weft_check_memory *m; } moves;

static bool copies(const moves *t, weft_dtype to, weft_dtype from)
{
    const weft_rows d = {.type = to, .ld = N}, s = {.type = from, .ld = N + GAP};
    const void *src = numbers(t->m, from, ROWS * (N + GAP));
    void *x = numbers(t->m, to, ROWS * N), *y = numbers(t->m, to, ROWS * N);
    t->a->copy(x, &d, src, &s, ROWS, N, &t->how);
    t->b->copy(y, &d, src, &s, ROWS, N, &t->how);
    return same(to, x, y, ROWS * N);
}

static bool adds(const moves *t, weft_dtype to, weft_dtype from)
{
    const weft_rows d = {.type = to, .ld = N}, s = {.type = from, .ld = N + GAP};
    const void *src = numbers(t->m, from, ROWS * (N + GAP));
    void *x = numbers(t->m, to, ROWS * N), *y = numbers(t->m, to, ROWS * N);
    t->a->add(x, &d, src, &s, ROWS, N, &t->how);
    t->b->add(y, &d, src, &s, ROWS, N, &t->how);
    return same(to, x, y, ROWS * N);
}

static bool codes(const moves *t, weft_dtype real, weft_dtype code)
{
    const weft_f8 f = {.type = code, .heads = HEADS, .width = WIDTH, .scale_bytes = HEADS, .row_bytes = N};
    const weft_rows rows = {.type = real, .ld = N};
    const int64_t bytes = weft_f8_bytes(&f, ROWS);
    const void *src = numbers(t->m, real, ROWS * N);
    uint8_t *x = weft__check_take(t->m, (size_t)bytes, 64), *y = weft__check_take(t->m, (size_t)bytes, 64);
    t->a->f8_encode(x, &f, src, &rows, ROWS, &t->how);
    t->b->f8_encode(y, &f, src, &rows, ROWS, &t->how);
    if (!same_bytes(x, y, bytes)) return false;
    void *u = weft__check_take(t->m, ROWS * N * sizeof(double), 64);
    void *v = weft__check_take(t->m, ROWS * N * sizeof(double), 64);
    t->a->f8_decode(u, &rows, x, &f, 0, ROWS, &t->how);
    t->b->f8_decode(v, &rows, x, &f, 0, ROWS, &t->how);
    return same(real, u, v, ROWS * N);
}

bool weft__check_move(const weft_move_ops *ops, const weft_move_ops *ref, weft_prec prec, int threads,
                      weft_check_memory *memory, char *text, size_t n)
{
    const weft_dtype C = weft_prec_compute(prec), R = weft_prec_real(prec);
    const moves t = {ops, ref, {.threads = threads}, memory};
    const char *wrong = NULL;
    memory->used = 0;
    if (!copies(&t, C, R)) wrong = "a copy that rounds";
    else if (!copies(&t, R, C)) wrong = "a copy that widens";
    else if (!adds(&t, R, C)) wrong = "a sum";
    else if (!codes(&t, C, WEFT_F8_E4M3)) wrong = "a block of e4m3";
    else if (!codes(&t, C, WEFT_F8_E5M2)) wrong = "a block of e5m2";
    weft_line line = {text, n, 0};
    if (wrong) weft_line_add(&line, "%s has other bits than the specification", wrong);
    return !wrong;
}
