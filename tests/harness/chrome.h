/* chrome.h — the rules that Perfetto sets for a Chrome trace, checked on a text. */
#ifndef TESTS_HARNESS_CHROME_H
#define TESTS_HARNESS_CHROME_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

typedef struct chrome_counts { int slices, arrows, rows, processes, notes; } chrome_counts; /* notes: of what is lost */

/* Whether it is JSON of the object form in which: times are microseconds of at most three decimals; slices of one row
 * nest or follow each other; every process and row with a slice has a name and an order of its own; every arrow has one
 * start and one end, the end not before the start, each inside of a slice of its row, of a message out and of the same
 * message in; what is under way is never less than nothing and nothing at the end. *why says what is not so. */
bool chrome_holds(const char *text, size_t n, chrome_counts *counts, char *why, size_t room);

#endif
