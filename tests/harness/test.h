/* test.h — cmocka with its includes in the right order, and the few helpers that every test uses. */
#ifndef WEFT_TEST_H
#define WEFT_TEST_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <math.h>

#include <cmocka.h>

#include "base/base.h"

/* Fails the test with weft's own message. */
#define assert_ok(call) \
    do { \
        weft_status s_ = (call); \
        if (s_ != WEFT_OK) fail_msg("%s: %s: %s", #call, weft_status_text(s_), weft_last_error()); \
    } while (0)
/* The call must be refused and its message must contain `part`. */
#define assert_refused(call, part) \
    do { \
        weft_status s_ = (call); \
        if (s_ != WEFT_ERR_REFUSED) fail_msg("%s: not refused but %s", #call, weft_status_text(s_)); \
        if (!strstr(weft_last_error(), (part))) \
            fail_msg("%s: message \"%s\" lacks \"%s\"", #call, weft_last_error(), (part)); \
    } while (0)
#define assert_at_most(value, limit) \
    do { \
        double v_ = (value), l_ = (limit); \
        if (!(v_ <= l_)) fail_msg("%s = %.3e > %.3e", #value, v_, l_); \
    } while (0)

/* Where many cases differ in numbers and not in the code that runs, every n-th of them is enough for a sanitizer, under
 * which they take five to ten times as long: `if (turn % test_every(3)) continue;`. Without one: every case. */
static inline int test_every(int n) { return TEST_SANITIZER[0] ? n : 1; }
static inline bool test_under_tsan(void) { return strstr(TEST_SANITIZER, "thread") != NULL; }

/* Deterministic test data: the i-th value of stream `seed`, uniform in (-1, 1) or normal(0, 1). */
double test_uniform(uint64_t seed, int64_t i);
double test_normal(uint64_t seed, int64_t i);
/* Of bytes, to compare what ranks hold: FNV-1a. */
uint64_t test_hash(const void *data, size_t bytes);
void test_fill_normal(void *x, int is_double, int64_t n, uint64_t seed);

#endif
