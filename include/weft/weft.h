/* weft/weft.h — what every user of libweft needs: status codes, the last error's text, the version.
 *
 * Functions return a weft_status. The first function that detects a failure writes one message
 * (what, where, what would work) into a record of its own thread; callers pass the status on and
 * never add to it. LOCAL throughout: nothing here communicates. */
#ifndef WEFT_WEFT_H
#define WEFT_WEFT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define WEFT_API __attribute__((visibility("default")))

/*        name         value  text                                             */
#define WEFT_STATUS_MAP(X) \
    X(OK,               0, "success") \
    X(IN_PROGRESS,      1, "still in progress") \
    X(ERR_REFUSED,     -1, "refused: bad input or configuration") \
    X(ERR_COMPARE,     -2, "a comparison failed") \
    X(ERR_MEMORY,      -3, "out of memory") \
    X(ERR_IO,          -4, "input or output failed") \
    X(ERR_TIMEOUT,     -5, "a wait passed its deadline") \
    X(ERR_PEER,        -6, "another rank failed") \
    X(ERR_NUMERIC,     -7, "a value is not finite or too large") \
    X(ERR_LIBRARY,     -8, "a library call failed") \
    X(ERR_INTERNAL,    -9, "an invariant of weft does not hold")

typedef enum weft_status {
#define X(name, value, text) WEFT_##name = (value),
    WEFT_STATUS_MAP(X)
#undef X
} weft_status;

/* The fixed text of a status ("success", ...). Never NULL. */
WEFT_API const char *weft_status_text(weft_status st);

/* The message of the last failure on the calling thread; "" when there was none.
 * Valid until the next failure on this thread. */
WEFT_API const char *weft_last_error(void);

/* The exit code that the program uses for a status: 0 good, 1 a comparison failed,
 * 2 refused, 3 failed while running. */
WEFT_API int weft_exit_code(weft_status st);

#define WEFT_VERSION_MAJOR 0
#define WEFT_VERSION_MINOR 1
#define WEFT_VERSION_PATCH 0
/* "0.1.0" */
WEFT_API const char *weft_version(void);

#ifdef __cplusplus
}
#endif
#endif
