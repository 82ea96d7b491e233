/* Checked sizes, arenas, the account of bytes, pools. */
#include "harness/test.h"

/* Sizes of long sequences that 32 bits lose: nothing is allocated. */
static void g30_sizes_are_exact(void **state)
{
    (void)state;
    size_t out = 0;
    int64_t n = 0;
    assert_ok(weft_size_of(((INT64_C(1) << 20) - 1) * 32, 128, "rows", &out)); /* offset of position 2^20 - 1 */
    assert_true(out == 4294963200u);
    assert_true(weft_mul_i64(INT64_C(64) * 16, INT64_C(2048) * 2048, &n) && n == INT64_C(1) << 32);
    assert_refused(weft_size_of(INT64_MAX, 4, "scores", &out), "scores: 9223372036854775807 elements of 4 bytes");
    assert_refused(weft_size_of(-1, 4, "scores", &out), "scores");
    assert_true(out == 4294963200u); /* written on success only */
    assert_false(weft_mul_i64(INT64_C(1) << 32, INT64_C(1) << 31, &n));
    assert_false(weft_mul_size(SIZE_MAX, 2, &out));
    assert_false(weft_add_size(SIZE_MAX, 1, &out));
    assert_true(weft_ceil_div(0, 5) == 0 && weft_ceil_div(1, 5) == 1 && weft_ceil_div(10, 5) == 2 &&
                weft_ceil_div(11, 5) == 3);
}

static void blocks_are_aligned_and_apart(void **state)
{
    (void)state;
    weft_mem mem = {0};
    weft_arena *a = NULL;
    static const int64_t sizes[] = {0, 1, 2, 3, 5, 7, 33, 63, 64, 65, 257, 1001, 1 << 20, (1 << 20) + 1, 3 << 20, 5};
    enum { N = sizeof sizes / sizeof *sizes };
    char *p[N];
    assert_ok(weft_arena_create(&a, &mem, "test", NULL));
    for (int i = 0; i < N; i++) {
        assert_ok(WEFT_NEW(a, sizes[i], "blocks", &p[i]));
        assert_true((uintptr_t)p[i] % 64 == 0);
        if (sizes[i] > 0) memset(p[i], i + 1, (size_t)sizes[i]);
    }
    for (int i = 0; i < N; i++)
        for (int64_t b = 0; b < sizes[i]; b++) assert_true(p[i][b] == i + 1);
    weft_arena_destroy(a);
    assert_true(mem.bytes == 0 && mem.peak > 0);
}

static void a_reset_arena_allocates_once(void **state)
{
    (void)state;
    weft_mem mem = {0};
    weft_arena *a = NULL;
    int64_t after_first = 0;
    assert_ok(weft_arena_create(&a, &mem, "step", NULL));
    for (int step = 0; step < 5; step++) {
        double *x = NULL;
        weft_arena_reset(a);
        assert_true(weft_arena_used(a) == 0);
        for (int i = 0; i < 40; i++) assert_ok(WEFT_NEW0(a, 1001 * (i % 7 + 1), "activations", &x));
        for (int i = 0; i < 1001; i++) assert_true(x[i] == 0); /* zalloc clears what earlier steps left */
        memset(x, 0xff, 1001 * sizeof *x);
        if (step == 0) after_first = mem.allocations;
        assert_int_equal(mem.allocations, after_first);
    }
    weft_arena_destroy(a);
}

/* Debug builds hand out NaN, the first time and when memory is given back and taken again. */
static void debug_builds_fill_with_nan(void **state)
{
    (void)state;
    if (!TEST_SANITIZER[0]) skip();
    weft_mem mem = {0};
    weft_arena *a;
    assert_ok(weft_arena_create(&a, &mem, "work", NULL));
    for (int turn = 0; turn < 2; turn++) {
        float *x;
        double *y;
        weft_mark mark = weft_arena_mark(a);
        assert_ok(WEFT_NEW(a, 1001, "floats", &x));
        assert_ok(WEFT_NEW(a, 1 << 18, "doubles", &y));
        for (int i = 0; i < 1001; i++) assert_true(isnan(x[i])), x[i] = 1;
        for (int i = 0; i < 1 << 18; i++) assert_true(isnan(y[i])), y[i] = 1;
        weft_arena_release(a, mark);
    }
    weft_arena_destroy(a);
}

static void marks_give_back(void **state)
{
    (void)state;
    weft_mem mem = {0};
    weft_arena *a = NULL;
    char *keep = NULL, *first = NULL, *again = NULL;
    assert_ok(weft_arena_create(&a, &mem, "scratch", NULL));
    assert_ok(WEFT_NEW(a, 100, "kept", &keep));
    memset(keep, 7, 100);
    size_t used = weft_arena_used(a);
    weft_mark mark = weft_arena_mark(a);
    assert_ok(WEFT_NEW(a, 100, "frame", &first));
    assert_ok(WEFT_NEW(a, 5 << 20, "frame", &again)); /* goes into another chunk */
    weft_arena_release(a, mark);
    assert_true(weft_arena_used(a) == used);
    assert_ok(WEFT_NEW(a, 100, "frame", &again));
    assert_ptr_equal(first, again);
    for (int i = 0; i < 100; i++) assert_true(keep[i] == 7);
    weft_arena_destroy(a);
}

static void labels_are_accounted(void **state)
{
    (void)state;
    weft_mem mem = {0};
    weft_arena *a = NULL;
    float *x = NULL;
    char names[WEFT_MEM_ROWS + 20][16];
    assert_ok(weft_arena_create(&a, &mem, "model", NULL));
    assert_ok(WEFT_NEW(a, 1000, "weights", &x));
    assert_ok(WEFT_NEW(a, 1000, "weights", &x));
    assert_int_equal(mem.rows, 1);
    assert_string_equal(mem.row[0].arena, "model");
    assert_true(mem.row[0].bytes >= 8000 && mem.row[0].bytes < 8000 + 2 * 64);
    /* More labels than rows: the rest is summed, and nothing is written past the table. */
    for (int i = 0; i < WEFT_MEM_ROWS + 20; i++) {
        snprintf(names[i], sizeof names[i], "l%d", i);
        assert_ok(WEFT_NEW(a, 16, names[i], &x));
    }
    assert_int_equal(mem.rows, WEFT_MEM_ROWS);
    assert_string_equal(mem.row[WEFT_MEM_ROWS - 1].label, "other");
    size_t sum = 0;
    for (int i = 0; i < mem.rows; i++) sum += mem.row[i].bytes;
    assert_true(sum == weft_arena_used(a));
    weft_arena_destroy(a);
    for (int i = 0; i < mem.rows; i++) assert_true(mem.row[i].bytes == 0 && mem.row[i].peak > 0);
}

static void impossible_sizes_are_refused(void **state)
{
    (void)state;
    weft_mem mem = {0};
    weft_arena *a = NULL;
    double *x = NULL;
    assert_ok(weft_arena_create(&a, &mem, "test", NULL));
    assert_refused(WEFT_NEW(a, INT64_MAX, "scores", &x), "scores: 9223372036854775807 elements of 8 bytes");
    assert_refused(WEFT_NEW(a, -1, "scores", &x), "scores");
    assert_refused(weft_arena_alloc(a, 1, SIZE_MAX - 5, "scores", (void **)&x), "scores"); /* the padding overflows */
    assert_null(x);
    assert_int_equal(mem.allocations, 0);
    weft_arena_destroy(a);
    weft_arena_destroy(NULL);
}

/* A provider without memory: its failure comes through, with the arena's and the label's name. */
static weft_status no_memory(void *self, size_t bytes, void **out)
{
    (void)self, (void)bytes, (void)out;
    return weft_fail(WEFT_ERR_MEMORY, "nothing left");
}

static void a_failing_provider_is_named(void **state)
{
    (void)state;
    const weft_mem_provider poor = {.name = "poor", .alloc = no_memory};
    weft_mem mem = {0};
    weft_arena *a = NULL;
    char *x = NULL;
    assert_ok(weft_arena_create(&a, &mem, "plan", &poor));
    assert_int_equal(WEFT_NEW(a, 10, "buffers", &x), WEFT_ERR_MEMORY);
    assert_non_null(strstr(weft_last_error(), "arena plan, \"buffers\""));
    assert_non_null(strstr(weft_last_error(), "nothing left"));
    assert_true(mem.bytes == 0);
    weft_arena_destroy(a);
}

static void pool_buffers_are_apart(void **state)
{
    (void)state;
    weft_mem mem = {0};
    weft_arena *a = NULL;
    void *p[5];
    size_t each = 0;
    assert_ok(weft_arena_create(&a, &mem, "comm", NULL));
    assert_ok(weft_pool_alloc(a, 5, 1001, "buffers", p, &each));
    assert_true(each == 1024);
    for (int i = 0; i < 5; i++) {
        assert_true((uintptr_t)p[i] % 64 == 0);
        memset(p[i], i + 1, 1001);
    }
    for (int i = 0; i < 5; i++)
        for (int b = 0; b < 1001; b++) assert_true(((const char *)p[i])[b] == i + 1);
    assert_ok(weft_pool_alloc(a, 2, 0, "nothing", p, &each)); /* of a rank without tokens */
    assert_true(each == 0 && p[0] && p[1]);
    assert_refused(weft_pool_alloc(a, 2, SIZE_MAX, "huge", p, &each), "huge");
    assert_refused(weft_pool_alloc(a, 1 << 30, SIZE_MAX / 4, "huge", p, &each), "huge");
    assert_refused(weft_pool_alloc(a, -1, 64, "negative", p, &each), "negative");
    weft_arena_destroy(a);
}

/* Each of the activations of a deep model at a long sequence has a chunk of its own: there may be any number of
 * them. */
static void any_number_of_large_blocks(void **state)
{
    (void)state;
    weft_mem mem = {0};
    weft_arena *a = NULL;
    char *p = NULL;
    assert_ok(weft_arena_create(&a, &mem, "model", NULL));
    for (int i = 0; i < 1000; i++) assert_ok(WEFT_NEW(a, (1 << 20) + 64, "activations", &p));
    assert_int_equal(mem.allocations, 1000);
    weft_arena_destroy(a);
    assert_true(mem.bytes == 0 && mem.row[0].bytes == 0);
}

static weft_status shared_alloc(void *self, size_t bytes, void **out) { return weft_mem_host.alloc(self, bytes, out); }
static void shared_release(void *self, void *ptr, size_t bytes) { weft_mem_host.release(self, ptr, bytes); }

/* Shared pages are taken from the machine at once: a small block after a large one must not take as much again. */
static void nothing_is_taken_ahead_of_shared_memory(void **state)
{
    (void)state;
    const weft_mem_provider shared = {"shared", WEFT_MEM_SHARED, NULL, shared_alloc, shared_release, NULL};
    weft_mem mem = {0};
    weft_arena *a = NULL;
    char *p = NULL;
    for (int host = 0; host < 2; host++) {
        assert_ok(weft_arena_create(&a, &mem, "cp buffers", host ? NULL : &shared));
        assert_ok(WEFT_NEW(a, 60 << 20, "K,V", &p));
        assert_ok(WEFT_NEW(a, 64, "delta", &p));
        assert_true(mem.bytes <= (60 << 20) + (host ? 1 << 20 : 64));
        weft_arena_destroy(a);
    }
}

static size_t row_bytes(const weft_mem *mem, const char *label)
{
    for (int i = 0; i < mem->rows; i++)
        if (!strcmp(mem->row[i].label, label)) return mem->row[i].bytes;
    return SIZE_MAX;
}

/* The memory table says what is held now: after a mark, and when one of two arenas of a name goes. */
static void the_account_follows_marks_and_arenas(void **state)
{
    (void)state;
    weft_mem mem = {0};
    weft_arena *a = NULL, *b = NULL;
    char *p = NULL;
    assert_ok(weft_arena_create(&a, &mem, "cp buffers", NULL));
    assert_ok(weft_arena_create(&b, &mem, "cp buffers", NULL));
    assert_ok(WEFT_NEW(a, 128, "K,V", &p));
    assert_ok(WEFT_NEW(b, 640, "K,V", &p));
    for (int i = 0; i < 1000; i++) {
        weft_mark mark = weft_arena_mark(a);
        assert_ok(WEFT_NEW(a, 64, "K,V", &p));
        assert_ok(WEFT_NEW(a, 1024, "frame", &p));
        assert_true(row_bytes(&mem, "frame") == 1024 && row_bytes(&mem, "K,V") == 128 + 640 + 64);
        weft_arena_release(a, mark);
        assert_true(row_bytes(&mem, "frame") == 0 && row_bytes(&mem, "K,V") == 128 + 640);
    }
    weft_arena_destroy(a);
    assert_true(row_bytes(&mem, "K,V") == 640);
    weft_arena_reset(b);
    assert_true(row_bytes(&mem, "K,V") == 0);
    weft_arena_destroy(b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(g30_sizes_are_exact), cmocka_unit_test(blocks_are_aligned_and_apart),
        cmocka_unit_test(a_reset_arena_allocates_once), cmocka_unit_test(marks_give_back),
        cmocka_unit_test(debug_builds_fill_with_nan),
        cmocka_unit_test(labels_are_accounted), cmocka_unit_test(impossible_sizes_are_refused),
        cmocka_unit_test(a_failing_provider_is_named), cmocka_unit_test(pool_buffers_are_apart),
        cmocka_unit_test(any_number_of_large_blocks), cmocka_unit_test(nothing_is_taken_ahead_of_shared_memory),
        cmocka_unit_test(the_account_follows_marks_and_arenas),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
