/* test_attention.c — every attention kernel against the float64 answer: masks, sizes, heads, pairs, threads.
 * labels: small */
/* timeout: 300 */
#include "attention_kernels.h"

static void masks(void **state)
{
    (void)state;
    static const struct { const char *name; weft_mask mask; } rows[] = {
        {"full", {false, -1, -1, 0}},          {"causal", {true, -1, -1, 0}},
        {"causal window", {true, 15, -1, 0}},  {"window both sides", {false, 16, 7, 0}},
        {"window after", {false, -1, 3, 0}},   {"prefix", {true, -1, -1, 37}},
        {"prefix in a window", {true, 50, 9, 100}}, {"self only", {true, 0, -1, 0}},
        {"self and one before", {false, 1, 0, 0}},
    };
    static const int64_t sizes[][2] = {{1, 1}, {3, 5}, {33, 33}, {70, 200}, {200, 70}, {1, 99}, {257, 257}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        for (size_t j = 0; j < sizeof sizes / sizeof *sizes; j++) {
            attention_case c;
            char text[64];
            if ((i + j) % (size_t)test_every(2) != 0) continue;
            case_init(&c, 2, 1, 16, 16);
            case_simple(&c, sizes[j][0], sizes[j][1]);
            c.d.mask = rows[i].mask;
            snprintf(text, sizeof text, "%s %lldx%lld", rows[i].name, (long long)sizes[j][0], (long long)sizes[j][1]);
            /* A row with one key has dq = 0, the difference of two equal sums that round differently; the stored
             * case one_token allows 3e-5. */
            bool one_key = sizes[j][1] == 1 || (c.d.mask.left == 0 && c.d.mask.prefix == 0);
            check_all(&c, 1, false, false, one_key ? 15 : 1, text);
        }
}

static void head_sizes(void **state)
{
    (void)state;
    static const int sizes[][2] = {{1, 1}, {5, 5}, {20, 20}, {64, 64}, {72, 72}, {80, 80}, {96, 96}, {104, 104},
                                   {128, 128}, {192, 128}, {256, 256}, {3, 256}, {255, 2}};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        attention_case c;
        char text[64];
        case_init(&c, 2, 2, sizes[i][0], sizes[i][1]);
        case_simple(&c, 33, 150);
        c.d.mask.causal = true;
        snprintf(text, sizeof text, "D %d Dv %d", sizes[i][0], sizes[i][1]);
        check_all(&c, 1, false, false, 1, text);
    }
}

static void heads(void **state)
{
    (void)state;
    static const int groups[][2] = {{1, 1}, {2, 1}, {4, 1}, {4, 2}, {6, 2}, {7, 1}, {30, 6}, {65, 1}};
    for (size_t i = 0; i < sizeof groups / sizeof *groups; i++) {
        attention_case c;
        char text[64];
        case_init(&c, groups[i][0], groups[i][1], 8, 12);
        case_simple(&c, 67, 67);
        c.d.mask.causal = true;
        snprintf(text, sizeof text, "%d heads over %d", groups[i][0], groups[i][1]);
        check_all(&c, 1, true, true, 1, text);
    }
}

static void uneven_heads(void **state)
{
    (void)state;
    attention_case c;
    for (int way = 0; way < UNEVEN_HEADS; way++) {
        const char *what = case_uneven_heads(&c, way);
        check_all(&c, 1, way == 0, way == 0, 1, what);
    }
}

static void score_rules(void **state)
{
    (void)state;
    for (int bits = 1; bits < 8; bits++) {
        attention_case c;
        char text[64];
        case_init(&c, 4, 2, 20, 20);
        case_simple(&c, 100, 130);
        c.d.mask.causal = true;
        if (bits & 1) c.d.softcap = 5;
        if (bits & 4) c.d.mask.left = 20;
        snprintf(text, sizeof text, "softcap %d alibi %d window %d", bits & 1, bits & 2, bits & 4);
        /* softcap bends the scores: rounding of s/cap and of tanh add up (the stored case allows 6.5e-6) */
        check_all(&c, 1, bits & 4, bits & 2, bits & 1 ? 3 : 1, text);
    }
}

static void negative_scale(void **state)
{
    (void)state;
    attention_case c;
    case_init(&c, 2, 1, 16, 16);
    case_simple(&c, 40, 40);
    c.d.scale = -0.3;
    check_all(&c, 1, false, false, 1, "scale -0.3");
}

/* Scores of several hundred: lse rounds to 2e-5, which must not reach the gradients. A score's own rounding
 * (a few hundred x 6e-8 x a few) moves p by 1e-4: that is the limit here, not 2e-6. */
static void large_logits(void **state)
{
    (void)state;
    attention_case c;
    case_init(&c, 2, 1, 64, 64);
    case_simple(&c, 130, 130);
    c.d.mask.causal = true;
    check_all(&c, 100, false, false, 200, "large logits");
}

/* Scores of millions: every row has one key, o and dv are copies, whatever rounding does to a score. Only where P is
 * found from other roundings backward than forward is it not the 1 that it should be. */
static void one_key_wins(void **state)
{
    (void)state;
    for (int half = 0; half < 2; half++) {
        attention_case c;
        case_init(&c, 2, 1, 64, 64);
        case_simple(&c, 70, 260);
        c.d.mask.causal = true, c.d.scale = half ? -1e6 : 3e6;
        case_fill(&c, half, 11, 1, false, false);
        FOR_KERNELS(k) {
            if (bits16(k) != half) continue;
            attention_result r = kernel_result(&c, k, 1);
            assert_at_most(weft_rel_l2(r.o, WEFT_F64, c.want.o, WEFT_F64, c.q_rows * 2 * 64, 0), k->limit);
            assert_at_most(weft_rel_l2(r.dv, WEFT_F64, c.want.dv, WEFT_F64, c.k_rows * 64, 0), k->limit);
            assert_at_most(weft_max_scaled(r.lse, WEFT_F64, c.want.lse, WEFT_F64, c.q_rows * 2), 1e-6);
            result_free(&r);
        }
        case_clear(&c);
    }
}

/* Whether row i is NaN in one of the two heads; lse must say so too. */
static bool is_nan_row(const attention_case *c, const attention_result *r, int64_t i)
{
    int nans = 0;
    for (int64_t x = i * 2 * c->d.Dv; x < (i + 1) * 2 * c->d.Dv; x++) nans += isnan(r->o[x]) != 0;
    if (nans && !(isnan(r->lse[2 * i]) || isnan(r->lse[2 * i + 1]))) fail_msg("row %d: NaN, but lse is not", (int)i);
    return nans > 0;
}

/* A score that is infinite, or larger than a fast kernel takes (kern/attention/README.md), makes its row NaN, and the
 * gradients of the keys that the row sees: never a number, or 0, as if nothing were wrong. */
static void scores_beyond_numbers(void **state)
{
    (void)state;
    static const double scale[] = {0.25, 1e9, 1e10, 1e12, 1e30};
    for (size_t i = 0; i < 2 * sizeof scale / sizeof *scale; i++) {
        attention_case c;
        const int half = i % 2;
        case_init(&c, 2, 1, 16, 16);
        case_simple(&c, 40, 150);
        c.d.mask.causal = true, c.d.scale = scale[i / 2];
        case_fill(&c, half, 5 + i, 1, false, false);
        if (i < 2) c.q[20 * 2 * 16 + 3] = INFINITY;
        FOR_KERNELS(k) {
            if (bits16(k) != half) continue;
            attention_result r = kernel_result(&c, k, 1);
            bool any = false, reference = k->isa == WEFT_ISA_REF;
            for (int64_t row = 0; row < c.q_rows; row++) {
                const bool bad = is_nan_row(&c, &r, row), other = i >= 2 || row != 20;
                any |= bad;
                if (reference && other) assert_false(bad);
                if (!other) assert_true(bad);
                for (int64_t x = row * 32; x < row * 32 + 32 && !bad; x++)
                    if (!(fabs(r.o[x] - c.want.o[x]) <= 1e-2)) fail_msg("%s, scale %g: o %g, not %g", k->name,
                                                                      c.d.scale, r.o[x], c.want.o[x]);
            }
            for (int x = 0; x < 16; x++)
                if (!isnan(r.dv[x]) != !any) fail_msg("%s, scale %g: dv of a key that a NaN row sees is %g", k->name,
                                                    c.d.scale, r.dv[x]);
            result_free(&r);
        }
        case_clear(&c);
    }
}

static void rings(void **state)
{
    (void)state;
    static const weft_mask mask[] = {{true, -1, -1, 0}, {false, -1, -1, 0}, {true, 30, -1, 0}, {true, 40, -1, 100}};
    static const int64_t stripe[] = {0, 1, 3, 16};
    for (int s = 0; s < 4; s++)
        for (int parts = 2; parts <= 4; parts++)
            for (int i = 0; i < 4; i++) {
                if (stripe[s] > 0 && (s + parts + i) % 2) continue; /* every other one: time */
                if ((s + 2 * parts + i) % test_every(5) != 0) continue;
                attention_case c;
                char text[64];
                case_init(&c, 3, 1, 24, 24);
                case_ring(&c, 157, parts, stripe[s]);
                c.d.mask = mask[i];
                snprintf(text, sizeof text, "stripe %d, ring of %d, mask %d", (int)stripe[s], parts, i);
                check_all(&c, 1, true, i & 1, 1, text);
            }
}

static void documents(void **state)
{
    (void)state;
    static const int64_t lengths[] = {5, 0, 1, 64, 130, 2, 7, 0, 200, 1};
    attention_case c;
    for (int causal = 0; causal < 2; causal++) {
        case_init(&c, 2, 1, 32, 32);
        case_documents(&c, lengths, sizeof lengths / sizeof *lengths);
        c.d.mask.causal = causal;
        check_all(&c, 1, false, false, 1, "documents");
    }
}

/* Queries far apart and a narrow window: most key tiles see no query although their neighbours do, which is
 * where an ordering of the sums of dq by neighbours could go wrong. */
static void sparse_queries(void **state)
{
    (void)state;
    attention_case c;
    case_init(&c, 1, 1, 16, 16);
    case_add_pair(&c, 0, 9, 5, 301, 0, 1001, 0, 3);
    case_end_call(&c);
    c.d.mask.left = c.d.mask.right = 1; /* at most one key per row, as above */
    check_all(&c, 1, false, false, 15, "queries 301 apart, keys 3 apart");
}

/* Runs of any length on either side, of different lengths and distances, cut inside a run, with a tail that is no
 * whole run; windows narrower than a gap; every rule of scores that reads positions. */
static void runs(void **state)
{
    (void)state;
    static const int64_t rows[][4] = { /* runs and steps of queries and keys */
        {1, 1, 5, 9}, {7, 7, 2, 3}, {2, 5, 1, 1}, {64, 128, 64, 128}, {3, 100, 5, 8}, {500, 500, 1, 4},
    };
    static const weft_mask mask[] = {{true, -1, -1, 0}, {true, 30, -1, 0}, {false, 3, 60, 0}, {true, -1, -1, 90}};
    for (int i = 0; i < 6; i++)
        for (int j = i / 2 % 2; j < 4; j += 2) {
            const int64_t *r = rows[i];
            attention_case c;
            char text[64];
            case_init(&c, 3, 1, 20, 20);
            case_add(&c, (weft_attn_pair){.q_row = 2, .nq = 75, .q_pos = 40, .q_run = r[0], .q_step = r[1],
                                          .k_row = 1, .nk = 251, .k_pos = 5, .k_run = r[2], .k_step = r[3]});
            case_end_call(&c);
            c.d.mask = mask[j];
            if (j == 2) c.d.softcap = 5;
            snprintf(text, sizeof text, "runs %d/%d and %d/%d, mask %d", (int)r[0], (int)r[1], (int)r[2], (int)r[3], j);
            check_all(&c, 1, false, i & 1, j == 2 ? 3 : 1, text);
        }
}

static void long_rows(void **state)
{
    (void)state;
    attention_case c;
    case_init(&c, 1, 1, 8, 8);
    case_simple(&c, 1001, 1001);
    c.d.mask.causal = true;
    check_all(&c, 1, false, false, 1, "1001 tokens, one head");
}

/* Enough keys for kernels that take several tiles of keys at a time; windows that begin and end inside of such. */
static void many_keys(void **state)
{
    (void)state;
    static const weft_mask mask[] = {{true, -1, -1, 0}, {true, 700, -1, 0}, {false, 130, 650, 0}};
    for (int i = 0; i < 3; i++) {
        attention_case c;
        case_init(&c, 2, 1, 24, 40);
        case_add_pair(&c, 0, 75, 3, 40, 0, 3001, 0, 1);
        case_end_call(&c);
        c.d.mask = mask[i];
        check_all(&c, 1, false, false, 1, "75 queries of 3001 keys");
    }
}

/* Rows that no key reaches: output 0, lse -inf (the sink), gradient 0, and no NaN anywhere. */
static void empty_rows(void **state)
{
    (void)state;
    for (int sinks = 0; sinks < 2; sinks++) {
        attention_case c;
        case_init(&c, 2, 2, 16, 16);
        case_add_pair(&c, 0, 50, 0, 1, 0, 40, 30, 1);
        case_add_pair(&c, 50, 0, 0, 1, 40, 10, 0, 1);
        case_add_pair(&c, 50, 5, 0, 1, 50, 0, 0, 1);
        case_end_call(&c);
        c.d.mask.causal = true;
        check_all(&c, 1, sinks, false, 1, sinks ? "empty rows with sinks" : "empty rows");
    }
}

/* ---- central differences -------------------------------------------------------------------------- */

/* The fp64 backward is the derivative of the forward formula, for every rule of scores at once. */
static void central_differences(void **state)
{
    (void)state;
    for (int rules = 0; rules < 2; rules++) {
        attention_case c;
        weft_attn_ops ops;
        weft_attn_fill_ref(&ops, WEFT_PREC_F64);
        case_init(&c, 4, 2, 5, 3);
        case_simple(&c, 9, 11);
        c.d.mask.causal = true;
        if (rules) c.d.mask.left = 6, c.d.softcap = 2;
        case_fill(&c, false, 5, 1, rules, rules);
        attention_result r = result_new(&c);
        case_run(&c, &ops, WEFT_PREC_F64, 1, &r);
        differences(&c, c.q, r.dq, c.q_rows * 4 * 5, "q");
        differences(&c, c.k, r.dk, c.k_rows * 2 * 5, "k");
        differences(&c, c.v, r.dv, c.k_rows * 2 * 3, "v");
        if (rules) differences(&c, c.sinks, r.dsinks, 4, "sinks");
        result_free(&r), case_clear(&c);
    }
}

/* ---- field reports -------------------------------------------------------------------------------- */

/* Uniform probe: q = k = 0, v at position i is i; the output is the mean of the visible positions. */
static void probe(attention_case *c)
{
    case_fill(c, false, 1, 1, false, false);
    for (int64_t i = 0; i < c->q_rows; i++) c->q[i] = 0;
    for (int a = 0; a < c->n; a++)
        for (int64_t j = 0; j < c->pair[a].nk; j++) {
            c->k[c->pair[a].k_row + j] = 0;
            c->v[c->pair[a].k_row + j] = (double)(c->pair[a].k_pos + j);
        }
}

static void expect_rows(attention_case *c, const double *rows, const double *lse)
{
    FOR_KERNELS(k) {
        attention_result r = kernel_result(c, k, 2);
        double tolerance = k->prec == WEFT_PREC_F64 ? 1e-12 : k->prec == WEFT_PREC_F32 ? 1e-5 : 4e-3;
        for (int64_t i = 0; i < c->q_rows; i++) {
            if (!(fabs(r.o[i] - rows[i]) <= tolerance * fmax(1, rows[i])))
                fail_msg("%s: row %lld is %.9g, not %.9g", k->name, (long long)i, r.o[i], rows[i]);
            if (lse && r.lse[i] != lse[i] && !(fabs(r.lse[i] - lse[i]) <= tolerance))
                fail_msg("%s: lse of row %lld is %.9g, not %.9g", k->name, (long long)i, r.lse[i], lse[i]);
        }
        result_free(&r);
    }
}

static void g05_documents_do_not_see_each_other(void **state)
{
    (void)state;
    attention_case c;
    static const int64_t lengths[] = {8, 8};
    case_init(&c, 1, 1, 1, 1);
    case_documents(&c, lengths, 2);
    c.d.mask.causal = true;
    probe(&c);
    for (int j = 0; j < 16; j++) c.v[j] = j;
    double want[16];
    for (int i = 0; i < 16; i++) want[i] = i < 8 ? i / 2.0 : (8 + i) / 2.0;
    assert_true(want[8] == 8.0 && want[15] == 11.5);
    expect_rows(&c, want, NULL);
    FOR_KERNELS(k) {
        weft_attn_ops ops = ops_of(k);
        attention_result before = result_new(&c), after = result_new(&c);
        case_run(&c, &ops, k->prec, 1, &before);
        c.k[0] = 3, c.v[0] = -7, c.q[0] = 2;
        case_run(&c, &ops, k->prec, 1, &after);
        c.k[0] = 0, c.v[0] = 0, c.q[0] = 0;
        assert_memory_equal(before.o + 8, after.o + 8, 8 * sizeof(double));
        assert_true(before.o[7] != after.o[7]);
        result_free(&before), result_free(&after);
    }
    case_clear(&c);
}

/* A call that shows a row nothing leaves its state as it was, bit for bit; a row that never sees a key ends as
 * (0, -inf). */
static void g13_empty_parts_merge_without_nan(void **state)
{
    (void)state;
    FOR_KERNELS(k) {
        weft_attn_ops ops = ops_of(k);
        attention_case a, b;
        for (int extra = 0; extra < 2; extra++) {
            attention_case *c = extra ? &b : &a;
            case_init(c, 1, 1, 8, 8);
            c->d.mask.causal = true;
            case_add_pair(c, 0, 6, 10, 1, 0, 12, 4, 1);
            case_end_call(c);
            if (extra) {
                case_add_pair(c, 0, 6, 10, 1, 0, 12, 400, 1);
                case_end_call(c);
                case_add_pair(c, 0, 6, 10, 1, 12, 0, 0, 1);
                case_end_call(c);
            }
            case_add_pair(c, 6, 3, 0, 1, 12, 5, 50, 1);
            case_end_call(c);
            case_fill(c, bits16(k), 3, 1, false, false);
        }
        attention_result ra = result_new(&a), rb = result_new(&b);
        case_run(&a, &ops, k->prec, 1, &ra);
        case_run(&b, &ops, k->prec, 1, &rb);
        case_check_same(&a, &ra, &rb, k->name);
        for (int i = 6; i < 9; i++) {
            assert_true(ra.lse[i] == -INFINITY);
            for (int x = 0; x < 8; x++) assert_true(ra.o[i * 8 + x] == 0 && ra.dq[i * 8 + x] == 0);
        }
        result_free(&ra), result_free(&rb), case_clear(&a), case_clear(&b);
    }
}

static void g19_window_is_not_full_causal(void **state)
{
    (void)state;
    attention_case c;
    case_init(&c, 1, 1, 1, 1);
    case_ring(&c, 16, 2, 0);
    c.d.mask.causal = true, c.d.mask.left = 2;
    probe(&c);
    double want[16] = {0, 0.5};
    for (int i = 2; i < 16; i++) want[i] = i - 1;
    expect_rows(&c, want, NULL);
    case_clear(&c);
}

/* Parts whose lse are 0 and 200: exp of their difference overflows fp32, in whichever order they come. */
static void g21_merge_of_distant_parts(void **state)
{
    (void)state;
    for (int order = 0; order < 2; order++) {
        attention_case c;
        case_init(&c, 1, 1, 1, 1);
        for (int part = 0; part < 2; part++) {
            case_add_pair(&c, 0, 1, 0, 1, part, 1, 0, 1);
            case_end_call(&c);
        }
        probe(&c);
        c.q[0] = 1;
        c.k[order] = 200, c.v[order] = 7, c.k[1 - order] = 0, c.v[1 - order] = 5;
        expect_rows(&c, (double[]){7}, (double[]){200});
        case_clear(&c);
    }
}

static void g28_mask_stands_at_positions(void **state)
{
    (void)state;
    attention_case c;
    case_init(&c, 1, 1, 1, 1);
    case_add_pair(&c, 0, 2, 3, 1, 0, 5, 0, 1);
    case_end_call(&c);
    c.d.mask.causal = true;
    probe(&c);
    expect_rows(&c, (double[]){1.5, 2.0}, NULL);
    case_clear(&c);

    case_init(&c, 1, 1, 1, 1);
    case_add_pair(&c, 0, 5, 0, 1, 0, 2, 3, 1);
    case_end_call(&c);
    c.d.mask.causal = true;
    probe(&c);
    expect_rows(&c, (double[]){0, 0, 0, 3.0, 3.5}, (double[]){-INFINITY, -INFINITY, -INFINITY, 0, log(2)});
    case_clear(&c);
}

/* Head sizes that are no multiple of a vector, with all work memory NaN (as in every case here). */
static void g39_head_sizes_are_not_padded(void **state)
{
    (void)state;
    static const int sizes[] = {5, 20, 72, 80, 96, 128};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        attention_case c;
        char text[32];
        case_init(&c, 2, 2, sizes[i], sizes[i]);
        case_simple(&c, 33, 33);
        snprintf(text, sizeof text, "head size %d", sizes[i]);
        check_all(&c, 1, false, false, 1, text);
    }
    weft_attn_desc d = {.H = 1, .Hkv = 1, .D = 257, .Dv = 64, .group = 1, .scale = 1, .mask = {false, -1, -1, 0}};
    assert_refused(weft_attn_check(&d, WEFT_PREC_F64), "257");
}

/* Rows so far apart that offsets pass 2^32 elements, and 2^32 bytes several times: the same bits as from rows side by
 * side. The memory is not there but for the rows. */
static void g30_offsets_have_64_bits(void **state)
{
    (void)state;
    for (int half = 0; half < 2; half++) {
        attention_case c;
        case_init(&c, 2, 1, 20, 20);
        case_simple(&c, 40, 70);
        c.d.mask.causal = true;
        case_operands(&c, half, 30, 1, true, true);
        FOR_KERNELS(k) {
            if (bits16(k) != half) continue;
            weft_attn_ops ops = ops_of(k);
            attention_result near = result_new(&c), far = result_new(&c);
            c.pitch = 0, case_run(&c, &ops, k->prec, 2, &near);
            c.pitch = (INT64_C(1) << 27) + 3, case_run(&c, &ops, k->prec, 2, &far); /* 39 of them are more than 2^32 */
            case_check_same(&c, &near, &far, k->name);
            result_free(&near), result_free(&far);
        }
        case_clear(&c);
    }
}

static void refusals(void **state)
{
    (void)state;
    const weft_attn_desc good = {.H = 4, .Hkv = 2, .D = 8, .Dv = 8, .group = 2, .scale = 1, .mask = {true, -1, -1, 0}};
    weft_attn_desc d = good;
    assert_ok(weft_attn_check(&d, WEFT_PREC_F64));
#define REFUSED(change, part) \
    do { \
        d = good; \
        change; \
        assert_refused(weft_attn_check(&d, WEFT_PREC_F64), part); \
    } while (0)
    REFUSED(d.D = 0, "head size 0");
    REFUSED(d.Dv = 300, "300");
    REFUSED(d.H = 5, "multiple");
    REFUSED(d.H = 0, "at least 1");
    REFUSED(d.kv_head0 = 1, "heads 1..2 are here");
    REFUSED(d.mask.left = -2, "window");
    REFUSED(d.mask.right = INT64_MAX, "window");
    REFUSED(d.mask.prefix = -1, "prefix");
    REFUSED(d.softcap = -1, "softcap");
    REFUSED(d.scale = NAN, "scale");
    REFUSED(d.dropout = 1, "dropout 1; must be");
    REFUSED(d.dropout = -0.1, "dropout");
    REFUSED(d.dropout = NAN, "dropout");
#undef REFUSED
}

/* Kernels of every precision but fp64 hold scale and softcap in fp32. */
static void numbers_outside_of_fp32(void **state)
{
    (void)state;
    static const double bad[] = {1e39, 3e38, 1e-39, 1e-300}; /* infinite; infinite times log2(e); flushed; zero */
    for (int prec = 0; prec < WEFT_PREC_COUNT; prec++)
        for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
            weft_attn_desc d = {.H = 1, .Hkv = 1, .D = 64, .Dv = 64, .group = 1, .mask = {true, -1, -1, 0}};
            weft_attn_desc scale = d, cap = d, both = d;
            scale.scale = -bad[i], cap.scale = 1, cap.softcap = bad[i], both.scale = both.softcap = bad[i];
            if (prec == WEFT_PREC_F64) {
                assert_ok(weft_attn_check(&both, WEFT_PREC_F64));
                continue;
            }
            assert_refused(weft_attn_check(&scale, (weft_prec)prec), "scale such as 1/sqrt(64) = 0.125");
            assert_refused(weft_attn_check(&cap, (weft_prec)prec), bad[i] > 1 ? "0 for none" : "a cap such as 30");
        }
}

/* What is just not refused is computed. A larger cap would have scores flushed on their way through tanh. */
static void bounds_of_fp32(void **state)
{
    (void)state;
    static const struct { double scale, softcap; } rows[] = {{0.25, 0x1p100}, {0.25, 0x1p-126}, {0x1p-126, 0}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        attention_case c;
        char text[48];
        case_init(&c, 2, 1, 16, 16);
        case_simple(&c, 33, 150);
        c.d.scale = rows[i].scale, c.d.softcap = rows[i].softcap;
        snprintf(text, sizeof text, "scale %g, softcap %g", c.d.scale, c.d.softcap);
        check_all(&c, 1, false, false, 1, text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(masks),
        cmocka_unit_test(head_sizes),
        cmocka_unit_test(heads),
        cmocka_unit_test(uneven_heads),
        cmocka_unit_test(score_rules),
        cmocka_unit_test(negative_scale),
        cmocka_unit_test(large_logits), cmocka_unit_test(one_key_wins), cmocka_unit_test(scores_beyond_numbers),
        cmocka_unit_test(rings),
        cmocka_unit_test(documents),
        cmocka_unit_test(sparse_queries),
        cmocka_unit_test(runs),
        cmocka_unit_test(long_rows), cmocka_unit_test(many_keys),
        cmocka_unit_test(empty_rows),
        cmocka_unit_test(central_differences),
        cmocka_unit_test(g05_documents_do_not_see_each_other),
        cmocka_unit_test(g13_empty_parts_merge_without_nan),
        cmocka_unit_test(g19_window_is_not_full_causal),
        cmocka_unit_test(g21_merge_of_distant_parts),
        cmocka_unit_test(g28_mask_stands_at_positions),
        cmocka_unit_test(g39_head_sizes_are_not_padded),
        cmocka_unit_test(g30_offsets_have_64_bits),
        cmocka_unit_test(refusals), cmocka_unit_test(numbers_outside_of_fp32), cmocka_unit_test(bounds_of_fp32),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
