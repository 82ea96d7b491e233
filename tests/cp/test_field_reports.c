/* Faults that users of other systems met, each as the small case of its report (the name is its row). */
/* labels: small */
/* timeout: 240 */
#include "harness/test.h"
#include "harness/cp_case.h"

/* One head, q = k = 0, v at position i equals i: the output row is the mean of the visible positions. */
static double probe(const cp_case *c, char what, int64_t b, int64_t t, int h, int d)
{
    (void)b, (void)h, (void)d;
    return what == 'v' ? (double)(t + c->k_pos0) : what == 'o' ? 1 : 0;
}

static cp_case probe_case(int64_t Tq, int64_t T, weft_mask mask)
{
    return (cp_case){.name = "probe", .prec = WEFT_PREC_F64, .B = 1, .Tq = Tq, .T = T, .H = 1, .Hkv = 1, .D = 2,
                     .Dv = 1,
                     .mask = mask, .value = probe};
}

static const weft_mask causal = {true, -1, -1, 0}, full = {false, -1, -1, 0};

/* Runs all strategies on all layouts; `each` checks every result. */
static void for_each_way(const cp_case *c, int P, void (*each)(const cp_case *, const cp_result *))
{
    cp_data data = cp_data_make(c);
    for (int l = 0; l < WEFT_LAYOUT_COUNT; l++) {
        cp_job jobs[CP_WAYS];
        int n = cp_jobs(c, &data, P, (weft_layout_kind)l, jobs);
        assert_ok(cp_run(P, jobs, n));
        for (int i = 0; i < n; i++) each(c, jobs[i].out);
        for (int i = 0; i < n; i++) cp_result_free(jobs[i].out);
    }
    cp_data_free(&data);
}

static void near(double x, double want) { assert_at_most(fabs(x - want), 1e-12 * fmax(1, fabs(want))); }

static void g05_rows(const cp_case *c, const cp_result *r)
{
    (void)c;
    near(r->o[7], 3.5);
    near(r->o[8], 8);
    near(r->o[15], 11.5);
}

static double noise_in_token_0(const cp_case *c, char what, int64_t b, int64_t t, int h, int d)
{
    return test_normal((uint64_t)what, ((b * 50 + t) * 4 + h) * 8 + d) + (t == 0 ? (double)c->seed : 0);
}

static void g05_documents_do_not_leak(void **state)
{
    (void)state;
    static const int64_t cu[] = {0, 8, 16}, first[] = {0, 3};
    cp_case c = probe_case(16, 16, causal);
    c.cu = cu, c.first = first;
    for_each_way(&c, 2, g05_rows);
    for (int l = 0; l < CP_LAYOUTS; l++) { /* token 0 changes: the second document does not, by any strategy */
        cp_job jobs[2][CP_WAYS];
        int n = 0;
        for (int i = 0; i < 2; i++) {
            c = (cp_case){.name = "G05", .prec = WEFT_PREC_F32, .B = 1, .Tq = 16, .T = 16, .H = 2, .Hkv = 1, .D = 8,
                          .Dv = 8, .mask = causal, .cu = cu, .first = first, .seed = (uint64_t)i,
                          .value = noise_in_token_0};
            cp_data data = cp_data_make(&c);
            n = cp_jobs(&c, &data, 2, (weft_layout_kind)l, jobs[i]);
            assert_ok(cp_run(2, jobs[i], n));
            cp_data_free(&data);
        }
        assert_int_equal(n, CP_WAYS);
        for (int j = 0; j < n; j++) {
            cp_result *a = jobs[0][j].out, *b = jobs[1][j].out;
            assert_memory_not_equal(a->o, b->o, 8 * 16 * sizeof(double));
            assert_memory_equal(a->o + 8 * 16, b->o + 8 * 16, 8 * 16 * sizeof(double));
            assert_memory_equal(a->dk + 8 * 8, b->dk + 8 * 8, 8 * 8 * sizeof(double));
            cp_result_free(a), cp_result_free(b);
        }
    }
}

static void g06_causal(const cp_case *c, const cp_result *r)
{
    (void)c;
    for (int i = 0; i < 7; i++) near(r->o[i], i / 2.0);
}
static void g06_full(const cp_case *c, const cp_result *r) { (void)c; for (int i = 0; i < 7; i++) near(r->o[i], 3); }

/* Seven tokens are seven tokens: no padding exists that could be counted. */
static void g06_length_7_on_2_ranks(void **state)
{
    (void)state;
    cp_case c = probe_case(7, 7, causal);
    for_each_way(&c, 2, g06_causal);
    c.mask = full;
    for_each_way(&c, 2, g06_full);
}

static void compare_with_one_rank(const cp_case *c, int P, double limit)
{
    cp_data data = cp_data_make(c);
    cp_result *one = cp_result_make(c, 1);
    cp_job job = {c, &data, "none", WEFT_LAYOUT_ZIGZAG, true, 1, NULL, one, {0}};
    assert_ok(cp_run(1, &job, 1));
    for (int l = 0; l < WEFT_LAYOUT_COUNT; l++) {
        cp_job jobs[CP_WAYS];
        int n = cp_jobs(c, &data, P, (weft_layout_kind)l, jobs);
        assert_ok(cp_run(P, jobs, n));
        for (int i = 0; i < n; i++) assert_at_most(cp_distance(c, &data, jobs[i].out, one, 1), limit);
        for (int i = 0; i < n; i++) cp_result_free(jobs[i].out);
    }
    cp_result_free(one);
    cp_data_free(&data);
}

static void g08_lengths_that_nothing_divides(void **state)
{
    (void)state;
    cp_case c = {.name = "G08", .prec = WEFT_PREC_F64, .B = 1, .Tq = 11, .T = 11, .H = 2, .Hkv = 1, .D = 4, .Dv = 4,
                 .mask = causal, .seed = 8};
    compare_with_one_rank(&c, 4, 1e-12);
    c = (cp_case){.name = "G08", .prec = WEFT_PREC_F64, .B = 1, .Tq = 2999, .T = 2999, .H = 1, .Hkv = 1, .D = 2,
                  .Dv = 2,
                  .mask = {true, 99, -1, 0}, .seed = 8};
    compare_with_one_rank(&c, 4, 1e-12);
}

static double few_labels(const cp_case *c, char what, int64_t b, int64_t t, int h, int d)
{
    if (what == 'o' && t >= (int64_t)c->seed) return 0;
    return test_normal((uint64_t)what, ((b * 50 + t) * 4 + h) * 8 + d);
}

static void all_zero(const cp_case *c, const cp_result *r)
{
    for (int64_t i = 0; i < c->Tq * c->H * c->D; i++) assert_true(r->dq[i] == 0);
    for (int64_t i = 0; i < c->T * c->Hkv * c->D; i++) assert_true(r->dk[i] == 0);
    for (int64_t i = 0; i < c->T * c->Hkv * c->Dv; i++) assert_true(r->dv[i] == 0);
}

/* Ranks 2 and 3 of zigzag hold no label: their gradient of the output is 0. Then no label anywhere. */
static void g11_ranks_without_labels(void **state)
{
    (void)state;
    cp_case c = {.name = "G11", .prec = WEFT_PREC_F64, .B = 1, .Tq = 16, .T = 16, .H = 2, .Hkv = 2, .D = 4, .Dv = 4,
                 .mask = causal, .seed = 4, .value = few_labels};
    compare_with_one_rank(&c, 4, 1e-12);
    c.seed = 0;
    for_each_way(&c, 4, all_zero);
}

static double one_key(const cp_case *c, char what, int64_t b, int64_t t, int h, int d)
{
    (void)c, (void)b, (void)t, (void)h, (void)d;
    return what == 'q' ? 1.25 : what == 'k' ? 1 : what == 'v' ? 2.5 : 1;
}

static void g13_rows(const cp_case *c, const cp_result *r)
{
    for (int64_t i = 0; i < c->Tq; i++) {
        bool empty = i < c->k_pos0 || i >= c->k_pos0 + c->T;
        assert_true(r->o[i] == (empty ? 0 : 2.5));
        assert_true(r->lse[i] == (empty ? -INFINITY : 1.25));
        assert_true(r->dq[i] == 0);
    }
}

/* Blocks in which a row sees nothing leave it as it is, bit for bit; rows that see nothing at all are empty. */
static void g13_empty_parts(void **state)
{
    (void)state;
    for (int prec = 0; prec < 2; prec++)
        for (int64_t k_pos0 = 0; k_pos0 < 8; k_pos0 += 3) {
            cp_case c = {.name = "G13", .prec = (weft_prec)prec, .B = 1, .Tq = 8, .T = 4, .H = 1, .Hkv = 1, .D = 1,
                         .Dv = 1, .scale = 1, .mask = {false, 0, 0, 0}, .k_pos0 = k_pos0, .own_q_pos0 = true,
                         .value = one_key};
            for (int P = 2; P <= 8; P += 3) for_each_way(&c, P, g13_rows);
        }
}

static void g19_rows(const cp_case *c, const cp_result *r)
{
    for (int64_t i = 0; i < c->Tq; i++) near(r->o[i], i < 2 ? (double)i / 2 : (double)i - 1);
}

static void g19_window_is_kept(void **state)
{
    (void)state;
    cp_case c = probe_case(16, 16, (weft_mask){true, 2, -1, 0});
    for_each_way(&c, 2, g19_rows);
}

/* ---- several groups at once ---------------------------------------------------------------------------- */

static double constant(const cp_case *c, char what, int64_t b, int64_t t, int h, int d)
{
    return what == 'v' ? (double)c->seed : test_normal((uint64_t)what, ((b * 50 + t) * 4 + h) * 8 + d);
}

typedef struct groups { int cp; bool strided; cp_job job[2]; } groups;

static weft_status run_group(weft_ctx *ctx, weft_world *world, void *ud)
{
    const groups *g = ud;
    weft_comm *mine = NULL;
    int index = -1;
    for (int i = 0; i < 2; i++) { /* every rank makes every group, in one order */
        int ranks[8];
        weft_comm *comm;
        for (int r = 0; r < g->cp; r++) ranks[r] = g->strided ? i + 2 * r : i * g->cp + r;
        WEFT_TRY(weft_comm_create(&comm, world, ranks, g->cp, "cp"));
        if (comm) mine = comm, index = i;
    }
    WEFT_TRY(cp_run_rank(ctx, mine, &g->job[index]));
    weft_comm_destroy(mine);
    return WEFT_OK;
}

static void check_groups(int cp, bool strided, const char *strategy)
{
    cp_case c[2];
    cp_data data[2];
    groups g = {.cp = cp, .strided = strided};
    for (int i = 0; i < 2; i++) {
        c[i] = (cp_case){.name = "G24", .prec = WEFT_PREC_F64, .B = 1, .Tq = 12, .T = 12, .H = 4, .Hkv = 2,
                         .D = 3, .Dv = 2, .mask = causal, .seed = (uint64_t)i + 1, .value = constant};
        data[i] = cp_data_make(&c[i]);
        g.job[i] = (cp_job){&c[i], &data[i], strategy, WEFT_LAYOUT_ZIGZAG, true, 1, NULL, cp_result_make(&c[i], cp),
                            {0}};
    }
    assert_ok(weft_run_threads(2 * cp, run_group, &g));
    for (int i = 0; i < 2; i++) {
        for (int j = 0; j < 12 * 4 * 2; j++) near(g.job[i].out->o[j], i + 1);
        cp_result_free(g.job[i].out);
        cp_data_free(&data[i]);
    }
}

static void g24_groups_do_not_mix(void **state)
{
    (void)state;
    int n;
    const char *const *names = weft_cp_names(&n);
    for (int cp = 2; cp <= 4; cp += 2)
        for (int strided = 0; strided < 2; strided++)
            for (int i = 0; i < n; i++)
                if (strcmp(names[i], "none")) check_groups(cp, strided, names[i]);
}

/* ---- queries and keys of different lengths --------------------------------------------------------------- */

static void g28_a(const cp_case *c, const cp_result *r)
{
    (void)c;
    near(r->o[0], 1.5);
    near(r->o[1], 2);
}

static void g28_b(const cp_case *c, const cp_result *r)
{
    (void)c;
    for (int i = 0; i < 3; i++) {
        assert_true(r->o[i] == 0);
        assert_true(r->lse[i] == -INFINITY);
        assert_true(r->dq[2 * i] == 0);
    }
    near(r->o[3], 3);
    near(r->o[4], 3.5);
}

static void g28_mask_stands_on_positions(void **state)
{
    (void)state;
    for (int P = 2; P <= 5; P++) {
        cp_case a = probe_case(2, 5, causal);
        for_each_way(&a, P, g28_a);
        cp_case b = probe_case(5, 2, causal);
        b.k_pos0 = 3, b.own_q_pos0 = true;
        for_each_way(&b, P, g28_b);
    }
}

/* ---- heads ------------------------------------------------------------------------------------------------ */

/* k = 0 gives p = 1/2 for both keys; v = +1, -1 gives o = 0; so dk_0 = sum_h do_h / 2 with do_h = 2 (h + 1). */
static double head_parts(const cp_case *c, char what, int64_t b, int64_t t, int h, int d)
{
    (void)c, (void)b, (void)d;
    return what == 'q' ? 1 : what == 'k' ? 0 : what == 'v' ? (t == 0 ? 1 : -1) : 2.0 * (h + 1);
}

static void g29_sums(const cp_case *c, const cp_result *r)
{
    if (c->Hkv == 1) near(r->dk[0], 10);
    else {
        near(r->dk[0], 3);
        near(r->dk[1], 7);
    }
    near(r->dk[c->Hkv], -r->dk[0]);
}

static void g29_more_ranks_than_kv_heads(void **state)
{
    (void)state;
    for (int Hkv = 1; Hkv <= 2; Hkv++) {
        cp_case c = {.name = "G29", .prec = WEFT_PREC_F64, .B = 1, .Tq = 1, .T = 2, .H = 4, .Hkv = Hkv, .D = 1, .Dv = 1,
                     .scale = 1, .mask = full, .value = head_parts};
        for_each_way(&c, 4, g29_sums);
        c = (cp_case){.name = "G29", .prec = WEFT_PREC_F64, .B = 1, .Tq = 19, .T = 19, .H = 4, .Hkv = Hkv, .D = 4,
                      .Dv = 4, .mask = causal, .seed = 29};
        compare_with_one_rank(&c, 4, 1e-12);
    }
}

/* ---- buffers ---------------------------------------------------------------------------------------------- */

/* Every row another, and made in no time. */
static double rows_differ(const cp_case *c, char what, int64_t b, int64_t t, int h, int d)
{
    (void)c, (void)b;
    return (double)((t * 37 + h * 11 + d * 5 + what) % 257) / 128 - 1;
}

/* Once with blocks read in place, and many times through copies. */
static void repeat(const cp_case *c, const cp_data *data, const char *strategy, int times)
{
    cp_result *r[2];
    for (int i = 0; i < 2; i++) {
        cp_job job = {c, data, strategy, WEFT_LAYOUT_ZIGZAG, true, i ? times : 1, NULL, r[i] = cp_result_make(c, 4),
                      {0}};
        assert_ok((i ? cp_run_copies : cp_run)(4, &job, 1));
    }
    if (!cp_same_bits(c, r[0], r[1]))
        fail_msg("%s, T=%lld: other bits after %d repeats", strategy, (long long)c->T, times);
    cp_result_free(r[0]);
    cp_result_free(r[1]);
}

/* A buffer is not refilled before it was sent: blocks of 256 bytes, and of 1 MiB, 4 MiB in the ring. */
static void g38_buffers_are_reused_in_time(void **state)
{
    (void)state;
    int n;
    const char *const *names = weft_cp_names(&n);
    for (int i = 0; i < n; i++)
        for (int large = 0; large < 2 && strcmp(names[i], "none"); large++) {
            if (large && (i + 3) % test_every(5) != 0) continue; /* at least the ring */
            cp_case c = {.name = "G38", .prec = WEFT_PREC_F32, .B = 1, .Tq = 8, .T = 8, .H = 4, .Hkv = 4, .D = 4,
                         .Dv = 4, .mask = causal, .value = rows_differ};
            if (large) c.T = c.Tq = strcmp(names[i], "ring") ? 4096 : 16384, c.D = c.Dv = 32, c.mask.left = 0;
            cp_data data = cp_data_make(&c);
            repeat(&c, &data, names[i], large ? 3 : 50);
            cp_data_free(&data);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(g05_documents_do_not_leak),
        cmocka_unit_test(g06_length_7_on_2_ranks),
        cmocka_unit_test(g08_lengths_that_nothing_divides),
        cmocka_unit_test(g11_ranks_without_labels),
        cmocka_unit_test(g13_empty_parts),
        cmocka_unit_test(g19_window_is_kept),
        cmocka_unit_test(g24_groups_do_not_mix),
        cmocka_unit_test(g28_mask_stands_on_positions),
        cmocka_unit_test(g29_more_ranks_than_kv_heads),
        cmocka_unit_test(g38_buffers_are_reused_in_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
