/* print.c — how wide what is printed may be. A terminal gets lines that fit; files and pipes get results line by line,
 * as programs read them, and help and prose at 80 columns. */
#include "cli/cli.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>

enum { NARROWEST = 40, PLAIN = 80 };

static int terminal_columns(FILE *to)
{
    struct winsize w;
    return ioctl(fileno(to), TIOCGWINSZ, &w) == 0 ? w.ws_col : 0;
}

bool weft_on_terminal(FILE *to) { return terminal_columns(to) > 0; }

bool weft_in_colour(FILE *to)
{
    const char *no_color = getenv("NO_COLOR"), *term = getenv("TERM");
    return weft_on_terminal(to) && !(no_color && *no_color) && !(term && !strcmp(term, "dumb"));
}

int weft_columns(FILE *to)
{
    int64_t asked = 0;
    const char *columns = getenv("COLUMNS");
    if (!columns || weft_parse_i64(columns, &asked) != WEFT_OK || asked < 1 || asked > INT16_MAX)
        asked = weft_on_terminal(to) ? terminal_columns(to) : PLAIN;
    return (int)(asked < NARROWEST ? NARROWEST : asked);
}

void weft_add_json_text(weft_text *t, const char *s)
{
    weft_text_add(t, "\"");
    for (; *s; s++) {
        if ((unsigned char)*s < ' ') weft_text_add(t, "\\u%04x", (unsigned)*s);
        else weft_text_add(t, *s == '"' || *s == '\\' ? "\\%c" : "%c", *s);
    }
    weft_text_add(t, "\"");
}

const char *weft_short_bytes(double b, char buf[16])
{
    static const char suffix[] = {'B', 'K', 'M', 'G', 'T', 'P'};
    int i = 0;
    while (b >= 999.5 && i < 5) b /= 1024, i++;
    snprintf(buf, 16, "%.*f%c", i > 0 && b < 9.995 ? 2 : i > 0 && b < 99.95 ? 1 : 0, b, suffix[i]);
    return buf;
}

void weft_print_json_text(const char *s)
{
    weft_text t = {0};
    weft_add_json_text(&t, s);
    fputs(t.data ? t.data : "\"\"", stdout);
    weft_text_free(&t);
}

void weft_print_json_real(const char *key, double x, int digits)
{
    char number[40];
    printf(", \"%s\": %s", key, weft_format_json(number, sizeof number, x, digits));
}

static void print_folded(FILE *to, const char *lines, int left, int columns)
{
    weft_text t = {0};
    weft_text_fold(&t, lines, left, columns);
    fputs(t.data ? t.data : "", to);
    weft_text_free(&t);
}

void weft_print_prose(FILE *to, const char *lines, int left)
{
    print_folded(to, lines, left, (int)weft_min_i64(weft_columns(to), WEFT_PROSE_COLUMNS));
}

void weft_print_lines(const char *lines, int left)
{
    print_folded(stdout, lines, left, weft_on_terminal(stdout) ? weft_columns(stdout) : 0);
    fflush(stdout);
}

void weft_say(const char *fmt, ...)
{
    weft_text t = {0};
    va_list ap;
    va_start(ap, fmt);
    weft_text_vadd(&t, fmt, ap);
    va_end(ap);
    weft_print_lines(t.data ? t.data : "", WEFT_FOLD_UNDER);
    weft_text_free(&t);
}

/* "12.3 ms" */
const char *weft_short_seconds(double s, char buf[16])
{
    static const struct { double unit; const char *name; } units[] = {{1, "s"}, {1e-3, "ms"}, {1e-6, "us"}};
    int i = s >= 0.9995 || s == 0 ? 0 : s >= 0.9995e-3 ? 1 : 2;
    double x = s / units[i].unit;
    snprintf(buf, 16, "%.*f %s", x >= 99.95 ? 0 : x >= 9.995 ? 1 : 2, x, units[i].name);
    return buf;
}
