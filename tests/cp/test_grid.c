/* The grid of U head ranks x R context ranks: every U that divides P, heads that divide nothing, shared K,V heads. */
/* labels: small */
/* timeout: 240 */
#include "harness/test.h"
#include "harness/cp_case.h"

static const int shapes[][2] = {{1, 1}, {2, 1}, {4, 2}, {6, 3}, {7, 7}, {8, 1}, {30, 30}, {30, 6}, {12, 4}};
enum { SHAPES = sizeof shapes / sizeof *shapes, MOST_JOBS = 32 };

static const char *const grids[] = {"dcp", "dcp-ring", "dcp-pairwise"};
enum { GRIDS = sizeof grids / sizeof *grids };

typedef struct list { const cp_case *c; const cp_data *data; int P, n; cp_job jobs[MOST_JOBS]; } list;

static void add(list *l, const char *strategy, weft_layout_kind layout, weft_cp_options more)
{
    assert_true(l->n < MOST_JOBS);
    l->jobs[l->n++] =
        (cp_job){l->c, l->data, strategy, layout, l->n % 3 != 1, 1, NULL, cp_result_make(l->c, l->P), more};
}

static void run(list *l) { assert_ok(cp_run(l->P, l->jobs, l->n)); }

static void close_list(list *l)
{
    for (int i = 0; i < l->n; i++) cp_result_free(l->jobs[i].out);
}

static void near_one_rank(const list *l, const cp_result *one, double limit)
{
    for (int i = 0; i < l->n; i++) {
        const cp_job *j = &l->jobs[i];
        double e = cp_distance(l->c, l->data, j->out, one, l->c->prec == WEFT_PREC_F64 ? 1 : 0.1);
        if (!(e <= limit))
            fail_msg("%s: %s of %d on P=%d, H=%d/%d: %.3e from one rank, limit %.3e", l->c->name, j->strategy,
                     j->more.head_size, l->P, l->c->H, l->c->Hkv, e, limit);
    }
}

static cp_result *one_rank(const cp_case *c, const cp_data *data)
{
    cp_result *one = cp_result_make(c, 1);
    cp_job job = {c, data, "none", WEFT_LAYOUT_CONTIGUOUS, true, 1, NULL, one, {0}};
    assert_ok(cp_run(1, &job, 1));
    return one;
}

static cp_case base(weft_prec prec, int H, int Hkv, int64_t T)
{
    return (cp_case){.name = "grid", .prec = prec, .B = 1, .Tq = T, .T = T, .H = H, .Hkv = Hkv, .D = 4, .Dv = 3,
                     .mask = {true, -1, -1, 0}, .seed = 60};
}

/* ---- every grid -------------------------------------------------------------------------------------------- */

/* All U that divide P, each context strategy, with q, k, v kept and exchanged again; and one group of all ranks. */
static void add_grids(list *l)
{
    for (int U = 1; U <= l->P && U <= l->c->H; U++) {
        if (l->P % U != 0) continue;
        for (int g = 0; g < GRIDS; g++)
            add(l, grids[g], (weft_layout_kind)((U + g) / 2 % 2),
                (weft_cp_options){.head_size = U, .keep_heads = g % 2 == 0});
    }
    if (l->P <= l->c->H) add(l, "ulysses", WEFT_LAYOUT_ZIGZAG, (weft_cp_options){0});
}

static void check_grids(cp_case c, const int *ranks, int n)
{
    cp_data data = cp_data_make(&c);
    cp_result *one = one_rank(&c, &data);
    for (int i = 0; i < n; i++) {
        if ((ranks[i] + c.H) % test_every(5) != 0) continue;
        list l = {.c = &c, .data = &data, .P = ranks[i]};
        add_grids(&l);
        run(&l);
        near_one_rank(&l, one, cp_reorder_limit(c.prec, c.T));
        close_list(&l);
    }
    cp_result_free(one);
    cp_data_free(&data);
}

static void all_grids_in_fp64(void **state)
{
    (void)state;
    static const int ranks[] = {1, 2, 3, 4, 5, 6, 7, 8, 12, 16};
    for (int s = 0; s < SHAPES; s++) check_grids(base(WEFT_PREC_F64, shapes[s][0], shapes[s][1], 29), ranks, 10);
}

static void all_grids_in_fp32(void **state)
{
    (void)state;
    static const int ranks[] = {2, 5, 6, 8};
    for (int s = 1; s < SHAPES; s += 2) check_grids(base(WEFT_PREC_F32, shapes[s][0], shapes[s][1], 29), ranks, 4);
}

/* Everything at once, with rows that differ: documents, fewer queries than keys, a prefix, sinks, slopes, softcap. */
static void all_masks_on_some_grids(void **state)
{
    (void)state;
    static const int ranks[] = {4, 6};
    cp_docs docs = cp_docs_make(3, 23, 2);
    for (int s = 1; s < SHAPES; s++)
        for (int way = s % 2; way < 3; way += 1 + s % 2) {
            cp_case c = base(WEFT_PREC_F64, shapes[s][0], shapes[s][1], 23);
            c.B = 1 + way, c.sinks = true, c.alibi = true, c.softcap = 3;
            if (way == 0) c.Tq = 9, c.mask.prefix = 4;
            if (way == 1) c.mask = (weft_mask){false, 5, 3, 0};
            if (way == 2) c.cu = docs.cu, c.first = docs.first, c.mask.left = 7;
            if (way > 0) c.dropout = 0.3; /* the mask is that of the whole model's heads */
            check_grids(c, ranks, 2);
        }
    cp_docs_free(&docs);
}

/* Partial dK,dV of a head that eight ranks share are summed before they are rounded: the error does not grow. */
static void bf16_error_stays_that_of_one_rank(void **state)
{
    (void)state;
    static const int kv_heads[] = {8, 1};
    for (int k = 0; k < 2; k++) {
        cp_case c = base(WEFT_PREC_BF16, 8, kv_heads[k], 128);
        c.D = c.Dv = 32;
        cp_data data = cp_data_make(&c);
        cp_result *want = cp_result_make(&c, 1), *one = one_rank(&c, &data);
        cp_reference(&c, &data, want);
        list l = {.c = &c, .data = &data, .P = 8};
        add_grids(&l);
        run(&l);
        for (int i = 0; i < l.n; i++) {
            const cp_result *x = l.jobs[i].out;
            const double *got[] = {x->o, x->dq, x->dk, x->dv}, *at_one[] = {one->o, one->dq, one->dk, one->dv};
            const double *ref[] = {want->o, want->dq, want->dk, want->dv};
            for (int t = 0; t < 4; t++) {
                int64_t n = 128 * 32 * (t < 2 ? c.H : c.Hkv);
                assert_at_most(weft_rel_l2(got[t], WEFT_F64, ref[t], WEFT_F64, n, 0),
                               1.25 * weft_rel_l2(at_one[t], WEFT_F64, ref[t], WEFT_F64, n, 0));
            }
        }
        close_list(&l);
        cp_result_free(want), cp_result_free(one);
        cp_data_free(&data);
    }
}

/* ---- narrower types on the wire --------------------------------------------------------------------------------- */

/* `type` is the coarsest on the wire, with unit roundoff u: what travels is rounded by 0.4 u in the mean. K and V move
 * dq the most, by scores, dp and K itself: sqrt(3) times 0.4 u. A sum meets at most three roundings, two in the ring of
 * R = 3 and one on its way home: the same. With fp8, dO is rounded to e5m2, K and V to the finer e4m3. Hence at most u
 * in each. A ring rounds sums at every hop, a gather once: their bits differ then. */
static const struct narrow { const char *name; weft_cp_options o; weft_dtype type; bool same; } narrow[] = {
    {"K,V in bf16", {.comm_dtype = WEFT_CP_WIRE_BF16}, WEFT_BF16, true},
    {"K,V in fp16", {.comm_dtype = WEFT_CP_WIRE_FP16}, WEFT_F16, true},
    {"K,V in fp8", {.comm_dtype = WEFT_CP_WIRE_FP8}, WEFT_F8_E4M3, true},
    {"sums in bf16", {.grad_dtype = WEFT_CP_WIRE_BF16}, WEFT_BF16, false},
    {"fp8", {.fp8 = true}, WEFT_F8_E5M2, true},
};

static void check_narrow(const cp_case *c, const struct narrow *t, int P, int U)
{
    cp_data data = cp_data_make(c);
    cp_result *one = one_rank(c, &data);
    list l = {.c = c, .data = &data, .P = P};
    for (int g = 0; g < 2; g++) /* dcp and dcp-ring */
        for (int keep = 0; keep < 2; keep++) {
            weft_cp_options o = t->o;
            o.head_size = U, o.keep_heads = keep;
            add(&l, grids[g], WEFT_LAYOUT_ZIGZAG, o);
        }
    run(&l);
    for (int i = 0; i < l.n; i++) {
        const cp_result *x = l.jobs[i].out;
        double u = cp_roundoff(t->type), e = cp_distance(c, &data, x, one, 0.1);
        if (!(e <= u && e > u / 8)) /* below, it did not travel so */
            fail_msg("%s: %s kept %d of %d on P=%d, H=%d/%d: %.2e, u is %.2e", t->name, l.jobs[i].strategy,
                     l.jobs[i].more.keep_heads, U, P, c->H, c->Hkv, e, u);
        assert_true(cp_same_bits(c, x, l.jobs[t->same ? 0 : i / 2 * 2].out));
        cp_check_planned(&l.jobs[i]);
    }
    close_list(&l);
    cp_result_free(one);
    cp_data_free(&data);
}

static void what_travels_may_be_narrower(void **state)
{
    (void)state;
    for (int s = 0; s < SHAPES; s++)
        for (size_t t = 0; t < sizeof narrow / sizeof *narrow; t++) {
            cp_case c = base(WEFT_PREC_F32, shapes[s][0], shapes[s][1], 61);
            if (c.H == 1 || c.H == 7) continue; /* no head groups on six ranks */
            c.D = 16, c.Dv = 8;
            check_narrow(&c, &narrow[t], 6, c.H % 3 == 0 ? 3 : 2);
        }
}

static double equal_keys(const cp_case *c, char what, int64_t b, int64_t t, int h, int d)
{
    if (what == 'k') return d % 2 ? 1 : -0.5; /* fp8 holds them */
    return test_normal(c->seed + (uint64_t)what, ((b * 1000 + t) * 10 + h) * 100 + d);
}

/* With fp8, dO comes rounded to the ranks that have its heads, and delta is that of the rounded dO: so sum_k dS = 0
 * still holds in every row, and where all keys are the same vector, dq = scale sum_k dS k is 0 but for rounding in R.
 * The terms that cancel are of the size of dO; each is a few fp32 roundings off, and their mean over the keys is
 * taken. */
static void rounded_output_gradients_sum_to_nothing(void **state)
{
    (void)state;
    static const char *const names[] = {"dcp", "dcp-ring", "dcp-pairwise", "ulysses"};
    cp_case c = base(WEFT_PREC_F32, 4, 2, 61);
    c.sinks = false; /* a share that the sink takes is no key's */
    c.value = equal_keys;
    cp_data data = cp_data_make(&c);
    cp_result *none = one_rank(&c, &data);
    double dout = weft_norm2(data.dout, WEFT_F64, c.B * c.Tq * c.H * c.Dv);
    for (int s = 0; s < 4; s++)
        for (int keep = 0; keep < 2; keep++) {
            cp_result *x = cp_result_make(&c, 4);
            cp_job job = {&c, &data, names[s], WEFT_LAYOUT_ZIGZAG, true, 1, NULL, x, {.fp8 = true, .keep_heads = keep}};
            assert_ok(cp_run(4, &job, 1));
            assert_at_most(weft_norm2(x->dq, WEFT_F64, c.B * c.Tq * c.H * c.D), 10 * cp_roundoff(WEFT_F32) * dout);
            /* and dO was rounded: dv is the sum of it */
            double off = weft_rel_l2(x->dv, WEFT_F64, none->dv, WEFT_F64, c.B * c.T * c.Hkv * c.Dv, 0);
            assert_true(off > cp_roundoff(WEFT_F8_E5M2) / 8);
            cp_result_free(x);
        }
    cp_result_free(none);
    cp_data_free(&data);
}

/* ---- bits ------------------------------------------------------------------------------------------------ */

/* Context strategy, overlap, pieces and where q, k, v wait for backward change no bit; nor does a second run. */
static void same_bits_for_one_grid(void **state)
{
    (void)state;
    for (int s = 0; s < SHAPES; s++) {
        cp_case c = base(WEFT_PREC_F32, shapes[s][0], shapes[s][1], 61);
        cp_data data = cp_data_make(&c);
        int U = c.H % 3 == 0 ? 3 : c.H > 1 ? 2 : 1;
        list l = {.c = &c, .data = &data, .P = 6};
        for (int g = 0; g < GRIDS; g++)
            for (int keep = 0; keep < 2; keep++)
                for (int pieces = 0; pieces < 2; pieces++)
                    add(&l, grids[g], WEFT_LAYOUT_ZIGZAG,
                        (weft_cp_options){.head_size = U, .keep_heads = keep, .buffer_bytes = pieces ? 1000 : 0});
        run(&l);
        for (int i = 1; i < l.n; i++)
            if (!cp_same_bits(&c, l.jobs[i].out, l.jobs[0].out))
                fail_msg("H=%d/%d: way %d of U=%d differs from the first in bits", c.H, c.Hkv, i, U);
        close_list(&l);
        cp_data_free(&data);
    }
}

/* A rank of ulysses computes its heads as one rank alone would, whatever the layout: the very bits, but for sums over
 * ranks (sinks, and K,V heads that are shared). */
static void one_group_of_all_ranks_gives_the_bits_of_one_rank(void **state)
{
    (void)state;
    static const weft_prec precs[] = {WEFT_PREC_F64, WEFT_PREC_F32, WEFT_PREC_BF16};
    for (int i = 0; i < 3; i++)
        for (int P = 2; P <= 7; P += 1 + P / 3) {
            cp_case c = base(precs[i], P * 2, P, 53);
            cp_data data = cp_data_make(&c);
            cp_result *one = one_rank(&c, &data);
            list l = {.c = &c, .data = &data, .P = P};
            add(&l, "ulysses", WEFT_LAYOUT_CONTIGUOUS, (weft_cp_options){0});
            add(&l, "ulysses", WEFT_LAYOUT_ZIGZAG, (weft_cp_options){.keep_heads = true});
            run(&l);
            for (int j = 0; j < l.n; j++) assert_true(cp_same_bits(&c, l.jobs[j].out, one));
            close_list(&l);
            cp_result_free(one);
            cp_data_free(&data);
        }
}

/* ---- traffic ----------------------------------------------------------------------------------------------- */

/* Bytes and messages of head stage and context stage (harness/traffic.h), whole and in pieces, exchanged twice or
 * kept. */
static void check_traffic(const cp_case *c, int P, int U)
{
    cp_data data = cp_data_make(c);
    list l = {.c = c, .data = &data, .P = P};
    for (int g = 0; g < GRIDS; g++)
        for (int keep = 0; keep < 2; keep++)
            add(&l, grids[g], (weft_layout_kind)(g % 2),
                (weft_cp_options){.head_size = U, .keep_heads = keep, .buffer_bytes = (g + keep + U) % 2 ? 100 : 0});
    run(&l);
    for (int i = 0; i < l.n; i++) cp_check_traffic(&l.jobs[i]);
    close_list(&l);
    cp_data_free(&data);
}

static void traffic_is_that_of_the_formulas(void **state)
{
    (void)state;
    static const int grid_sizes[][2] = {{2, 2}, {4, 2}, {6, 3}, {6, 2}, {8, 4}, {5, 5}, {3, 1}};
    for (size_t g = 0; g < sizeof grid_sizes / sizeof *grid_sizes; g++)
        for (int s = 0; s < SHAPES; s++) {
            cp_case c = base(s % 2 ? WEFT_PREC_BF16 : WEFT_PREC_F64, shapes[s][0], shapes[s][1], s % 3 ? 31 : 4);
            c.mask = (weft_mask){false, -1, -1, 0};
            c.Tq = s % 3 == 1 ? 17 : c.T;
            if (grid_sizes[g][1] <= c.H) check_traffic(&c, grid_sizes[g][0], grid_sizes[g][1]);
        }
}

/* The context stage of a grid sees the chunks of groups: of R = P / U, zigzag moves 3/4 of what a ring of R would. */
static void causal_traffic_of_pairwise_grids(void **state)
{
    (void)state;
    static const int grid_sizes[][2] = {{4, 2}, {6, 3}, {6, 2}, {8, 2}, {8, 4}, {8, 8}};
    for (size_t g = 0; g < sizeof grid_sizes / sizeof *grid_sizes; g++)
        for (int64_t window = -1; window < 4; window += 4) {
            int P = grid_sizes[g][0];
            cp_case c = base(WEFT_PREC_BF16, 8, 4, 2 * P * 3);
            c.mask.left = window;
            cp_data data = cp_data_make(&c);
            list l = {.c = &c, .data = &data, .P = P};
            for (int i = 0; i < 4; i++)
                add(&l, "dcp-pairwise", i % 2 ? WEFT_LAYOUT_ZIGZAG : WEFT_LAYOUT_CONTIGUOUS,
                    (weft_cp_options){.head_size = grid_sizes[g][1], .keep_heads = i / 2,
                                      .buffer_bytes = i % 3 ? 70 : 0});
            run(&l);
            for (int i = 0; i < l.n; i++) {
                const traffic_case formula = cp_traffic_case(&l.jobs[i]);
                for (int r = 0; r < P; r++) {
                    traffic want = traffic_causal_pairwise(&formula, r, window);
                    cp_expect_traffic(&l.jobs[i], r, &want);
                }
            }
            close_list(&l);
            cp_data_free(&data);
        }
}

/* What a layer keeps: q, K,V, m and l of the group's rows for the rank's own heads, its share of the whole. */
static void kept_bytes_are_the_own_share(void **state)
{
    (void)state;
    enum { P = 8, U = 4, T = 96, ROWS = T / P * U };
    cp_case c = base(WEFT_PREC_BF16, 12, 4, T);
    cp_data data = cp_data_make(&c);
    list l = {.c = &c, .data = &data, .P = P};
    add(&l, "dcp", WEFT_LAYOUT_ZIGZAG, (weft_cp_options){.head_size = U, .keep_heads = true});
    add(&l, "dcp", WEFT_LAYOUT_ZIGZAG, (weft_cp_options){.head_size = U});
    run(&l);
    size_t q = ROWS * 3 * 4 * 2, kv = ROWS * 1 * 7 * 2, state_bytes = ROWS * 3 * 4;
    for (int r = 0; r < P; r++) {
        size_t least = q + kv + 2 * state_bytes;
        assert_true(l.jobs[0].out->kept_bytes[r] >= least && l.jobs[0].out->kept_bytes[r] < least + 3 * 64);
        assert_int_equal(l.jobs[1].out->kept_bytes[r], 0);
        assert_true(l.jobs[0].out->pool_bytes[r] < l.jobs[1].out->pool_bytes[r]);
    }
    close_list(&l);
    cp_data_free(&data);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_grids_in_fp64), cmocka_unit_test(all_grids_in_fp32),
        cmocka_unit_test(all_masks_on_some_grids),
        cmocka_unit_test(bf16_error_stays_that_of_one_rank), cmocka_unit_test(what_travels_may_be_narrower),
        cmocka_unit_test(rounded_output_gradients_sum_to_nothing), cmocka_unit_test(same_bits_for_one_grid),
        cmocka_unit_test(one_group_of_all_ranks_gives_the_bits_of_one_rank),
        cmocka_unit_test(traffic_is_that_of_the_formulas),
        cmocka_unit_test(causal_traffic_of_pairwise_grids),
        cmocka_unit_test(kept_bytes_are_the_own_share),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
