#include "harness/test.h"
#include "harness/run.h"

#include <dirent.h>

void test_run_open(test_run *r, uint32_t command, const char *const *words)
{
    int n = 0, argc = 0, positional = 0;
    const char *rest[1];
    const weft_opt *table = weft_run_table(&n);
    memset(r, 0, sizeof *r);
    weft_ctx_init(&r->ctx);
    while (words[argc]) argc++;
    assert_ok(weft_arena_create(&r->arena, &r->ctx.mem, "options", NULL));
    assert_ok(weft_opts_init(&r->opts, table, n, command, &r->options, r->arena));
    assert_ok(weft_opts_argv(&r->opts, argc, (char *const *)(uintptr_t)words, rest, 1, &positional));
    assert_ok(weft_run_resolve(&r->run, &r->opts, &r->options));
}

void test_run_open_more(test_run *r, uint32_t command, const char *const *common, size_t n, const char *const *words)
{
    const char *all[96];
    for (size_t i = 0; i < n; i++) all[i] = common[i];
    do {
        assert_true(n < sizeof all / sizeof *all);
        all[n++] = *words;
    } while (*words++);
    test_run_open(r, command, all);
}

void test_run_close(test_run *r) { weft_arena_destroy(r->arena); }

void test_words(const char *const *words, char *text, size_t size)
{
    *text = 0;
    for (size_t n = 0; *words && n < size; words++) n += (size_t)snprintf(text + n, size - n, "%s ", *words);
}

typedef struct verification {
    const test_run *run;
    const char *dir, *path;
    test_verdict verdict;
} verification;

static void take_findings(test_verdict *v, const weft_report *report)
{
    v->n = report->n;
    v->failed = report->failed;
    for (int i = 0; i < report->n; i++) {
        const weft_finding *f = &report->row[i];
        if (i < TEST_FINDINGS) v->error[i] = f->error, v->limit[i] = f->limit;
        if (!(f->error <= f->limit)) snprintf(v->worst, sizeof v->worst, "%s %.2e > %.2e", f->name, f->error, f->limit);
    }
}

static weft_status verify_body(weft_ctx *ctx, weft_world *world, void *ud)
{
    verification *v = ud;
    test_verdict mine;
    weft_status st = test_verify_rank(ctx, world, v->run, v->dir, v->path, &mine);
    if (st >= 0 && ctx->rank == 0) v->verdict = mine;
    return st;
}

weft_status test_verify_rank(weft_ctx *ctx, weft_world *world, const test_run *r, const char *dir, const char *path,
                             test_verdict *out)
{
    weft_report report = {0};
    *out = (test_verdict){0};
    WEFT_TRY(weft_arena_create(&report.arena, &ctx->mem, "report", NULL));
    weft_status st = dir ? weft_verify_model(world, &r->run, dir, path, &report)
                         : weft_verify_attention(world, &r->run, path, &report);
    if (st >= 0 && ctx->rank == 0) take_findings(out, &report);
    weft_text_free(&report.note);
    weft_arena_destroy(report.arena);
    return st;
}

test_verdict test_verify(const test_run *r, int ranks, const char *dir, const char *path, int at_least)
{
    verification v = {.run = r, .dir = dir, .path = path};
    const weft_run_options *o = &r->options;
    char what[900];
    snprintf(what, sizeof what, "%.600s, %s %s cp=%d dp=%d %s %s", path, o->cp_strategy, o->cp_layout, r->run.mesh.cp,
             r->run.mesh.dp, o->precision, o->isa);
    if (weft_run_threads(ranks, verify_body, &v) < 0) fail_msg("%s: %s", what, weft_last_error());
    if (v.verdict.failed || v.verdict.n < at_least)
        fail_msg("%s: %d of %d fail, %s", what, v.verdict.failed, v.verdict.n, v.verdict.worst);
    return v.verdict;
}

static int by_name(const void *a, const void *b) { return strcmp(a, b); }

int test_files(const char *dir, const char *suffix, char path[TEST_FILES_MAX][512])
{
    int n = 0;
    DIR *d = opendir(dir);
    if (!d) fail_msg("%s: no such folder", dir);
    for (struct dirent *e; (e = readdir(d));) {
        size_t length = strlen(e->d_name), tail = strlen(suffix);
        if (e->d_name[0] == '.' || length < tail || strcmp(e->d_name + length - tail, suffix)) continue;
        if (n == TEST_FILES_MAX) fail_msg("%s: more than %d files", dir, TEST_FILES_MAX);
        snprintf(path[n++], 512, "%.255s/%.255s", dir, e->d_name);
    }
    closedir(d);
    qsort(path, (size_t)n, sizeof path[0], by_name);
    return n;
}

int test_golden_files(const char *folder, const char *suffix, char path[TEST_FILES_MAX][512])
{
    const char *golden = getenv("WEFT_GOLDEN");
    char dir[256];
    if (!golden) fail_msg("WEFT_GOLDEN is not set; run through ctest, or point it at tests/golden");
    snprintf(dir, sizeof dir, "%s/%s", golden, folder);
    return test_files(dir, suffix, path);
}

int test_golden_attention(char path[TEST_FILES_MAX][512])
{
    enum { IN_THE_TREE = 29 };
    int n = test_golden_files("attention", ".safetensors", path);
    if (n < IN_THE_TREE) fail_msg("%d golden attention cases; the tree holds %d", n, IN_THE_TREE);
    return n;
}
