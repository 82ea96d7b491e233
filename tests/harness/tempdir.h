/* tempdir.h — a folder of its own for a test that writes files, and raw files with given bytes. */
#ifndef WEFT_TEST_TEMPDIR_H
#define WEFT_TEST_TEMPDIR_H

#include <stddef.h>

typedef struct test_dir { char path[256]; char name[16][512]; int next; } test_dir;

void test_dir_make(test_dir *d);   /* under TMPDIR or /tmp; fails the test when it cannot */
void test_dir_remove(test_dir *d); /* with all that is in it */
/* "path/name"; valid for the next 15 calls. */
const char *test_dir_file(test_dir *d, const char *name);
int test_dir_count(test_dir *d);   /* files and folders directly inside */
void test_write_raw(const char *path, const void *data, size_t bytes);
/* The whole file; the caller frees it. */
char *test_read_raw(const char *path, size_t *bytes);

#endif
