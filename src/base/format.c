/* format.c — the thread's locale is exchanged for that of C while a number is written or read. */
#include "base/format.h"

#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* The C library's own object, so that making it takes no memory; NULL leaves the locale as it is. */
typedef struct exchange { locale_t plain, before; } exchange;

static exchange begin(void)
{
    exchange x = {.plain = newlocale(LC_ALL_MASK, "C", (locale_t)0)};
    x.before = uselocale(x.plain);
    return x;
}

static void end(exchange x)
{
    uselocale(x.before);
    if (x.plain) freelocale(x.plain);
}

int weft_vformat(char *buf, size_t n, const char *fmt, va_list ap)
{
    exchange x = begin();
    int length = vsnprintf(buf, n, fmt, ap);
    end(x);
    return length;
}

int weft_format(char *buf, size_t n, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    int length = weft_vformat(buf, n, fmt, ap);
    va_end(ap);
    return length;
}

double weft_unsigned_nan(double x) { return isnan(x) ? copysign(x, 1) : x; }

const char *weft_format_json(char *buf, size_t n, double x, int digits)
{
    if (isfinite(x)) weft_format(buf, n, "%.*g", digits, x);
    else snprintf(buf, n, "null");
    return buf;
}

double weft_strtod(const char *s, char **rest)
{
    exchange x = begin();
    double value = strtod(s, rest);
    end(x);
    return value;
}
