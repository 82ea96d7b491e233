/* text_case.h — a folder with a text of 400 lines, for tests of whole runs: setup and teardown of a group of tests. */
#ifndef WEFT_TEST_TEXT_CASE_H
#define WEFT_TEST_TEXT_CASE_H

#include "harness/test.h"
#include "harness/tempdir.h"

static test_dir dir;
static char data_path[600];

static int setup(void **state)
{
    (void)state;
    test_dir_make(&dir);
    snprintf(data_path, sizeof data_path, "%s", test_dir_file(&dir, "data.txt"));
    FILE *f = fopen(data_path, "w");
    if (!f) return -1;
    for (int i = 0; i < 400; i++) fprintf(f, "%d words %d and %d\n", i, i * i % 89, i % 7);
    return fclose(f);
}

static int teardown(void **state)
{
    (void)state;
    test_dir_remove(&dir);
    return 0;
}

#endif
