/* test_attention_dropout.c — dropout of probabilities by address: every kernel against the float64 answer, and the
 * mask itself, which only the tokens of a row may decide.
 * labels: small */
/* timeout: 300 */
#include "attention_kernels.h"

static void with_dropout(attention_case *c, double p)
{
    c->d.dropout = p;
    c->d.seed = UINT64_C(0x9e3779b97f4a7c15);
    c->word3 = weft_philox_word3(77, 5, WEFT_SITE_DROP_ATTENTION);
    for (int i = 0; i < c->n; i++) c->pair[i].sample = 3;
}

/* What is kept is larger by 1 / (1 - p), and with it the error. */
static void check(attention_case *c, double p, bool sinks, bool alibi, double loosen, const char *what)
{
    with_dropout(c, p);
    check_all(c, 1, sinks, alibi, loosen / (1 - p), what);
}

static void head_sizes(void **state)
{
    (void)state;
    static const int sizes[][2] = {{5, 5}, {20, 20}, {64, 64}, {80, 80}, {128, 128}, {8, 12}};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        attention_case c;
        char text[64];
        case_init(&c, 2, 1, sizes[i][0], sizes[i][1]);
        case_simple(&c, 70, 150);
        c.d.mask.causal = i % 2;
        snprintf(text, sizeof text, "dropout, D %d Dv %d", sizes[i][0], sizes[i][1]);
        check(&c, i % 3 ? 0.1 : 0.5, false, false, 1, text);
    }
}

static void rules_of_scores(void **state)
{
    (void)state;
    static const weft_mask mask[] = {{false, -1, -1, 0}, {true, 20, -1, 0}, {false, 16, 7, 0}, {true, -1, -1, 37},
                                     {true, 50, 9, 100}};
    for (int i = 0; i < 5; i++)
        for (int rules = i % 2; rules < 4; rules += 2) {
            attention_case c;
            char text[64];
            case_init(&c, 4, 2, 20, 20);
            case_simple(&c, 61, 133);
            c.d.mask = mask[i];
            if (rules & 1) c.d.softcap = 5;
            snprintf(text, sizeof text, "dropout, mask %d, rules %d", i, rules);
            check(&c, 0.25, rules & 2, rules & 2, rules & 1 ? 3 : 1, text);
        }
}

/* The address counts heads of the whole model. */
static void uneven_heads(void **state)
{
    (void)state;
    attention_case c;
    for (int way = 0; way < UNEVEN_HEADS; way++) {
        const char *what = case_uneven_heads(&c, way);
        check(&c, 0.3, way == 0, way == 0, 1, what);
    }
}

/* Tokens of a document count from the beginning of the row; bases that are no multiple of four, and one beyond 32
 * bits. */
static void documents(void **state)
{
    (void)state;
    static const int64_t lengths[] = {5, 0, 1, 64, 130, 2, 7};
    for (int far = 0; far < 2; far++) {
        attention_case c;
        case_init(&c, 2, 1, 16, 16);
        case_documents(&c, lengths, sizeof lengths / sizeof *lengths);
        c.d.mask.causal = true;
        for (int i = 0; far && i < c.n; i++) c.pair[i].base += (INT64_C(1) << 33) - 100;
        check(&c, 0.2, false, false, 1, "dropout, documents");
    }
}

static void rings(void **state)
{
    (void)state;
    static const int64_t stripe[] = {0, 1, 2, 3, 5, 16};
    for (int s = 0; s < 6; s++) {
        attention_case c;
        char text[64];
        case_init(&c, 3, 1, 24, 24);
        case_ring(&c, 101, 2 + s % 3, stripe[s]);
        c.d.mask.causal = s % 2;
        snprintf(text, sizeof text, "dropout, stripe %d", (int)stripe[s]);
        check(&c, 0.2, true, s & 1, 1, text);
    }
}

/* Every step that keys can have against the four tokens of a number, from every residue. */
static void steps(void **state)
{
    (void)state;
    for (int i = 0; i < 12; i++) {
        int64_t run = 1 + i % 3, gap = i % 4 + (i == 11 ? 100 : 0);
        attention_case c;
        char text[64];
        case_init(&c, 2, 2, 8, 8);
        case_add(&c, (weft_attn_pair){.nq = 33, .q_pos = 500, .q_run = 2, .q_step = 3, .nk = 131, .k_pos = i,
                                      .k_run = run, .k_step = run + gap, .base = i / 4});
        case_end_call(&c);
        snprintf(text, sizeof text, "dropout, runs of %d every %d", (int)run, (int)(run + gap));
        check(&c, 0.4, false, false, 1, text);
    }
}

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
        with_dropout(&c, 0.3);
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

/* ---- the mask -------------------------------------------------------------------------------------------- */

enum { TOKENS = 131, HEADS = 2 };

/* With q = 0 every weight is the same; with the token of a key as its one-hot value, and that of a query as its
 * one-hot dO, o and dv show which pairs were kept. out[head][query token][key token], from o and then from dv. */
static void mask_of(attention_case *c, const kernel *k, bool out[2][HEADS][TOKENS][TOKENS])
{
    weft_attn_ops ops = ops_of(k);
    int64_t token[TOKENS] = {0};
    for (int a = 0; a < c->n; a++)
        for (int64_t i = 0; i < c->pair[a].nq; i++)
            token[c->pair[a].q_row + i] = weft_attn_qpos(&c->pair[a], i) + c->pair[a].base;
    case_operands(c, bits16(k), 1, 1, false, false);
    memset(c->q, 0, sizeof(double) * TOKENS * HEADS);
    memset(c->v, 0, sizeof(double) * TOKENS * TOKENS * HEADS);
    memset(c->dout, 0, sizeof(double) * TOKENS * TOKENS * HEADS);
    for (int64_t i = 0; i < TOKENS; i++)
        for (int h = 0; h < HEADS; h++)
            c->v[(i * HEADS + h) * TOKENS + token[i]] = c->dout[(i * HEADS + h) * TOKENS + token[i]] = 1;
    attention_result r = result_new(c);
    case_run(c, &ops, k->prec, 2, &r);
    for (int64_t i = 0; i < TOKENS; i++)
        for (int h = 0; h < HEADS; h++)
            for (int x = 0; x < TOKENS; x++) {
                out[0][h][token[i]][x] = r.o[(i * HEADS + h) * TOKENS + x] != 0;
                out[1][h][x][token[i]] = r.dv[(i * HEADS + h) * TOKENS + x] != 0;
            }
    result_free(&r), case_clear(c);
}

static void check_mask(attention_case *c, int probabilities, const char *what)
{
    static const double p[] = {0.5, 0.1, 0x1p-32, 0x1p-1060, 1 - 0x1p-40};
    static bool got[2][HEADS][TOKENS][TOKENS];
    for (int i = 0; i < probabilities; i++) {
        with_dropout(c, p[i]);
        FOR_KERNELS(k) {
            if (k->prec != WEFT_PREC_F64 && k->prec != WEFT_PREC_F32) continue; /* one source for the others */
            mask_of(c, k, got);
            for (int from = 0; from < 2; from++)
                for (uint32_t h = 0; h < HEADS; h++)
                    for (int64_t q = 0; q < TOKENS; q++)
                        for (int64_t x = 0; x < TOKENS; x++)
                            if (got[from][h][q][x] != weft_attn_kept(p[i], c->d.seed, c->word3, 3, h + 5, q, x))
                                fail_msg("%s, %s, dropout %g: %s of head %u: (%lld, %lld) is %s", k->name, what, p[i],
                                         from ? "dv" : "o", h, (long long)q, (long long)x,
                                         got[from][h][q][x] ? "kept" : "dropped");
        }
    }
}

/* However the rows are cut into pairs and runs, and in every kernel, the mask is that of the tokens. */
static void the_mask_is_that_of_the_tokens(void **state)
{
    (void)state;
    static const int64_t stripe[] = {0, 0, 1, 3, 16}, parts[] = {1, 3, 2, 4, 3};
    for (int i = 0; i < 5; i++) {
        attention_case c;
        case_init(&c, HEADS, HEADS, 1, TOKENS);
        c.d.head0 = c.d.kv_head0 = 5;
        case_ring(&c, TOKENS, (int)parts[i], stripe[i]);
        if (i == 1) /* positions count from the middle, as a later document's do */
            for (int a = 0; a < c.n; a++) c.pair[a].q_pos -= 50, c.pair[a].k_pos -= 50, c.pair[a].base = 50;
        check_mask(&c, i == 0 ? 5 : 1, i == 0 ? "whole" : stripe[i] ? "striped" : "contiguous");
    }
}

/* A word that equals p 2^32 keeps; the next larger p drops it. */
static void the_bound_is_exact(void **state)
{
    (void)state;
    for (uint32_t token = 0; token < 16; token++)
        for (int above = 0; above < 2; above++) {
            attention_case c;
            case_init(&c, 1, 1, 1, 1);
            case_add(&c, (weft_attn_pair){.nq = 1, .q_pos = 9, .q_run = 1, .q_step = 1, .nk = 1, .k_pos = token,
                                          .k_run = 1, .k_step = 1});
            case_end_call(&c);
            with_dropout(&c, 0.5);
            uint32_t word = weft_philox(c.d.seed, token / 4, 9, 3, c.word3).w[token % 4];
            c.d.dropout = ((double)word + above) * 0x1p-32;
            FOR_KERNELS(k) {
                weft_attn_ops ops = ops_of(k);
                attention_result r = result_new(&c);
                case_operands(&c, bits16(k), 1, 1, false, false);
                c.v[0] = 1;
                case_run(&c, &ops, k->prec, 1, &r);
                if ((r.o[0] != 0) != !above)
                    fail_msg("%s: token %u, %d above the bound: %g", k->name, token, above, r.o[0]);
                result_free(&r), case_clear(&c);
            }
        }
}

static void the_kept_fraction(void **state)
{
    (void)state;
    static const double p[] = {0.01, 0.1, 0.5, 0.9};
    for (int i = 0; i < 4; i++) {
        int64_t kept = 0, n = 0;
        for (uint32_t sample = 0; sample < 2; sample++)
            for (uint32_t head = 0; head < 3; head++)
                for (int64_t q = 0; q < 257; q++)
                    for (int64_t k = 0; k < 257; k++, n++) kept += weft_attn_kept(p[i], 1, 2, sample, head, q, k);
        /* five standard deviations of a sum of n coins */
        assert_at_most(fabs((double)kept / (double)n - (1 - p[i])), 5 * sqrt(p[i] * (1 - p[i]) / (double)n));
    }
}

/* Step, layer, sample, head, query and seed each give another mask. */
static void every_part_of_the_address_counts(void **state)
{
    (void)state;
    int differ[6] = {0};
    uint32_t w = weft_philox_word3(1, 1, WEFT_SITE_DROP_ATTENTION);
    for (int64_t k = 0; k < 64; k++) {
        bool first = weft_attn_kept(0.5, 1, w, 1, 1, 1, k);
        differ[0] += first != weft_attn_kept(0.5, 1, weft_philox_word3(2, 1, WEFT_SITE_DROP_ATTENTION), 1, 1, 1, k);
        differ[1] += first != weft_attn_kept(0.5, 1, weft_philox_word3(1, 2, WEFT_SITE_DROP_ATTENTION), 1, 1, 1, k);
        differ[2] += first != weft_attn_kept(0.5, 1, w, 2, 1, 1, k);
        differ[3] += first != weft_attn_kept(0.5, 1, w, 1, 2, 1, k);
        differ[4] += first != weft_attn_kept(0.5, 1, w, 1, 1, 2, k);
        differ[5] += first != weft_attn_kept(0.5, 2, w, 1, 1, 1, k);
    }
    for (int i = 0; i < 6; i++) assert_in_range(differ[i], 16, 48); /* 32 +- 4 standard deviations of 64 coins */
}

/* lse is that of all keys. */
static void lse_is_that_without_dropout(void **state)
{
    (void)state;
    FOR_KERNELS(k) {
        weft_attn_ops ops = ops_of(k);
        attention_case c;
        case_init(&c, 2, 1, 16, 16);
        case_simple(&c, 100, 150);
        with_dropout(&c, 0.5);
        case_operands(&c, bits16(k), 1, 1, false, false);
        attention_result with = result_new(&c), without = result_new(&c);
        case_run(&c, &ops, k->prec, 1, &with);
        c.d.dropout = 0;
        case_run(&c, &ops, k->prec, 1, &without);
        assert_memory_equal(with.lse, without.lse, 200 * sizeof(double));
        assert_true(with.o[0] != without.o[0]);
        result_free(&with), result_free(&without), case_clear(&c);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(head_sizes),
        cmocka_unit_test(rules_of_scores),
        cmocka_unit_test(uneven_heads),
        cmocka_unit_test(documents),
        cmocka_unit_test(rings),
        cmocka_unit_test(steps),
        cmocka_unit_test(central_differences),
        cmocka_unit_test(the_mask_is_that_of_the_tokens),
        cmocka_unit_test(the_bound_is_exact),
        cmocka_unit_test(the_kept_fraction),
        cmocka_unit_test(every_part_of_the_address_counts),
        cmocka_unit_test(lse_is_that_without_dropout),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
