/* Profiles: what is written is read back to the bit; what was left out has the value that profile.h states; a key that
 * is missing, unknown or no rate is named; and what is built in says where every one of its values is from. */
/* labels: small */
#include "harness/test.h"
#include "mesh/mesh.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char path[] = "/tmp/weft-profile-XXXXXX";

static void put(const char *text)
{
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    assert_int_equal(fwrite(text, 1, strlen(text), f), strlen(text));
    assert_int_equal(fclose(f), 0);
}

static char *get(void)
{
    static char text[8192];
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    text[fread(text, 1, sizeof text - 1, f)] = '\0';
    fclose(f);
    return text;
}

static weft_profile odd(void)
{
    weft_profile p = weft_profile_default();
    p.latency_seconds = 1.0 / 3e6;
    p.flops_per_second[WEFT_PREC_BF16] = 3.3e13;
    p.node_ranks = 6;
    p.node_bytes_per_second = 1e11 / 7;
    p.product_flops_per_second[WEFT_PREC_BF16] = 5e13 / 3;
    p.fp8_flops_per_second = 1e14 / 3;
    p.fp8_attention_flops_per_second = 9e13 / 7;
    p.product_seconds = 1e-6 / 3;
    p.attention_seconds = 1e-5 / 3;
    p.element_bytes_per_second = 1e11 / 3;
    p.memory_bytes = 1e11 / 9;
    p.host_bytes_per_second = 1e10 / 3;
    p.host_bytes = 1e12 / 7;
    p.buffer_bytes = (1 << 20) + 3;
    p.collective_factor = 1.0 / 3;
    p.attention_pair_seconds[WEFT_PREC_F32] = 1e-9 / 3;
    p.attention_edge_keys = 190.0 / 3, p.attention_row_keys = 100.0 / 3, p.in_place_share = 1.0 / 3;
    p.product_bytes_per_second = 5e10 / 3;
    p.unhidden_share = 1.0 / 7;
    snprintf(p.name, sizeof p.name, "odd \"\xc3\xa4\" %d", 7);
    return p;
}

/* Field by field: what is between them is nobody's. */
static void same(const weft_profile *a, const weft_profile *b)
{
    assert_string_equal(a->name, b->name);
#define SAME(field) assert_true(a->field == b->field)
    SAME(latency_seconds), SAME(link_bytes_per_second), SAME(rank_bytes_per_second), SAME(memory_bytes_per_second);
    SAME(backward_factor), SAME(node_ranks), SAME(node_latency_seconds), SAME(node_bytes_per_second);
    SAME(fp8_flops_per_second), SAME(fp8_attention_flops_per_second), SAME(product_seconds), SAME(attention_seconds);
    SAME(element_bytes_per_second), SAME(memory_bytes), SAME(host_bytes_per_second), SAME(host_bytes);
    SAME(buffer_bytes), SAME(collective_factor), SAME(attention_edge_keys), SAME(attention_row_keys);
    SAME(in_place_share), SAME(unhidden_share), SAME(product_bytes_per_second);
    for (int i = 0; i < WEFT_PREC_COUNT; i++)
        SAME(flops_per_second[i]), SAME(product_flops_per_second[i]), SAME(attention_pair_seconds[i]);
#undef SAME
}

static void a_profile_survives_a_file(void **state)
{
    (void)state;
    weft_profile p = odd(), back = {0};
    assert_ok(weft_profile_write(&p, path));
    assert_ok(weft_profile_read(&back, path));
    same(&p, &back);
}

/* The file of odd() with `from` replaced by `to`. */
static void edit(const char *from, const char *to)
{
    char text[8192];
    weft_profile p = odd();
    assert_ok(weft_profile_write(&p, path));
    const char *whole = get(), *at = strstr(whole, from);
    assert_non_null(at);
    snprintf(text, sizeof text, "%.*s%s%s", (int)(at - whole), whole, to, at + strlen(from));
    put(text);
}

static void refused(const char *from, const char *to, const char *message)
{
    weft_profile p = odd(), before = p;
    edit(from, to);
    assert_refused(weft_profile_read(&p, path), message);
    assert_refused(weft_profile_read(&p, path), path);
    assert_memory_equal(&p, &before, sizeof p); /* outputs are set on success only */
}

/* What bench profile measures of an exchange that hides almost whole is a share like any other. */
static void small_shares_are_shares(void **state)
{
    (void)state;
    weft_profile p = odd(), q;
    p.in_place_share = 1e-7, p.unhidden_share = 1e-9;
    assert_ok(weft_profile_write(&p, path));
    assert_ok(weft_profile_read(&q, path));
    assert_true(q.in_place_share == p.in_place_share && q.unhidden_share == p.unhidden_share);
}

static void what_is_wrong_is_named(void **state)
{
    (void)state;
    refused("\"latency_seconds\"", "\"latency_secs\"", "latency_secs is unknown; did you mean latency_seconds");
    refused("\"node_ranks\": 6,", "", "node_ranks is missing");
    refused("\"node_ranks\": 6", "\"node_ranks\": -1", "node_ranks is missing or no number of ranks");
    refused("\"node_ranks\": 6", "\"node_ranks\": 1.5", "node_ranks");
    refused("\"backward_factor\": 2.5,", "", "backward_factor is missing");
    refused("\"backward_factor\": 2.5", "\"backward_factor\": 0", "backward_factor is 0; it must be a positive number");
    refused("\"backward_factor\": 2.5", "\"backward_factor\": -2.5", "backward_factor is -2.5");
    refused("\"backward_factor\": 2.5", "\"backward_factor\": \"2.5\"", "backward_factor is \"2.5\"");
    refused("\"backward_factor\": 2.5", "\"backward_factor\": 1e308",
            "backward_factor is 1e308; it must be a positive number, 0.001 to 1000");
    refused("\"fp64\": 1000000000.0", "\"fp64\": 1e-300", "flops_per_second.fp64 is 1e-300");
    refused("\"backward_factor\": 2.5", "\"backward_factor\": null", "backward_factor is null");
    refused("\"backward_factor\": 2.5", "\"backward_factor\": 1e999", "line");
    refused("\"backward_factor\": 2.5", "\"backward_factor\": NaN", "line");
    refused("\"backward_factor\": 2.5", "\"backward_factor\": 2, \"backward_factor\": 2", "uplicate");
    refused("\"fp64\"", "\"fp8\"", "flops_per_second.fp8 is unknown");
    refused("\"fp64\": 1000000000.0", "\"fp64\": 0", "flops_per_second.fp64 is 0");
    refused("\"flops_per_second\": {", "\"flops_per_second\": 1, \"x\": {", "x is unknown");
    refused("\"name\": \"odd", "\"name\": \"\\u001b[2J", "it must be a word or two");
    refused("\"name\": \"odd", "\"name\": \"0123456789012345678901234567890123456789012345678901234567890123",
            "at most 63 bytes");
    refused("\"buffer_bytes\": 1048579", "\"buffer_bytes\": 65535", "65536 to 2^40, or 0");
    refused("\"buffer_bytes\": 1048579", "\"buffer_bytes\": 1048579.0", "a whole number of bytes");
    refused("\"buffer_bytes\": 1048579", "\"buffer_bytes\": 9223372036854775807", "is 9223372036854775807");
    refused("\"collective_factor\": 0.", "\"collective_factor\": 0, \"x\": 0.", "x is unknown");
    refused("\"collective_factor\": 0.", "\"collective_factor\": 1.", "collective_factor is 1.3"); /* a share */
    refused("\"collective_factor\": 0.", "\"collective_factor\": -0.", "collective_factor is -0.3");
    refused("\"memory_bytes\": 1", "\"memory_bytes\": -1", "or 0 for none");
    refused("\"product_flops_per_second\": {", "\"product_flops_per_second\": {\"tf32\": 1, ",
            "product_flops_per_second.tf32 is unknown; did you mean product_flops_per_second.fp32");
    refused("\"product_flops_per_second\": {", "\"product_flops_per_second\": 1, \"sources\": {",
            "product_flops_per_second is missing or no object");
}

/* As files were before there was more in them. */
static const char old[] = "{\"latency_seconds\": 1e-5, \"link_bytes_per_second\": 1e10,"
                          "\"rank_bytes_per_second\": 1e10, \"memory_bytes_per_second\": 2e10,"
                          "\"backward_factor\": 2.5, \"node_latency_seconds\": 1e-5, \"node_bytes_per_second\": 1e10,"
                          "\"node_ranks\": 0, \"flops_per_second\": {\"fp64\": 1e9, \"fp32\": 2e11, \"bf16\": 3e11,"
                          "\"fp16\": 4e11}";

static void what_is_missing_has_the_value_that_is_stated(void **state)
{
    char text[1024];
    weft_profile p;
    (void)state;
    snprintf(text, sizeof text, "%s}", old);
    put(text);
    assert_ok(weft_profile_read(&p, path));
    assert_string_equal(p.name, strrchr(path, '/') + 1);
    for (int i = 0; i < WEFT_PREC_COUNT; i++) assert_true(p.product_flops_per_second[i] == p.flops_per_second[i]);
    assert_true(p.element_bytes_per_second == 4e10 && p.collective_factor == 1);
    assert_true(p.fp8_flops_per_second == 0 && p.fp8_attention_flops_per_second == 0 && p.product_seconds == 0);
    assert_true(p.attention_seconds == 0 && p.memory_bytes == 0 && p.host_bytes_per_second == 0);
    assert_true(p.host_bytes == 0 && p.buffer_bytes == 0 && p.product_bytes_per_second == 0);
    assert_true(p.attention_pair_seconds[WEFT_PREC_F32] == 0 && p.attention_edge_keys == 0 &&
                p.attention_row_keys == 0 && p.in_place_share == 0 && p.unhidden_share == 0);
}

static void source_is(const char *key, const char *expected)
{
    weft_text t = {0};
    assert_ok(weft_profile_source(&t, path, key));
    assert_string_equal(t.data ? t.data : "", expected);
    weft_text_free(&t);
}

static void sources_are_kept_beside_the_values(void **state)
{
    char text[1024];
    weft_profile p;
    (void)state;
    snprintf(text, sizeof text, "%s, \"sources\": {\"backward_factor\": \"by hand\", \"name\": \"a desk\"}}", old);
    put(text);
    assert_ok(weft_profile_read(&p, path));
    source_is("backward_factor", "by hand");
    source_is("node_ranks", "");
    source_is(NULL, "name                            a desk\nbackward_factor                 by hand\n");
    /* written again from itself, with one value measured */
    const weft_profile_note note[] = {{"backward_factor", "measured"}, {"buffer_bytes", "found"}};
    p.backward_factor = 3;
    assert_ok(weft_profile_write_noted(&p, path, path, note, 2));
    source_is("backward_factor", "measured");
    source_is("buffer_bytes", "found");
    source_is("name", "a desk");
    assert_ok(weft_profile_write(&p, path));
    source_is(NULL, "");
    static const char *const bad[][2] = {{"\"backwards\": \"x\"", "sources.backwards is unknown"},
                                         {"\"node_ranks\": 3", "sources.node_ranks is 3; it must be a line of text"},
                                         {"\"node_ranks\": \"\"", "it must be a line of text"},
                                         {"\"node_ranks\": \"a\\nb\"", "it must be a line of text"}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        snprintf(text, sizeof text, "%s, \"sources\": {%s}}", old, bad[i][0]);
        put(text);
        assert_refused(weft_profile_read(&p, path), bad[i][1]);
        weft_text t = {0};
        assert_refused(weft_profile_source(&t, path, NULL), bad[i][1]);
        weft_text_free(&t);
    }
    snprintf(text, sizeof text, "%s, \"sources\": 1}", old);
    put(text);
    assert_refused(weft_profile_read(&p, path), "sources is 1; it must be an object");
}

/* ---- built in ------------------------------------------------------------------------------------------------- */

static void names_are_found(void **state)
{
    int n;
    weft_profile p, q;
    (void)state;
    const char *const *names = weft_profile_names(&n);
    assert_true(n >= 2);
    for (int i = 1; i < n; i++) assert_true(strcmp(names[i - 1], names[i]) < 0);
    assert_ok(weft_profile_find(&p, "h100-ib"));
    assert_string_equal(p.name, "h100-ib");
    assert_refused(weft_profile_find(&q, "h100-lb"), "did you mean \"h100-ib\"?");
    assert_refused(weft_profile_find(&q, "x"), "there is: a100-eth, a100-ib");
    assert_refused(weft_profile_find(&q, "x"), "neither a profile's name nor a file");
    assert_refused(weft_profile_find(&q, "./h100-ib"), "./h100-ib");
    assert_refused(weft_profile_find(&q, "h100.json"), "h100.json");
    assert_refused(weft_profile_source(&(weft_text){0}, "x", NULL), "neither a profile's name nor a file");
    /* what is written from it is it */
    assert_ok(weft_profile_write_noted(&p, path, "h100-ib", NULL, 0));
    assert_ok(weft_profile_find(&q, path));
    same(&p, &q);
    weft_text a = {0}, b = {0};
    assert_ok(weft_profile_source(&a, path, NULL));
    assert_ok(weft_profile_source(&b, "h100-ib", NULL));
    assert_string_equal(a.data, b.data);
    weft_text_free(&a);
    weft_text_free(&b);
}

static void has_source(const char *name, const char *key)
{
    weft_text t = {0};
    assert_ok(weft_profile_source(&t, name, key));
    if (!t.data || strlen(t.data) < 10) fail_msg("%s does not say where %s is from", name, key);
    weft_text_free(&t);
}

/* Machines of the present: no rate a thousand times too large or small for a slip of the pen. */
static void is_a_machine(const weft_profile *p)
{
    const double bf16 = p->product_flops_per_second[WEFT_PREC_BF16], fp32 = p->product_flops_per_second[WEFT_PREC_F32];
    assert_true(bf16 >= 0.8 * fp32 && fp32 >= p->product_flops_per_second[WEFT_PREC_F64]);
    assert_true(fp32 > 1e10 && bf16 < 3e15);
    assert_true(p->flops_per_second[WEFT_PREC_BF16] <= bf16 * 1.05);
    assert_true(p->fp8_flops_per_second == 0 || p->fp8_flops_per_second > bf16);
    assert_true(p->backward_factor > 2 && p->backward_factor < 4); /* 2.5 times the operations */
    assert_true(p->latency_seconds >= 1e-7 && p->latency_seconds < 1e-3);
    assert_true(p->node_latency_seconds <= p->latency_seconds);
    assert_true(p->link_bytes_per_second > 1e8 && p->link_bytes_per_second <= p->rank_bytes_per_second);
    assert_true(p->node_bytes_per_second >= p->link_bytes_per_second && p->node_bytes_per_second < 1e12);
    assert_true(p->element_bytes_per_second > p->memory_bytes_per_second && p->element_bytes_per_second < 1e13);
    assert_true(p->memory_bytes > 1e9 && p->memory_bytes < 1e12);
    assert_true(p->collective_factor > 0.3 && p->collective_factor <= 1);
    assert_true(p->product_seconds < 1e-4 && p->attention_seconds < 1e-3);
}

static void what_is_built_in_is_a_machine_with_sources(void **state)
{
    static const char *const keys[] = {"name", "latency_seconds", "link_bytes_per_second", "rank_bytes_per_second",
                                       "memory_bytes_per_second", "backward_factor", "node_latency_seconds",
                                       "node_bytes_per_second", "node_ranks", "flops_per_second",
                                       "product_flops_per_second", "fp8_flops_per_second",
                                       "fp8_attention_flops_per_second", "product_seconds", "attention_seconds",
                                       "element_bytes_per_second", "memory_bytes", "host_bytes_per_second",
                                       "host_bytes", "buffer_bytes", "collective_factor"};
    int n;
    (void)state;
    const char *const *names = weft_profile_names(&n);
    for (int i = 0; i < n; i++) {
        weft_profile p;
        assert_ok(weft_profile_find(&p, names[i]));
        assert_string_equal(p.name, names[i]);
        is_a_machine(&p);
        for (size_t k = 0; k < sizeof keys / sizeof *keys; k++) has_source(names[i], keys[k]);
    }
}

static void what_is_no_profile_is_refused(void **state)
{
    (void)state;
    weft_profile p;
    put("[1]");
    assert_refused(weft_profile_read(&p, path), "JSON object");
    put("{");
    assert_refused(weft_profile_read(&p, path), "line");
    put("");
    assert_refused(weft_profile_read(&p, path), path);
    assert_refused(weft_profile_read(&p, "/nowhere/profile.json"), "/nowhere/profile.json");
    p = odd();
    p.latency_seconds = 0.0 / 0.0;
    assert_refused(weft_profile_write(&p, path), "not a number");
}

int main(void)
{
    int fd = mkstemp(path);
    if (fd < 0) return 1;
    close(fd);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_profile_survives_a_file),
        cmocka_unit_test(small_shares_are_shares),
        cmocka_unit_test(what_is_wrong_is_named),
        cmocka_unit_test(what_is_no_profile_is_refused),
        cmocka_unit_test(what_is_missing_has_the_value_that_is_stated),
        cmocka_unit_test(sources_are_kept_beside_the_values),
        cmocka_unit_test(names_are_found),
        cmocka_unit_test(what_is_built_in_is_a_machine_with_sources),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    unlink(path);
    return failed;
}
