/* chrome.c — checks a Chrome trace. */
#include "harness/test.h"

#include "harness/chrome.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct slice { long long pid, tid, begin, end, rank, bytes; const char *cat; } slice; /* nanoseconds */
typedef struct arrow { long long id, pid, tid, at; bool in; } arrow;
typedef struct name { long long pid, tid, order; bool named, ordered; } name; /* tid -1: of a process */

typedef struct sheet {
    slice *slice;
    arrow *arrow;
    name *name;
    size_t slices, arrows, names;
    long long under_way[1024][2];
    int notes;
    char *why;
    size_t room;
} sheet;

static bool wrong(sheet *s, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static bool wrong(sheet *s, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(s->why, s->room, fmt, ap);
    va_end(ap);
    return false;
}

static const char *word(const json_t *o, const char *key)
{
    const char *w = json_string_value(json_object_get(o, key));
    return w ? w : "";
}

static bool whole(const json_t *o, const char *key, long long *out)
{
    const json_t *x = json_object_get(o, key);
    *out = json_is_integer(x) ? json_integer_value(x) : -1;
    return json_is_integer(x) && *out >= 0;
}

static bool time_of(const json_t *o, const char *key, long long *ns)
{
    const json_t *x = json_object_get(o, key);
    const double t = json_number_value(x) * 1e3;
    *ns = (long long)llround(t);
    return json_is_number(x) && t >= 0 && fabs(t - (double)*ns) < 1e-2 + t * 1e-15;
}

/* ---- reading --------------------------------------------------------------------------------------------- */

static name *name_of(sheet *s, long long pid, long long tid)
{
    for (size_t i = 0; i < s->names; i++)
        if (s->name[i].pid == pid && s->name[i].tid == tid) return &s->name[i];
    s->name[s->names] = (name){.pid = pid, .tid = tid};
    return &s->name[s->names++];
}

static bool read_name(sheet *s, const json_t *o, long long pid, long long tid)
{
    const char *what = word(o, "name");
    name *n = name_of(s, pid, strncmp(what, "process", 7) ? tid : -1);
    const json_t *args = json_object_get(o, "args");
    if (!strcmp(what, "process_name") || !strcmp(what, "thread_name")) {
        if (n->named) return wrong(s, "%s of %lld.%lld twice", what, pid, tid);
        n->named = *word(args, "name");
        return n->named || wrong(s, "%s of %lld.%lld is empty", what, pid, tid);
    }
    if (strcmp(what, "process_sort_index") && strcmp(what, "thread_sort_index"))
        return wrong(s, "\"%s\" is no name of metadata", what);
    n->ordered = whole(args, "sort_index", &n->order);
    return n->ordered || wrong(s, "%s of %lld.%lld has no number", what, pid, tid);
}

static bool read_slice(sheet *s, const json_t *o, long long pid, long long tid, long long at)
{
    long long length;
    const json_t *args = json_object_get(o, "args");
    if (!time_of(o, "dur", &length)) return wrong(s, "\"%s\" has no duration", word(o, "name"));
    if (!*word(o, "name") || !*word(o, "cat")) return wrong(s, "a slice of %lld.%lld has no name", pid, tid);
    slice x = {.pid = pid, .tid = tid, .begin = at, .end = at + length, .cat = word(o, "cat")};
    whole(args, "rank", &x.rank);
    whole(args, "bytes", &x.bytes);
    s->slice[s->slices++] = x;
    return true;
}

static bool read_arrow(sheet *s, const json_t *o, long long pid, long long tid, long long at)
{
    arrow a = {.pid = pid, .tid = tid, .at = at, .in = !strcmp(word(o, "ph"), "f")};
    if (!whole(o, "id", &a.id)) return wrong(s, "an arrow without a number");
    if (a.in && strcmp(word(o, "bp"), "e")) return wrong(s, "arrow %lld does not end in the slice around it", a.id);
    s->arrow[s->arrows++] = a;
    return true;
}

static bool read_counter(sheet *s, const json_t *o, long long pid)
{
    const json_t *args = json_object_get(o, "args");
    if (pid >= 1024) return wrong(s, "more ranks than this test has room for");
    return (whole(args, "in", &s->under_way[pid][0]) && whole(args, "out", &s->under_way[pid][1])) ||
           wrong(s, "bytes under way at rank %lld are less than none", pid);
}

static bool read_event(sheet *s, const json_t *o)
{
    const char *ph = word(o, "ph");
    long long pid, tid, at = 0;
    if (!whole(o, "pid", &pid)) return wrong(s, "an event without a process");
    if (!strcmp(ph, "C"))
        return (time_of(o, "ts", &at) || wrong(s, "a counter without a time")) && read_counter(s, o, pid);
    if (!whole(o, "tid", &tid)) return wrong(s, "an event without a row");
    if (!strcmp(ph, "M")) return read_name(s, o, pid, tid);
    if (!time_of(o, "ts", &at)) return wrong(s, "\"%s\": no time, or parts of a nanosecond", word(o, "name"));
    if (!strcmp(ph, "X")) return read_slice(s, o, pid, tid, at);
    if (!strcmp(ph, "s") || !strcmp(ph, "f")) return read_arrow(s, o, pid, tid, at);
    s->notes++;
    return !strcmp(ph, "i") || wrong(s, "phase \"%s\"", ph);
}

/* ---- rules ------------------------------------------------------------------------------------------------ */

static int by_row(const void *x, const void *y)
{
    const slice *a = x, *b = y;
    if (a->pid != b->pid) return a->pid < b->pid ? -1 : 1;
    if (a->tid != b->tid) return a->tid < b->tid ? -1 : 1;
    if (a->begin != b->begin) return a->begin < b->begin ? -1 : 1;
    return a->end > b->end ? -1 : a->end < b->end;
}

static bool rows_nest(sheet *s, chrome_counts *c)
{
    long long open[64];
    int depth = 0;
    qsort(s->slice, s->slices, sizeof *s->slice, by_row);
    for (size_t i = 0; i < s->slices; i++) {
        const slice *x = &s->slice[i];
        if (i == 0 || x->pid != x[-1].pid || x->tid != x[-1].tid) {
            depth = 0;
            c->rows++;
            const name *n = name_of(s, x->pid, x->tid), *p = name_of(s, x->pid, -1);
            if (!n->named || !n->ordered) return wrong(s, "row %lld.%lld has no name or no order", x->pid, x->tid);
            if (!p->named || !p->ordered) return wrong(s, "process %lld has no name or no order", x->pid);
        }
        while (depth > 0 && open[depth - 1] <= x->begin) depth--;
        if (depth > 0 && x->end > open[depth - 1])
            return wrong(s, "slices of row %lld.%lld overlap at %lld ns", x->pid, x->tid, x->begin);
        if (depth == 64) return wrong(s, "64 slices are open at %lld ns", x->begin);
        open[depth++] = x->end;
    }
    return true;
}

static bool orders_differ(sheet *s, chrome_counts *c)
{
    for (size_t i = 0; i < s->names; i++) {
        c->processes += s->name[i].tid == -1;
        for (size_t k = 0; k < i; k++)
            if (s->name[i].order == s->name[k].order && (s->name[i].tid == -1) == (s->name[k].tid == -1) &&
                (s->name[i].tid == -1 || s->name[i].pid == s->name[k].pid))
                return wrong(s, "two rows of process %lld have one order", s->name[i].pid);
    }
    return true;
}

/* The slice that begins last of those around the arrow's end; slices are sorted. */
static const slice *around(const sheet *s, const arrow *a)
{
    const slice key = {.pid = a->pid, .tid = a->tid, .begin = a->at, .end = -1};
    size_t low = 0, high = s->slices;
    while (low < high) {
        size_t mid = (low + high) / 2;
        if (by_row(&s->slice[mid], &key) <= 0) low = mid + 1;
        else high = mid;
    }
    const slice *x = low > 0 ? &s->slice[low - 1] : NULL;
    return x && x->pid == a->pid && x->tid == a->tid && (a->at < x->end || x->end == x->begin) ? x : NULL;
}

static int by_id(const void *x, const void *y)
{
    const arrow *a = x, *b = y;
    return a->id != b->id ? (a->id < b->id ? -1 : 1) : (int)a->in - (int)b->in;
}

static bool arrows_hold(sheet *s, chrome_counts *c)
{
    qsort(s->arrow, s->arrows, sizeof *s->arrow, by_id);
    for (size_t i = 0; i < s->arrows; i += 2) {
        const arrow *a = &s->arrow[i], *b = a + 1;
        if (i + 1 == s->arrows || a->id != b->id || a->in || !b->in || (i > 0 && a[-1].id == a->id))
            return wrong(s, "arrow %lld has not one start and one end", a->id);
        if (b->at < a->at) return wrong(s, "arrow %lld goes back in time", a->id);
        const slice *x = around(s, a), *y = around(s, b);
        if (!x || !y) return wrong(s, "arrow %lld %s in no slice", a->id, x ? "ends" : "starts");
        if (strcmp(x->cat, "communication out") || strcmp(y->cat, "communication in") || x->rank != y->pid ||
            y->rank != x->pid || x->bytes != y->bytes)
            return wrong(s, "arrow %lld does not join two ends of one message", a->id);
        c->arrows++;
    }
    return true;
}

static bool nothing_stays(sheet *s)
{
    for (int r = 0; r < 1024; r++)
        if (s->under_way[r][0] || s->under_way[r][1]) return wrong(s, "at the end bytes of rank %d are under way", r);
    return true;
}

static bool check(sheet *s, const json_t *root, chrome_counts *c)
{
    const json_t *list = json_object_get(root, "traceEvents"), *o;
    size_t i, n = json_array_size(list) + 1;
    if (!json_is_array(list)) return wrong(s, "no list traceEvents");
    s->slice = calloc(n, sizeof *s->slice);
    s->arrow = calloc(n, sizeof *s->arrow);
    s->name = calloc(2 * n, sizeof *s->name);
    json_array_foreach(list, i, o) if (!read_event(s, o)) return false;
    c->slices = (int)s->slices;
    c->notes = s->notes;
    return rows_nest(s, c) && orders_differ(s, c) && arrows_hold(s, c) && nothing_stays(s);
}

bool chrome_holds(const char *text, size_t n, chrome_counts *counts, char *why, size_t room)
{
    json_error_t error;
    sheet *s = calloc(1, sizeof *s);
    s->why = why;
    s->room = room;
    *counts = (chrome_counts){0};
    json_t *root = json_loadb(text, n, 0, &error);
    bool holds = root ? check(s, root, counts) : wrong(s, "line %d: %s", error.line, error.text);
    free(s->slice);
    free(s->arrow);
    free(s->name);
    free(s);
    json_decref(root);
    return holds;
}
