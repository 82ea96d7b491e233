/* Profiles: what is written is read back to the bit; a key that is missing, unknown or no rate is named. */
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
    static char text[4096];
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
    return p;
}

static void a_profile_survives_a_file(void **state)
{
    (void)state;
    weft_profile p = odd(), back = {0};
    assert_ok(weft_profile_write(&p, path));
    assert_ok(weft_profile_read(&back, path));
    assert_true(p.latency_seconds == back.latency_seconds && p.link_bytes_per_second == back.link_bytes_per_second);
    assert_true(p.rank_bytes_per_second == back.rank_bytes_per_second && p.backward_factor == back.backward_factor);
    assert_true(p.memory_bytes_per_second == back.memory_bytes_per_second && p.node_ranks == back.node_ranks);
    assert_true(p.node_latency_seconds == back.node_latency_seconds &&
                p.node_bytes_per_second == back.node_bytes_per_second);
    for (int i = 0; i < WEFT_PREC_COUNT; i++) assert_true(p.flops_per_second[i] == back.flops_per_second[i]);
}

/* The file of odd() with `from` replaced by `to`. */
static void edit(const char *from, const char *to)
{
    char text[4096];
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
        cmocka_unit_test(what_is_wrong_is_named),
        cmocka_unit_test(what_is_no_profile_is_refused),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    unlink(path);
    return failed;
}
