/* labels: small tsan */
/* Blocks outside of the working memory: what was put comes back, from memory and from a file, in the order in which
 * moves were asked for; a failure is told at every wait, and nothing is moved after it; a file has no name, and a
 * folder without room is refused when it is opened. */
#include "harness/test.h"
#include "harness/tempdir.h"

static test_dir dir;
static int setup(void **state) { (void)state; test_dir_make(&dir); return 0; }
static int teardown(void **state) { (void)state; test_dir_remove(&dir); return 0; }

enum { PLACES = 7 };

typedef struct store { /* places in memory, or in a file of the test's folder */
    weft_spill *s;
    char *memory;
    void *at[PLACES];
} store;

static void open_store(store *x, size_t bytes, bool file, weft_fault *fault)
{
    size_t place = (bytes + weft_spill_unit(file) - 1) / weft_spill_unit(file) * weft_spill_unit(file);
    x->memory = malloc(PLACES * place);
    for (int i = 0; i < PLACES; i++) x->at[i] = x->memory + (size_t)i * place;
    const weft_spill_options o = {.places = PLACES, .bytes = place, .memory = file ? NULL : x->at, .folder = dir.path,
                                  .fault = fault};
    assert_ok(weft_spill_open(&x->s, &o));
}

static void close_store(store *x)
{
    weft_spill_close(x->s);
    free(x->memory);
}

static void wait_for(const store *x, int64_t move)
{
    bool over = false;
    assert_ok(weft_spill_wait(x->s, move, 60, &over));
    assert_true(over);
}

/* Of a period that divides no size of anything, so that bytes at a wrong place differ. */
static void fill(char *block, size_t bytes, uint64_t what)
{
    char period[1009];
    for (size_t i = 0; i < sizeof period; i++) period[i] = (char)((what * 131 + i * 7 + i / 251) & 0xff);
    for (size_t i = 0; i < bytes; i += sizeof period)
        memcpy(block + i, period, bytes - i < sizeof period ? bytes - i : sizeof period);
}

/* The last size is several pieces of a file. */
static void what_was_put_comes_back(void **state)
{
    (void)state;
    static const size_t sizes[] = {0, 1, 63, 257, 4097, (9 << 20) + 5};
    for (size_t k = 0; k < 2 * sizeof sizes / sizeof *sizes; k++) {
        store x;
        const size_t bytes = sizes[k / 2];
        char *block = malloc(bytes + 1), *want = malloc(bytes + 1);
        int64_t move;
        open_store(&x, bytes + 1, k % 2, NULL);
        for (int i = 0; i < PLACES; i++) {
            fill(block, bytes, (uint64_t)i);
            assert_ok(weft_spill_put(x.s, i, block, bytes, &move));
            wait_for(&x, move);
        }
        for (int i = PLACES - 1; i >= 0; i--) {
            memset(block, 0x55, bytes + 1);
            fill(want, bytes, (uint64_t)i);
            want[bytes] = 0x55; /* not a byte more */
            assert_ok(weft_spill_get(x.s, i, block, bytes, &move));
            wait_for(&x, move);
            assert_memory_equal(block, want, bytes + 1);
        }
        assert_int_equal(test_dir_count(&dir), 0); /* a file without a name */
        close_store(&x);
        free(block);
        free(want);
    }
}

/* Any order of puts and gets, several under way: each get finds the last put before it. Buffers are waited for before
 * they are used again. */
static void moves_are_made_in_order(void **state)
{
    (void)state;
    enum { BYTES = 5000, BUFFERS = 5, MOVES = 300 };
    static char buffer[BUFFERS][BYTES], want[BYTES];
    for (int file = 0; file < 2; file++) {
        store x;
        int64_t move[BUFFERS] = {0};
        uint64_t last[PLACES] = {0}, expected[BUFFERS] = {0}; /* 0: nothing was put, nothing was got */
        open_store(&x, BYTES, file, NULL);
        for (int i = 0; i < MOVES + BUFFERS; i++) {
            const int b = i % BUFFERS, place = (int)(4 * (1 + test_uniform(7, i))) % PLACES;
            wait_for(&x, move[b]);
            if (expected[b]) {
                fill(want, BYTES, expected[b]);
                assert_memory_equal(buffer[b], want, BYTES);
            }
            expected[b] = 0;
            if (i >= MOVES) continue;
            if (last[place] == 0 || test_uniform(8, i) > 0) {
                fill(buffer[b], BYTES, last[place] = (uint64_t)i + 1);
                assert_ok(weft_spill_put(x.s, place, buffer[b], BYTES, &move[b]));
            } else {
                expected[b] = last[place];
                assert_ok(weft_spill_get(x.s, place, buffer[b], BYTES, &move[b]));
            }
        }
        close_store(&x);
    }
}

static void a_failure_is_told_and_ends_all_moves(void **state)
{
    (void)state;
    for (int file = 0; file < 2; file++) {
        store x;
        weft_fault fault;
        char block[100] = "unchanged";
        int64_t move;
        bool over;
        assert_ok(weft_fault_parse(&fault, "fail:site=spill.put:hit=2"));
        open_store(&x, sizeof block, file, &fault);
        assert_ok(weft_spill_put(x.s, 0, "first", 6, &move));
        wait_for(&x, move);
        assert_ok(weft_spill_put(x.s, 0, "other", 6, &move));
        assert_ok(weft_spill_get(x.s, 0, block, 6, &move));
        for (int i = 0; i < 2; i++) {
            assert_int_equal(weft_spill_wait(x.s, move, 60, &over), WEFT_ERR_INTERNAL);
            assert_non_null(strstr(weft_last_error(), "injected fault at spill.put, pass 2"));
        }
        close_store(&x);
        assert_string_equal(block, "unchanged");
    }
}

/* While the thread sleeps in its first move: a wait ends when its time is over, more moves than are kept are refused,
 * and closing finishes the first and does not begin the others. */
static void moves_under_way(void **state)
{
    (void)state;
    store x;
    weft_fault fault;
    char first[100], second[100] = "unchanged";
    int64_t move = -5;
    bool over = false;
    assert_ok(weft_fault_parse(&fault, "sleep:1:site=spill.get"));
    open_store(&x, sizeof first, true, &fault);
    assert_ok(weft_spill_wait(x.s, 0, 0, &over)); /* no move at all */
    assert_true(over);
    assert_int_equal(weft_spill_put(x.s, PLACES, first, 1, &move), WEFT_ERR_INTERNAL);
    assert_int_equal(weft_spill_get(x.s, -1, first, 1, &move), WEFT_ERR_INTERNAL);
    assert_int_equal(weft_spill_get(x.s, 0, first, 4097, &move), WEFT_ERR_INTERNAL);
    assert_int_equal(move, -5);
    assert_ok(weft_spill_get(x.s, 3, first, 10, &move));
    assert_ok(weft_spill_wait(x.s, move, 0.01, &over));
    assert_false(over);
    assert_ok(weft_spill_wait(x.s, move, 0, &over));
    assert_false(over);
    for (int i = 1; i < WEFT_SPILL_MOVES; i++) assert_ok(weft_spill_get(x.s, 0, second, 100, &move));
    assert_int_equal(weft_spill_get(x.s, 0, second, 1, &move), WEFT_ERR_INTERNAL);
    assert_int_equal(move, WEFT_SPILL_MOVES);
    close_store(&x);
    assert_string_equal(second, "unchanged");
}

static void folders_without_room_are_refused(void **state)
{
    (void)state;
    weft_spill *s = NULL;
    weft_spill_options o = {.places = 1, .bytes = 4096, .folder = test_dir_file(&dir, "nowhere")};
    assert_refused(weft_spill_open(&s, &o), "nowhere: No such file or directory; give a folder");
    o.folder = dir.path;
    o.places = INT64_C(1) << 46;
    assert_refused(weft_spill_open(&s, &o), "has no room for a file of");
    o.places = INT64_MAX / 2;
    assert_refused(weft_spill_open(&s, &o), "do not fit into a file");
    assert_null(s);
    assert_int_equal(test_dir_count(&dir), 0);
    weft_spill_close(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_was_put_comes_back), cmocka_unit_test(moves_are_made_in_order),
        cmocka_unit_test(a_failure_is_told_and_ends_all_moves), cmocka_unit_test(moves_under_way),
        cmocka_unit_test(folders_without_room_are_refused),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
