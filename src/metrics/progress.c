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

static void show(weft_progress_line *p, const char *line)
{
    if (p->terminal) overwrite(p, line);
    else {
        puts_to(p, line);
        puts_to(p, "\n");
    }
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
    if (!keep && !p->inside && now - p->shown_at < every) return;
    p->shown_at = now;
    weft_text line = {0};
    weft_record_line(r, &line);
    if (!line.failed) {
        show(p, line.data);
        p->inside = false;
        if (keep) weft_progress_done(p);
    }
    weft_text_free(&line);
}

/* ---- within a step -------------------------------------------------------------------------------- */

void weft_step_at_text(const weft_step_at *at, weft_text *out)
{
    static const char *const words[WEFT_STEP_PHASES] = {
        [WEFT_STEP_DATA] = "reads its sequences", [WEFT_STEP_FORWARD] = "forward", [WEFT_STEP_BACKWARD] = "backward",
        [WEFT_STEP_WAIT] = "waits for another stage", [WEFT_STEP_GRADIENTS] = "sums of gradients",
        [WEFT_STEP_OPTIMIZER] = "optimizer"};
    weft_text_add(out, "%s", words[at->phase]);
    if (at->layer > at->layers) weft_text_add(out, " head and loss");
    else if (at->layer) weft_text_add(out, " layer %lld/%lld", (long long)at->layer, (long long)at->layers);
    if (at->micro && at->micros > 1)
        weft_text_add(out, " | micro-batch %lld/%lld", (long long)at->micro, (long long)at->micros);
}

static void add_seconds(weft_text *t, double s)
{
    if (s < 120) weft_text_add(t, "%.0f s", s);
    else if (s < 120 * 60) weft_text_add(t, "%.0f min", s / 60);
    else weft_text_add(t, "%.1f h", s / 3600);
}

/* Seconds that the whole step will take; 0: nobody knows. Its own pace counts as much as there is done of it, the step
 * before for the rest: a stage of a pipeline runs ahead first and then waits, in every step alike. */
static double expected(const weft_inside *x)
{
    const double done = x->at.done, taken = x->since - x->begun;
    const double own = done > 0 && taken > 0 ? taken / done : x->before;
    return x->before > 0 ? done * own + (1 - done) * x->before : own;
}

/* A part may take longer than it should: what comes after it is still to be done. Of a wait nobody knows how long it
 * should take. Where nothing is known, how long the step has taken so far. */
static void add_time(weft_text *t, double now, const weft_inside *x)
{
    const double all = expected(x), taken = now - x->begun;
    const double after = all > 0 && x->at.next > x->at.done ? (1 - x->at.next) * fmax(all, taken) : 0;
    const double left = fmax(all - taken, after);
    weft_text_add(t, left > 0 ? ", ~" : " after ");
    add_seconds(t, left > 0 ? left : taken);
    if (left > 0) weft_text_add(t, " left");
}

/* The line of the step before stays where it is: its loss is what one looks for while this step goes on. */
static void show_inside(weft_progress_line *p, double now, const weft_inside *x)
{
    weft_text line = {0};
    weft_text_add(&line, "step %5lld/%lld | %.0f %%", (long long)x->at.step, (long long)x->at.steps,
                  floor(100 * x->at.done));
    add_time(&line, now, x);
    weft_text_add(&line, " | ");
    weft_step_at_text(&x->at, &line);
    if (!line.failed) {
        if (!p->inside) weft_progress_done(p);
        show(p, line.data);
        p->inside = true;
    }
    weft_text_free(&line);
}

void weft_progress_inside(weft_progress_line *p, double now, const weft_inside *x)
{
    const double every = !p->terminal ? WEFT_INSIDE_EVERY : p->inside && p->open ? 0.9 : WEFT_INSIDE_AFTER;
    if (now - fmax(p->shown_at, x->begun) < every) return;
    show_inside(p, now, x);
    p->shown_at = now;
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
