/* draw_svg.c — the picture as a file of SVG that needs nothing else: one panel of all steps, one for each step, what is
 * sent in words, and a tooltip on every cell. It follows the reader's light or dark background; letters are text.
 *
 * Neighbouring cells of one fate are one rectangle, so that a block of the exchange is a block of the picture. */
#include "cli/draw.h"

#include <stdio.h>
#include <string.h>

enum { PAGE = 1120, EDGE = 24, LINE = 15, STRIP = 14, GAP = 26, PANEL = 240, MAIN = 560, ACROSS = 4, WORDS_MAX = 8 };

/* Rules that name a colour for each background. */
static const char style[] =
    "<style>\n"
    "text{font:12px ui-sans-serif,system-ui,sans-serif;fill:#1b1b1b}\n"
    ".h{font-size:15px;font-weight:600}.s{font-size:11px;fill:#555}.m{text-anchor:middle}.e{text-anchor:end}\n"
    ".t{font-size:10px;fill:#555}.c{font-size:11px;text-anchor:middle;pointer-events:none}.b{fill:#000}.w{fill:#fff}\n"
    ".bg{fill:#fff}.later{fill:#ececec}.far{fill:#d4d4d4}.other{fill:#f7f7f7}.else{fill:#fff}.many{fill:#8f8f8f}\n"
    ".line{stroke:#000;stroke-opacity:.13;stroke-width:.5;fill:none;pointer-events:none}\n"
    ".cut{stroke:#fff;stroke-width:1.4;fill:none;pointer-events:none}"
    ".frame{stroke:#777;stroke-width:1;fill:none}.doc{stroke:#777;stroke-width:1.5;fill:none}\n"
    "@media (prefers-color-scheme:dark){text{fill:#e8e8e8}.s,.t{fill:#aaa}.bg{fill:#161616}.later{fill:#262626}\n"
    ".far{fill:#3a3a3a}.other{fill:#1c1c1c}.else{fill:#161616}.line,.cut{stroke:#161616}.frame,.doc{stroke:#999}\n"
    ".b{fill:#000}.w{fill:#fff}}\n"
    "</style>\n";

typedef struct panel { /* a picture at a place */
    const weft_drawing *d;
    const weft_show *show;
    double x, y, cell; /* of its first cell; of a cell's side */
    int step;          /* -1: all */
} panel;

/* ---- cells --------------------------------------------------------------------------------------------------- */

typedef enum { HIDDEN, MASKED, MIXED, SHOWN } kind;

typedef struct fate {
    kind kind;
    int a, b, how;
} fate; /* what makes cells alike */

static fate fate_of(const weft_show_cell *c)
{
    if (c->visible == 0) return (fate){MASKED, (int)weft_draw_why(c), 0, 0};
    if (c->shown == 0) return (fate){HIDDEN, 0, 0, 0};
    weft_draw_blend blend = weft_draw_cell_blend(c);
    if (blend == WEFT_DRAW_MANY) return (fate){MIXED, 0, 0, 0};
    return (fate){SHOWN, c->set, c->step, blend == WEFT_DRAW_MOSTLY ? 2 : c->visible < c->all};
}

static bool alike(fate a, fate b) { return a.kind == b.kind && a.a == b.a && a.b == b.b && a.how == b.how; }

static fate fate_at(const weft_show *s, int i, int j) { return fate_of(&s->cell[(int64_t)i * s->k.n + j]); }

typedef struct box {
    int i, j, rows, columns;
} box;

/* The largest box of one fate, first to the right and then downwards. Diagonals stay single rows. */
static box grow(const weft_show *s, const bool *done, int i, int j)
{
    box b = {i, j, 1, 1};
    fate f = fate_at(s, i, j);
    while (j + b.columns < s->k.n && !done[(int64_t)i * s->k.n + j + b.columns] &&
           alike(f, fate_at(s, i, j + b.columns)))
        b.columns++;
    for (bool same = true; same && i + b.rows < s->q.n; b.rows += same)
        for (int x = 0; same && x < b.columns; x++)
            same = !done[(int64_t)(i + b.rows) * s->k.n + j + x] && alike(f, fate_at(s, i + b.rows, j + x));
    return b;
}

static void add_span(weft_text *t, bool keys, int64_t begin, int64_t end)
{
    if (end - begin == 1) weft_text_add(t, "%s %lld", keys ? "key" : "query", (long long)begin);
    else weft_text_add(t, "%s %lld-%lld", keys ? "keys" : "queries", (long long)begin, (long long)end - 1);
}

static void add_tip(const panel *p, weft_text *t, box b, fate f, int64_t visible)
{
    const weft_show *s = p->show;
    weft_text_add(t, "<title>");
    add_span(t, false, s->q.cut[b.i], s->q.cut[b.i + b.rows]);
    weft_text_add(t, " x ");
    add_span(t, true, s->k.cut[b.j], s->k.cut[b.j + b.columns]);
    switch (f.kind) {
    case MASKED: weft_text_add(t, ": masked, %s", weft_draw_reason_text((weft_draw_reason)f.a)); break;
    case HIDDEN: weft_text_add(t, ": computed elsewhere"); break;
    case MIXED: weft_text_add(t, ": several steps or ranks; %lld visible pairs", (long long)visible); break;
    case SHOWN:
        weft_text_add(t, ": ");
        weft_draw_set(s, f.a, t);
        weft_text_add(t, s->unit > 1 ? " at steps around %d, keys of " : " at step %d, keys of ", f.b * s->unit);
        weft_draw_set(s, s->k.owner[b.j], t);
        weft_text_add(t, "%s; %lld visible pairs", f.how == 2 ? " (most of it; others are mixed in)" : "",
                      (long long)visible);
    }
    weft_text_add(t, "</title>");
}

/* Lines of small cells side by side, as along a diagonal, have a letter here and there. */
static bool has_letter(const panel *p, box b)
{
    double w = b.columns * p->cell, h = b.rows * p->cell;
    bool line = b.rows == 1 || b.columns == 1;
    return p->step < 0 && w >= 8 && h >= 10 && (!line || p->cell >= 14 || b.j % 4 == 1);
}

static void add_letter(const panel *p, weft_text *t, box b, fate f)
{
    if (f.kind != SHOWN || !has_letter(p, b)) return;
    weft_text_add(t, "<text class=\"c %s\" x=\"%.1f\" y=\"%.1f\">%c%s</text>\n",
                  weft_draw_color(f.a)->light ? "b" : "w",
                  p->x + (b.j + b.columns / 2.0) * p->cell, p->y + (b.i + b.rows / 2.0) * p->cell + 4,
                  weft_draw_symbol(f.b), f.how == 2 && b.columns * p->cell >= 20 ? "+" : "");
}

static void add_box(const panel *p, weft_text *t, box b)
{
    static const char *const masked[WEFT_DRAW_REASONS] = {"later", "far", "other"};
    fate f = fate_at(p->show, b.i, b.j);
    int64_t visible = 0;
    for (int i = b.i; i < b.i + b.rows; i++)
        for (int j = b.j; j < b.j + b.columns; j++) visible += p->show->cell[(int64_t)i * p->show->k.n + j].shown;
    weft_text_add(t, "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" ", p->x + b.j * p->cell,
                  p->y + b.i * p->cell, b.columns * p->cell, b.rows * p->cell);
    if (f.kind == SHOWN)
        weft_text_add(t, "fill=\"%s\"%s>", weft_draw_color(f.a)->web,
                      f.how == 1 ? " fill-opacity=\".72\"" : "");
    else weft_text_add(t, "class=\"%s\">", f.kind == MASKED ? masked[f.a] : f.kind == MIXED ? "many" : "else");
    add_tip(p, t, b, f, visible);
    weft_text_add(t, "</rect>\n");
    add_letter(p, t, b, f);
}

static void add_cells(const panel *p, weft_text *t, bool *done)
{
    const weft_show *s = p->show;
    memset(done, 0, (size_t)s->q.n * (size_t)s->k.n * sizeof *done);
    for (int i = 0; i < s->q.n; i++)
        for (int j = 0; j < s->k.n; j++) {
            if (done[(int64_t)i * s->k.n + j]) continue;
            box b = grow(s, done, i, j);
            for (int x = 0; x < b.rows; x++) memset(done + (int64_t)(i + x) * s->k.n + j, 1, (size_t)b.columns);
            add_box(p, t, b);
        }
}

/* ---- axes ---------------------------------------------------------------------------------------------------- */

/* Owners in a strip beside the panel, each with its letter. */
static void add_strip(const panel *p, weft_text *t, const weft_show_axis *a, bool across)
{
    for (int i = 0, end; i < a->n; i = end) {
        for (end = i + 1; end < a->n && !weft_draw_bound(a, end);) end++;
        const weft_draw_shade *shade = weft_draw_color(a->owner[i]);
        double at = i * p->cell, len = (end - i) * p->cell, x = across ? p->x + at : p->x - STRIP - 2,
               y = across ? p->y - STRIP - 2 : p->y + at;
        weft_text_add(t, "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" fill=\"%s\"><title>", x, y,
                      across ? len : STRIP, across ? STRIP : len, shade->web);
        add_span(t, across, a->cut[i], a->cut[end]);
        weft_text_add(t, " of ");
        weft_draw_set(p->show, a->owner[i], t);
        weft_text_add(t, "</title></rect>\n");
        if (len >= 9)
            weft_text_add(t, "<text class=\"c %s\" x=\"%.1f\" y=\"%.1f\">%c</text>\n", shade->light ? "b" : "w",
                          across ? x + len / 2 : x + STRIP / 2.0, across ? y + STRIP - 3 : y + len / 2 + 4,
                          weft_draw_symbol(a->owner[i]));
    }
}

/* Token numbers where shares begin, as far apart as they can be read. */
static void add_numbers(const panel *p, weft_text *t, const weft_show_axis *a, bool across)
{
    double next = -1;
    for (int i = 0; i < a->n; i++) {
        double at = i * p->cell;
        char word[24];
        if (!weft_draw_bound(a, i) || at < next) continue;
        int n = snprintf(word, sizeof word, "%lld", (long long)a->cut[i]);
        if (across)
            weft_text_add(t, "<text class=\"s\" x=\"%.1f\" y=\"%.1f\">%s</text>\n", p->x + at, p->y - STRIP - 6, word);
        else
            weft_text_add(t, "<text class=\"s e\" x=\"%.1f\" y=\"%.1f\">%s</text>\n", p->x - STRIP - 6, p->y + at + 9,
                          word);
        next = at + (across ? 7.0 * n + 6 : 12);
    }
}

static void add_lines(const panel *p, weft_text *t)
{
    const weft_show *s = p->show;
    double w = s->k.n * p->cell, h = s->q.n * p->cell;
    if (p->cell >= 5) {
        weft_text_add(t, "<path class=\"line\" d=\"");
        for (int i = 1; i < s->q.n; i++) weft_text_add(t, "M%.1f %.1fh%.1f", p->x, p->y + i * p->cell, w);
        for (int j = 1; j < s->k.n; j++) weft_text_add(t, "M%.1f %.1fv%.1f", p->x + j * p->cell, p->y, h);
        weft_text_add(t, "\"/>\n");
    }
    weft_text_add(t, "<path class=\"cut\" d=\"M%.1f %.1f", p->x, p->y);
    for (int i = 1; i < s->q.n; i++)
        if (weft_draw_bound(&s->q, i)) weft_text_add(t, "M%.1f %.1fh%.1f", p->x, p->y + i * p->cell, w);
    for (int j = 1; j < s->k.n; j++)
        if (weft_draw_bound(&s->k, j)) weft_text_add(t, "M%.1f %.1fv%.1f", p->x + j * p->cell, p->y, h);
    weft_text_add(t, "\"/>\n");
    for (int j = 1; j < s->k.n; j++)
        if (weft_draw_document(p->d, s->k.cut[j]) > 0)
            weft_text_add(t, "<path class=\"doc\" d=\"M%.1f %.1fv%.1f\"/>\n", p->x + j * p->cell, p->y - 4, h + 4);
    for (int i = 1; i < s->q.n; i++)
        if (weft_draw_document(p->d, s->q.cut[i]) > 0)
            weft_text_add(t, "<path class=\"doc\" d=\"M%.1f %.1fh%.1f\"/>\n", p->x - 4, p->y + i * p->cell, w + 4);
    weft_text_add(t, "<rect class=\"frame\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\"/>\n", p->x, p->y, w,
                  h);
}

static void add_panel(const panel *p, weft_text *t, bool *done)
{
    add_cells(p, t, done);
    add_lines(p, t);
    add_strip(p, t, &p->show->k, true);
    add_strip(p, t, &p->show->q, false);
    if (p->step >= 0) return;
    add_numbers(p, t, &p->show->k, true);
    add_numbers(p, t, &p->show->q, false);
    weft_text_add(t, "<text x=\"%.1f\" y=\"%.1f\">keys, from token</text>\n", p->x, p->y - 2 * STRIP - 6);
    weft_text_add(t, "<text class=\"m\" transform=\"translate(%d %.1f) rotate(-90)\">queries, from token</text>\n",
                  EDGE - 6, p->y + p->show->q.n * p->cell / 2);
}

/* ---- words --------------------------------------------------------------------------------------------------- */

static double add_words(weft_text *t, double x, double y, const char *lines, const char *class)
{
    for (const char *s = lines; *s; s += s[strcspn(s, "\n")] == '\n' ? strcspn(s, "\n") + 1 : strcspn(s, "\n")) {
        weft_text_add(t, "<text%s x=\"%.1f\" y=\"%.1f\">%.*s</text>\n", class, x, y, (int)strcspn(s, "\n"), s);
        y += LINE + 2;
    }
    return y;
}

static double add_swatch(weft_text *t, double x, double y, const char *fill, const char *text)
{
    weft_text_add(t, "<rect x=\"%.1f\" y=\"%.1f\" width=\"13\" height=\"13\" %s/>", x, y - 11, fill);
    weft_text_add(t, "<text x=\"%.1f\" y=\"%.1f\">%s</text>\n", x + 20, y, text);
    return y + LINE + 4;
}

static int64_t pairs_of(const weft_show *s, int set)
{
    int64_t n = 0;
    for (int m = set * s->unit; m < (set + 1) * s->unit && m < s->R; m++) n += s->member[m].visible;
    return n;
}

/* Beside the main panel: whose colour is which, and what is not computed. */
static double add_legend(const weft_drawing *d, weft_text *t, double x, double y)
{
    static const char *const masked[WEFT_DRAW_REASONS] = {"later", "far", "other"};
    const weft_show *s = d->show;
    char fill[64], text[96];
    for (int i = 0; i < s->sets && i < WEFT_DRAW_COLORS; i++) {
        weft_text name = {0};
        weft_draw_set(s, i, &name);
        snprintf(fill, sizeof fill, "fill=\"%s\"", weft_draw_color(i)->web);
        snprintf(text, sizeof text, "%c  %s: %lld pairs", weft_draw_symbol(i), name.data ? name.data : "",
                 (long long)pairs_of(s, i));
        y = add_swatch(t, x, y, fill, text);
        weft_text_free(&name);
    }
    if (s->sets > WEFT_DRAW_COLORS) y = add_words(t, x, y, "and so on; colours come again", " class=\"s\"");
    for (int r = 0; r < WEFT_DRAW_REASONS; r++) {
        if (!weft_draw_masked(&s->sum, (weft_draw_reason)r)) continue;
        snprintf(fill, sizeof fill, "class=\"%s\" stroke=\"#999\" stroke-width=\".5\"", masked[r]);
        snprintf(text, sizeof text, "masked: %s, %lld pairs", weft_draw_reason_text((weft_draw_reason)r),
                 (long long)weft_draw_masked(&s->sum, (weft_draw_reason)r));
        y = add_swatch(t, x, y, fill, text);
    }
    if (s->U > 1) {
        snprintf(text, sizeof text, "heads %d-%d, those of rank %d; %d head ranks x %d", s->head[s->u].head0,
                 s->head[s->u].head0 + s->head[s->u].heads - 1, s->u, s->U, s->R);
        y = add_words(t, x, y + 4, text, "");
    }
    weft_text size = {0};
    weft_draw_cell_size(s, &size);
    y = add_words(t, x, y + 4, size.data ? size.data : "", " class=\"s\"");
    weft_text_free(&size);
    y = add_words(t, x, y,
                  "The letter is the step, the colour the rank that\ncomputes it: the owner of the row. Strips show\n"
                  "who owns the queries (left) and the keys (top).\nFaint: some pairs are masked; +: mixed; grey:\n"
                  "many steps or ranks in one cell.",
                  " class=\"s\"");
    weft_format(text, sizeof text, "The busiest rank has %.3f times the mean work.", weft_draw_imbalance(s));
    y = add_words(t, x, y + 6, text, "");
    weft_format(text, sizeof text, "With a wait at each step ranks would compute %.1f %%.", 100 * weft_draw_busy(s));
    return s->R > 1 ? add_words(t, x, y, text, "") : y;
}

static void add_travel(weft_text *t, const weft_show_travel *x)
{
    char bytes[16];
    if (x->count == 1) weft_text_add(t, "; sends %d to %d, ", x->owner, x->peer);
    else if (x->count) weft_text_add(t, "; sends %d to %d ranks, ", x->owner, x->count);
    if (x->count) weft_text_add(t, "%s", weft_short_bytes((double)x->bytes, bytes));
}

/* "32", "11.0 G" */
static const char *short_count(int64_t n, char buf[16])
{
    static const char *const suffix[] = {"", " k", " M", " G", " T", " P"};
    int i = 0;
    double x = (double)n;
    while (x >= 99999.5 || (i > 0 && x >= 999.5)) x /= 1000, i++;
    weft_format(buf, 16, i ? "%.1f%s" : "%.0f%s", x, suffix[i]);
    return buf;
}

/* "rank 1: keys of 0, 32 pairs; sends 0 to 2, 32K" for each rank. */
static void step_words(const weft_drawing *d, int step, weft_text *t)
{
    const weft_show *s = d->show;
    weft_text_add(t, "step %d: ", step);
    weft_draw_idle(s, step, t);
    for (int r = 0; r < s->R && s->R <= WORDS_MAX && s->works; r++) {
        const weft_show_work *w = &s->work[(int64_t)step * s->R + r];
        char pairs[16];
        weft_text_add(t, "\n%d: keys of %d, %s pairs", s->member[r].rank, s->member[w->owner].rank,
                      short_count(w->visible, pairs));
        add_travel(t, &w->kv[WEFT_SHOW_SENT]);
    }
}

/* ---- the page -------------------------------------------------------------------------------------------------- */

static double cell_side(const weft_show *s, double side) { return side / (s->k.n > s->q.n ? s->k.n : s->q.n); }

static double add_steps(const weft_drawing *d, const weft_show *step, int n, weft_text *t, bool *done, double y)
{
    int across = ACROSS, words = d->show->R <= WORDS_MAX ? d->show->R : 0;
    double height = PANEL + STRIP + (1 + words) * (LINE + 2.0) + GAP;
    for (int i = 0; i < n; i++) {
        weft_text text = {0};
        panel p = {d,
                   &step[i],
                   EDGE + STRIP + 4 + i % across * (PANEL + GAP + 4.0),
                   y + i / across * height + STRIP + 26,
                   cell_side(&step[i], PANEL),
                   i};
        step_words(d, i, &text);
        add_panel(&p, t, done);
        add_words(t, p.x - STRIP, p.y + step[i].q.n * p.cell + LINE + 2, text.data ? text.data : "", " class=\"t\"");
        weft_text_free(&text);
    }
    return y + (n + across - 1) / across * height + (n ? GAP : 0);
}

static void add_page(const weft_drawing *d, const weft_show *step, int n, weft_text *t, bool *done)
{
    weft_text body = {0};
    const weft_show *s = d->show;
    double y = add_words(&body, EDGE, EDGE + 12, "Who computes what, when", " class=\"h\"");
    y = add_words(&body, EDGE, y + 2, d->title, "") + 3 * STRIP + 6;
    panel main = {d, s, EDGE + 6 * STRIP, y, cell_side(s, MAIN), -1};
    if (main.cell > 22) main.cell = 22;
    add_panel(&main, &body, done);
    double right = add_legend(d, &body, main.x + s->k.n * main.cell + GAP, y + 10), bottom = y + s->q.n * main.cell;
    y = add_steps(d, step, n, &body, done, (bottom > right ? bottom : right) + 8);
    weft_text_add(t,
                  "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%.0f\" viewBox=\"0 0 %d %.0f\">\n%s"
                  "<rect class=\"bg\" width=\"100%%\" height=\"100%%\"/>\n%s</svg>\n",
                  PAGE, y + EDGE, PAGE, y + EDGE, style, body.data ? body.data : "");
    t->failed |= body.failed;
    weft_text_free(&body);
}

weft_status weft_draw_svg(const weft_drawing *d, const weft_show *step, int n, weft_arena *arena, const char *path)
{
    weft_text t = {0};
    bool *done;
    weft_writer w;
    WEFT_TRY(WEFT_NEW0(arena, (int64_t)d->ask->cells * d->ask->cells, "picture", &done));
    add_page(d, step, n, &t, done);
    weft_status st =
        t.failed ? weft_fail(WEFT_ERR_MEMORY, "%s: no memory for the picture", path) : weft_writer_open(&w, path);
    if (st == WEFT_OK) {
        st = weft_writer_put(&w, t.data, t.len);
        if (st == WEFT_OK) st = weft_writer_commit(&w);
        else weft_writer_abandon(&w);
    }
    weft_text_free(&t);
    return st;
}
