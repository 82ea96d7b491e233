/* status.h — one failure, one message, written where it is first detected. */
#ifndef WEFT_BASE_STATUS_H
#define WEFT_BASE_STATUS_H

#include "weft/weft.h"

/* Records the message (printf form) for this thread and returns `st`. The message says what failed,
 * where (file, tensor, rank, option) and what would work; it ends without a newline. LOCAL. */
weft_status weft_fail(weft_status st, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Puts words in front of the recorded message, for a caller that knows *where* (a file, a line). LOCAL. */
weft_status weft_fail_at(weft_status st, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Forgets the recorded message. LOCAL. */
void weft_clear_error(void);

/* Passes a failure on; the message is already written. */
#define WEFT_TRY(call) \
    do { \
        weft_status try_status_ = (call); \
        if (try_status_ < 0) return try_status_; \
    } while (0)

/* As WEFT_TRY, for functions with something to undo: stores the status in `st` and jumps. */
#define WEFT_TRY_OR(st, call, label) \
    do { \
        (st) = (call); \
        if ((st) < 0) goto label; \
    } while (0)

#endif
