/* place.h — memory for operands between unreadable pages, so that a kernel that reads or writes beyond what it was
 * given ends the test. Sanitizers see neither masked vector instructions nor assembly. */
#ifndef WEFT_TEST_PLACE_H
#define WEFT_TEST_PLACE_H

#include <stddef.h>

typedef enum place_side {
    PLACE_LAST, /* the last byte touches the page behind  */
    PLACE_FIRST /* the first byte touches the page before */
} place_side;

/* `bytes` bytes, all bits 1 (NaN in every type), at a multiple of `align`, a power of two. With PLACE_LAST, when
 * `bytes` is no multiple of `align`, less than `align` bytes remain to the page; place_free fails the test when one of
 * them has been written. For one thread at a time. */
void *place_new(size_t bytes, size_t align, place_side side);
void place_free(void *p); /* NULL is fine */

#endif
