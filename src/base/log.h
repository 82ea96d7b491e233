/* log.h — the library prints nothing; it hands lines to a hook that the program sets.
 * error: the job cannot go on.  warn: it goes on, but not as asked or expected.
 * info: once per run.  debug: once per step or plan.  */
#ifndef WEFT_BASE_LOG_H
#define WEFT_BASE_LOG_H

#include "base/status.h"

typedef enum { WEFT_LOG_ERROR, WEFT_LOG_WARN, WEFT_LOG_INFO, WEFT_LOG_DEBUG } weft_log_level;

typedef struct weft_log {
    void (*write)(void *ud, weft_log_level level, const char *line); /* NULL: mute */
    void *ud;
    weft_log_level level; /* lines above it are dropped before they are formatted */
} weft_log;

void weft_logf(const weft_log *log, weft_log_level level, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

#endif
