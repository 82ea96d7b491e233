/* text.c — growing strings, suggestions, numbers with suffixes. */
#include "base/text.h"
#include "base/checked.h"
#include "base/format.h"

#include <ctype.h>
#include <errno.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void weft_text_vadd(weft_text *t, const char *fmt, va_list ap)
{
    if (t->failed) return;
    va_list again;
    va_copy(again, ap);
    int n = weft_vformat(NULL, 0, fmt, ap);
    if (n >= 0 && t->len + (size_t)n + 1 > t->cap) {
        size_t cap = (t->len + (size_t)n + 1) * 2;
        char *p = realloc(t->data, cap);
        if (p) t->data = p, t->cap = cap;
        else t->failed = true;
    }
    if (n >= 0 && !t->failed) {
        weft_vformat(t->data + t->len, t->cap - t->len, fmt, again);
        t->len += (size_t)n;
    }
    va_end(again);
}

void weft_text_add(weft_text *t, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    weft_text_vadd(t, fmt, ap);
    va_end(ap);
}

void weft_text_add_under(weft_text *t, const char *label, const char *lines)
{
    const int left = (int)strlen(label);
    weft_text_add(t, "%s", label);
    for (int indent = 0; *lines; indent = left) {
        const int n = (int)strcspn(lines, "\n"), end = lines[n] == '\n';
        weft_text_add(t, "%*s%.*s", indent, "", n + end, lines);
        lines += n + end;
    }
}

void weft_text_free(weft_text *t)
{
    free(t->data);
    *t = (weft_text){0};
}

void weft_line_add(weft_line *l, const char *fmt, ...)
{
    if (l->used >= l->size) return;
    va_list ap;
    va_start(ap, fmt);
    int n = weft_vformat(l->text + l->used, l->size - l->used, fmt, ap);
    va_end(ap);
    if (n > 0) l->used += (size_t)n;
}

/* How many of the n bytes go on a line of `room` columns. Columns are counted as characters of UTF-8. */
static size_t fold_at(const char *s, size_t n, int room)
{
    size_t space = 0, first = strspn(s, " ");
    int column = 0;
    for (size_t i = 0; i < n; i++) {
        if (((unsigned char)s[i] & 0xC0) == 0x80) continue;
        if (s[i] == ' ' && i > first) space = i;
        if (column++ == room) return space ? space : i;
    }
    return n;
}

static int second_column(const char *s, size_t n)
{
    size_t first = strspn(s, " ");
    for (size_t i = first; i + 1 < n; i++)
        if (s[i] == ' ' && s[i + 1] == ' ') return (int)(i + strspn(s + i, " "));
    return (int)first;
}

static void fold_line(weft_text *t, const char *s, size_t n, int left, int width)
{
    if (left > width / 2)
        left = width / 2; /* half a line is left for the text, or it would stand in a column of letters */
    for (size_t k = fold_at(s, n, width);; k = fold_at(s, n, width - left)) {
        size_t shown = k;
        while (shown > 0 && s[shown - 1] == ' ') shown--;
        weft_text_add(t, "%.*s\n", (int)shown, s);
        for (s += k, n -= k; n > 0 && *s == ' ';) s++, n--;
        if (n == 0) return;
        weft_text_add(t, "%*s", left, "");
    }
}

void weft_text_fold(weft_text *t, const char *lines, int left, int width)
{
    if (width <= 0) width = INT_MAX;
    while (*lines) {
        size_t n = strcspn(lines, "\n");
        fold_line(t, lines, n, left == WEFT_FOLD_UNDER ? second_column(lines, n) : left, width);
        lines += n;
        lines += *lines == '\n';
    }
}

/* Levenshtein distance between letters of either case; words are short. */
static int distance(const char *a, const char *b)
{
    enum { MAX = 64 };
    int row[MAX + 1];
    int n = (int)strlen(a), m = (int)strlen(b);
    if (n > MAX || m > MAX) return INT_MAX; /* no near neighbour of anything */
    for (int j = 0; j <= m; j++) row[j] = j;
    for (int i = 1; i <= n; i++) {
        int diagonal = row[0];
        row[0] = i;
        for (int j = 1; j <= m; j++) {
            int above = row[j];
            int best = diagonal + (tolower((unsigned char)a[i - 1]) != tolower((unsigned char)b[j - 1]));
            if (above + 1 < best) best = above + 1;
            if (row[j - 1] + 1 < best) best = row[j - 1] + 1;
            row[j] = best;
            diagonal = above;
        }
    }
    return row[m];
}

const char *weft_suggest(const char *word, const char *const *names, int n)
{
    const char *best = NULL;
    size_t letters = strlen(word);
    int limit = (int)letters / 3 + 2; /* a third of the letters may be wrong */
    for (int i = 0; i < n; i++) {
        size_t length = strlen(names[i]);
        if (2 * length < letters) continue; /* most of the word would be wrong */
        int d = distance(word, names[i]);
        if (d >= (int)length) continue; /* so is a name of which no letter is right */
        if (d < limit) limit = d, best = names[i];
    }
    return best;
}

weft_status weft_parse_i64(const char *s, int64_t *out)
{
    char *end = NULL;
    errno = 0;
    long long v = strtoll(s, &end, 10);
    if (end == s || *end || isspace((unsigned char)*s))
        return weft_fail(WEFT_ERR_REFUSED, "\"%s\" is not a whole number", s);
    if (errno == ERANGE) return weft_fail(WEFT_ERR_REFUSED, "%s does not fit into 64 bits", s);
    *out = v;
    return WEFT_OK;
}

weft_status weft_env_number(const char *name, const char *advice, int *out)
{
    int64_t n = -1;
    const char *text = getenv(name);
    if (!text || weft_parse_i64(text, &n) != WEFT_OK || n < 0 || n > INT32_MAX)
        return weft_fail(WEFT_ERR_REFUSED, "%s=%s in the environment is no number; %s", name, text ? text : "(nothing)",
                         advice);
    *out = (int)n;
    return WEFT_OK;
}

weft_status weft_parse_size(const char *s, int64_t *out)
{
    char *end = NULL;
    errno = 0;
    long long v = isdigit((unsigned char)*s) ? strtoll(s, &end, 10) : -1;
    int64_t unit = 1;
    if (end && *end) {
        const char *at = strchr("KMGT", toupper((unsigned char)*end));
        unit = at ? (int64_t)1 << (10 * (at - "KMGT" + 1)) : 0;
        end++;
    }
    if (v < 0 || !unit || *end)
        return weft_fail(WEFT_ERR_REFUSED, "\"%s\" is not a size; examples: 4096, 64K, 16M, 2G", s);
    if (errno == ERANGE || !weft_mul_i64(v, unit, out))
        return weft_fail(WEFT_ERR_REFUSED, "%s does not fit into 64 bits", s);
    return WEFT_OK;
}

weft_status weft_parse_f64(const char *s, double *out)
{
    char *end = NULL;
    double v = weft_strtod(s, &end);
    if (end == s || *end || isspace((unsigned char)*s) || !(v - v == 0.0))
        return weft_fail(WEFT_ERR_REFUSED, "\"%s\" is not a finite number", s);
    *out = v;
    return WEFT_OK;
}

static weft_status parse_part(const char *s, size_t n, int64_t *out)
{
    char word[32];
    if (n >= sizeof word) return weft_fail(WEFT_ERR_REFUSED, "a number of %zu letters is none", n);
    memcpy(word, s, n);
    word[n] = 0;
    return weft_parse_i64(word, out);
}

weft_status weft_parse_numbers(const char *s, weft_numbers *range, int max, int *n)
{
    for (*n = 0;; s++) {
        const size_t len = strcspn(s, ",");
        const char *dash = len ? memchr(s + 1, '-', len - 1) : NULL; /* what comes first is a sign */
        const size_t first = dash ? (size_t)(dash - s) : len;
        weft_numbers r;
        if (*n == max) return weft_fail(WEFT_ERR_REFUSED, "more than %d numbers and ranges", max);
        WEFT_TRY(parse_part(s, first, &r.first));
        r.last = r.first;
        if (dash) WEFT_TRY(parse_part(dash + 1, len - first - 1, &r.last));
        if (r.last < r.first)
            return weft_fail(WEFT_ERR_REFUSED, "%lld-%lld runs backwards", (long long)r.first, (long long)r.last);
        range[(*n)++] = r;
        s += len;
        if (!*s) return WEFT_OK;
    }
}

const char *weft_format_bytes(double bytes, char *buf, size_t n)
{
    static const char *const unit[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
    int u = 0;
    while (bytes >= 1024.0 && u < 5) bytes /= 1024.0, u++;
    weft_format(buf, n, u ? "%.2f %s" : "%.0f %s", bytes, unit[u]);
    return buf;
}

const char *weft_format_duration(double seconds, char *buf, size_t n)
{
    if (!(seconds >= 0 && seconds < 1e9)) {
        snprintf(buf, n, "-");
        return buf;
    }
    long long s = (long long)(seconds + 0.5);
    snprintf(buf, n, "%lld:%02lld:%02lld", s / 3600, s / 60 % 60, s % 60);
    return buf;
}
