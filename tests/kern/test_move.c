/* labels: small */
/* Moving rows: copies, sums and 8-bit blocks. What they mean (properties), then every instruction set against the
 * reference, bit for bit, at awkward sizes, through maps and ranges, with one thread and with three. */
#include "harness/place.h"
#include "harness/test.h"
#include "kern/kern.h"

static const weft_dtype types[] = {WEFT_F64, WEFT_F32, WEFT_BF16, WEFT_F16};
enum { TYPES = 4 };

static weft_move_ops ops_of(weft_isa isa)
{
    weft_kern k;
    assert_ok(weft_kern_init(&k, isa));
    return k.op[WEFT_PREC_F32].move;
}

static weft_attn_run with(int threads) { return (weft_attn_run){.threads = threads}; }

/* Numbers of all sizes, with zeros, infinities, NaN and the largest of each type. */
static double hard(int64_t i)
{
    static const double odd[] = {0, -0.0, 1, 448, 449, -65504, 65520, 0x1p-14, 0x1.8p-25, 3e38, -0x1.fffffep127, 1e-40,
                                 INFINITY, -INFINITY, NAN, 0x1p-9, 0x1p-10, 0x1.8p-10, 464, 57344, 61440};
    if (i % 5 == 3) return odd[(i / 5) % 21];
    return ldexp(test_normal(3, i), (int)(i % 7) * 4 - 12);
}

/* All NaN, against a page that cannot be read: now behind the last byte, now before the first. */
static void *blank(weft_dtype t, int64_t n)
{
    static int turn;
    return place_new((size_t)n * weft_dtype_size(t), weft_dtype_size(t), turn++ % 2 ? PLACE_FIRST : PLACE_LAST);
}

static void *numbers(weft_dtype t, int64_t n, double (*of)(int64_t))
{
    void *x = blank(t, n);
    for (int64_t i = 0; i < n; i++) weft_store(x, t, i, of(i));
    return x;
}

/* Equal as numbers of the type, any NaN being like any other. */
static void same(weft_dtype t, const void *a, const void *b, int64_t n, const char *what)
{
    for (int64_t i = 0; i < n; i++) {
        double x = weft_load(a, t, i), y = weft_load(b, t, i);
        if (!((isnan(x) && isnan(y)) || (x == y && signbit(x) == signbit(y))))
            fail_msg("%s: element %d is %a, must be %a", what, (int)i, x, y);
    }
}

/* ---- selections: rows 0..n-1 through nothing, a map, ranges ---------------------------------------------------- */

enum { ROWS_MAX = 80 };
typedef struct selection { weft_rows rows; int64_t map[ROWS_MAX]; weft_range range[ROWS_MAX]; } selection;

static void select_rows(selection *s, weft_dtype t, int64_t ld, int kind, int64_t rows)
{
    s->rows = (weft_rows){.type = t, .ld = ld};
    for (int64_t i = 0; i < rows; i++) s->map[i] = i * 7 % rows; /* rows is no multiple of 7 here */
    if (kind == 1) s->rows.map = s->map;
    if (kind != 2) return;
    int64_t at = 0, n = 0; /* ranges of 0, 1, 2, 3, ... rows with gaps between them */
    for (int64_t left = rows; left > 0; n++) {
        s->range[n] = (weft_range){at, weft_min_i64(left, n % 4)};
        left -= s->range[n].len;
        at += s->range[n].len + n % 2;
    }
    s->rows.range = s->range;
}

static int64_t row_at(const selection *s, int64_t i)
{
    if (s->rows.map) return s->map[i];
    if (!s->rows.range) return i;
    const weft_range *r = s->range;
    for (; i >= r->len; r++) i -= r->len;
    return r->begin + i;
}

/* Elements from the first row to the end of the last of `n`. */
static int64_t span_of(const selection *s, int64_t rows, int64_t n)
{
    int64_t last = -1;
    for (int64_t i = 0; i < rows; i++) last = weft_max_i64(last, row_at(s, i));
    return last < 0 ? 0 : last * s->rows.ld + n;
}

static const int64_t row_counts[] = {0, 1, 2, 3, 5, 16, 17, 33, 79}, widths[] = {1, 3, 7, 8, 33, 64, 257};

static void check_copy(weft_isa isa, weft_dtype to, weft_dtype from, int64_t rows, int64_t n, int kind)
{
    weft_move_ops op = ops_of(isa);
    selection a, b;
    select_rows(&a, to, n + 5, kind, rows);
    select_rows(&b, from, n + 2, (kind + 1) % 3, rows);
    int64_t all = span_of(&a, rows, n);
    void *src = numbers(from, span_of(&b, rows, n), hard), *want = blank(to, all);
    for (int64_t i = 0; i < rows; i++)
        for (int64_t x = 0; x < n; x++)
            weft_store(want, to, row_at(&a, i) * (n + 5) + x, weft_load(src, from, row_at(&b, i) * (n + 2) + x));
    for (int threads = 1; threads <= 3; threads += 2) {
        weft_attn_run run = with(threads);
        void *got = blank(to, all);
        op.copy(got, &a.rows, src, &b.rows, rows, n, &run);
        same(to, got, want, all, "copy");
        place_free(got);
    }
    place_free(src), place_free(want);
}

static void copies_round_once_and_touch_nothing_else(void **state)
{
    (void)state;
    for (int isa = 0; isa < WEFT_ISA_COUNT; isa++)
        for (int p = 0; p < TYPES * TYPES && weft_isa_available((weft_isa)isa); p++)
            for (int i = 0; i < 9; i++)
                check_copy((weft_isa)isa, types[p / TYPES], types[p % TYPES], row_counts[i], widths[(i + p) % 7],
                           (i + p) % 3);
}

/* Large enough that threads share the work. */
static void large_copies(void **state)
{
    (void)state;
    weft_move_ops op = ops_of(weft_isa_best());
    const weft_rows f = {.type = WEFT_F32, .ld = 129}, h = {.type = WEFT_BF16, .ld = 128};
    void *x = numbers(WEFT_F32, 1001 * 129, hard), *a = blank(WEFT_BF16, 1001 * 128), *b = blank(WEFT_BF16, 1001 * 128);
    weft_attn_run one = with(1), three = with(3);
    op.copy(a, &h, x, &f, 1001, 128, &one);
    op.copy(b, &h, x, &f, 1001, 128, &three);
    assert_memory_equal(a, b, 1001 * 128 * 2);
    op.zero(a, 1001 * 128 * 2, &three);
    for (int64_t i = 0; i < 1001 * 128; i++) assert_int_equal(((uint16_t *)a)[i], 0);
    place_free(x), place_free(a), place_free(b);
}

static double plain(int64_t i) { return test_normal(8, i); }

static void sums_add_in_the_wide_type(void **state)
{
    (void)state;
    static const weft_dtype pairs[][2] = {{WEFT_F64, WEFT_F64}, {WEFT_F64, WEFT_F32}, {WEFT_F64, WEFT_BF16},
                                          {WEFT_F32, WEFT_F32}, {WEFT_F32, WEFT_BF16}, {WEFT_F32, WEFT_F16}};
    for (int isa = 0; isa < WEFT_ISA_COUNT; isa++)
        for (int p = 0; p < 6 && weft_isa_available((weft_isa)isa); p++)
            for (int kind = 0; kind < 3; kind++) {
                weft_move_ops op = ops_of((weft_isa)isa);
                weft_dtype to = pairs[p][0], from = pairs[p][1];
                int64_t rows = 33, n = 37;
                selection a, b;
                select_rows(&a, to, n + 1, kind, rows);
                select_rows(&b, from, n, (kind + 2) % 3, rows);
                int64_t all = span_of(&a, rows, n);
                void *src = numbers(from, span_of(&b, rows, n), plain);
                void *got = numbers(to, all, plain), *want = numbers(to, all, plain);
                for (int64_t i = 0; i < rows; i++)
                    for (int64_t x = 0; x < n; x++) {
                        int64_t at = row_at(&a, i) * (n + 1) + x;
                        double y = weft_load(want, to, at), z = weft_load(src, from, row_at(&b, i) * n + x);
                        weft_store(want, to, at, to == WEFT_F64 ? y + z : (double)((float)y + (float)z));
                    }
                weft_attn_run run = with(3);
                op.add(got, &a.rows, src, &b.rows, rows, n, &run);
                same(to, got, want, all, "add");
                place_free(src), place_free(got), place_free(want);
            }
}

/* ---- 8-bit blocks ------------------------------------------------------------------------------------------------ */

/* Two tensors in one stream, as K and V are: heads x width 3 x 5 and 2 x 9, say. */
typedef struct streams { weft_f8 k, v; } streams;

static streams stream_of(weft_dtype type, int kh, int kw, int vh, int vw)
{
    weft_f8 k = {.type = type, .heads = kh, .width = kw, .scale_at = 0, .row_at = 0, .scale_bytes = kh + vh,
                 .row_bytes = kh * kw + vh * vw}, v = k;
    v.heads = vh, v.width = vw, v.scale_at = kh, v.row_at = kh * kw;
    return (streams){k, v};
}

typedef struct coded { uint8_t *bytes; int64_t n; } coded;

static coded encode(weft_isa isa, const streams *s, weft_dtype t, const void *k, const void *v, int64_t rows,
                    int threads)
{
    weft_move_ops op = ops_of(isa);
    weft_attn_run run = with(threads);
    coded c = {blank(WEFT_U8, weft_f8_bytes(&s->k, rows)), weft_f8_bytes(&s->k, rows)};
    weft_rows from = {.type = t, .ld = s->k.heads * s->k.width};
    op.f8_encode(c.bytes, &s->k, k, &from, rows, &run);
    from.ld = s->v.heads * s->v.width;
    op.f8_encode(c.bytes, &s->v, v, &from, rows, &run);
    return c;
}

/* The largest relative error of a nearest number with m explicit bits is 2^-(m+1); below the range of normal numbers of
 * the block, half of its smallest step, which is 2^(emin - m) of 1.75 2^top or more. */
static void check_round_trip(weft_isa isa, weft_dtype f8, weft_dtype t, int64_t rows)
{
    bool e4m3 = f8 == WEFT_F8_E4M3;
    streams s = stream_of(f8, 3, 5, 2, 64);
    int64_t nk = rows * 15, nv = rows * 128;
    void *k = numbers(t, nk, plain), *v = numbers(t, nv, plain), *back = blank(t, nv);
    coded c = encode(isa, &s, t, k, v, rows, 1), d = encode(isa, &s, t, k, v, rows, 3);
    assert_memory_equal(c.bytes, d.bytes, (size_t)c.n);
    weft_move_ops op = ops_of(isa);
    weft_attn_run run = with(3);
    const weft_rows to = {.type = t, .ld = 128};
    for (int64_t row0 = 0; row0 < rows; row0 += 13) { /* any part of a stream decodes by itself */
        memset(back, 0xff, (size_t)nv * weft_dtype_size(t));
        op.f8_decode(back, &to, c.bytes, &s.v, row0, rows - row0, &run);
        for (int64_t i = 0; i < (rows - row0) * 128; i++) {
            double x = weft_load(v, t, row0 * 128 + i), y = weft_load(back, t, i), top = 0;
            int64_t row = row0 + i / 128, first = row / 16 * 16, head = i % 128 / 64;
            for (int64_t r = first; r < weft_min_i64(rows, first + 16); r++)
                for (int64_t w = 0; w < 64; w++) top = fmax(top, fabs(weft_load(v, t, r * 128 + head * 64 + w)));
            double step = top / (e4m3 ? 224 * 0x1p9 : 28672 * 0x1p16); /* top is over half of the largest number */
            if (!(fabs(x - y) <= fmax(fabs(x) * (e4m3 ? 0x1p-4 : 0x1p-3), step / 2)))
                fail_msg("%a came back as %a, largest of its block %a", x, y, top);
        }
    }
    place_free(k), place_free(v), place_free(back), place_free(c.bytes), place_free(d.bytes);
}

static void blocks_round_trip(void **state)
{
    (void)state;
    static const int64_t rows[] = {1, 16, 17, 37};
    for (int isa = 0; isa < WEFT_ISA_COUNT; isa++)
        for (int p = 0; p < 2 * TYPES && weft_isa_available((weft_isa)isa); p++)
            for (int i = 0; i < 4; i++)
                check_round_trip((weft_isa)isa, p % 2 ? WEFT_F8_E5M2 : WEFT_F8_E4M3, types[p / 2], rows[i]);
}

/* Every instruction set writes the bytes of the reference, and reads them to the same numbers; hard numbers too. */
static void blocks_have_one_form(void **state)
{
    (void)state;
    static const int widths_f8[] = {1, 7, 64, 256};
    for (int isa = 0; isa < WEFT_ISA_COUNT; isa++)
        for (int p = 0; p < 2 * TYPES && weft_isa_available((weft_isa)isa); p++)
            for (int w = 0; w < 4; w++) {
                weft_dtype t = types[p / 2];
                streams s = stream_of(p % 2 ? WEFT_F8_E5M2 : WEFT_F8_E4M3, 2, 3, 2, widths_f8[w]);
                int64_t rows = 37, n = 2 * widths_f8[w];
                void *k = numbers(t, rows * 6, plain), *v = numbers(t, rows * n, hard), *a = blank(t, rows * n),
                     *b = blank(t, rows * n);
                coded c = encode((weft_isa)isa, &s, t, k, v, rows, 2), r = encode(WEFT_ISA_REF, &s, t, k, v, rows, 1);
                for (int64_t i = 0; i < c.n; i++)
                    if (c.bytes[i] != r.bytes[i] && !((c.bytes[i] & 0x7f) == 0x7f && (r.bytes[i] & 0x7f) == 0x7f))
                        fail_msg("isa %d type %d width %d byte %d: %02x, reference %02x", isa, (int)t, widths_f8[w],
                                 (int)i, c.bytes[i], r.bytes[i]);
                const weft_rows to = {.type = t, .ld = n};
                weft_attn_run run = with(1);
                ops_of((weft_isa)isa).f8_decode(a, &to, r.bytes, &s.v, 0, rows, &run);
                ops_of(WEFT_ISA_REF).f8_decode(b, &to, r.bytes, &s.v, 0, rows, &run);
                same(t, a, b, rows * n, "decode");
                place_free(k), place_free(v), place_free(a), place_free(b), place_free(c.bytes), place_free(r.bytes);
            }
}

/* Zeros stay zero, what is no number stays none, and nothing finite becomes infinite or saturates. */
static void extremes_survive(void **state)
{
    (void)state;
    for (int i = 0; i < TYPES; i++) {
        weft_dtype t = types[i];
        double top = t == WEFT_F16 ? 65504 : t == WEFT_BF16 ? 0x1.fep127 : (double)0x1.fffffep127f;
        double x[4][4] = {{0, -0.0, 0, 0}, {top, -top, 1, 0}, {NAN, 3, -3, INFINITY}, {448, 449, -480, 464}};
        for (int r = 0; r < 4; r++) {
            streams s = stream_of(WEFT_F8_E4M3, 1, 4, 1, 4);
            void *v = blank(t, 4), *y = blank(t, 4);
            for (int j = 0; j < 4; j++) weft_store(v, t, j, x[r][j]);
            coded c = encode(weft_isa_best(), &s, t, v, v, 1, 1);
            const weft_rows to = {.type = t, .ld = 4};
            weft_attn_run run = with(1);
            ops_of(weft_isa_best()).f8_decode(y, &to, c.bytes, &s.v, 0, 1, &run);
            for (int j = 0; j < 4; j++) {
                double z = weft_load(y, t, j);
                if (!isfinite(x[r][j])) assert_true(isnan(z));
                else if (r == 1 && j == 2) assert_true(z == (t == WEFT_F16)); /* 1 beside the largest numbers */
                else assert_true(isfinite(z) && fabs(z - x[r][j]) <= fabs(x[r][j]) / 16);
            }
            place_free(v), place_free(y), place_free(c.bytes);
        }
    }
}

/* A rank without rows has no ranges either: none is looked at. */
static void no_rows_need_no_ranges(void **state)
{
    (void)state;
    const weft_range *nowhere = (const weft_range *)(uintptr_t)64;
    const weft_attn_run run = with(1);
    const weft_f8 f = {.type = WEFT_F8_E4M3, .heads = 2, .width = 3, .scale_bytes = 2, .row_bytes = 6};
    for (int isa = WEFT_ISA_REF; isa <= (int)weft_isa_best(); isa++) {
        if (!weft_isa_available((weft_isa)isa)) continue;
        weft_move_ops ops = ops_of((weft_isa)isa);
        for (int t = 0; t < TYPES; t++) {
            const weft_rows rows = {.type = types[t], .ld = 6, .range = nowhere};
            ops.copy(NULL, &rows, NULL, &rows, 0, 6, &run);
            ops.f8_encode(NULL, &f, NULL, &rows, 0, &run);
            ops.f8_decode(NULL, &rows, NULL, &f, 0, 0, &run);
            if (types[t] == WEFT_F64 || types[t] == WEFT_F32) ops.add(NULL, &rows, NULL, &rows, 0, 6, &run);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(copies_round_once_and_touch_nothing_else), cmocka_unit_test(large_copies),
        cmocka_unit_test(sums_add_in_the_wide_type), cmocka_unit_test(blocks_round_trip),
        cmocka_unit_test(blocks_have_one_form), cmocka_unit_test(extremes_survive),
        cmocka_unit_test(no_rows_need_no_ranges),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
