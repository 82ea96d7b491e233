/* labels: small */
/* Every backward operation against central differences of its forward operation, in fp64, coordinate by
 * coordinate: L = sum(dy * forward(inputs)), and dL/dinput must be (L(x + h) - L(x - h)) / 2h. */
#include "harness/test.h"

#include "kern/kern.h"

/* 19 rows: column sums go over two blocks of rows of unequal size. */
enum { ROWS = 19, N = 7, HEADS = 2, V = 5, INPUTS = 3, MAX = ROWS * HEADS * N };
static const double EPS = 1e-3;

typedef struct inputs { double *x[INPUTS]; int64_t n[INPUTS]; } inputs;

typedef struct operation {
    const char *name;
    int64_t n[INPUTS];                                                  /* elements of each input */
    int64_t ny;                                                         /* elements of the output */
    void (*forward)(const weft_kern_ops *op, const inputs *in, double *y);
    /* g[i] starts at zero */
    void (*backward)(const weft_kern_ops *op, const inputs *in, const double *dy, double *const *g);
} operation;

static void work_of(double *work)
{
    for (size_t i = 0; i < weft_norm_work_bytes(WEFT_PREC_F64, N, 2) / sizeof(double); i++) work[i] = NAN;
}
enum { WORK = 2 * 64 * N }; /* checked against weft_norm_work_bytes in main's first test */

static void rmsnorm(const weft_kern_ops *op, const inputs *in, double *y)
{
    double rstd[ROWS];
    op->rmsnorm_fwd(y, N, rstd, in->x[0], N, in->x[1], ROWS, N, EPS, 1);
}
static void rmsnorm_back(const weft_kern_ops *op, const inputs *in, const double *dy, double *const *g)
{
    double rstd[ROWS], y[ROWS * N], work[WORK];
    work_of(work);
    op->rmsnorm_fwd(y, N, rstd, in->x[0], N, in->x[1], ROWS, N, EPS, 1);
    op->rmsnorm_bwd(g[0], N, g[1], dy, N, in->x[0], N, in->x[1], rstd, ROWS, N, work, 2);
}

static void headnorm(const weft_kern_ops *op, const inputs *in, double *y)
{
    double keep[ROWS * HEADS * N], rstd[ROWS * HEADS];
    memcpy(y, in->x[0], sizeof keep);
    op->headnorm_fwd(y, HEADS * N, keep, rstd, in->x[1], ROWS, HEADS, N, EPS, 1);
}
static void headnorm_back(const weft_kern_ops *op, const inputs *in, const double *dy, double *const *g)
{
    double x[ROWS * HEADS * N], keep[ROWS * HEADS * N], rstd[ROWS * HEADS], work[WORK];
    work_of(work);
    memcpy(x, in->x[0], sizeof x);
    op->headnorm_fwd(x, HEADS * N, keep, rstd, in->x[1], ROWS, HEADS, N, EPS, 1);
    memcpy(g[0], dy, sizeof x);
    op->headnorm_bwd(g[0], HEADS * N, g[1], keep, in->x[1], rstd, ROWS, HEADS, N, work, 2);
}

static void layernorm(const weft_kern_ops *op, const inputs *in, double *y)
{
    double mean[ROWS], rstd[ROWS];
    op->layernorm_fwd(y, N, mean, rstd, in->x[0], N, in->x[1], in->x[2], ROWS, N, EPS, 1);
}
static void layernorm_back(const weft_kern_ops *op, const inputs *in, const double *dy, double *const *g)
{
    double mean[ROWS], rstd[ROWS], y[ROWS * N], work[WORK];
    work_of(work);
    op->layernorm_fwd(y, N, mean, rstd, in->x[0], N, in->x[1], in->x[2], ROWS, N, EPS, 1);
    op->layernorm_bwd(g[0], N, g[1], g[2], dy, N, in->x[0], N, in->x[1], mean, rstd, ROWS, N, work, 2);
}

/* cos and sin of unequal length: a scaled table is not a pure rotation, and its transpose is still right. */
static void rope_table(double *cos_t, double *sin_t)
{
    for (int i = 0; i < ROWS * (N / 2); i++) cos_t[i] = 1.3 * cos(i), sin_t[i] = 1.3 * sin(i);
}
static void rope(const weft_kern_ops *op, const inputs *in, double *y)
{
    double c[ROWS * (N / 2)], s[ROWS * (N / 2)];
    rope_table(c, s);
    memcpy(y, in->x[0], ROWS * HEADS * N * sizeof *y);
    op->rope(y, HEADS * N, c, s, ROWS, HEADS, N, 1, 1);
}
static void rope_back(const weft_kern_ops *op, const inputs *in, const double *dy, double *const *g)
{
    double c[ROWS * (N / 2)], s[ROWS * (N / 2)];
    (void)in;
    rope_table(c, s);
    memcpy(g[0], dy, ROWS * HEADS * N * sizeof *dy);
    op->rope(g[0], HEADS * N, c, s, ROWS, HEADS, N, -1, 1);
}

static void swiglu(const weft_kern_ops *op, const inputs *in, double *y)
{
    op->swiglu_fwd(y, N, in->x[0], N, in->x[1], N, ROWS, N, 1);
}
static void swiglu_back(const weft_kern_ops *op, const inputs *in, const double *dy, double *const *g)
{
    op->swiglu_bwd(g[0], N, g[1], N, dy, N, in->x[0], N, in->x[1], N, ROWS, N, 2);
}

static void gelu(const weft_kern_ops *op, const inputs *in, double *y) { op->gelu_fwd(y, N, in->x[0], N, ROWS, N, 1); }
static void gelu_back(const weft_kern_ops *op, const inputs *in, const double *dy, double *const *g)
{
    op->gelu_bwd(g[0], N, dy, N, in->x[0], N, ROWS, N, 2);
}

static void bias(const weft_kern_ops *op, const inputs *in, double *y)
{
    memset(y, 0, ROWS * N * sizeof *y);
    op->bias_fwd(y, N, in->x[0], ROWS, N, 1);
    op->bias_fwd_r(y, N, in->x[0], ROWS, N, 1); /* twice the bias: the gradient of each is the column sum */
}
static void bias_back(const weft_kern_ops *op, const inputs *in, const double *dy, double *const *g)
{
    double work[WORK];
    (void)in;
    for (int twice = 0; twice < 2; twice++) {
        work_of(work);
        op->bias_bwd(g[0], dy, N, ROWS, N, work, 2);
    }
}

/* Ids occur several times: their rows add. Rows of negative ids are elsewhere. */
static const int32_t ids[ROWS] = {2, 0, 2, -1, 0, 1, 1, 2, 0, 0, 0, 1, 2, 2, -1, 1, 0, 2, 1};
static const int64_t places[ROWS] = {1, 0, 1, 0, 0, 1, 1, 1, 0, 1, 0, 0, 0, 1, 1, 0, 1, 0, 1};
static void embed(const weft_kern_ops *op, const inputs *in, double *y)
{
    op->embed_fwd(y, ids, places, in->x[0], in->x[1], ROWS, N, 1);
}
static void embed_back(const weft_kern_ops *op, const inputs *in, const double *dy, double *const *g)
{
    (void)in;
    op->embed_bwd(g[0], g[1], ids, places, dy, ROWS, N, 2);
}

/* The gradient of xent is that of scale * sum(nll); dy is taken as 1. */
static const int32_t targets[ROWS] = {4, -100, 0, 1, 2, 3, 4, -1, 0, 0, 1, 3, 2, 4, 4, 1, 0, 2, -100};
static void xent(const weft_kern_ops *op, const inputs *in, double *y)
{
    op->xent(y, NULL, 0, in->x[0], V, targets, 1, ROWS, V, 1);
}
static void xent_back(const weft_kern_ops *op, const inputs *in, const double *dy, double *const *g)
{
    double nll[ROWS];
    op->xent(nll, g[0], V, in->x[0], V, targets, dy[0], ROWS, V, 2);
}

/* Columns 0, 1 and 2 .. 4 apart. */
enum { CUT = 2 };
static void merge(const double *part, double *whole)
{
    for (int r = 0; r < ROWS; r++) {
        const double *a = part + 3 * r, *b = a + 3 * ROWS;
        double *w = whole + 3 * r;
        w[0] = fmax(a[0], b[0]);
        w[1] = a[1] * exp(a[0] - w[0]) + b[1] * exp(b[0] - w[0]);
        w[2] = a[2] + b[2];
    }
}
static void xent_parts(const weft_kern_ops *op, double *x, bool keep, double *part, double *whole)
{
    op->xent_part(part, keep, x, V, targets, 0, ROWS, CUT, 1);
    op->xent_part(part + 3 * ROWS, keep, x + CUT, V, targets, CUT, ROWS, V - CUT, 1);
    merge(part, whole);
}
static void xent_part(const weft_kern_ops *op, const inputs *in, double *y)
{
    double part[6 * ROWS], whole[3 * ROWS];
    xent_parts(op, in->x[0], false, part, whole);
    for (int r = 0; r < ROWS; r++) {
        const double *w = whole + 3 * r;
        y[r] = targets[r] < 0 ? 0 : log(w[1]) - (w[2] - w[0]);
    }
}
static void xent_part_back(const weft_kern_ops *op, const inputs *in, const double *dy, double *const *g)
{
    double part[6 * ROWS], whole[3 * ROWS];
    memcpy(g[0], in->x[0], ROWS * V * sizeof(double));
    xent_parts(op, g[0], true, part, whole);
    op->xent_part_bwd(g[0], V, g[0], V, targets, 0, part, whole, dy[0], ROWS, CUT, 2);
    op->xent_part_bwd(g[0] + CUT, V, g[0] + CUT, V, targets, CUT, part + 3 * ROWS, whole, dy[0], ROWS, V - CUT, 2);
}

static void add(const weft_kern_ops *op, const inputs *in, double *y)
{
    memset(y, 0, ROWS * N * sizeof *y);
    op->add_real(y, N, in->x[0], N, ROWS, N, 1);
}
static void add_back(const weft_kern_ops *op, const inputs *in, const double *dy, double *const *g)
{
    (void)in;
    op->add_real(g[0], N, dy, N, ROWS, N, 2);
}

static const operation operations[] = {
    {"rmsnorm", {ROWS * N, N}, ROWS * N, rmsnorm, rmsnorm_back},
    {"headnorm", {ROWS * HEADS * N, N}, ROWS * HEADS * N, headnorm, headnorm_back},
    {"layernorm", {ROWS * N, N, N}, ROWS * N, layernorm, layernorm_back},
    {"rope", {ROWS * HEADS * N}, ROWS * HEADS * N, rope, rope_back},
    {"swiglu", {ROWS * N, ROWS * N}, ROWS * N, swiglu, swiglu_back},
    {"gelu", {ROWS * N}, ROWS * N, gelu, gelu_back},
    {"bias", {N}, ROWS * N, bias, bias_back},
    {"embed", {3 * N, 2 * N}, ROWS * N, embed, embed_back},
    {"xent", {ROWS * V}, ROWS, xent, xent_back},
    {"xent_part", {ROWS * V}, ROWS, xent_part, xent_part_back},
    {"add_real", {ROWS * N}, ROWS * N, add, add_back}};

static double loss(const operation *o, const weft_kern_ops *op, const inputs *in, const double *dy)
{
    double y[MAX], s = 0;
    o->forward(op, in, y);
    for (int64_t i = 0; i < o->ny; i++) s += dy[i] * y[i];
    return s;
}

/* h = 1e-5: the truncation error is h^2 / 6 times a third derivative (below 100 here: eps 1e-3), the rounding
 * error 1e-16 L / h; both are about 1e-9 for L near 10. */
static void check(const operation *o, const weft_kern_ops *op)
{
    double x[INPUTS][MAX], g[INPUTS][MAX] = {{0}}, dy[MAX];
    double *grads[INPUTS] = {g[0], g[1], g[2]};
    inputs in;
    for (int i = 0; i < INPUTS; i++) {
        in.x[i] = x[i], in.n[i] = o->n[i];
        test_fill_normal(x[i], 1, o->n[i], 20 + (uint64_t)i);
    }
    test_fill_normal(dy, 1, o->ny, 31);
    if (o->backward == xent_back || o->backward == xent_part_back)
        for (int i = 0; i < ROWS; i++) dy[i] = 0.7; /* the kernel takes one scale for all rows */
    o->backward(op, &in, dy, grads);
    for (int i = 0; i < INPUTS; i++)
        for (int64_t j = 0; j < o->n[i]; j++) {
            const double h = 1e-5, at = x[i][j];
            x[i][j] = at + h;
            const double up = loss(o, op, &in, dy);
            x[i][j] = at - h;
            const double down = loss(o, op, &in, dy);
            x[i][j] = at;
            const double want = (up - down) / (2 * h);
            if (!(fabs(g[i][j] - want) <= 1e-7 * fmax(1, fabs(want))))
                fail_msg("%s: gradient of input %d at %d is %.10g, differences give %.10g", o->name, i, (int)j, g[i][j],
                         want);
        }
}

static void backward_equals_central_differences(void **state)
{
    (void)state;
    weft_kern k;
    assert_ok(weft_kern_init(&k, WEFT_ISA_REF));
    for (size_t i = 0; i < sizeof operations / sizeof *operations; i++) check(&operations[i], &k.op[WEFT_PREC_F64]);
}

/* Every operation whose name ends in _bwd, and those whose backward has another form, is in the table. */
static void no_backward_is_left_out(void **state)
{
    (void)state;
    assert_true(WORK * sizeof(double) >= weft_norm_work_bytes(WEFT_PREC_F64, N, 2));
    int n;
    const weft_kern_entry *e = weft_kern_manifest(&n);
    for (int i = 0; i < n; i++) {
        const char *end = strstr(e[i].op, "_bwd");
        bool found = !end;
        for (size_t j = 0; !found && j < sizeof operations / sizeof *operations; j++)
            found = strncmp(operations[j].name, e[i].op, (size_t)(end - e[i].op)) == 0;
        if (!found) fail_msg("%s has no central differences here", e[i].op);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_backward_is_left_out),
        cmocka_unit_test(backward_equals_central_differences),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
