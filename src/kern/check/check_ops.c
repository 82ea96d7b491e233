/* check_ops.c — one case per operation of the table: it runs the kernels on awkward sizes and keeps what they wrote, so
 * that two instruction sets, or two precisions, can be compared. Gaps between rows, work and ignored rows hold NaN:
 * whatever reads them shows. */
#include "kern/check/check_impl.h"

#include <math.h>
#include <string.h>

typedef weft_check_run run;
enum kind { REAL, COMPUTE };

static weft_dtype type_of(weft_prec p, enum kind k) { return k == REAL ? weft_prec_real(p) : weft_prec_compute(p); }

static void *take(run *t, int64_t n, size_t size) { return t->take(t->memory, (size_t)n * size, size); }

/* [rows, cols], with `gap` elements between rows and nothing behind the last. */
static void *take_rows(run *t, weft_dtype type, int64_t rows, int64_t cols, int64_t gap)
{
    return take(t, rows ? rows * (cols + gap) - gap : 0, weft_dtype_size(type));
}

/* The sum of three uniform numbers from one hash, with mean 0 and variance 1; exact in fp32. */
double weft__check_number(uint64_t seed, int64_t i)
{
    uint64_t h = ((uint64_t)i + (seed << 40)) * 0x9e3779b97f4a7c15u;
    h = (h ^ h >> 32) * 0xd6e8feb86659fd93u;
    h ^= h >> 32;
    const uint64_t part = (1u << 21) - 1, sum = (h & part) + (h >> 21 & part) + (h >> 42 & part);
    return (double)sum * 0x1p-20 - 3;
}

/* With `gap` elements of NaN between rows. */
static void *input(run *t, enum kind kind, int64_t rows, int64_t cols, int64_t gap, int seed, double size)
{
    const weft_dtype to = type_of(t->prec, kind), via = type_of(t->from, kind);
    void *x = take_rows(t, to, rows, cols, gap);
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < cols; c++) {
            double rounded;
            weft_store(&rounded, via, 0, size * weft__check_number((uint64_t)seed, r * cols + c));
            weft_store(x, to, r * (cols + gap) + c, weft_load(&rounded, via, 0));
        }
    return x;
}

static void *blank(run *t, enum kind kind, int64_t rows, int64_t cols, int64_t gap)
{
    return take_rows(t, type_of(t->prec, kind), rows, cols, gap); /* NaN */
}

static void *work(run *t, int64_t n)
{
    const weft_dtype real = weft_prec_real(t->prec);
    return take(t, (int64_t)(weft_norm_work_bytes(t->prec, n, t->threads) / weft_dtype_size(real)),
                weft_dtype_size(real)); /* NaN */
}

/* Keeps the values of an output; its gaps must still hold NaN. */
static void output(run *t, const char *name, enum kind kind, const void *x, int64_t rows, int64_t cols, int64_t gap)
{
    const weft_dtype type = type_of(t->prec, kind);
    weft_check_result *o = &t->out[t->n_out++];
    *o = (weft_check_result){take(t, rows * cols, sizeof(double)), rows * cols, kind == COMPUTE, name};
    for (int64_t r = 0; r < rows; r++) {
        for (int64_t c = 0; c < cols; c++) o->x[r * cols + c] = weft_load(x, type, r * (cols + gap) + c);
        for (int64_t c = cols; c < cols + gap && r + 1 < rows; c++)
            if (!isnan(weft_load(x, type, r * (cols + gap) + c))) t->touched = name;
    }
}

/* ---- one case per operation. eps is large, so that rstd stays moderate for rows of one element. ----- */

enum { HEADS = 3 };
static const double EPS = 0.1;

static void case_rmsnorm(run *t)
{
    const int64_t R = t->rows, n = t->n, g = t->gap, ld = n + g;
    void *x = input(t, REAL, R, n, g, 1, 1), *w = input(t, REAL, 1, n, 0, 2, 1), *y = blank(t, COMPUTE, R, n, g);
    void *rstd = blank(t, REAL, R, 1, 0), *dy = input(t, COMPUTE, R, n, g, 3, 1), *dx = input(t, REAL, R, n, g, 4, 1);
    void *dw = input(t, REAL, 1, n, 0, 5, 1);
    t->op->rmsnorm_fwd(y, ld, rstd, x, ld, w, R, n, EPS, t->threads);
    t->op->rmsnorm_bwd(dx, ld, dw, dy, ld, x, ld, w, rstd, R, n, work(t, n), t->threads);
    output(t, "y", COMPUTE, y, R, n, g);
    output(t, "rstd", REAL, rstd, R, 1, 0);
    output(t, "dx", REAL, dx, R, n, g);
    output(t, "dw", REAL, dw, 1, n, 0);
}

static void case_headnorm(run *t)
{
    const int64_t R = t->rows, n = t->n, g = t->gap, ld = HEADS * n + g;
    void *x = input(t, COMPUTE, R, HEADS * n, g, 1, 1), *w = input(t, REAL, 1, n, 0, 2, 1);
    void *keep = blank(t, COMPUTE, R, HEADS * n, 0), *rstd = blank(t, REAL, R, HEADS, 0);
    void *dy = input(t, COMPUTE, R, HEADS * n, g, 3, 1), *dw = input(t, REAL, 1, n, 0, 5, 1);
    t->op->headnorm_fwd(x, ld, keep, rstd, w, R, HEADS, n, EPS, t->threads);
    t->op->headnorm_bwd(dy, ld, dw, keep, w, rstd, R, HEADS, n, work(t, n), t->threads);
    output(t, "x", COMPUTE, x, R, HEADS * n, g);
    output(t, "keep", COMPUTE, keep, R, HEADS * n, 0);
    output(t, "rstd", REAL, rstd, R, HEADS, 0);
    output(t, "dy", COMPUTE, dy, R, HEADS * n, g);
    output(t, "dw", REAL, dw, 1, n, 0);
}

static void case_layernorm(run *t)
{
    const int64_t R = t->rows, n = t->n, g = t->gap, ld = n + g;
    void *x = input(t, REAL, R, n, g, 1, 1), *w = input(t, REAL, 1, n, 0, 2, 1), *b = input(t, REAL, 1, n, 0, 6, 1);
    void *y = blank(t, COMPUTE, R, n, g), *mean = blank(t, REAL, R, 1, 0), *rstd = blank(t, REAL, R, 1, 0);
    void *dy = input(t, COMPUTE, R, n, g, 3, 1), *dx = input(t, REAL, R, n, g, 4, 1);
    void *dw = input(t, REAL, 1, n, 0, 5, 1), *db = input(t, REAL, 1, n, 0, 7, 1);
    t->op->layernorm_fwd(y, ld, mean, rstd, x, ld, w, b, R, n, EPS, t->threads);
    t->op->layernorm_bwd(dx, ld, dw, db, dy, ld, x, ld, w, mean, rstd, R, n, work(t, n), t->threads);
    output(t, "y", COMPUTE, y, R, n, g);
    output(t, "mean", REAL, mean, R, 1, 0);
    output(t, "rstd", REAL, rstd, R, 1, 0);
    output(t, "dx", REAL, dx, R, n, g);
    output(t, "dw", REAL, dw, 1, n, 0);
    output(t, "db", REAL, db, 1, n, 0);
}

static void case_rope(run *t)
{
    const int64_t R = t->rows, n = t->n, g = t->gap, ld = HEADS * n + g, half = n / 2;
    void *x = input(t, COMPUTE, R, HEADS * n, g, 1, 1), *z = input(t, COMPUTE, R, HEADS * n, g, 2, 1);
    void *cos = input(t, REAL, R, half, 0, 3, 1), *sin = input(t, REAL, R, half, 0, 4, 1); /* any table: it is linear */
    t->op->rope(x, ld, cos, sin, R, HEADS, n, 1, t->threads);
    t->op->rope(z, ld, cos, sin, R, HEADS, n, -1, t->threads);
    output(t, "forward", COMPUTE, x, R, HEADS * n, g);
    output(t, "backward", COMPUTE, z, R, HEADS * n, g);
}

static void case_swiglu(run *t)
{
    const int64_t R = t->rows, n = t->n, g = t->gap, ld = n + g;
    void *gate = input(t, COMPUTE, R, n, g, 1, 3), *up = input(t, COMPUTE, R, n, 2 * g, 2, 1),
         *y = blank(t, COMPUTE, R, n, g);
    void *dy = input(t, COMPUTE, R, n, g, 3, 1), *dgate = blank(t, COMPUTE, R, n, g), *dup = blank(t, COMPUTE, R, n, g);
    t->op->swiglu_fwd(y, ld, gate, ld, up, n + 2 * g, R, n, t->threads);
    t->op->swiglu_bwd(dgate, ld, dup, ld, dy, ld, gate, ld, up, n + 2 * g, R, n, t->threads);
    t->op->swiglu_bwd(gate, ld, up, n + 2 * g, dy, ld, gate, ld, up, n + 2 * g, R, n, t->threads); /* in place */
    output(t, "y", COMPUTE, y, R, n, g);
    output(t, "dgate", COMPUTE, dgate, R, n, g);
    output(t, "dup", COMPUTE, dup, R, n, g);
    output(t, "dgate in place", COMPUTE, gate, R, n, g);
    output(t, "dup in place", COMPUTE, up, R, n, 2 * g);
}

static void case_gelu(run *t)
{
    const int64_t R = t->rows, n = t->n, g = t->gap, ld = n + g;
    void *x = input(t, COMPUTE, R, n, g, 1, 2), *y = blank(t, COMPUTE, R, n, g), *dy = input(t, COMPUTE, R, n, g, 3, 1);
    void *dx = blank(t, COMPUTE, R, n, g);
    t->op->gelu_fwd(y, ld, x, ld, R, n, t->threads);
    t->op->gelu_bwd(dx, ld, dy, ld, x, ld, R, n, t->threads);
    t->op->gelu_bwd(dy, ld, dy, ld, x, ld, R, n, t->threads); /* in place */
    output(t, "y", COMPUTE, y, R, n, g);
    output(t, "dx", COMPUTE, dx, R, n, g);
    output(t, "dx in place", COMPUTE, dy, R, n, g);
}

static void case_bias(run *t)
{
    const int64_t R = t->rows, n = t->n, g = t->gap, ld = n + g;
    void *y = input(t, COMPUTE, R, n, g, 1, 1), *r = input(t, REAL, R, n, g, 2, 1), *b = input(t, REAL, 1, n, 0, 3, 1);
    void *dy = input(t, COMPUTE, R, n, g, 4, 1), *db = input(t, REAL, 1, n, 0, 5, 1);
    t->op->bias_fwd(y, ld, b, R, n, t->threads);
    t->op->bias_fwd_r(r, ld, b, R, n, t->threads);
    t->op->bias_bwd(db, dy, ld, R, n, work(t, n), t->threads);
    output(t, "y", COMPUTE, y, R, n, g);
    output(t, "y (R)", REAL, r, R, n, g);
    output(t, "db", REAL, db, 1, n, 0);
}

static void case_embed(run *t)
{
    enum { IDS = 7, PLACES = 3 };
    const int64_t R = t->rows, n = t->n;
    int32_t *id = take(t, R, sizeof *id);
    int64_t *pos = take(t, R, sizeof *pos);
    for (int64_t r = 0; r < R; r++) id[r] = r % 5 == 4 ? -1 : (int32_t)(r * r % IDS), pos[r] = r % PLACES;
    void *table = input(t, REAL, IDS, n, 0, 1, 1), *places = input(t, REAL, PLACES, n, 0, 2, 1);
    void *x = blank(t, REAL, R, n, 0), *x_pos = blank(t, REAL, R, n, 0), *dx = input(t, REAL, R, n, 0, 3, 1);
    t->op->embed_fwd(x, id, NULL, table, NULL, R, n, t->threads);
    t->op->embed_fwd(x_pos, id, pos, table, places, R, n, t->threads);
    output(t, "x", REAL, x, R, n, 0);
    output(t, "x + pos", REAL, x_pos, R, n, 0);
    t->op->embed_bwd(table, NULL, id, NULL, dx, R, n, t->threads);
    t->op->embed_bwd(table, places, id, pos, dx, R, n, t->threads);
    output(t, "dtable", REAL, table, IDS, n, 0);
    output(t, "dpos", REAL, places, PLACES, n, 0);
}

static void case_xent(run *t)
{
    const int64_t R = t->rows, n = t->n, g = t->gap, ld = n + g;
    int32_t *target = take(t, R, sizeof *target);
    void *x = input(t, REAL, R, n, g, 1, 5), *same = input(t, REAL, R, n, g, 1, 5);
    void *nll = blank(t, REAL, R, 1, 0), *only = blank(t, REAL, R, 1, 0), *d = blank(t, COMPUTE, R, n, g);
    for (int64_t r = 0; r < R; r++) {
        target[r] = r % 3 == 1 ? -100 : (int32_t)(r * 7 % n);
        if (r % 3 == 1) /* ignored rows are not read */
            for (int64_t i = 0; i < n; i++) {
                weft_store(x, type_of(t->prec, REAL), r * ld + i, NAN);
                weft_store(same, type_of(t->prec, REAL), r * ld + i, NAN);
            }
    }
    t->op->xent(only, NULL, 0, x, ld, target, 0.25, R, n, t->threads);
    t->op->xent(nll, d, ld, x, ld, target, 0.25, R, n, t->threads);
    output(t, "nll", REAL, nll, R, 1, 0);
    output(t, "nll without gradient", REAL, only, R, 1, 0);
    output(t, "dlogits", COMPUTE, d, R, n, g);
    if (type_of(t->from, REAL) != type_of(t->from, COMPUTE)) return;
    t->op->xent(nll, same, ld, same, ld, target, 0.25, R, n, t->threads);
    output(t, "in place", REAL, same, R, n, g);
}

/* Columns 0 .. k-1 and k .. n-1 apart, k = 0 and n included; what they have in common is merged in between. */
static void case_xent_part(run *t)
{
    const int64_t R = t->rows, n = t->n, g = t->gap, ld = n + g, k = n * (t->rows % 4) / 3;
    int32_t *target = take(t, R, sizeof *target);
    const weft_dtype real = type_of(t->prec, REAL), compute = type_of(t->prec, COMPUTE);
    void *x = input(t, REAL, R, n, g, 1, 5), *d = blank(t, COMPUTE, R, n, g), *sums = blank(t, REAL, R, 9, 0);
    double *part = take(t, 9 * R, sizeof *part), *whole = part + 6 * R;
    void *behind = (char *)x + k * (int64_t)weft_dtype_size(real);
    void *d_behind = (char *)d + k * (int64_t)weft_dtype_size(compute);
    for (int64_t r = 0; r < R; r++) {
        target[r] = r % 3 == 1 ? -100 : (int32_t)(r * 7 % n);
        for (int64_t i = 0; r % 3 == 1 && i < n; i++) weft_store(x, real, r * ld + i, NAN);
        for (int64_t i = 0; r % 7 == 6 && k < n && i < k; i++) weft_store(x, real, r * ld + i, -INFINITY);
    }
    for (int keep = 0; keep < 2; keep++) {
        t->op->xent_part(part, keep, x, ld, target, 0, R, k, t->threads);
        t->op->xent_part(part + 3 * R, keep, behind, ld, target, k, R, n - k, t->threads);
    }
    for (int64_t r = 0; r < R; r++) {
        double *a = part + 3 * r, *b = a + 3 * R, *w = whole + 3 * r;
        w[0] = fmax(a[0], b[0]);
        w[1] = a[1] * exp(a[0] - w[0]) + b[1] * exp(b[0] - w[0]);
        w[2] = a[2] + b[2];
        for (int i = 0; i < 3; i++) { /* comparisons of results take finite numbers */
            weft_store(sums, real, 9 * r + i, fmax(a[i], -1e3));
            weft_store(sums, real, 9 * r + 3 + i, fmax(b[i], -1e3));
            weft_store(sums, real, 9 * r + 6 + i, fmax(w[i], -1e3));
        }
    }
    t->op->xent_part_bwd(d, ld, x, ld, target, 0, part, whole, 0.25, R, k, t->threads);
    t->op->xent_part_bwd(d_behind, ld, behind, ld, target, k, part + 3 * R, whole, 0.25, R, n - k, t->threads);
    output(t, "stats", REAL, sums, R, 9, 0);
    output(t, "dlogits", COMPUTE, d, R, n, g);
}

static void case_adamw(run *t)
{
    const int64_t n = t->rows * t->n;
    void *p = input(t, REAL, 1, n, 0, 1, 1), *m = input(t, REAL, 1, n, 0, 2, 0), *v = input(t, REAL, 1, n, 0, 3, 0);
    for (int step = 1; step <= 3; step++) {
        const weft_adamw_args a = {1e-2, 0.9, 0.999, 1e-8, 0.1, 1 - pow(0.9, step), 1 - pow(0.999, step), 0.5};
        t->op->adamw(p, input(t, REAL, 1, n, 0, 3 + step, 1), m, v, n, &a, t->threads);
    }
    output(t, "p", REAL, p, 1, n, 0);
    output(t, "m", REAL, m, 1, n, 0);
    output(t, "v", REAL, v, 1, n, 0);
}

static void case_arrays(run *t)
{
    const int64_t R = t->rows, n = t->n, g = t->gap, all = R * n;
    void *x = input(t, REAL, 1, all, 0, 1, 1), *y = input(t, REAL, 1, all, 0, 2, 1),
         *c = input(t, COMPUTE, 1, all, 0, 3, 1);
    void *to_c = blank(t, COMPUTE, 1, all, 0), *to_r = blank(t, REAL, 1, all, 0), *sum = blank(t, REAL, 1, 1, 0);
    void *rows_r = input(t, REAL, R, n, g, 4, 1), *rows_c = input(t, COMPUTE, R, n, 2 * g, 5, 1);
    weft_store(sum, type_of(t->prec, REAL), 0, t->op->sumsq(x, all, t->threads));
    t->op->to_compute(to_c, x, all, t->threads);
    t->op->to_real(to_r, c, all, t->threads);
    t->op->axpy(y, x, -0.37, all, t->threads);
    t->op->scale(x, 1.7, all, t->threads);
    t->op->add_real(rows_r, n + g, rows_c, n + 2 * g, R, n, t->threads);
    output(t, "sumsq", REAL, sum, 1, 1, 0);
    output(t, "to_compute", COMPUTE, to_c, 1, all, 0);
    output(t, "to_real", REAL, to_r, 1, all, 0);
    output(t, "axpy", REAL, y, 1, all, 0);
    output(t, "scale", REAL, x, 1, all, 0);
    output(t, "add_real", REAL, rows_r, R, n, g);
}

/* The largest magnitude wherever it stands, and what no comparison of floats would find. */
static void case_guard(run *t)
{
    const int64_t R = t->rows, n = t->n, g = t->gap, ld = n + g;
    const double bad[] = {-0x1.8p14, INFINITY, -INFINITY, NAN};
    void *most = blank(t, REAL, 4, 2, 0), *nan = blank(t, REAL, 4, 2, 0), *plain = blank(t, REAL, 1, 2, 0);
    const weft_dtype real = type_of(t->prec, REAL), compute = type_of(t->prec, COMPUTE);
    void *c = input(t, COMPUTE, R, n, g, 1, 1), *r = input(t, REAL, R, n, g, 2, 1);
    weft_store(plain, real, 0, t->op->guard(c, ld, R, n, t->threads));
    weft_store(plain, real, 1, t->op->guard_r(r, ld, R, n, t->threads));
    for (int i = 0; i < 4; i++) {
        const int64_t row = R ? (R - 1) * (i + 1) / 4 : 0, col = (n - 1) * (4 - i) / 4, at = row * ld + col;
        double was[2] = {0}, got[2];
        if (R) {
            was[0] = weft_load(c, compute, at), was[1] = weft_load(r, real, at);
            weft_store(c, compute, at, bad[i]), weft_store(r, real, at, bad[i]);
        }
        got[0] = t->op->guard(c, ld, R, n, t->threads);
        got[1] = t->op->guard_r(r, ld, R, n, t->threads);
        for (int j = 0; j < 2; j++) { /* comparisons of results take finite numbers */
            const double shown = isnan(got[j]) ? 2 : isinf(got[j]) ? 1 : 0;
            weft_store(nan, real, 2 * i + j, shown);
            weft_store(most, real, 2 * i + j, shown == 0 ? got[j] : 0);
        }
        if (R) weft_store(c, compute, at, was[0]), weft_store(r, real, at, was[1]);
    }
    output(t, "guard", REAL, plain, 1, 2, 0);
    output(t, "guard with something larger", REAL, most, 4, 2, 0);
    output(t, "guard with infinity and NaN", REAL, nan, 4, 2, 0);
}

/* The masks are the same bits for every instruction set, or whole elements would differ. In place, too. */
static void case_drop(run *t)
{
    const int64_t R = t->rows, n = t->n;
    const weft_drop d = {.p = 0.37, .seed = 0x123456789abcULL, .word3 = 0x51234567u, .T = 7, .sample0 = 65530};
    int64_t *index = take(t, R, sizeof *index);
    for (int64_t i = 0; i < R; i++) index[i] = 5 * i + 3;
    void *from = input(t, REAL, R, n, 0, 1, 1), *y = input(t, REAL, R, n, 0, 2, 1);
    void *alone = input(t, REAL, R, n, 0, 3, 1);
    void *c = blank(t, COMPUTE, R, n, 0), *to = blank(t, REAL, R, n, 0);
    t->op->drop_add(to, from, y, index, R, n, &d, t->threads);
    t->op->drop_add(alone, NULL, alone, index, R, n, &d, t->threads);
    t->op->drop_to_compute(c, y, index, R, n, &d, t->threads);
    output(t, "drop_add", REAL, to, R, n, 0);
    output(t, "drop_add alone", REAL, alone, R, n, 0);
    output(t, "drop_to_compute", COMPUTE, c, R, n, 0);
}

static const weft_check_case cases[] = {
    {"rmsnorm_fwd rmsnorm_bwd", case_rmsnorm}, {"headnorm_fwd headnorm_bwd", case_headnorm},
    {"layernorm_fwd layernorm_bwd", case_layernorm}, {"rope", case_rope}, {"swiglu_fwd swiglu_bwd", case_swiglu},
    {"gelu_fwd gelu_bwd", case_gelu}, {"bias_fwd bias_bwd bias_fwd_r", case_bias}, {"embed_fwd embed_bwd", case_embed},
    {"xent", case_xent}, {"xent_part xent_part_bwd", case_xent_part}, {"adamw", case_adamw},
    {"guard guard_r", case_guard}, {"drop_add drop_to_compute", case_drop},
    {"sumsq axpy scale to_compute to_real add_real", case_arrays}};

const weft_check_case *weft__check_cases(int *n)
{
    *n = (int)(sizeof cases / sizeof *cases);
    return cases;
}

/* ---- comparison ----------------------------------------------------------------------------------------- */

/* R: a few roundings of 2^-24 per element, amplified by differences (x - mean, h - mean). C: one rounding on
 * top of that, at most u = 2^-8 (bf16) or 2^-11 (fp16; the floor of 0.01 per element covers its subnormals)
 * and 0.41 u in the mean of many: more would mean a second rounding, or truncation. */
static double limit_of(weft_prec p, bool is_c, int64_t count)
{
    const double u = p == WEFT_PREC_BF16 ? 0x1p-8 : 0x1p-11;
    if (p == WEFT_PREC_F64) return 1e-13;
    if (p == WEFT_PREC_F32 || !is_c) return 3e-6;
    return 3e-6 + (count < 1000 ? u : 0.55 * u);
}

bool weft__check_compare(const run *t, const run *want, char *text, size_t n)
{
    weft_line line = {text, n, 0};
    if (t->touched) {
        weft_line_add(&line, "writes between the rows of %s", t->touched);
        return false;
    }
    for (int i = 0; i < t->n_out; i++) {
        const weft_check_result *a = &t->out[i], *b = &want->out[i];
        const double err = weft_rel_l2(a->x, WEFT_F64, b->x, WEFT_F64, a->count, 0.01 * sqrt((double)a->count));
        const double limit = limit_of(t->prec, a->is_c, a->count);
        if (err <= limit) continue;
        weft_line_add(&line, "%s is off by %.2e (limit %.2e)", a->name, err, limit);
        return false;
    }
    return true;
}

bool weft__check_same_bits(const run *a, const run *b, char *text, size_t n)
{
    weft_line line = {text, n, 0};
    for (int i = 0; i < a->n_out; i++) {
        if (!memcmp(a->out[i].x, b->out[i].x, (size_t)a->out[i].count * sizeof(double))) continue;
        weft_line_add(&line, "%s depends on the number of threads", a->out[i].name);
        return false;
    }
    return true;
}

int weft__check_case_of(const char *op)
{
    const size_t length = strlen(op);
    for (int c = 0; c < (int)(sizeof cases / sizeof *cases); c++) {
        const char *all = cases[c].ops, *found = strstr(all, op);
        if (found && (found[length] == ' ' || found[length] == 0) && (found == all || found[-1] == ' ')) return c;
    }
    return -1;
}

size_t weft__check_bytes(int64_t rows, int64_t n)
{
    enum { ALIGN = 64, GAPS = 16, OTHERS = 256 /* statistics, tables of ids, partial sums of norms */ };
    const int64_t block = rows * (HEADS * n + GAPS) + OTHERS * n + ALIGN;
    return (size_t)block * WEFT_CHECK_BLOCKS * sizeof(double);
}
