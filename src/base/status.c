/* status.c — the record of the last failure, one per thread: ranks may be threads, so it cannot be global. */
#include "base/status.h"
#include "base/format.h"

#include <stdarg.h>
#include <string.h>

enum { MESSAGE_MAX = 1024 };
static _Thread_local char message[MESSAGE_MAX];

const char *weft_status_text(weft_status st)
{
    switch (st) {
#define X(name, value, text) case WEFT_##name: return text;
        WEFT_STATUS_MAP(X)
#undef X
    }
    return "unknown status";
}

const char *weft_last_error(void) { return message; }

int weft_exit_code(weft_status st)
{
    if (st >= 0) return 0;
    if (st == WEFT_ERR_COMPARE) return 1;
    if (st == WEFT_ERR_REFUSED) return 2;
    return 3;
}

const char *weft_version(void) { return "0.1.0"; }

weft_status weft_fail(weft_status st, const char *fmt, ...)
{
    char text[MESSAGE_MAX]; /* arguments may point into `message` */
    va_list ap;
    va_start(ap, fmt);
    weft_vformat(text, sizeof text, fmt, ap);
    va_end(ap);
    memcpy(message, text, sizeof message);
    return st;
}

weft_status weft_fail_at(weft_status st, const char *fmt, ...)
{
    char text[MESSAGE_MAX];
    va_list ap;
    va_start(ap, fmt);
    int n = weft_vformat(text, sizeof text, fmt, ap);
    va_end(ap);
    if (n < 0) return st;
    size_t used = (size_t)n < sizeof text ? (size_t)n : sizeof text - 1;
    size_t rest = strlen(message);
    if (rest > sizeof text - 1 - used) rest = sizeof text - 1 - used;
    memcpy(text + used, message, rest);
    text[used + rest] = 0;
    memcpy(message, text, sizeof message);
    return st;
}

void weft_clear_error(void) { message[0] = 0; }
