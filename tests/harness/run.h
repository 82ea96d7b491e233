/* run.h — a resolved run from option words, and the golden cases, for tests that go through the room `train`. */
#ifndef WEFT_TEST_RUN_H
#define WEFT_TEST_RUN_H

#include "train/train.h"

typedef struct test_run {
    weft_ctx ctx;
    weft_arena *arena;
    weft_run_options options;
    weft_opts opts;
    weft_run run;
} test_run;

/* words: "--cp", "2", ..., NULL. Fails the test when they are refused. */
void test_run_open(test_run *r, uint32_t command, const char *const *words);
/* n words that all runs of a test have, and those of this one. */
void test_run_open_more(test_run *r, uint32_t command, const char *const *common, size_t n, const char *const *words);
void test_run_close(test_run *r);
/* The words one after the other, each with a space behind it, for messages. */
void test_words(const char *const *words, char *text, size_t size);

/* A verification on thread ranks: of an attention case (dir NULL) or of a model's case, and what rank 0 found. */
enum { TEST_FINDINGS = 8 };
typedef struct test_verdict {
    int n, failed;
    double error[TEST_FINDINGS], limit[TEST_FINDINGS]; /* of the first findings */
    char worst[600];                                   /* a finding above its limit, in words */
} test_verdict;
/* Fails the test when the run fails, when fewer than `at_least` comparisons were made, or when one does not hold. */
test_verdict test_verify(const test_run *r, int ranks, const char *dir, const char *path, int at_least);

/* One rank's part of that, in any world; *out is filled on rank 0. COLLECTIVE */
weft_status test_verify_rank(weft_ctx *ctx, weft_world *world, const test_run *r, const char *dir, const char *path,
                             test_verdict *out);

/* Paths of what is in a folder and has a name that ends with `suffix`, sorted; and below $WEFT_GOLDEN/`folder`. */
enum { TEST_FILES_MAX = 64 };
int test_files(const char *dir, const char *suffix, char path[TEST_FILES_MAX][512]);
int test_golden_files(const char *folder, const char *suffix, char path[TEST_FILES_MAX][512]);
/* The attention cases; fails the test when there are fewer than the tree holds. */
int test_golden_attention(char path[TEST_FILES_MAX][512]);

#endif
