/* labels: small tsan */
/* test_api.c — weft/attention.h as its users call it: cuts agree with one rank, refusals reach every rank,
 * and what the header promises about state, strides, positions, bytes and allocation holds. */
#include "harness/test.h"

#include "cp/cp.h"
#include "weft/attention.h"
#define WEFT_MPI_HANDLES_ONLY
#include "weft/mpi.h"

enum { H = 4, HKV = 2, D = 5, DV = 3, HD = H * D, HV = H * DV, KD = HKV * D, KV = HKV * DV };

typedef struct problem {
    int64_t B, T;
    const int64_t *offsets, *counts;
    int64_t max_docs;
    const char *strategy, *layout;
    bool sinks, fused, own_state, keep_heads;
    int head_size;
    void (*set)(weft_attention_params *p); /* other parameters, or NULL */
    uint32_t step;                         /* of dropout */
    double *o, *dq, *dk, *dv, *dsinks; /* whole arrays [B*T, ...]; dsinks [H] per rank, 8 ranks */
    int64_t *position;                 /* [B*T] */
    int *seen;                         /* [B*T] */
} problem;

static const double sink_values[H] = {0.3, -1.0, 2.0, 0.0};

static void fill(double *x, int64_t stride, const int64_t *token, int64_t rows, int64_t width, uint64_t seed)
{
    for (int64_t r = 0; r < rows; r++)
        for (int64_t i = 0; i < width; i++) x[r * stride + i] = test_normal(seed, token[r] * width + i);
}

static void put(double *whole, const double *x, int64_t stride, const int64_t *token, int64_t rows, int64_t width)
{
    for (int64_t r = 0; r < rows; r++) memcpy(whole + token[r] * width, x + r * stride, (size_t)width * sizeof *x);
}

static double *reals(int64_t n) { return calloc((size_t)n + 1, sizeof(double)); }

static weft_status make(weft_attention **a, weft_group *group, const problem *x)
{
    weft_attention_params p;
    weft_attention_params_init(&p, sizeof p);
    p.precision = WEFT_ATTENTION_FP64;
    p.B = x->B, p.T = x->T, p.max_docs = x->max_docs;
    p.H = H, p.Hkv = HKV, p.D = D, p.Dv = DV;
    p.sinks = x->sinks;
    p.strategy = x->strategy;
    p.layout = x->layout;
    p.head_size = x->head_size, p.keep_heads = x->keep_heads;
    if (x->set) x->set(&p);
    return weft_attention_create(a, group, &p);
}

/* q, k, v (and their gradients) lie dense or in rows of one fused array. */
static weft_status run_rows(weft_attention *a, int rank, problem *x)
{
    int64_t n = weft_attention_rows(a), fused = HD + KD + KV;
    int64_t *token = calloc((size_t)n + 1, sizeof *token), *pos = calloc((size_t)n + 1, sizeof *pos);
    double *in = reals(n * fused), *grad = reals(n * fused), *o = reals(n * HV), *dout = reals(n * HV);
    void *state = x->own_state ? aligned_alloc(64, (weft_attention_state_bytes(a) / 64 + 1) * 64) : NULL;
    weft_attention_tokens(a, token, pos);

    weft_attention_io io;
    weft_attention_io_init(&io, sizeof io);
    double *q = in, *k = x->fused ? in + HD : in + n * HD, *v = x->fused ? k + KD : k + n * KD;
    double *dq = grad, *dk = grad + (k - in), *dv = grad + (v - in);
    int64_t qs = x->fused ? fused : HD, ks = x->fused ? fused : KD, vs = x->fused ? fused : KV;
    fill(q, qs, token, n, HD, 1);
    fill(k, ks, token, n, KD, 2);
    fill(v, vs, token, n, KV, 3);
    fill(dout, HV, token, n, HV, 4);
    io.q = q, io.k = k, io.v = v, io.o = o, io.dout = dout, io.dq = dq, io.dk = dk, io.dv = dv;
    if (x->fused) io.q_stride = io.k_stride = io.v_stride = io.dq_stride = io.dk_stride = io.dv_stride = fused;
    io.sinks = x->sinks ? sink_values : NULL;
    io.dsinks = x->sinks ? x->dsinks + rank * H : NULL;
    io.state = state;
    io.step = x->step;
    weft_status st = weft_attention_forward(a, &io);
    if (st >= 0) st = weft_attention_backward(a, &io);
    if (st >= 0) {
        put(x->o, o, HV, token, n, HV);
        put(x->dq, dq, qs, token, n, HD);
        put(x->dk, dk, ks, token, n, KD);
        put(x->dv, dv, vs, token, n, KV);
        for (int64_t r = 0; r < n; r++) {
            x->position[token[r]] = pos[r];
            x->seen[token[r]]++;
        }
    }
    free(token), free(pos), free(in), free(grad), free(o), free(dout), free(state);
    return st;
}

static weft_status rank_main(weft_group *group, void *ud)
{
    problem *x = ud;
    weft_attention *a;
    WEFT_TRY(make(&a, group, x));
    weft_status st = weft_attention_documents(a, x->offsets, x->counts);
    if (st >= 0) st = run_rows(a, weft_group_rank(group), x);
    if (st >= 0) {
        weft_attention_traffic t = weft_attention_bytes(a);
        if (t.sent != t.forward_formula + t.backward_formula)
            st = weft_fail(WEFT_ERR_COMPARE, "sent %lld bytes, formula %lld", (long long)t.sent,
                           (long long)(t.forward_formula + t.backward_formula));
    }
    weft_attention_destroy(a);
    return st;
}

static void solve(problem *x, int ranks)
{
    int64_t n = x->B * x->T;
    x->o = reals(n * HV), x->dq = reals(n * HD), x->dk = reals(n * KD), x->dv = reals(n * KV), x->dsinks = reals(8 * H);
    x->position = calloc((size_t)n, sizeof *x->position);
    x->seen = calloc((size_t)n, sizeof *x->seen);
    assert_ok(weft_group_threads(ranks, rank_main, x));
    for (int r = 1; r < 8; r++)
        for (int h = 0; h < H; h++) x->dsinks[h] += x->dsinks[r * H + h];
}

static void release(problem *x)
{
    free(x->o), free(x->dq), free(x->dk), free(x->dv), free(x->dsinks), free(x->position), free(x->seen);
}

/* Two fp64 sums of at most 2 x 66 terms in another order: far below 1e-12. */
static void assert_same(const problem *x, const problem *ref)
{
    const struct { const double *x, *ref; int64_t n; } t[] = {
        {x->o, ref->o, x->B * x->T * HV}, {x->dq, ref->dq, x->B * x->T * HD}, {x->dk, ref->dk, x->B * x->T * KD},
        {x->dv, ref->dv, x->B * x->T * KV}, {x->dsinks, ref->dsinks, H}};
    for (size_t i = 0; i < sizeof t / sizeof *t; i++)
        assert_at_most(weft_rel_l2(t[i].x, WEFT_F64, t[i].ref, WEFT_F64, t[i].n, 0), 1e-12);
}

static const int64_t docs33[] = {0, 33, 0, 5, 5, 6, 33}; /* one document; then 5, 0, 1 and 27 tokens */
static const int64_t counts33[] = {1, 4};

static void test_cuts_agree_with_one_rank(void **state)
{
    (void)state;
    static const char *const strategies[] = {"pcp", "ring", "auto"}, *const layouts[] = {"contiguous", "zigzag"};
    problem one =
        {.B = 2, .T = 33, .offsets = docs33, .counts = counts33, .max_docs = 5, .strategy = "none", .sinks = true};
    solve(&one, 1);
    for (int ranks = 2; ranks <= 5; ranks++)
        for (int s = 0; s < 3; s++)
            for (int l = 0; l < 2; l++) {
                problem x = one;
                x.strategy = strategies[s], x.layout = layouts[l];
                solve(&x, ranks);
                assert_same(&x, &one);
                release(&x);
            }
    release(&one);
}

/* Also with q, k, v of the own heads in the plan's state, or in a state that is no larger than was asked for. */
static void test_head_groups_agree_with_one_rank(void **state)
{
    (void)state;
    static const char *const strategies[] = {"dcp", "dcp-ring", "dcp-pairwise", "ulysses"};
    problem one =
        {.B = 2, .T = 33, .offsets = docs33, .counts = counts33, .max_docs = 5, .strategy = "none", .sinks = true};
    solve(&one, 1);
    for (int s = 0; s < 4; s++)
        for (int keep = 0; keep < 3; keep++) {
            problem x = one;
            x.strategy = strategies[s], x.layout = "zigzag", x.head_size = s < 3 ? 2 : 0;
            x.keep_heads = keep > 0, x.own_state = keep > 1;
            solve(&x, 4);
            assert_same(&x, &one);
            release(&x);
        }
    release(&one);
}

static void test_every_token_has_one_owner_and_its_position(void **state)
{
    (void)state;
    problem x = {.B = 2, .T = 33, .offsets = docs33, .counts = counts33, .max_docs = 5};
    solve(&x, 3);
    for (int64_t i = 0; i < 66; i++) {
        int64_t t = i - 33, expected = i < 33 ? i : t < 5 ? t : t < 6 ? t - 5 : t - 6;
        assert_int_equal(x.seen[i], 1);
        assert_int_equal(x.position[i], expected);
    }
    release(&x);
}

/* More ranks than tokens: some have no row, and all take part. */
static void test_empty_shares(void **state)
{
    (void)state;
    problem one = {.B = 1, .T = 3}, x = one;
    solve(&one, 1);
    solve(&x, 5);
    assert_same(&x, &one);
    release(&one);
    release(&x);
}

static void test_strides_and_own_state_change_no_bit(void **state)
{
    (void)state;
    problem plain = {.B = 1, .T = 17}, x = plain;
    x.fused = x.own_state = true;
    solve(&plain, 3);
    solve(&x, 3);
    assert_memory_equal(x.o, plain.o, 17 * HV * sizeof(double));
    assert_memory_equal(x.dq, plain.dq, 17 * HD * sizeof(double));
    assert_memory_equal(x.dk, plain.dk, 17 * KD * sizeof(double));
    assert_memory_equal(x.dv, plain.dv, 17 * KV * sizeof(double));
    release(&plain);
    release(&x);
}

/* ---- what a plan can be asked for ---------------------------------------------------------------------- */

static bool same_bits(const problem *x, const problem *y)
{
    size_t n = (size_t)(x->B * x->T) * sizeof(double);
    return !memcmp(x->o, y->o, n * HV) && !memcmp(x->dq, y->dq, n * HD) && !memcmp(x->dk, y->dk, n * KD) &&
           !memcmp(x->dv, y->dv, n * KV);
}

static void pieces(weft_attention_params *p) { p->buffer_bytes = 64; }
static void no_overlap(weft_attention_params *p) { p->buffer_bytes = 64, p->overlap = false; }

static void test_pieces_change_no_bit(void **state)
{
    (void)state;
    problem plain = {.B = 1, .T = 33, .strategy = "ring"}, cut = plain, waiting = plain;
    cut.set = pieces, waiting.set = no_overlap;
    solve(&plain, 3), solve(&cut, 3), solve(&waiting, 3);
    assert_true(same_bits(&plain, &cut) && same_bits(&plain, &waiting));
    release(&plain), release(&cut), release(&waiting);
}

static void drop(weft_attention_params *p) { p->dropout = 0.4, p->seed = 5; }
static void drop_other(weft_attention_params *p) { p->dropout = 0.4, p->seed = 6; }

/* The mask is that of the address: the same on any cut, another one with another seed or step. */
static void test_dropout_depends_on_the_address_only(void **state)
{
    (void)state;
    problem one = {.B = 2, .T = 33, .offsets = docs33, .counts = counts33, .max_docs = 5, .set = drop}, x = one;
    problem none = one, seed = one, step = one;
    none.set = NULL, seed.set = drop_other, step.step = 1;
    solve(&one, 1), solve(&x, 3), solve(&none, 1), solve(&seed, 1), solve(&step, 1);
    assert_same(&x, &one);
    problem *others[] = {&none, &seed, &step};
    for (int i = 0; i < 3; i++) {
        /* Two masks of 2 x 33 rows: their results have nothing near rounding in common. */
        assert_true(weft_rel_l2(others[i]->o, WEFT_F64, one.o, WEFT_F64, one.B * one.T * HV, 0) > 0.01);
        release(others[i]);
    }
    release(&one), release(&x);
}

static void narrow(weft_attention_params *p)
{
    p->precision = WEFT_ATTENTION_FP64, p->comm_dtype = WEFT_ATTENTION_WIRE_BF16;
}
static void narrow_grad(weft_attention_params *p) { p->grad_dtype = WEFT_ATTENTION_WIRE_BF16; }

/* 8 bits of K,V: 2^-9 per element, some of it on the diagonal that never travels; far from both 0 and 1. */
static void test_wire_types_round_what_travels(void **state)
{
    (void)state;
    problem wide = {.B = 1, .T = 33, .strategy = "pcp"}, kv = wide, grad = wide;
    kv.set = narrow, grad.set = narrow_grad;
    solve(&wide, 3), solve(&kv, 3), solve(&grad, 3);
    double e = weft_rel_l2(kv.o, WEFT_F64, wide.o, WEFT_F64, 33 * HV, 0),
           g = weft_rel_l2(grad.dk, WEFT_F64, wide.dk, WEFT_F64, 33 * KD, 0);
    if (!(e > 1e-5 && e < 1e-2 && g > 1e-5 && g < 1e-2)) fail_msg("rounded to bf16 on the wire: o %.1e, dk %.1e", e, g);
    assert_memory_equal(grad.o, wide.o, 33 * HV * sizeof(double));
    release(&wide), release(&kv), release(&grad);
}

/* ---- promises ------------------------------------------------------------------------------------------ */

static weft_status steps_allocate_nothing(weft_group *group, void *ud)
{
    problem *x = ud;
    weft_attention *a;
    WEFT_TRY(make(&a, group, x));
    const weft_mem *mem = &weft_world_ctx(weft_group_world(group))->mem;
    int64_t before = mem->allocations;
    weft_status st = WEFT_OK;
    for (int i = 0; i < 3 && st >= 0; i++) {
        st = weft_attention_documents(a, x->offsets, x->counts);
        if (st >= 0) st = run_rows(a, weft_group_rank(group), x);
    }
    if (st >= 0 && mem->allocations != before)
        st = weft_fail(WEFT_ERR_COMPARE, "%lld allocations in three steps", (long long)(mem->allocations - before));
    weft_attention_destroy(a);
    return st;
}

static void test_steps_allocate_nothing(void **state)
{
    (void)state;
    problem x = {.B = 2, .T = 33, .offsets = docs33, .counts = counts33, .max_docs = 5};
    solve(&x, 2); /* for its arrays */
    assert_ok(weft_group_threads(2, steps_allocate_nothing, &x));
    release(&x);
}

static void test_describe_and_self(void **state)
{
    (void)state;
    weft_group *g;
    weft_attention *a;
    char text[64], cut[6];
    problem x = {.B = 1, .T = 4, .strategy = "none"};
    assert_ok(weft_group_self(&g));
    assert_int_equal(weft_group_rank(g), 0);
    assert_int_equal(weft_group_size(g), 1);
    assert_ok(make(&a, g, &x));
    weft_attention_describe(a, text, sizeof text);
    assert_non_null(strstr(text, "none"));
    weft_attention_describe(a, cut, sizeof cut);
    assert_int_equal(strlen(cut), sizeof cut - 1);
    weft_attention_destroy(a);
    weft_group_destroy(g);
}

/* ---- refusals ------------------------------------------------------------------------------------------ */

static weft_status create_with(weft_group *g, void (*spoil)(weft_attention_params *))
{
    weft_attention_params p;
    weft_attention_params_init(&p, sizeof p);
    p.T = 8, p.H = H, p.Hkv = HKV, p.D = D, p.Dv = DV;
    spoil(&p);
    weft_attention *a = NULL;
    weft_status st = weft_attention_create(&a, g, &p);
    weft_attention_destroy(a);
    return st;
}

static void no_size(weft_attention_params *p) { p->size = 0; }
static void newer(weft_attention_params *p) { p->size = sizeof *p + 8; }
static void no_length(weft_attention_params *p) { p->T = 0; }
static void odd_heads(weft_attention_params *p) { p->H = 5; }
static void large_head(weft_attention_params *p) { p->D = 257; }
static void no_head(weft_attention_params *p) { p->D = 0; }
static void bad_window(weft_attention_params *p) { p->window_left = -2; }
static void bad_scale(weft_attention_params *p) { p->scale = NAN; }
static void bad_precision(weft_attention_params *p) { p->precision = (weft_attention_precision)9; }
static void bad_strategy(weft_attention_params *p) { p->strategy = "rign"; }
static void bad_layout(weft_attention_params *p) { p->layout = "zagzig"; }
static void bad_threads(weft_attention_params *p) { p->threads = -1; }
static void few_documents(weft_attention_params *p) { p->B = 3, p->max_docs = 2; }
static void bad_wire(weft_attention_params *p) { p->comm_dtype = (weft_attention_wire)7; }
static void bad_grad(weft_attention_params *p) { p->grad_dtype = WEFT_ATTENTION_WIRE_FP8; }
static void bad_pieces(weft_attention_params *p) { p->buffer_bytes = 1; }
static void bad_dropout(weft_attention_params *p) { p->dropout = 1; }
static void bad_group(weft_attention_params *p) { p->head_size = -1; }
static void too_long(weft_attention_params *p) { p->T = INT64_MAX / 4; }

/* A program that was compiled with the first version of the header, whose parameters ended with `threads`. */
static void first_version(weft_attention_params *p)
{
    p->size = offsetof(weft_attention_params, head_size);
    p->head_size = -1; /* lies beyond what such a program has */
}

static void test_older_headers_work(void **state)
{
    (void)state;
    weft_group *g;
    assert_ok(weft_group_self(&g));
    assert_ok(create_with(g, first_version));
    assert_int_equal(offsetof(weft_attention_params, head_size),
                     offsetof(weft_attention_params, threads) + sizeof(int));
    weft_group_destroy(g);
}

static void test_groups_that_are_not_mpis_have_no_progress_to_choose(void **state)
{
    (void)state;
    weft_group *g;
    assert_ok(weft_group_self(&g));
    assert_refused(weft_group_set_progress(g, "thread"), "MPI world only");
    assert_refused(weft_group_set_progress(g, "magic"), "auto, callback, thread");
    assert_refused(weft_group_mpi_handle(&g, NULL, 4, "mpich"), "NULL");
    assert_refused(weft_group_mpi_handle(&g, &(int){0}, sizeof(int), "lam"), "libweft_mpi_lam.so is not there");
    weft_group_destroy(g);
}

static void test_parameters_are_refused(void **state)
{
    (void)state;
    static const struct { void (*spoil)(weft_attention_params *); const char *part; } cases[] = {
        {no_size, "_init"}, {newer, "newer"}, {no_length, "at least 1"}, {odd_heads, "multiple"}, {large_head, "256"},
        {no_head, "256"}, {bad_window, "window"}, {bad_scale, "1/sqrt(D)"}, {bad_precision, "precision"},
        {bad_strategy, "ring"},
        {bad_layout, "zigzag"}, {bad_threads, "threads"}, {few_documents, "at least 3"}, {bad_wire, "comm_dtype"},
        {bad_grad, ""}, {bad_pieces, "at least 64"}, {bad_dropout, "dropout"}, {bad_group, "at least 1"},
        {too_long, ""}};
    weft_group *g;
    assert_ok(weft_group_self(&g));
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_refused(create_with(g, cases[i].spoil), cases[i].part);
    weft_group_destroy(g);
    assert_refused(weft_group_threads(0, rank_main, NULL), "at least 1");
    assert_refused(weft_group_threads(1, NULL, NULL), "NULL");
}

/* What one rank alone does wrong is refused on all: each rank checks its own status and goes on. */
static weft_status expect(weft_status got, const char *part)
{
    if (got == WEFT_ERR_REFUSED && strstr(weft_last_error(), part)) return WEFT_OK;
    return weft_fail(WEFT_ERR_COMPARE, "status %d with message \"%s\", not a refusal with \"%s\"", (int)got,
                     weft_last_error(), part);
}

static weft_status disagreeing_ranks(weft_group *group, void *ud)
{
    (void)ud;
    bool odd = weft_group_rank(group) == 1;
    static const int64_t a1[] = {0, 3, 8}, a2[] = {0, 4, 8}, wrong[] = {0, 9}, one[] = {1}, two[] = {2}, four[] = {4};
    problem x = {.B = 1, .T = odd ? 9 : 8, .max_docs = 3};
    weft_attention *a = NULL;
    WEFT_TRY(expect(make(&a, group, &x), ""));
    x.T = 8;
    x.strategy = odd ? "rign" : NULL;
    WEFT_TRY(expect(make(&a, group, &x), "rign"));
    x.strategy = NULL;
    WEFT_TRY(make(&a, group, &x));
    weft_attention_io io;
    weft_attention_io_init(&io, sizeof io);
    weft_status st = expect(weft_attention_documents(a, odd ? a1 : a2, two), "different documents");
    if (st >= 0) st = expect(weft_attention_forward(a, &io), "documents first");
    if (st >= 0) st = expect(weft_attention_documents(a, odd ? wrong : a2, odd ? one : two), "to T");
    if (st >= 0) st = expect(weft_attention_documents(a, a1, odd ? four : two), "max_docs");
    if (st >= 0) st = expect(weft_attention_documents(a, a1, odd ? NULL : two), "counts");
    if (st >= 0) st = weft_attention_documents(a, a1, two);
    if (st >= 0) st = expect(weft_attention_forward(a, &io), "q is NULL");
    if (st >= 0) st = expect(weft_attention_backward(a, &io), "NULL");
    weft_attention_destroy(a);
    return st;
}

static void test_disagreeing_ranks_are_refused_alike(void **state)
{
    (void)state;
    assert_ok(weft_group_threads(3, disagreeing_ranks, NULL));
}

static weft_status calls_out_of_order(weft_group *group, void *ud)
{
    (void)ud;
    double x[64] = {0};
    weft_attention *a;
    problem p = {.B = 1, .T = 2};
    WEFT_TRY(make(&a, group, &p));
    weft_attention_io io;
    weft_attention_io_init(&io, sizeof io);
    io.q = io.k = io.v = io.dout = x;
    io.o = io.dq = io.dk = io.dv = x;
    weft_status st = expect(weft_attention_backward(a, &io), "run forward first");
    io.k_stride = KD - 1;
    if (st >= 0) st = expect(weft_attention_forward(a, &io), "between rows");
    io.k_stride = 0;
    io.reserved = 7;
    if (st >= 0) st = expect(weft_attention_forward(a, &io), "reserved is 7");
    io.reserved = 0;
    io.q_stride = INT64_MAX;
    if (st >= 0) st = expect(weft_attention_forward(a, &io), "more than memory has");
    if (st >= 0) st = expect(weft_attention_backward(a, NULL), "io is NULL");
    io.size = 0;
    if (st >= 0) st = expect(weft_attention_forward(a, &io), "_init");
    weft_attention *none = NULL;
    if (st >= 0) st = expect(weft_attention_create(&none, group, NULL), "parameters are NULL");
    if (st >= 0) st = expect(weft_attention_create(NULL, group, NULL), "place of the plan is NULL");
    if (st >= 0) st = expect(weft_group_self(NULL), "NULL");
    weft_attention_destroy(a);
    return st;
}

static void test_calls_out_of_order_are_refused(void **state)
{
    (void)state;
    assert_ok(weft_group_threads(1, calls_out_of_order, NULL));
}

static weft_status one_rank_leaves(weft_group *group, void *ud)
{
    weft_attention *a;
    weft_group_set_timeout(group, 20);
    WEFT_TRY(make(&a, group, ud));
    weft_status st = weft_group_rank(group) == 1 ? weft_fail(WEFT_ERR_NUMERIC, "rank 1 has had enough")
                                                 : run_rows(a, weft_group_rank(group), ud);
    weft_attention_destroy(a);
    return st;
}

static void test_a_leaving_rank_ends_all_with_its_message(void **state)
{
    (void)state;
    problem x = {.B = 1, .T = 16};
    solve(&x, 2);
    assert_int_equal(weft_group_threads(4, one_rank_leaves, &x), WEFT_ERR_NUMERIC);
    assert_non_null(strstr(weft_last_error(), "rank 1 has had enough"));
    release(&x);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cuts_agree_with_one_rank), cmocka_unit_test(test_head_groups_agree_with_one_rank),
        cmocka_unit_test(test_every_token_has_one_owner_and_its_position),
        cmocka_unit_test(test_empty_shares),
        cmocka_unit_test(test_strides_and_own_state_change_no_bit),
        cmocka_unit_test(test_pieces_change_no_bit),
        cmocka_unit_test(test_dropout_depends_on_the_address_only),
        cmocka_unit_test(test_wire_types_round_what_travels),
        cmocka_unit_test(test_steps_allocate_nothing),
        cmocka_unit_test(test_older_headers_work),
        cmocka_unit_test(test_groups_that_are_not_mpis_have_no_progress_to_choose),
        cmocka_unit_test(test_describe_and_self),
        cmocka_unit_test(test_parameters_are_refused),
        cmocka_unit_test(test_disagreeing_ranks_are_refused_alike),
        cmocka_unit_test(test_calls_out_of_order_are_refused),
        cmocka_unit_test(test_a_leaving_rank_ends_all_with_its_message),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
