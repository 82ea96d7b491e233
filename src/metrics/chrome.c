/* chrome.c — events of base/trace as a Chrome trace, the JSON that Perfetto and chrome://tracing open: a process per
 * rank, a row per track. Events that overlap on one track get rows of their own, because a row shows one thing at a
 * time. */
#include "metrics/metrics.h"

#include <stdlib.h>
#include <string.h>

static void add_string(weft_text *out, const char *s)
{
    weft_text_add(out, "\"");
    for (; *s; s++) {
        unsigned char c = (unsigned char)*s;
        if (c == '"' || c == '\\') weft_text_add(out, "\\%c", c);
        else if (c < 0x20 || c >= 0x7f) weft_text_add(out, "\\u%04x", c);
        else weft_text_add(out, "%c", c);
    }
    weft_text_add(out, "\"");
}

static void add_name(weft_text *out, const char *what, int rank, int row, const char *name, int number)
{
    weft_text_add(out, ",\n{\"ph\":\"M\",\"pid\":%d,\"tid\":%d,\"name\":\"%s\",\"args\":{\"name\":", rank, row, what);
    weft_text label = {0};
    if (number >= 0) weft_text_add(&label, "%s %d", name, number);
    else weft_text_add(&label, "%s", name);
    add_string(out, label.data ? label.data : name);
    weft_text_free(&label);
    weft_text_add(out, "}}");
}

static int by_begin(const void *x, const void *y)
{
    const weft_event *a = x, *b = y;
    if (a->begin != b->begin) return a->begin < b->begin ? -1 : 1;
    return a->end < b->end ? 1 : a->end > b->end ? -1 : 0;
}

enum { ROWS = 64 };

typedef struct lane { const char *track; int number; double end; } lane;
typedef struct rows { lane row[ROWS]; int n; } rows;

/* The first row of the track that is free at `begin`; past the last row events share it. */
static int row_of(rows *r, const weft_event *e)
{
    int number = 0;
    for (int i = 0; i < r->n; i++) {
        if (strcmp(r->row[i].track, e->track)) continue;
        if (r->row[i].end <= e->begin) return i;
        number++;
    }
    if (r->n == ROWS) return ROWS - 1;
    r->row[r->n] = (lane){e->track, number, 0};
    return r->n++;
}

static void add_event(weft_text *out, int rank, int row, const weft_event *e, double origin)
{
    weft_text_add(out, ",\n{\"ph\":\"X\",\"pid\":%d,\"tid\":%d,\"ts\":%.4f,\"dur\":%.4f,\"cat\":", rank, row,
                  (e->begin - origin) * 1e6, (e->end - e->begin) * 1e6);
    add_string(out, e->track);
    weft_text_add(out, ",\"name\":");
    add_string(out, e->name);
    bool transfer = !strcmp(e->track, "transfer");
    weft_text_add(out, ",\"args\":{\"%s\":%lld,\"%s\":%lld}}", transfer ? "bytes" : "layer", (long long)e->arg[0],
                  transfer ? "from rank" : "step", (long long)e->arg[1]);
}

void weft_chrome_open(weft_text *out)
{
    weft_text_add(
        out, "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n{\"ph\":\"M\",\"pid\":0,\"name\":\"weft\",\"args\":{}}");
}

weft_status weft_chrome_rank(weft_text *out, int rank, const weft_trace *trace, double origin)
{
    int64_t n = weft_min_i64(trace->written, trace->capacity);
    weft_event *e = malloc((size_t)(n + 1) * sizeof *e);
    if (!e) return weft_fail(WEFT_ERR_MEMORY, "no memory for a trace of %lld events", (long long)n);
    if (n > 0) memcpy(e, trace->ring, (size_t)n * sizeof *e);
    qsort(e, (size_t)n, sizeof *e, by_begin);
    rows r = {.n = 0};
    add_name(out, "process_name", rank, 0, "rank", rank);
    for (int64_t i = 0; i < n; i++) {
        int at = row_of(&r, &e[i]);
        r.row[at].end = e[i].end;
        add_event(out, rank, at, &e[i], origin);
    }
    for (int i = 0; i < r.n; i++)
        add_name(out, "thread_name", rank, i, r.row[i].track, r.row[i].number > 0 ? r.row[i].number : -1);
    free(e);
    return out->failed ? weft_fail(WEFT_ERR_MEMORY, "no memory for the text of a trace") : WEFT_OK;
}

void weft_chrome_close(weft_text *out) { weft_text_add(out, "\n]}\n"); }
