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

void test_run_close(test_run *r) { weft_arena_destroy(r->arena); }

static int by_name(const void *a, const void *b) { return strcmp(a, b); }

int test_golden_files(const char *folder, const char *suffix, char path[TEST_FILES_MAX][512])
{
    const char *golden = getenv("WEFT_GOLDEN");
    char dir[400];
    int n = 0;
    if (!golden) fail_msg("WEFT_GOLDEN is not set; run through ctest, or point it at tests/golden");
    snprintf(dir, sizeof dir, "%s/%s", golden, folder);
    DIR *d = opendir(dir);
    if (!d) fail_msg("%s: no such folder", dir);
    for (struct dirent *e; (e = readdir(d));) {
        size_t length = strlen(e->d_name), tail = strlen(suffix);
        if (e->d_name[0] == '.' || length < tail || strcmp(e->d_name + length - tail, suffix)) continue;
        if (n == TEST_FILES_MAX) fail_msg("%s: more than %d files", dir, TEST_FILES_MAX);
        snprintf(path[n++], 512, "%s/%s", dir, e->d_name);
    }
    closedir(d);
    qsort(path, (size_t)n, sizeof path[0], by_name);
    return n;
}
