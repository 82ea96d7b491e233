#include "harness/tempdir.h"
#include "harness/test.h"

#include <dirent.h>
#include <ftw.h>
#include <unistd.h>

void test_dir_make(test_dir *d)
{
    const char *root = getenv("TMPDIR");
    *d = (test_dir){0};
    snprintf(d->path, sizeof d->path, "%s/weft-test-XXXXXX", root ? root : "/tmp");
    if (!mkdtemp(d->path)) fail_msg("cannot make a folder under %s", d->path);
}

static int remove_one(const char *path, const struct stat *s, int type, struct FTW *w)
{
    (void)s, (void)type, (void)w;
    return remove(path);
}

void test_dir_remove(test_dir *d) { nftw(d->path, remove_one, 8, FTW_DEPTH | FTW_PHYS); }

const char *test_dir_file(test_dir *d, const char *name)
{
    char *out = d->name[d->next];
    d->next = (d->next + 1) % 16;
    /* by parts: the compiler cannot see that path and name[] do not overlap */
    memcpy(out, d->path, strlen(d->path));
    snprintf(out + strlen(d->path), sizeof d->name[0] - sizeof d->path, "/%s", name);
    return out;
}

int test_dir_count(test_dir *d)
{
    DIR *dir = opendir(d->path);
    assert_non_null(dir);
    int n = 0;
    for (const struct dirent *e; (e = readdir(dir));)
        if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0) n++;
    closedir(dir);
    return n;
}

void test_write_raw(const char *path, const void *data, size_t bytes)
{
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_true(fwrite(data, 1, bytes, f) == bytes);
    assert_true(fclose(f) == 0);
}

char *test_read_raw(const char *path, size_t *bytes)
{
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    assert_true(fseek(f, 0, SEEK_END) == 0);
    long n = ftell(f);
    assert_true(n >= 0);
    rewind(f);
    char *data = malloc((size_t)n + 1);
    assert_non_null(data);
    assert_true(fread(data, 1, (size_t)n, f) == (size_t)n);
    data[n] = '\0';
    fclose(f);
    *bytes = (size_t)n;
    return data;
}
