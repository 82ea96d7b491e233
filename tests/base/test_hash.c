/* labels: small */
/* Checksums: the known value of nothing, text and back, and pieces as the whole. */
#include "harness/test.h"

static void text_and_back(void **state)
{
    (void)state;
    char text[WEFT_HASH_TEXT];
    weft_hash h, back;
    h = weft_hash_of("", 0); /* from the library's own tests */
    assert_string_equal(weft_hash_text(h, text), "99aa06d3014798d86001c324468d497f");
    assert_true(weft_hash_parse(text, &back) && weft_hash_same(h, back));
    static const char *const wrong[] = {"", "99aa06d3014798d86001c324468d497", "99aa06d3014798d86001c324468d497f0",
                                        "99AA06D3014798D86001C324468D497F", "g9aa06d3014798d86001c324468d497f"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) assert_false(weft_hash_parse(wrong[i], &back));
}

static void pieces_are_the_whole(void **state)
{
    (void)state;
    unsigned char data[1001];
    for (size_t i = 0; i < sizeof data; i++) data[i] = (unsigned char)(i * 31 >> 2);
    weft_hasher *h = weft_hasher_create();
    assert_non_null(h);
    for (size_t step = 1; step < 1001; step = step * 3 + 1) {
        for (size_t at = 0; at < sizeof data; at += step)
            weft_hasher_add(h, data + at, at + step < sizeof data ? step : sizeof data - at);
        assert_true(weft_hash_same(weft_hasher_end(h), weft_hash_of(data, sizeof data)));
    }
    weft_hash before = weft_hash_of(data, sizeof data);
    data[500] ^= 1;
    assert_false(weft_hash_same(before, weft_hash_of(data, sizeof data)));
    weft_hasher_destroy(h);
}

/* What is too large to be read whole is told apart by its size, its ends and what lies between them. */
static void a_glance_sees_both_ends(void **state)
{
    (void)state;
    const size_t bytes = ((size_t)64 << 20) + 1001;
    char *data = calloc(bytes, 1);
    assert_non_null(data);
    const weft_glance g = weft_glance_of(data, bytes);
    const size_t at[] = {0, bytes - 1, (bytes - (1 << 20)) / 63 * 31};
    assert_true(weft_glance_same(g, weft_glance_of(data, bytes)));
    assert_false(weft_glance_same(g, weft_glance_of(data, bytes - 1)));
    for (size_t i = 0; i < sizeof at / sizeof *at; i++) {
        data[at[i]] = 1;
        assert_false(weft_glance_same(g, weft_glance_of(data, bytes)));
        data[at[i]] = 0;
    }
    weft_glance sum = {.bytes = 0};
    weft_glance_add(&sum, g);
    assert_true(weft_glance_same(sum, g));
    free(data);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(text_and_back), cmocka_unit_test(pieces_are_the_whole),
                                       cmocka_unit_test(a_glance_sees_both_ends)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
