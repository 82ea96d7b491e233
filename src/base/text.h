/* text.h — growing strings, "did you mean", sizes with suffixes. */
#ifndef WEFT_BASE_TEXT_H
#define WEFT_BASE_TEXT_H

#include "base/status.h"

#include <stdarg.h>

typedef struct weft_text { /* a growing string; {0} is empty; data is NUL-terminated once something was added */
    char *data;
    size_t len, cap;
    bool failed; /* out of memory: later calls do nothing */
} weft_text;

void weft_text_add(weft_text *t, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void weft_text_vadd(weft_text *t, const char *fmt, va_list ap) __attribute__((format(printf, 2, 0)));
/* `label`, and `lines` behind it: the second and every other line stands under the first. */
void weft_text_add_under(weft_text *t, const char *label, const char *lines);
void weft_text_free(weft_text *t);
enum { WEFT_FOLD_UNDER = -1 };
/* Lines, each carried on below from column `left` where it would pass `width` columns: cut at a space, or in a word
 * that no line can hold. WEFT_FOLD_UNDER: from the line's own second column, which two spaces divide from the first.
 * width 0: whole lines. Ends with a newline. */
void weft_text_fold(weft_text *t, const char *lines, int left, int width);

/* a text in a place of fixed size, cut where it is full */
typedef struct weft_line { char *text; size_t size, used; } weft_line;
void weft_line_add(weft_line *l, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* The name in names[0..n) nearest to `word` by edit distance, of letters of either case, or NULL when none is near. */
const char *weft_suggest(const char *word, const char *const *names, int n);

/* "64K", "16M", "2G", "100" -> bytes or counts (powers of 1024). Refuses signs, junk and overflow. */
weft_status weft_parse_size(const char *s, int64_t *out);
weft_status weft_parse_i64(const char *s, int64_t *out);
/* A number from 0 to 2^31 - 1 in the environment; advice: what to do about anything else. */
weft_status weft_env_number(const char *name, const char *advice, int *out);
weft_status weft_parse_f64(const char *s, double *out);
/* "0,4-7" into at most `max` ranges. Refuses words that are no numbers, and what runs backwards. */
typedef struct weft_numbers { int64_t first, last; } weft_numbers;
weft_status weft_parse_numbers(const char *s, weft_numbers *range, int max, int *n);

/* "3.21 GiB" into buf. */
const char *weft_format_bytes(double bytes, char *buf, size_t n);
/* "0:41:07" into buf. */
const char *weft_format_duration(double seconds, char *buf, size_t n);

#endif
