/* Batches: which tokens, which labels, in which order; the same for every layout and after a resume. */
/* labels: small */
#include "data_case.h"

enum { MAX = 2100 };

/* n tokens whose ids are their positions, so that a test sees where a token came from. */
static weft_tokens *counting(int64_t n, const int64_t *offsets, int64_t docs)
{
    static int32_t ids[MAX];
    const int64_t whole[] = {0, n};
    const char *path = test_dir_file(&dir, "t.tok");
    for (int64_t i = 0; i < n; i++) ids[i] = (int32_t)i;
    assert_ok(weft_tokens_write(path, ids, n, offsets ? offsets : whole, offsets ? docs : 1, MAX));
    weft_tokens *t = NULL;
    assert_ok(weft_tokens_open(&t, arena, path, NULL, MAX));
    return t;
}

static int32_t token[MAX], target[MAX];
static int64_t cu[MAX + 1];
static weft_sequence seq(const weft_batches *b, bool valid, int64_t i)
{
    weft_sequence s = {.token = token, .target = target, .cu = cu};
    assert_ok(weft_batches_sequence(b, valid, i, &s));
    return s;
}

static weft_batches *batches(const weft_tokens *t, int64_t T, double valid, bool mask)
{
    weft_batches *b = NULL;
    assert_ok(weft_batches_create(&b, arena, t, &(weft_batch_options){.T = T, .seed = 11, .valid_fraction = valid,
                                                                      .document_mask = mask}));
    return b;
}

/* ---- windows and labels --------------------------------------------------------------------------------- */

/* Every window of every size: tokens are consecutive, each label is the next token of the same part, every
 * window comes once an epoch, and training never reads the part that is kept. */
static void check_all(int64_t n, int64_t T, double fraction)
{
    weft_tokens *t = counting(n, NULL, 0);
    const weft_batches *b = batches(t, T, fraction, false);
    const int64_t split = n - (int64_t)((double)n * fraction);
    for (int valid = 0; valid < 2; valid++) {
        const int64_t begin = valid ? split : 0, end = valid ? n : split, W = weft_batches_windows(b, valid);
        assert_int_equal(W, end - begin > T ? (end - begin) / T : 0);
        char seen[MAX] = {0};
        for (int64_t i = 0; i < W; i++) {
            const weft_sequence s = seq(b, valid, i);
            const int64_t first = s.token[0], w = (first - begin) / T;
            assert_int_equal((first - begin) % T, 0);
            assert_int_equal(s.window, valid ? weft_batches_windows(b, false) + w : w);
            assert_false(seen[w]);
            seen[w] = 1;
            assert_int_equal(s.docs, 1);
            assert_int_equal(s.cu[0], 0);
            assert_int_equal(s.cu[1], T);
            for (int64_t k = 0; k < T; k++) {
                assert_int_equal(s.token[k], first + k);
                assert_true(first + k < end);
                assert_int_equal(s.target[k], first + k + 1 < end ? first + k + 1 : -100);
            }
        }
    }
    weft_tokens_close(t);
}

static void test_windows(void **state)
{
    (void)state;
    static const int64_t T[] = {1, 2, 3, 5, 7, 33, 257, 1001};
    for (int k = 0; k < 8; k++) {
        for (int64_t n = T[k] + 1; n <= 2 * T[k] + 2; n += 1 + T[k] / 3) check_all(n, T[k], 0);
        check_all(2 * T[k], T[k] == 1 ? 1 : T[k] - 1, 0);
        if (T[k] < 500) check_all(4 * T[k] + 8, T[k], 0.5);
    }
    check_all(1000, 7, 0.1);
    check_all(1000, 9, 0.01);
}

static void test_refusals(void **state)
{
    (void)state;
    weft_tokens *t = counting(57, NULL, 0);
    weft_batches *b = NULL;
    assert_refused(weft_batches_create(&b, arena, t, &(weft_batch_options){.T = 128}),
                   "T = 128 needs 129; the largest T that works is 56");
    assert_refused(weft_batches_create(&b, arena, t, &(weft_batch_options){.T = 57}), "the largest T that works is 56");
    assert_ok(weft_batches_create(&b, arena, t, &(weft_batch_options){.T = 56}));
    assert_refused(weft_batches_create(&b, arena, t, &(weft_batch_options){.T = 40, .valid_fraction = 0.5}),
                   "the largest T that works is 28");
    assert_refused(weft_batches_create(&b, arena, t, &(weft_batch_options){.T = 8, .valid_fraction = 0.1}),
                   "is 5 tokens for evaluation, one sequence of T = 8 needs 9; use 0.158, or 0");
    weft_batches *c = NULL;
    assert_ok(weft_batches_create(&c, arena, t, &(weft_batch_options){.T = 8, .valid_fraction = 0.158}));
    assert_refused(weft_batches_create(&b, arena, t, &(weft_batch_options){.T = 8, .valid_fraction = 0.157}),
                   "is 8 tokens");
    assert_refused(weft_batches_create(&b, arena, t, &(weft_batch_options){.T = 40, .valid_fraction = 0.1}),
                   "use 0 (none) or a shorter T");
    static const double bad[] = {1, -0.1, NAN, INFINITY};
    for (int k = 0; k < 4; k++)
        assert_refused(weft_batches_create(&b, arena, t, &(weft_batch_options){.T = 8, .valid_fraction = bad[k]}),
                       "expected 0 <= x < 1");
    assert_refused(weft_batches_create(&b, arena, t, &(weft_batch_options){.T = 0}), "sequence length of 0");
    weft_sequence s = {.token = token, .target = target, .cu = cu};
    assert_refused(weft_batches_sequence(b, true, 0, &s), "evaluation windows");
    assert_refused(weft_batches_sequence(b, false, -1, &s), "sequence -1");
    weft_tokens_close(t);
    t = counting(1, NULL, 0);
    assert_refused(weft_batches_create(&b, arena, t, &(weft_batch_options){.T = 1}), "needs 2");
    weft_tokens_close(t);
}

/* ---- order ---------------------------------------------------------------------------------------------- */

/* The window of sequence i in the first `n` of a run. */
static void order_of(const weft_batches *b, int64_t n, int64_t *window)
{
    for (int64_t i = 0; i < n; i++) window[i] = seq(b, false, i).window;
}

static void test_order(void **state)
{
    (void)state;
    enum { W = 33, EPOCHS = 4 };
    weft_tokens *t = counting(W * 7, NULL, 0);
    int64_t a[W * EPOCHS], c[W * EPOCHS];
    order_of(batches(t, 7, 0, false), W * EPOCHS, a);
    for (int e = 0; e < EPOCHS; e++) { /* each epoch holds each window once, in an order of its own */
        char seen[W] = {0};
        for (int k = 0; k < W; k++) seen[a[e * W + k]]++;
        for (int k = 0; k < W; k++) assert_int_equal(seen[k], 1);
        if (e > 0) assert_memory_not_equal(a, a + e * W, W * sizeof *a);
    }
    weft_batches *other = NULL;
    assert_ok(weft_batches_create(&other, arena, t, &(weft_batch_options){.T = 7, .seed = 12}));
    order_of(other, W * EPOCHS, c);
    assert_memory_not_equal(a, c, sizeof a);
    int sorted = 1;
    for (int k = 1; k < W; k++) sorted &= a[k] > a[k - 1];
    assert_false(sorted);
    weft_tokens_close(t);
}

/* Reports G14 and G32: 2 data-parallel x 2 context-parallel ranks, each with its own batches as separate
 * processes have. A context group reads the same text, the data-parallel ranks read different rows, and
 * the rows of a step are those of one rank with the whole batch. 5 windows and a batch of 4: the last
 * partial batch is no special case, the run goes on into the next epoch on every rank alike. */
static void g14_g32_layouts(void **state)
{
    (void)state;
    enum { STEPS = 6, DP = 2, CP = 2, MICRO = 2, GLOBAL = DP * MICRO };
    weft_tokens *t = counting(5 * 7, NULL, 0);
    int64_t whole[STEPS * GLOBAL], rank[DP][CP][STEPS * MICRO];
    order_of(batches(t, 7, 0, false), STEPS * GLOBAL, whole);
    for (int dp = 0; dp < DP; dp++)
        for (int cp = 0; cp < CP; cp++) {
            const weft_batches *own = batches(t, 7, 0, false);
            for (int s = 0; s < STEPS; s++)
                for (int m = 0; m < MICRO; m++)
                    rank[dp][cp][s * MICRO + m] = seq(own, false, s * GLOBAL + dp * MICRO + m).window;
        }
    for (int dp = 0; dp < DP; dp++) {
        assert_memory_equal(rank[dp][0], rank[dp][1], sizeof rank[dp][0]);
        for (int s = 0; s < STEPS; s++)
            for (int m = 0; m < MICRO; m++)
                assert_int_equal(rank[dp][0][s * MICRO + m], whole[s * GLOBAL + dp * MICRO + m]);
    }
    assert_memory_not_equal(rank[0][0], rank[1][0], sizeof rank[0][0]);
    weft_tokens_close(t);
}

/* Report G23: after 3 steps of 2 x 1 x 4 sequences the next one is number 24; a new process that starts
 * there reads what the uninterrupted run reads, also across an epoch's end. */
static void g23_resume(void **state)
{
    (void)state;
    weft_tokens *t = counting(29 * 5, NULL, 0);
    int64_t whole[48];
    order_of(batches(t, 5, 0, false), 48, whole);
    const weft_batches *resumed = batches(t, 5, 0, false);
    for (int64_t i = 24; i < 48; i++) assert_int_equal(seq(resumed, false, i).window, whole[i]);
    weft_tokens_close(t);
}

/* ---- documents ------------------------------------------------------------------------------------------ */

static int64_t document_at(const int64_t *offsets, int64_t docs, int64_t g)
{
    int64_t at = -1;
    for (int64_t d = 0; d < docs; d++)
        if (offsets[d] <= g && g < offsets[d + 1]) at = d;
    return at;
}

/* Random documents, some empty: against the definition, token by token. Returns the most documents in one
 * window, by counting. */
static int64_t check_documents(const weft_batches *b, const int64_t *offsets, int64_t docs, int64_t T, bool valid,
                               int64_t end)
{
    int64_t most = 0;
    for (int64_t i = 0; i < weft_batches_windows(b, valid); i++) {
        const weft_sequence s = seq(b, valid, i);
        assert_true(s.docs <= weft_batches_max_docs(b));
        assert_int_equal(s.cu[0], 0);
        assert_int_equal(s.cu[s.docs], T);
        int64_t k = 0;
        for (int64_t d = 0; d < s.docs; d++) {
            assert_true(s.cu[d] < s.cu[d + 1]); /* no empty documents */
            const int64_t doc = document_at(offsets, docs, s.token[k]);
            for (; k < s.cu[d + 1]; k++) {
                const int64_t g = s.token[k];
                assert_int_equal(document_at(offsets, docs, g), doc);
                const bool last = g + 1 == end || document_at(offsets, docs, g + 1) != doc;
                assert_int_equal(s.target[k], last ? -100 : g + 1);
            }
            if (k < T) assert_int_not_equal(document_at(offsets, docs, s.token[k]), doc);
        }
        most = weft_max_i64(most, s.docs);
    }
    return most;
}

static void test_documents(void **state)
{
    (void)state;
    static const int64_t T[] = {1, 2, 3, 5, 7, 33, 64};
    for (int round = 0; round < 12; round++) {
        int64_t offsets[101] = {0};
        for (int d = 0; d < 100; d++) { /* lengths 0..9, now and then a long one */
            const double u = test_uniform((uint64_t)round, d);
            offsets[d + 1] = offsets[d] + (u > 0.95 ? 40 : (int64_t)((u + 1) * 5));
        }
        if (round == 0) /* bounds that coincide with the windows' */
            for (int d = 0; d < 100; d++) offsets[d + 1] = offsets[d] + 7;
        const int64_t n = offsets[100];
        weft_tokens *t = counting(n, offsets, 100);
        for (int k = 0; k < 7; k++)
            for (int half = 0; half < 2; half++) {
                const weft_batches *b = batches(t, T[k], half ? 0.4 : 0, true);
                const int64_t split = n - (half ? (int64_t)((double)n * 0.4) : 0);
                int64_t most = check_documents(b, offsets, 100, T[k], false, split);
                most = weft_max_i64(most, check_documents(b, offsets, 100, T[k], true, n));
                assert_int_equal(weft_batches_max_docs(b), most);
                assert_int_equal(weft_batches_max_docs(batches(t, T[k], 0, false)), 1);
            }
        weft_tokens_close(t);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_windows, setup, teardown),
        cmocka_unit_test_setup_teardown(test_refusals, setup, teardown),
        cmocka_unit_test_setup_teardown(test_order, setup, teardown),
        cmocka_unit_test_setup_teardown(g14_g32_layouts, setup, teardown),
        cmocka_unit_test_setup_teardown(g23_resume, setup, teardown),
        cmocka_unit_test_setup_teardown(test_documents, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
