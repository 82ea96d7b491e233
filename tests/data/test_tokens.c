/* Texts and token files: what is in them, and every damaged file refused (report G18). */
/* labels: small */
#include "data_case.h"

/* ---- bytes ---------------------------------------------------------------------------------------------- */

static void test_bytes(void **state)
{
    (void)state;
    char text[256];
    int32_t ids[259];
    for (int i = 0; i < 256; i++) text[i] = (char)i;
    assert_int_equal(weft_byte_encode(text, 256, ids), 256);
    for (int i = 0; i < 256; i++) assert_int_equal(ids[i], i);
    ids[256] = WEFT_BYTE_BOS, ids[257] = -100, ids[258] = WEFT_BYTE_PAD;
    weft_text out = {0};
    assert_ok(weft_byte_decode(ids, 259, &out));
    assert_int_equal(out.len, 256);
    assert_memory_equal(out.data, text, 256);
    weft_text_free(&out);
}

/* ---- texts ---------------------------------------------------------------------------------------------- */

/* Documents show in the batches; a window over the whole text has their bounds as cu. */
static void documents(const char *text, const char *separator, const int64_t *ends, int64_t docs)
{
    const char *path = test_dir_file(&dir, "text.txt");
    const int64_t n = (int64_t)strlen(text);
    test_write_raw(path, text, (size_t)n);
    weft_tokens *t = NULL;
    assert_ok(weft_tokens_open(&t, arena, path, separator, WEFT_BYTE_VOCAB));
    assert_int_equal(weft_tokens_count(t), n);
    assert_int_equal(weft_tokens_docs(t), docs);
    int32_t ids[64], target[64];
    assert_ok(weft_tokens_read(t, 0, n, ids));
    for (int64_t i = 0; i < n; i++) assert_int_equal(ids[i], text[i]);
    weft_batches *b = NULL;
    assert_ok(weft_batches_create(&b, arena, t, &(weft_batch_options){.T = n - 1, .document_mask = true}));
    int64_t cu[64];
    weft_sequence s = {.token = ids, .target = target, .cu = cu};
    assert_ok(weft_batches_sequence(b, false, 0, &s));
    for (int64_t d = 0; d < s.docs; d++) assert_int_equal(cu[d + 1], weft_min_i64(ends[d], n - 1));
    weft_tokens_close(t);
}

static void test_separators(void **state)
{
    (void)state;
    documents("abcdef", NULL, (const int64_t[]){6}, 1);
    documents("abcdef", "--", (const int64_t[]){6}, 1);
    documents("ab--cd--ef", "--", (const int64_t[]){4, 8, 10}, 3);
    documents("ab--cd--", "--", (const int64_t[]){4, 8}, 2);
    documents("--ab", "--", (const int64_t[]){2, 4}, 2);
    documents("a---b", "--", (const int64_t[]){3, 5}, 2);
    documents("----", "--", (const int64_t[]){2, 4}, 2);
    documents("a\n\n\nb\n", "\n\n", (const int64_t[]){3, 6}, 2);
}

static void test_text_refusals(void **state)
{
    (void)state;
    const char *path = test_dir_file(&dir, "text.txt");
    weft_tokens *t = NULL;
    assert_refused(weft_tokens_open(&t, arena, path, NULL, 259), "cannot read");
    test_write_raw(path, "", 0);
    assert_refused(weft_tokens_open(&t, arena, path, NULL, 259), "is empty");
    test_write_raw(path, "abc~", 4);
    assert_refused(weft_tokens_open(&t, arena, path, "", 259), "separator");
    assert_refused(weft_tokens_open(&t, arena, path, NULL, 0), "vocabulary of 0");
    assert_refused(weft_tokens_open(&t, arena, path, NULL, 'd'), "token 3 (byte 3) has id 126");
    assert_refused(weft_tokens_open(&t, arena, dir.path, NULL, 259), "is a directory");
    assert_int_equal(weft_arena_used(arena), 0); /* refusals leave nothing in the arena */
    assert_ok(weft_tokens_open(&t, arena, path, NULL, 127));
    int32_t ids[8];
    assert_refused(weft_tokens_read(t, 2, 3, ids), "the file has 4");
    assert_refused(weft_tokens_read(t, -1, 1, ids), "the file has 4");
    assert_refused(weft_tokens_read(t, INT64_MAX, 2, ids), "the file has 4");
    assert_ok(weft_tokens_read(t, 4, 0, ids));
    weft_tokens_close(t);
}

/* ---- token files ---------------------------------------------------------------------------------------- */

static const int64_t offsets[] = {0, 2, 2, 1001};

static void test_widths(void **state)
{
    (void)state;
    static const int64_t vocabs[] = {259, 65535, 65536, 65537, 100000, INT32_MAX};
    const char *path = test_dir_file(&dir, "t.tok");
    for (int k = 0; k < 6; k++) {
        const int64_t V = vocabs[k];
        static int32_t ids[1001], back[1001];
        for (int i = 0; i < 1001; i++) ids[i] = (int32_t)((i * 7919LL + V - 1) % V);
        ids[0] = (int32_t)(V - 1);
        assert_ok(weft_tokens_write(path, ids, 1001, offsets, 3, V));
        size_t bytes;
        free(test_read_raw(path, &bytes));
        assert_int_equal(bytes, 40 + 4 * 8 + 1001 * (V > 65536 ? 4 : 2));
        weft_tokens *t = NULL;
        assert_ok(weft_tokens_open(&t, arena, path, NULL, V));
        assert_int_equal(weft_tokens_count(t), 1001);
        assert_int_equal(weft_tokens_docs(t), 3);
        assert_ok(weft_tokens_read(t, 0, 1001, back));
        assert_memory_equal(ids, back, sizeof ids);
        weft_tokens_close(t);
        assert_refused(weft_tokens_open(&t, arena, path, NULL, V - 1), "token 0 (byte 72) has id");
    }
    assert_int_equal(test_dir_count(&dir), 1);
}

/* Report G18: id 70000 with a 16-bit store would become 4464. */
static void g18_wide_ids_stay_wide(void **state)
{
    (void)state;
    const char *path = test_dir_file(&dir, "t.tok");
    const int32_t ids[] = {5, 70000, 4464};
    const int64_t whole[] = {0, 3};
    assert_ok(weft_tokens_write(path, ids, 3, whole, 1, 100000));
    weft_tokens *t = NULL;
    assert_ok(weft_tokens_open(&t, arena, path, NULL, 100000));
    int32_t back[3];
    assert_ok(weft_tokens_read(t, 0, 3, back));
    assert_int_equal(back[1], 70000);
    weft_tokens_close(t);
    assert_refused(weft_tokens_open(&t, arena, path, NULL, 50257),
                   "token 1 (byte 60) has id 70000, the vocabulary ends at 50256");
    assert_refused(weft_tokens_write(path, ids, 3, whole, 1, 50257), "token 1 has id 70000");
    size_t bytes;
    char *raw = test_read_raw(path, &bytes);
    raw[12] = 2; /* a 32-bit file read as 16-bit */
    test_write_raw(path, raw, bytes);
    assert_refused(weft_tokens_open(&t, arena, path, NULL, 100000),
                   "ids of 2 bytes cannot hold a vocabulary of 100000");
    free(raw);
}

/* Report G18: a length of 65537 in 16 bits would become 1. */
static void g18_long_documents_stay_long(void **state)
{
    (void)state;
    enum { LONG = 65537 };
    const char *path = test_dir_file(&dir, "t.tok");
    int32_t *ids = calloc(LONG + 1, sizeof *ids), last[2];
    const int64_t bounds[] = {0, LONG, LONG + 1};
    ids[LONG - 1] = 7;
    ids[LONG] = 8;
    assert_ok(weft_tokens_write(path, ids, LONG + 1, bounds, 2, 9));
    weft_tokens *t = NULL;
    assert_ok(weft_tokens_open(&t, arena, path, NULL, 9));
    assert_int_equal(weft_tokens_count(t), LONG + 1);
    assert_ok(weft_tokens_read(t, LONG - 1, 2, last));
    assert_true(last[0] == 7 && last[1] == 8);
    weft_batches *b = NULL;
    const weft_batch_options o = {.T = LONG, .document_mask = true};
    assert_ok(weft_batches_create(&b, arena, t, &o));
    assert_int_equal(weft_batches_max_docs(b), 1); /* of length 1 it would be many */
    weft_tokens_close(t);
    free(ids);
}

static void test_write_refusals(void **state)
{
    (void)state;
    const char *path = test_dir_file(&dir, "t.tok");
    const int32_t ids[] = {1, 2, 3}, negative[] = {1, -2, 3};
    assert_refused(weft_tokens_write(path, ids, 3, (const int64_t[]){0, 2}, 1, 9), "cover tokens 0 to 2 of 3");
    assert_refused(weft_tokens_write(path, ids, 3, (const int64_t[]){1, 3}, 1, 9), "cover tokens 1 to 3 of 3");
    assert_refused(weft_tokens_write(path, ids, 3, (const int64_t[]){0, 2, 1, 3}, 3, 9), "document 1 ends at token 1");
    assert_refused(weft_tokens_write(path, negative, 3, (const int64_t[]){0, 3}, 1, 9), "token 1 has id -2");
    assert_refused(weft_tokens_write(path, ids, 0, (const int64_t[]){0, 0}, 1, 9), "no token file");
    assert_int_equal(test_dir_count(&dir), 0);
}

/* Every truncation and every damaged header byte is refused or still describes the file exactly. */
static void test_damage(void **state)
{
    (void)state;
    const char *path = test_dir_file(&dir, "t.tok"), *bad = test_dir_file(&dir, "bad.tok");
    const int32_t ids[] = {1, 2, 3, 4, 5};
    assert_ok(weft_tokens_write(path, ids, 5, (const int64_t[]){0, 2, 5}, 2, 300));
    size_t bytes;
    char *good = test_read_raw(path, &bytes), *copy = malloc(bytes);
    weft_tokens *t = NULL;
    for (size_t cut = 8; cut < bytes; cut++) {
        test_write_raw(bad, good, cut);
        assert_int_equal(weft_tokens_open(&t, arena, bad, NULL, 300), WEFT_ERR_REFUSED);
    }
    for (size_t at = 8; at < bytes; at++)
        for (int bit = 0; bit < 8; bit++) {
            memcpy(copy, good, bytes);
            copy[at] = (char)(copy[at] ^ (1 << bit));
            test_write_raw(bad, copy, bytes);
            weft_status st = weft_tokens_open(&t, arena, bad, NULL, 300);
            if (st != WEFT_OK) {
                assert_int_equal(st, WEFT_ERR_REFUSED);
                continue;
            }
            int32_t back[5];
            assert_int_equal(weft_tokens_count(t), 5);
            assert_ok(weft_tokens_read(t, 0, 5, back));
            for (int i = 0; i < 5; i++) assert_true(back[i] >= 0 && back[i] < 300);
            weft_tokens_close(t);
        }
    /* offsets (at 40, 48, 56) that decrease, or begin or end elsewhere */
    memcpy(copy, good, bytes);
    copy[48] = 6;
    test_write_raw(bad, copy, bytes);
    assert_refused(weft_tokens_open(&t, arena, bad, NULL, 300), "document 1 ends at token 5, before its begin at 6");
    copy[48] = 2, copy[56] = 4;
    test_write_raw(bad, copy, bytes);
    assert_refused(weft_tokens_open(&t, arena, bad, NULL, 300), "the documents end at token 4, the file has 5");
    copy[56] = 5, copy[40] = 1;
    test_write_raw(bad, copy, bytes);
    assert_refused(weft_tokens_open(&t, arena, bad, NULL, 300), "begins at token 1, expected 0");
    memset(copy + 32, 0xff, 8); /* documents: sizes that wrap */
    test_write_raw(bad, copy, bytes);
    assert_int_equal(weft_tokens_open(&t, arena, bad, NULL, 300), WEFT_ERR_REFUSED);
    assert_refused(weft_tokens_open(&t, arena, path, "x", 300), "leave the separator out");
    free(good);
    free(copy);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bytes),
        cmocka_unit_test_setup_teardown(test_separators, setup, teardown),
        cmocka_unit_test_setup_teardown(test_text_refusals, setup, teardown),
        cmocka_unit_test_setup_teardown(test_widths, setup, teardown),
        cmocka_unit_test_setup_teardown(g18_wide_ids_stay_wide, setup, teardown),
        cmocka_unit_test_setup_teardown(g18_long_documents_stay_long, setup, teardown),
        cmocka_unit_test_setup_teardown(test_write_refusals, setup, teardown),
        cmocka_unit_test_setup_teardown(test_damage, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
