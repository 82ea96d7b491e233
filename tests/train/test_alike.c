/* labels: small tsan */
/* test_alike.c — ranks that were given different things refuse, all of them, and say which: options, an attention case,
 * a model's case, the trajectory beside it, config and weights. No exchange would notice: shapes are the same, and the
 * result would be one of nothing. */
#include "harness/test.h"
#include "harness/run.h"
#include "harness/tempdir.h"

#include <sys/stat.h>

enum { RANKS = 3 };

typedef struct job { /* rank 0 and 1 have `own`, rank 2 has `other` */
    const test_run *run;
    const char *own_dir, *other_dir, *own, *other;
    weft_status st[RANKS];
    char message[RANKS][1024];
} job;

static test_dir dir;

static weft_status verify(weft_ctx *ctx, weft_world *world, void *ud)
{
    job *j = ud;
    bool last = ctx->rank == RANKS - 1;
    test_verdict v;
    weft_world_set_timeout(world, 60);
    weft_status st = test_verify_rank(ctx, world, j->run, last ? j->other_dir : j->own_dir, last ? j->other : j->own,
                                      &v);
    j->st[ctx->rank] = st;
    snprintf(j->message[ctx->rank], sizeof j->message[0], "%s", st < 0 ? weft_last_error() : "");
    return WEFT_OK;
}

static void all_refuse(job *j, const char *part)
{
    assert_ok(weft_run_threads(RANKS, verify, j));
    for (int r = 0; r < RANKS; r++)
        if (j->st[r] != WEFT_ERR_REFUSED || !strstr(j->message[r], part))
            fail_msg("rank %d: %s: \"%s\" lacks \"%s\"", r, weft_status_text(j->st[r]), j->message[r], part);
}

typedef enum { AS_IT_IS, OTHER_BYTE } change;
static void copy(const char *from, const char *to, change how)
{
    size_t bytes;
    char *data = test_read_raw(from, &bytes);
    if (how == OTHER_BYTE) data[bytes - 1] ^= 1; /* of the last value's exponent or sign */
    test_write_raw(to, data, bytes);
    free(data);
}

static void attention_cases(void **state)
{
    (void)state;
    char own[600];
    test_run r;
    const char *words[] = {"--cp", "3", NULL}, *other = test_dir_file(&dir, "attention.safetensors");
    test_run_open(&r, WEFT_CMD_ATTENTION, words);
    snprintf(own, sizeof own, "%s/attention/window_causal.safetensors", getenv("WEFT_GOLDEN"));
    job j = {.run = &r, .own = own, .other = other};
    copy(own, other, AS_IT_IS);
    assert_ok(weft_run_threads(RANKS, verify, &j));
    assert_ok(j.st[0]); /* where a file lies is a rank's own affair */
    copy(own, other, OTHER_BYTE);
    all_refuse(&j, "rank 2 reads other case values than rank 0 from ");
    test_run_close(&r);
}

static const char *const files[] = {"config.json", "model.safetensors", "case.safetensors", "trajectory.json"};
enum { CONFIG, WEIGHTS, CASE, TRAJECTORY, FILES };

/* A model of which one file is another one. */
static void write_model(const char *folder, int changed)
{
    for (int i = 0; i < FILES; i++) {
        char from[600], name[64];
        snprintf(name, sizeof name, "models/llama/%s", files[i]);
        snprintf(from, sizeof from, "%s/%s", getenv("WEFT_GOLDEN"), name);
        snprintf(name, sizeof name, "%s/%s", folder, files[i]);
        copy(from, test_dir_file(&dir, name), i == changed && i != CONFIG && i != TRAJECTORY ? OTHER_BYTE : AS_IT_IS);
    }
}

static void replace(const char *name, const char *what, const char *by)
{
    size_t bytes;
    char *data = test_read_raw(test_dir_file(&dir, name), &bytes), *text = calloc(bytes + 1, 1), *at;
    assert_non_null(text);
    memcpy(text, data, bytes);
    at = strstr(text, what);
    if (!at) fail_msg("%s: no %s", name, what);
    assert_int_equal(strlen(what), strlen(by));
    memcpy(at, by, strlen(by));
    test_write_raw(test_dir_file(&dir, name), text, bytes);
    free(text);
    free(data);
}

static void check_model(int changed, const char *part)
{
    char own[600], own_case[700], other[600], other_case[700];
    test_run r;
    const char *words[] = {"--cp", "3", NULL};
    test_run_open(&r, WEFT_CMD_VERIFY, words);
    snprintf(own, sizeof own, "%s/models/llama", getenv("WEFT_GOLDEN"));
    snprintf(own_case, sizeof own_case, "%s/case.safetensors", own);
    snprintf(other, sizeof other, "%s", test_dir_file(&dir, "model"));
    snprintf(other_case, sizeof other_case, "%s/case.safetensors", other);
    write_model("model", changed);
    if (changed == CONFIG) replace("model/config.json", "\"rope_theta\": 1", "\"rope_theta\": 2");
    if (changed == TRAJECTORY) replace("model/trajectory.json", "\"lr\": 0.00", "\"lr\": 0.01");
    job j = {.run = &r, .own_dir = own, .other_dir = other, .own = own_case, .other = other_case};
    all_refuse(&j, part);
    test_run_close(&r);
}

static void models(void **state)
{
    (void)state;
    check_model(CONFIG, "\"rope_theta\": 20000.0, and rank 0 has \"rope_theta\": 10000.0");
    check_model(WEIGHTS, "rank 2 reads other weights than rank 0 from ");
    check_model(CASE, "rank 2 reads other case values than rank 0 from ");
    check_model(TRAJECTORY, "rank 2 reads other steps in the trajectory.json beside the case than rank 0 from ");
}

/* Words that make a case are options like all others. */
static weft_status made(weft_ctx *ctx, weft_world *world, void *ud)
{
    const test_run *r = ud;
    return weft_run_same_options(weft_world_all(world), "attention", &r[ctx->rank == 2].opts);
}

static void made_cases(void **state)
{
    (void)state;
    test_run r[2];
    const char *words[2][3] = {{"--make", "T=8 H=2 D=8", NULL}, {"--make", "T=9 H=2 D=8", NULL}};
    for (int i = 0; i < 2; i++) test_run_open(&r[i], WEFT_CMD_ATTENTION, words[i]);
    assert_refused(weft_run_threads(RANKS, made, r), "rank 2: attention.make: ");
    for (int i = 0; i < 2; i++) test_run_close(&r[i]);
}

static int setup(void **state)
{
    (void)state;
    test_dir_make(&dir);
    return mkdir(test_dir_file(&dir, "model"), 0777);
}

static int teardown(void **state)
{
    (void)state;
    test_dir_remove(&dir);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(attention_cases), cmocka_unit_test(models),
                                       cmocka_unit_test(made_cases)};
    return cmocka_run_group_tests(tests, setup, teardown);
}
