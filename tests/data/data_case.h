/* data_case.h — an arena and a folder for each test of this room. */
#ifndef WEFT_TEST_DATA_CASE_H
#define WEFT_TEST_DATA_CASE_H

#include "harness/tempdir.h"
#include "harness/test.h"
#include "data/data.h"

static test_dir dir;
static weft_mem mem;
static weft_arena *arena;

static int setup(void **state)
{
    (void)state;
    mem = (weft_mem){0};
    test_dir_make(&dir);
    return weft_arena_create(&arena, &mem, "test", NULL);
}

static int teardown(void **state)
{
    (void)state;
    weft_arena_destroy(arena);
    test_dir_remove(&dir);
    return 0;
}

#endif
