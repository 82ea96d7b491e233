/* labels: small */
/* test_docs_text.c — documents as a line of text: cuts drawn at random are those of their addresses, in order, whatever
 * the length of the sequence; millions of them are no wait; every row has the same. */
#include "harness/test.h"
#include "train/train.h"

static int ascending(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

/* The cuts from their definition. */
static void expected(int64_t *cu, int64_t n, int64_t T, uint64_t seed)
{
    for (int64_t i = 1; i < n; i++) {
        weft_philox_out x = weft_philox(seed, (uint32_t)i, 0, 0xd0c, weft_philox_word3(0, 0, WEFT_SITE_SAMPLE));
        cu[i] = (int64_t)((x.w[0] | (uint64_t)x.w[1] << 32) % (uint64_t)(T + 1));
    }
    cu[0] = 0;
    qsort(cu, (size_t)n, sizeof *cu, ascending);
    cu[n] = T;
}

static void check(weft_arena *arena, int64_t B, int64_t T, int64_t n)
{
    weft_docs docs;
    char text[32];
    int64_t *want;
    weft_mark mark = weft_arena_mark(arena);
    snprintf(text, sizeof text, "random:%lld", (long long)n);
    assert_ok(weft_docs_from_text(&docs, arena, text, B, T, 7));
    assert_ok(WEFT_NEW(arena, n + 1, "expected", &want));
    expected(want, n, T, 7);
    for (int64_t b = 0; b < B; b++) {
        assert_int_equal(docs.first[b + 1] - docs.first[b], n + 1);
        assert_memory_equal(docs.cu + docs.first[b], want, (size_t)(n + 1) * sizeof *want);
    }
    weft_arena_release(arena, mark);
}

static void random_cuts(void **state)
{
    (void)state;
    static const int64_t lengths[] = {1, 2, 33, 2047, 2048, 1 << 22, (1 << 22) + 1, (int64_t)1 << 40};
    static const int64_t documents[] = {1, 2, 3, 5, 33, 1001};
    weft_ctx ctx;
    weft_arena *arena;
    weft_ctx_init(&ctx);
    assert_ok(weft_arena_create(&arena, &ctx.mem, "documents", NULL));
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++)
        for (size_t k = 0; k < sizeof documents / sizeof *documents; k++)
            check(arena, 1 + (int64_t)(k % 3), lengths[i], documents[k]);
    weft_arena_destroy(arena);
}

/* In processor time, beside that of drawing four times as many: neither machine nor load enters. */
static void many_cuts_take_little_more_than_drawing_them(void **state)
{
    enum { CUTS = 1 << 20 };
    (void)state;
    if (TEST_SANITIZER[0]) skip();
    weft_ctx ctx;
    weft_arena *arena;
    weft_docs docs;
    volatile uint32_t sum = 0;
    weft_ctx_init(&ctx);
    assert_ok(weft_arena_create(&arena, &ctx.mem, "documents", NULL));
    double begin = weft_cpu_seconds();
    for (int64_t i = 0; i < 4 * CUTS; i++)
        sum += weft_philox(7, (uint32_t)i, 0, 0xd0c, weft_philox_word3(0, 0, WEFT_SITE_SAMPLE)).w[0];
    double drawing = weft_cpu_seconds() - begin;
    begin = weft_cpu_seconds();
    assert_ok(weft_docs_from_text(&docs, arena, "random:1M", 1, 64, 7));
    assert_at_most(weft_cpu_seconds() - begin, 1.2 * drawing); /* measured: 0.5 of it; by comparisons 2.7 */
    weft_arena_destroy(arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(random_cuts),
                                       cmocka_unit_test(many_cuts_take_little_more_than_drawing_them)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
