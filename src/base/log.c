/* log.c — formats a line and hands it to the hook. */
#include "base/log.h"
#include "base/format.h"

#include <stdarg.h>

void weft_logf(const weft_log *log, weft_log_level level, const char *fmt, ...)
{
    if (!log->write || level > log->level) return;
    char line[1024];
    va_list ap;
    va_start(ap, fmt);
    weft_vformat(line, sizeof line, fmt, ap);
    va_end(ap);
    log->write(log->ud, level, line);
}
