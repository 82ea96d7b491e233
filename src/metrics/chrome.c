/* chrome.c — events of base/trace as a Chrome trace, the JSON that Perfetto and chrome://tracing open.
 *
 * A process is a rank, a row (a thread there) is a kind of work. What is on one row must nest or follow: Perfetto draws
 * nothing sensible else. Messages do neither, so a kind of work takes as many rows as it needs.
 *
 * Times are whole nanoseconds from here on. Rounding keeps the order of two times, so what nested still does. */
#include "metrics/metrics.h"

#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct slice {
    const weft_event *e;
    int64_t begin, end;  /* nanoseconds */
    int row;             /* of its track */
    int64_t arrow;       /* of a message; 0: none */
} slice;

enum { DEPTH = 16 };

typedef struct row { /* what is open where the next slice begins, outermost first */
    int64_t end[DEPTH];
    int depth;
} row;

typedef struct rows { row *row; int n, room; } rows;

typedef struct sheet { /* one rank's */
    const weft_chrome_rank *of;
    slice *slice;
    int64_t n;
    rows rows[WEFT_TRACKS];
} sheet;

/* ---- text -------------------------------------------------------------------------------------------------- */

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

/* Microseconds with three decimals: what a reader takes for nanoseconds. */
static void add_time(weft_text *out, const char *key, int64_t ns)
{
    weft_text_add(out, ",\"%s\":%lld.%03lld", key, (long long)(ns / 1000), (long long)(ns % 1000));
}

static int row_id(int track, int r) { return (track + 1) * 10000 + r; }

/* The beginning of an entry of the list, which may be the first. */
static void add_phase(weft_text *out, const char *phase, const sheet *s)
{
    const bool first = out->len && out->data[out->len - 1] == '[';
    weft_text_add(out, "%s\n{\"ph\":\"%s\",\"pid\":%d", first ? "" : ",", phase, s->of->rank);
}

static void add_head(weft_text *out, const char *phase, const sheet *s, int id)
{
    add_phase(out, phase, s);
    weft_text_add(out, ",\"tid\":%d", id);
}

/* ---- rows -------------------------------------------------------------------------------------------------- */

static int64_t nanoseconds(double t, double origin)
{
    const double ns = round((t - origin) * 1e9);
    return ns > 0 ? ns < 9e18 ? (int64_t)ns : INT64_MAX : 0;
}

static int by_begin(const void *x, const void *y)
{
    const slice *a = x, *b = y;
    if (a->begin != b->begin) return a->begin < b->begin ? -1 : 1;
    if (a->end != b->end) return a->end > b->end ? -1 : 1;
    return a->e < b->e ? -1 : a->e > b->e; /* as they were recorded */
}

static bool takes(row *r, const slice *s, bool nests)
{
    while (r->depth > 0 && r->end[r->depth - 1] <= s->begin) r->depth--;
    if (r->depth > 0 && (!nests || r->depth == DEPTH || s->end > r->end[r->depth - 1])) return false;
    r->end[r->depth++] = s->end;
    return true;
}

/* The first row of its track that takes the slice. */
static bool place(rows *t, slice *s)
{
    const bool nests = !weft_track_moves(s->e->track);
    for (s->row = 0; s->row < t->n; s->row++)
        if (takes(&t->row[s->row], s, nests)) return true;
    if (t->n == t->room) {
        const int room = t->room ? 2 * t->room : 4;
        row *more = realloc(t->row, (size_t)room * sizeof *more);
        if (!more) return false;
        t->row = more;
        t->room = room;
    }
    t->row[t->n] = (row){.depth = 0};
    return takes(&t->row[t->n++], s, nests);
}

static weft_status fill(sheet *s, const weft_chrome_rank *of)
{
    const weft_trace *t = of->trace;
    *s = (sheet){.of = of, .n = weft_trace_held(t)};
    s->slice = malloc((size_t)(s->n + 1) * sizeof *s->slice);
    bool room = s->slice;
    for (int64_t i = 0; room && i < s->n; i++) {
        const weft_event *e = &t->ring[(t->written - s->n + i) % t->capacity];
        const int64_t begin = nanoseconds(e->begin, of->origin);
        s->slice[i] = (slice){.e = e, .begin = begin, .end = weft_max_i64(begin, nanoseconds(e->end, of->origin))};
    }
    if (room) qsort(s->slice, (size_t)s->n, sizeof *s->slice, by_begin);
    for (int64_t i = 0; room && i < s->n; i++) room = place(&s->rows[s->slice[i].e->track], &s->slice[i]);
    return room ? WEFT_OK : weft_fail(WEFT_ERR_MEMORY, "no memory for a trace of %lld events", (long long)s->n);
}

static void discard(sheet *s)
{
    free(s->slice);
    for (int t = 0; t < WEFT_TRACKS; t++) free(s->rows[t].row);
}

/* ---- arrows ------------------------------------------------------------------------------------------------ */

typedef struct end { /* of a message */
    int from, to;
    slice *s;
} end;

static int by_message(const void *x, const void *y)
{
    const end *a = x, *b = y;
    const weft_event *e = a->s->e, *f = b->s->e;
    if (a->from != b->from) return a->from < b->from ? -1 : 1;
    if (a->to != b->to) return a->to < b->to ? -1 : 1;
    if (e->group != f->group) return e->group < f->group ? -1 : 1;
    if (e->tag != f->tag) return e->tag < f->tag ? -1 : 1;
    if (e->track != f->track) return e->track < f->track ? -1 : 1;
    return -by_begin(a->s, b->s); /* the last first */
}

static bool same_stream(const end *a, const end *b)
{
    return a->from == b->from && a->to == b->to && a->s->e->group == b->s->e->group && a->s->e->tag == b->s->e->tag;
}

/* A slice's last moment that still is inside of it. */
static int64_t arrival(const slice *in) { return weft_max_i64(in->begin, in->end - 1); }

/* Messages of one pair, group and tag arrive in the order of posting, and a step leaves none under way: the k-th from
 * the end is the same at both ends, even where the ring has lost the first ones. */
static void join(end *in, int64_t n_in, end *out, int64_t n_out, int64_t *arrows)
{
    for (int64_t k = 0; k < n_in && k < n_out; k++) {
        slice *a = out[k].s, *b = in[k].s;
        if (a->e->bytes != b->e->bytes || a->begin > arrival(b)) continue;
        a->arrow = b->arrow = ++*arrows;
    }
}

static int64_t collect(sheet *s, const bool *here, int ranks, end *list)
{
    int64_t n = 0;
    for (int64_t i = 0; i < s->n; i++) {
        slice *x = &s->slice[i];
        const bool in = x->e->track == WEFT_TRACK_IN;
        if (!weft_track_moves(x->e->track) || x->e->peer < 0 || x->e->peer >= ranks || !here[x->e->peer]) continue;
        list[n++] = (end){in ? x->e->peer : s->of->rank, in ? s->of->rank : x->e->peer, x};
    }
    return n;
}

static void join_all(end *list, int64_t n, weft_chrome_told *told)
{
    int64_t arrows = 0;
    qsort(list, (size_t)n, sizeof *list, by_message);
    for (int64_t i = 0, in = 0, next = 0; i < n; i = next) {
        for (in = i; in < n && same_stream(&list[in], &list[i]) && list[in].s->e->track == WEFT_TRACK_IN;) in++;
        for (next = in; next < n && same_stream(&list[next], &list[i]);) next++;
        join(list + i, in - i, list + in, next - in, &arrows);
    }
    told->unpaired = n - 2 * arrows;
}

static weft_status draw_arrows(sheet *s, int n, weft_chrome_told *told)
{
    int64_t all = 0, used = 0;
    int ranks = 0;
    for (int i = 0; i < n; i++) {
        all += s[i].n;
        if (s[i].of->rank >= ranks) ranks = s[i].of->rank + 1;
    }
    end *list = malloc((size_t)(all + 1) * sizeof *list);
    bool *here = calloc((size_t)ranks + 1, sizeof *here);
    if (list && here) {
        for (int i = 0; i < n; i++) here[s[i].of->rank] = true;
        for (int i = 0; i < n; i++) used += collect(&s[i], here, ranks, list + used);
        join_all(list, used, told);
    }
    const bool room = list && here;
    free(list);
    free(here);
    return room ? WEFT_OK : weft_fail(WEFT_ERR_MEMORY, "no memory for a trace of %lld events", (long long)all);
}

/* ---- slices ------------------------------------------------------------------------------------------------ */

static const char *name_of(const sheet *s, uint8_t i) { return s->of->trace->names->text[i]; }

/* "cp from 3"; "dp_cp reduction to 1" */
static void add_name(weft_text *out, const sheet *s, const weft_event *e)
{
    char buf[2 * WEFT_TRACE_NAME + 32];
    weft_line l = {buf, sizeof buf, 0};
    weft_line_add(&l, "%s", name_of(s, e->name));
    if (e->kind) weft_line_add(&l, "%s%s", weft_track_moves(e->track) ? " " : ": ", name_of(s, e->kind));
    if (weft_track_moves(e->track)) weft_line_add(&l, e->track == WEFT_TRACK_IN ? " from %d" : " to %d", e->peer);
    weft_text_add(out, ",\"name\":");
    add_string(out, buf);
}

static void add_args(weft_text *out, const weft_event *e)
{
    const char *mark = "";
    weft_text_add(out, ",\"args\":{");
    if (weft_track_moves(e->track)) {
        weft_text_add(out, "\"bytes\":%lld,\"tag\":%d", (long long)e->bytes, e->tag);
        mark = ",";
    }
    if (e->layer >= 0) weft_text_add(out, "%s\"layer\":%d", mark, e->layer), mark = ",";
    if (e->step >= 0) weft_text_add(out, "%s\"step\":%d", mark, e->step), mark = ",";
    if (e->peer >= 0) weft_text_add(out, "%s\"rank\":%d", mark, e->peer);
    weft_text_add(out, "}}");
}

/* An arrow binds to the slice in which its end lies. */
static void add_arrow(weft_text *out, const sheet *s, const slice *x)
{
    const bool in = x->e->track == WEFT_TRACK_IN;
    add_head(out, in ? "f" : "s", s, row_id(x->e->track, x->row));
    add_time(out, "ts", in ? arrival(x) : x->begin);
    weft_text_add(out, "%s,\"id\":%lld,\"cat\":\"message\",\"name\":\"message\"}", in ? ",\"bp\":\"e\"" : "",
                  (long long)x->arrow);
}

static void add_slices(weft_text *out, const sheet *s)
{
    for (int64_t i = 0; i < s->n; i++) {
        const slice *x = &s->slice[i];
        add_head(out, "X", s, row_id(x->e->track, x->row));
        add_time(out, "ts", x->begin);
        add_time(out, "dur", x->end - x->begin);
        weft_text_add(out, ",\"cat\":\"%s\"", weft_track_name(x->e->track));
        add_name(out, s, x->e);
        add_args(out, x->e);
        if (x->arrow) add_arrow(out, s, x);
    }
}

/* ---- bytes under way --------------------------------------------------------------------------------------- */

typedef struct change { int64_t at, bytes[2]; } change;

static int by_time(const void *x, const void *y)
{
    const change *a = x, *b = y;
    return a->at < b->at ? -1 : a->at > b->at;
}

static weft_status add_counter(weft_text *out, const sheet *s)
{
    change *list = malloc((size_t)(2 * s->n + 1) * sizeof *list);
    int64_t n = 0, now[2] = {0, 0};
    if (!list) return weft_fail(WEFT_ERR_MEMORY, "no memory for a trace of %lld events", (long long)s->n);
    for (int64_t i = 0; i < s->n; i++) {
        const slice *x = &s->slice[i];
        if (!weft_track_moves(x->e->track)) continue;
        change c = {.at = x->begin};
        c.bytes[x->e->track == WEFT_TRACK_OUT] = x->e->bytes;
        list[n++] = c;
        list[n++] = (change){x->end, {-c.bytes[0], -c.bytes[1]}};
    }
    qsort(list, (size_t)n, sizeof *list, by_time);
    for (int64_t i = 0; i < n; i++) {
        now[0] += list[i].bytes[0], now[1] += list[i].bytes[1];
        if (i + 1 < n && list[i + 1].at == list[i].at) continue;
        add_phase(out, "C", s);
        weft_text_add(out, ",\"name\":\"bytes under way\"");
        add_time(out, "ts", list[i].at);
        weft_text_add(out, ",\"args\":{\"in\":%lld,\"out\":%lld}}", (long long)now[0], (long long)now[1]);
    }
    free(list);
    return WEFT_OK;
}

/* ---- the file ---------------------------------------------------------------------------------------------- */

static void add_order(weft_text *out, const sheet *s, int id, const char *what, int order)
{
    add_head(out, "M", s, id);
    weft_text_add(out, ",\"name\":\"%s_sort_index\",\"args\":{\"sort_index\":%d}}", what, order);
}

static void add_names(weft_text *out, const sheet *s)
{
    add_head(out, "M", s, row_id(0, 0));
    weft_text_add(out, ",\"name\":\"process_name\",\"args\":{\"name\":\"rank %d\"}}", s->of->rank);
    add_order(out, s, row_id(0, 0), "process", s->of->rank);
    for (int t = 0; t < WEFT_TRACKS; t++)
        for (int r = 0; r < s->rows[t].n; r++) {
            char number[16] = "";
            if (r > 0) weft_format(number, sizeof number, " %d", r + 1);
            add_head(out, "M", s, row_id(t, r));
            weft_text_add(out, ",\"name\":\"thread_name\",\"args\":{\"name\":\"%s%s\"}}",
                          weft_track_name((weft_track)t), number);
            add_order(out, s, row_id(t, r), "thread", row_id(t, r));
        }
}

static void add_lost(weft_text *out, const sheet *s)
{
    const int64_t lost = weft_trace_lost(s->of->trace);
    if (!lost) return;
    add_head(out, "i", s, row_id(s->slice[0].e->track, s->slice[0].row));
    add_time(out, "ts", s->slice[0].begin);
    weft_text_add(out, ",\"s\":\"p\",\"name\":\"%lld events before this did not fit\",\"args\":{\"lost\":%lld}}",
                  (long long)lost, (long long)lost);
}

static void open_file(weft_text *out, const char *note, const weft_chrome_told *told)
{
    weft_text_add(out,
                  "{\"displayTimeUnit\":\"ms\",\"otherData\":{\"events that did not fit\":%lld,"
                  "\"ends of messages without an arrow\":%lld",
                  (long long)told->lost, (long long)told->unpaired);
    if (note) {
        weft_text_add(out, ",\"note\":");
        add_string(out, note);
    }
    weft_text_add(out, "},\"traceEvents\":[");
}

static weft_status write_sheets(weft_text *out, const sheet *s, int n)
{
    for (int i = 0; i < n; i++) {
        add_names(out, &s[i]);
        add_lost(out, &s[i]);
        add_slices(out, &s[i]);
        WEFT_TRY(add_counter(out, &s[i]));
    }
    weft_text_add(out, "\n]}\n");
    return out->failed ? weft_fail(WEFT_ERR_MEMORY, "no memory for the text of a trace") : WEFT_OK;
}

weft_status weft_chrome_write(weft_text *out, const weft_chrome_rank *ranks, int n, const char *note,
                              weft_chrome_told *told)
{
    sheet *s = calloc((size_t)n + 1, sizeof *s);
    weft_status st = s ? WEFT_OK : weft_fail(WEFT_ERR_MEMORY, "no memory for the traces of %d ranks", n);
    *told = (weft_chrome_told){0};
    for (int i = 0; i < n && st == WEFT_OK; i++) {
        told->lost += weft_trace_lost(ranks[i].trace);
        st = fill(&s[i], &ranks[i]);
    }
    if (st == WEFT_OK) st = draw_arrows(s, n, told);
    if (st == WEFT_OK) {
        open_file(out, note, told);
        st = write_sheets(out, s, n);
    }
    for (int i = 0; s && i < n; i++) discard(&s[i]);
    free(s);
    return st;
}
