/* format.h — numbers as text, with the decimal point of C whatever the locale of the program that Weft is part of: what
 * is written is read again, here or elsewhere, by programs with other locales. Everything in src/ that turns a real
 * number into text, or back, goes through here; files of JSON through jansson, which does the same. */
#ifndef WEFT_BASE_FORMAT_H
#define WEFT_BASE_FORMAT_H

#include <stdarg.h>
#include <stddef.h>

/* As snprintf, vsnprintf and strtod in the locale "C". LOCAL, of the calling thread */
int weft_format(char *buf, size_t n, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
int weft_vformat(char *buf, size_t n, const char *fmt, va_list ap) __attribute__((format(printf, 3, 0)));
double weft_strtod(const char *s, char **end);
/* The sign of a NaN is an accident of the arithmetic (0/0 has one on some machines) and printf shows it: x, or a NaN
 * that is printed as "nan". For every number that may be one. */
double weft_unsigned_nan(double x);
/* x with `digits` significant ones as JSON, which has no NaN and no infinity: null. Returns buf. */
const char *weft_format_json(char *buf, size_t n, double x, int digits);

#endif
