/* progress.c — the live line of a run. On a terminal one line is written over and over; in a log file
 * there are plain lines, not more than one a second. The library prints nothing: the caller's function
 * gets the bytes. */
#include "metrics/metrics.h"

#include <math.h>
#include <string.h>

static void put(const weft_progress_line *p, const char *text, size_t n) { p->write(p->ud, text, n); }
static void puts_to(const weft_progress_line *p, const char *text) { put(p, text, strlen(text)); }

void weft_progress_init(weft_progress_line *p, void (*write)(void *ud, const char *text, size_t n), void *ud, int width,
                        bool terminal, bool colour)
{
    *p = (weft_progress_line){.write = write, .ud = ud, .width = width > 0 ? width : 80, .terminal = terminal,
                              .colour = colour && terminal, .shown_at = -INFINITY};
}

/* Bars between the fields are dimmed, so that the numbers stand out. */
static void put_coloured(const weft_progress_line *p, const char *line, size_t n)
{
    for (size_t i = 0; i < n;) {
        const char *bar = memchr(line + i, '|', n - i);
        const size_t end = bar ? (size_t)(bar - line) : n;
        put(p, line + i, end - i);
        if (bar) puts_to(p, "\x1b[2m|\x1b[0m");
        i = end + (bar ? 1 : 0);
    }
}

/* One column stays free: a full line would wrap, and \r would come back to its second half only. What does not
 * fit is left out by whole fields, since half a number is another number. */
static size_t fitting(const char *line, size_t room)
{
    const size_t len = strlen(line);
    if (len <= room) return len;
    for (size_t n = room; n > 0; n--)
        if (strncmp(line + n, " | ", 3) == 0) return n;
    return room;
}

static void overwrite(weft_progress_line *p, const char *line)
{
    const size_t n = fitting(line, (size_t)(p->width - 1));
    puts_to(p, "\r");
    if (p->colour) put_coloured(p, line, n);
    else put(p, line, n);
    puts_to(p, "\x1b[K");
    p->open = true;
}

/* Steps that must not be overwritten by the next one, nor left out: they are what one looks for later. */
static bool worth_keeping(const weft_record *r)
{
    return r->skip || r->spike || !isfinite(r->loss) || r->step >= r->steps;
}

void weft_progress_step(weft_progress_line *p, double now, const weft_record *r)
{
    const double every = p->terminal ? 0.1 : 1.0;
    const bool keep = worth_keeping(r);
    if (!keep && now - p->shown_at < every) return;
    p->shown_at = now;
    weft_text line = {0};
    weft_record_line(r, &line);
    if (!line.failed) {
        if (p->terminal) {
            overwrite(p, line.data);
            if (keep) weft_progress_done(p);
        } else {
            put(p, line.data, line.len);
            puts_to(p, "\n");
        }
    }
    weft_text_free(&line);
}

void weft_progress_note(weft_progress_line *p, const char *text)
{
    if (p->open) puts_to(p, "\r\x1b[K");
    p->open = false;
    puts_to(p, text);
    puts_to(p, "\n");
}

void weft_progress_done(weft_progress_line *p)
{
    if (p->open) puts_to(p, "\n");
    p->open = false;
}
