/* What pairwise sends is what is needed: the bytes that the transport counted, those of the plan, and those of a walk
 * over all pairs of tokens agree for every mask, layout and set of documents; and the figures that the maths gives for
 * causal zigzag, windows and whole documents hold. That its results are those of pcp, bit for bit, is tested with all
 * other strategies (harness/cp_case.c). */
/* labels: small */
/* mpi-long: 8 */
/* timeout: 240 */
#include "harness/test.h"
#include "harness/cp_case.h"

static const weft_mask full = {false, -1, -1, 0}, causal = {true, -1, -1, 0};

static cp_case base(int64_t B, int64_t T, weft_mask mask)
{
    return (cp_case){.name = "pairwise", .prec = WEFT_PREC_BF16, .B = B, .Tq = T, .T = T, .H = 2, .Hkv = 1, .D = 2,
                     .Dv = 3, .mask = mask, .seed = 5};
}

static int64_t kv_row(const cp_case *c)
{
    return (int64_t)c->Hkv * (c->D + c->Dv) * (int64_t)weft_dtype_size(weft_prec_compute(c->prec));
}
static int64_t dkv_row(const cp_case *c)
{
    return (int64_t)c->Hkv * (c->D + c->Dv) * (int64_t)weft_dtype_size(weft_prec_real(c->prec));
}

static cp_result *run(const cp_case *c, const cp_data *data, const char *strategy, weft_layout_kind layout, int P)
{
    cp_result *out = cp_result_make(c, P);
    cp_job job = {.c = c, .data = data, .strategy = strategy, .layout = layout, .overlap = true, .out = out};
    assert_ok(cp_run(P, &job, 1));
    return out;
}

/* ---- against a walk over all pairs -------------------------------------------------------------------------- */

enum { MAX_TOKENS = 256, MAX_P = 8 };

typedef struct tokens { int owner[MAX_TOKENS]; int64_t pos[MAX_TOKENS], doc[MAX_TOKENS]; } tokens;

static void read_tokens(tokens *x, const cp_case *c, weft_layout_kind layout, int P, int64_t n, int64_t pos0)
{
    weft_mem mem = {0};
    weft_arena *arena;
    weft_shard s;
    int64_t whole[2 * 8], first[9];
    for (int64_t b = 0; b <= c->B; b++) first[b] = 2 * b, whole[(2 * b) % 16] = 0, whole[(2 * b + 1) % 16] = n;
    weft_docs docs = c->cu ? (weft_docs){c->B, n, c->cu, c->first, NULL} : (weft_docs){c->B, n, whole, first, NULL};
    assert_ok(weft_arena_create(&arena, &mem, "test", NULL));
    assert_ok(
        weft_shard_alloc(&s, arena, P,
                         weft_shard_capacity((weft_layout){layout, c->block}, c->B, n, docs.first[c->B] - c->B, P)));
    assert_ok(weft_shard_make(&s, (weft_layout){layout, c->block}, &docs, pos0));
    for (int r = 0; r < P; r++) {
        int64_t index[MAX_TOKENS], pos[MAX_TOKENS], at = 0;
        weft_shard_tokens(&s, r, index, pos);
        for (int64_t g = s.first[r]; g < s.first[r + 1]; g++)
            for (int64_t i = 0; i < s.seg[g].len; i++, at++) {
                x->owner[index[at]] = r;
                x->pos[index[at]] = pos[at];
                x->doc[index[at]] = s.seg[g].row * 1000 + s.seg[g].doc;
            }
    }
    weft_arena_destroy(arena);
}

/* give[r]: rows that leave rank r, counted once per reader; take[r]: rows that come to it. */
static void count_needed(const cp_case *c, weft_layout_kind layout, int P, int64_t *give, int64_t *take)
{
    static tokens q, k;
    read_tokens(&q, c, layout, P, c->Tq, c->T - c->Tq);
    read_tokens(&k, c, layout, P, c->T, 0);
    memset(give, 0, MAX_P * sizeof *give);
    memset(take, 0, MAX_P * sizeof *take);
    for (int reader = 0; reader < P; reader++)
        for (int64_t j = 0; j < c->B * c->T; j++) {
            bool seen = false;
            for (int64_t i = 0; i < c->B * c->Tq && !seen; i++)
                seen = q.owner[i] == reader && q.doc[i] == k.doc[j] && weft_visible(&c->mask, q.pos[i], k.pos[j]);
            if (!seen || k.owner[j] == reader) continue;
            give[k.owner[j]]++;
            take[reader]++;
        }
}

static void check_counts(const cp_case *c, const cp_data *data, int first_layout)
{
    for (int P = 1; P <= MAX_P; P += P < 5 ? 1 : 3)
        for (int l = first_layout; l < WEFT_LAYOUT_COUNT; l++) {
            int64_t give[MAX_P], take[MAX_P];
            if ((P + l + c->T + c->mask.left) % test_every(5) != 0) continue;
            count_needed(c, (weft_layout_kind)l, P, give, take);
            cp_result *out = run(c, data, "pairwise", (weft_layout_kind)l, P);
            for (int r = 0; r < P; r++) {
                int64_t forward = give[r] * kv_row(c), backward = forward + take[r] * dkv_row(c);
                if (out->forward_bytes[r] != forward || out->backward_bytes[r] != backward)
                    fail_msg("%s: P=%d, layout %d, rank %d: sent %lld and %lld bytes, needed are %lld and %lld",
                             c->name, P, l, r, (long long)out->forward_bytes[r], (long long)out->backward_bytes[r],
                             (long long)forward, (long long)backward);
                assert_int_equal(out->planned_forward[r], forward);
                assert_int_equal(out->planned_backward[r], backward);
            }
            cp_result_free(out);
        }
}

static const struct mask_case { const char *name; weft_mask mask; } masks[] = {
    {"full", {false, -1, -1, 0}},        {"causal", {true, -1, -1, 0}},       {"window left", {true, 3, -1, 0}},
    {"window both", {false, 2, 5, 0}},   {"only itself", {false, 0, 0, 0}},   {"prefix", {true, -1, -1, 9}},
    {"prefix and window", {true, 4, 6, 9}}, {"window right", {false, -1, 4, 0}}, {"behind", {false, 6, -1, 0}},
};

static void only_what_is_needed_is_sent(void **state)
{
    (void)state;
    for (size_t m = 0; m < sizeof masks / sizeof *masks; m++)
        for (int pattern = 0; pattern < 4; pattern++) {
            int64_t B = 1 + pattern % 3, T = pattern % 2 ? 33 : 40;
            cp_docs docs = cp_docs_make(B, T, pattern);
            cp_case c = base(B, T, masks[m].mask);
            c.name = masks[m].name;
            if (pattern) c.cu = docs.cu, c.first = docs.first;
            cp_data data = cp_data_make(&c);
            check_counts(&c, &data, 0);
            cp_data_free(&data);
            cp_docs_free(&docs);
        }
}

/* Stripes: with narrow windows the needed rows of a block lie in many pieces. */
static void stripes(void **state)
{
    (void)state;
    static const weft_mask narrow[] = {{true, 1, -1, 0},
                                       {true, 4, -1, 0},
                                       {false, 2, 1, 0},
                                       {true, 3, -1, 30},
                                       {true, 1, 60, 0}, /* right of a causal query there is nothing to reach */
                                       {true, 1, 60, 30},
                                       {true, -1, -1, 0}};
    for (int64_t block = 1; block <= 7; block += 3)
        for (size_t m = 0; m < sizeof narrow / sizeof *narrow; m++)
            for (int pattern = 0; pattern < 2; pattern++) {
                cp_docs docs = cp_docs_make(2, 90, pattern);
                cp_case c = base(2, 90, narrow[m]);
                c.name = "stripes", c.block = block;
                if (pattern) c.cu = docs.cu, c.first = docs.first;
                cp_data data = cp_data_make(&c);
                check_counts(&c, &data, WEFT_LAYOUT_STRIPED);
                cp_data_free(&data);
                cp_docs_free(&docs);
            }
}

/* fewer queries than keys, fewer tokens than ranks */
static void odd_lengths(void **state)
{
    (void)state;
    static const int64_t lengths[][2] = {{1, 1}, {3, 3}, {5, 41}, {1, 64}};
    for (size_t n = 0; n < sizeof lengths / sizeof *lengths; n++)
        for (size_t m = 0; m < 4; m++) {
            cp_case c = base(2, lengths[n][1], masks[m].mask);
            c.name = masks[m].name, c.Tq = lengths[n][0];
            cp_data data = cp_data_make(&c);
            check_counts(&c, &data, 0);
            cp_data_free(&data);
        }
}

/* ---- the figures of the maths ---------------------------------------------------------------------------------- */

static int64_t sum_of(const int64_t *x, int n)
{
    int64_t sum = 0;
    for (int i = 0; i < n; i++) sum += x[i];
    return sum;
}

/* 2P | T. Rank r reads 2P-2-r of the 2P-2 half blocks of others: in sum 3/4; the last rank's two halves are read by all
 * others whole, so the busiest sender saves nothing. */
static void causal_zigzag_moves_three_quarters(void **state)
{
    (void)state;
    for (int P = 2; P <= 8; P++) {
        cp_case c = base(1, 6 * 2 * P, causal);
        cp_data data = cp_data_make(&c);
        cp_result *pair = run(&c, &data, "pairwise", WEFT_LAYOUT_ZIGZAG, P),
                  *ring = run(&c, &data, "ring", WEFT_LAYOUT_ZIGZAG, P);
        int64_t busiest = 0, ring_busiest = 0;
        for (int r = 0; r < P; r++) {
            busiest = weft_max_i64(busiest, pair->forward_bytes[r]);
            ring_busiest = weft_max_i64(ring_busiest, ring->forward_bytes[r]);
        }
        assert_int_equal(sum_of(ring->forward_bytes, P), (P - 1) * c.T * kv_row(&c));
        assert_int_equal(4 * sum_of(pair->forward_bytes, P), 3 * (P - 1) * c.T * kv_row(&c));
        assert_int_equal(4 * sum_of(pair->backward_bytes, P), 3 * sum_of(ring->backward_bytes, P));
        assert_int_equal(busiest, ring_busiest);
        cp_result_free(pair);
        cp_result_free(ring);
        cp_data_free(&data);
    }
}

/* Every rank by the closed form, whole messages and pieces that divide nothing; ring as with a full mask, whatever is
 * seen. */
static void check_causal(const cp_case *c, weft_layout_kind layout, int P, int64_t window)
{
    enum { JOBS = 4 }; /* pairwise, ring; whole, in pieces */
    cp_job jobs[JOBS];
    cp_data data = cp_data_make(c);
    for (int i = 0; i < JOBS; i++)
        jobs[i] = (cp_job){.c = c, .data = &data, .strategy = i % 2 ? "ring" : "pairwise", .layout = layout,
                           .overlap = i < 2,
                           .out = cp_result_make(c, P), .more = {.buffer_bytes = i < 2 ? 0 : 67}};
    assert_ok(cp_run(P, jobs, JOBS));
    for (int i = 0; i < JOBS; i++) {
        const traffic_case formula = cp_traffic_case(&jobs[i]);
        for (int r = 0; r < P && i % 2 == 0; r++) {
            traffic want = traffic_causal_pairwise(&formula, r, window);
            cp_expect_traffic(&jobs[i], r, &want);
        }
        if (i % 2) cp_check_traffic(&jobs[i]);
        cp_result_free(jobs[i].out);
    }
    cp_data_free(&data);
}

static void causal_traffic_by_the_formula(void **state)
{
    (void)state;
    for (int P = 2; P <= 8; P++)
        for (int64_t h = 1; h <= 17; h += 8) {
            cp_case c = base(1 + h % 2, h * 2 * P, causal);
            check_causal(&c, WEFT_LAYOUT_ZIGZAG, P, -1);
            check_causal(&c, WEFT_LAYOUT_CONTIGUOUS, P, -1);
            c = base(1, h * 2 * P + 1, causal);
            check_causal(&c, WEFT_LAYOUT_CONTIGUOUS, P, -1);
        }
}

/* Each of the 2P chunks but the first needs the W rows before it; the last rank's two chunks lie side by side. */
static void a_window_moves_its_width_per_segment(void **state)
{
    (void)state;
    for (int P = 2; P <= 7; P++)
        for (int64_t W = 0; W <= 16; W += 1 + 2 * W) {
            cp_case c = base(2, 2 * P * 16, (weft_mask){true, W, -1, 0});
            check_causal(&c, WEFT_LAYOUT_ZIGZAG, P, W);
            check_causal(&c, WEFT_LAYOUT_CONTIGUOUS, P, W);
        }
    enum { P = 4, W = 3 };
    cp_case c = base(1, 2 * P * 16, (weft_mask){true, W, -1, 0});
    cp_data data = cp_data_make(&c);
    cp_result *out = run(&c, &data, "pairwise", WEFT_LAYOUT_ZIGZAG, P);
    assert_int_equal(sum_of(out->forward_bytes, P), (2 * P - 2) * W * kv_row(&c));
    assert_int_equal(sum_of(out->backward_bytes, P), (2 * P - 2) * W * (kv_row(&c) + dkv_row(&c)));
    cp_result_free(out);
    cp_data_free(&data);
}

/* Documents that end where ranks end, or that the layout keeps whole: nobody needs anything of anybody. */
static void check_silence(const cp_case *c, weft_layout_kind layout, int P)
{
    cp_data data = cp_data_make(c);
    cp_result *out = run(c, &data, "pairwise", layout, P);
    for (int r = 0; r < P; r++) assert_int_equal(out->forward_bytes[r] + out->backward_bytes[r], 0);
    cp_result_free(out);
    cp_data_free(&data);
}

static void whole_documents_move_nothing(void **state)
{
    (void)state;
    int64_t cu[] = {0, 5, 16, 32, 32, 47, 48, 64}, first[] = {0, 8};
    for (int m = 0; m < 2; m++) {
        cp_case c = base(1, 64, m ? full : causal);
        c.cu = cu, c.first = first;
        check_silence(&c, WEFT_LAYOUT_CONTIGUOUS, 4);
        /* P of 12 tokens, then P of 4: cut by contiguous, dealt as 12 + 4 to each rank */
        for (int P = 2; P <= 7; P++) {
            int64_t dealt[2 * 7 + 1] = {0}, ends[] = {0, 2 * P + 1};
            for (int i = 0; i < 2 * P; i++) dealt[i + 1] = dealt[i] + (i < P ? 12 : 4);
            c = base(1, 16 * P, m ? full : causal);
            c.cu = dealt, c.first = ends;
            check_silence(&c, WEFT_LAYOUT_BALANCED, P);
        }
    }
}

/* ---- the bits of pcp, with every option of the exchange --------------------------------------------------------- */

static const struct wire { const char *name; weft_prec prec; weft_cp_options more; } wires[] = {
    {"pieces of 64", WEFT_PREC_F32, {.buffer_bytes = 64}},
    {"pieces of 1000", WEFT_PREC_BF16, {.buffer_bytes = 1000}},
    {"pieces of 6K", WEFT_PREC_F32, {.buffer_bytes = 6144}},
    {"K,V bf16", WEFT_PREC_F32, {.comm_dtype = WEFT_CP_WIRE_BF16}},
    {"K,V fp32, gradients bf16", WEFT_PREC_BF16, {.comm_dtype = WEFT_CP_WIRE_FP32, .grad_dtype = WEFT_CP_WIRE_BF16}},
    {"K,V fp8", WEFT_PREC_F32, {.comm_dtype = WEFT_CP_WIRE_FP8}},
    {"K,V fp8 in pieces", WEFT_PREC_BF16, {.comm_dtype = WEFT_CP_WIRE_FP8, .buffer_bytes = 500}},
    {"fp8", WEFT_PREC_F32, {.fp8 = true, .grad_dtype = WEFT_CP_WIRE_BF16}},
};

static void check_bits(const cp_case *c, int P)
{
    enum { JOBS = 3 };
    for (size_t w = 0; w < sizeof wires / sizeof *wires; w++)
        for (int l = 0; l < WEFT_LAYOUT_COUNT; l++) {
            cp_case x = *c;
            if (((int)w + l + P) % test_every(5) != 0) continue;
            x.prec = wires[w].prec, x.block = 6, x.poison = w % 2; /* what came before must not matter */
            cp_data rounded = cp_data_make(&x);
            cp_job jobs[JOBS];
            for (int i = 0; i < JOBS; i++)
                jobs[i] = (cp_job){.c = &x,
                                   .data = &rounded,
                                   .strategy = i ? "pairwise" : "pcp",
                                   .layout = (weft_layout_kind)l,
                                   .overlap = i < 2,
                                   .repeat = 1 + i % 2,
                                   .out = cp_result_make(c, P),
                                   .more = wires[w].more};
            assert_ok(cp_run(P, jobs, 2)); /* reading in place where the transport can */
            assert_ok(cp_run_copies(P, jobs + 2, 1));
            for (int i = 1; i < JOBS; i++)
                if (!cp_same_bits(&x, jobs[i].out, jobs[0].out))
                    fail_msg("%s, %s, P=%d, layout %d, overlap %d: not the bits of pcp", c->name, wires[w].name, P, l,
                             jobs[i].overlap);
            for (int i = 0; i < JOBS; i++) cp_check_planned(&jobs[i]);
            for (int i = 0; i < JOBS; i++) cp_result_free(jobs[i].out);
            cp_data_free(&rounded);
        }
}

static void bits_are_those_of_pcp(void **state)
{
    (void)state;
    cp_docs docs = cp_docs_make(2, 301, 1);
    static const weft_mask some[] = {{true, -1, -1, 0}, {true, 40, -1, 0}, {false, 9, 25, 0}, {true, 60, -1, 30}};
    for (size_t m = 0; m < sizeof some / sizeof *some; m++) {
        cp_case c = base(2, 301, some[m]);
        c.D = 8, c.Dv = 4;
        c.name = "one document";
        check_bits(&c, m % 2 ? 3 : 5);
        c.name = "documents";
        c.cu = docs.cu, c.first = docs.first;
        check_bits(&c, 4);
    }
    cp_docs_free(&docs);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(only_what_is_needed_is_sent),
        cmocka_unit_test(stripes),
        cmocka_unit_test(odd_lengths),
        cmocka_unit_test(causal_zigzag_moves_three_quarters),
        cmocka_unit_test(causal_traffic_by_the_formula),
        cmocka_unit_test(a_window_moves_its_width_per_segment),
        cmocka_unit_test(whole_documents_move_nothing),
        cmocka_unit_test(bits_are_those_of_pcp),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
