/* cover.h — covering arrays: few rows of values in which every two values of two parameters meet somewhere, where a
 * rule does not forbid it. Deterministic: the same parameters give the same rows. */
#ifndef WEFT_TEST_COVER_H
#define WEFT_TEST_COVER_H

#include <stdbool.h>
#include <stdint.h>

enum { COVER_PARAMS = 24, COVER_VALUES = 16, COVER_ROWS = 512, COVER_NONE = -1 };

typedef struct cover_param {
    const char *name;
    const char *value[COVER_VALUES]; /* as a person writes them */
    int n;
} cover_param;

/* May these values meet? Of a row that is not complete (COVER_NONE) true unless no further value could mend it; false
 * for a pair alone says that it is impossible. */
typedef bool (*cover_rule)(const int *row, const void *ud);

typedef struct cover {
    const cover_param *param;
    int params;
    cover_rule rule;
    const void *ud;
    int row[COVER_ROWS][COVER_PARAMS], rows;
    int pairs;                               /* that may meet, and do */
    struct { int p, i, q, j; } refused[4096]; /* pairs that no legal row has */
    int refusals;
} cover;

/* Fills rows; fails the test when they would be too many. */
void cover_make(cover *c, const cover_param *param, int params, cover_rule rule, const void *ud);
/* The i-th of legal rows drawn at random. */
void cover_draw(const cover *c, uint64_t seed, int64_t i, int *row);
/* Counts again, from the rows alone and by another way, and fails the test unless each row is legal and complete, each
 * pair is in one or was found impossible, and none is both. */
void cover_check(const cover *c);

#endif
