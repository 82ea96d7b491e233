/* draw_grid.c — the plane of queries and keys on a terminal: a cell is two columns, so that it is about square.
 *
 * A cell is the step at which it is computed; its colour is the rank that computes it, the owner of the row, which
 * stands at its head, so that nothing is lost without colours. */
#include "cli/draw.h"

#include <stdio.h>
#include <string.h>

static const char marks[WEFT_DRAW_REASONS] = {'.', '-', ':'};

/* ---- cells --------------------------------------------------------------------------------------------------- */

static void add_colored(const weft_drawing *d, weft_text *t, int set, const char *text)
{
    const weft_draw_shade *s = weft_draw_color(set);
    if (d->color) weft_text_add(t, "\x1b[48;5;%d;38;5;%dm%s\x1b[0m", s->terminal, s->light ? 16 : 231, text);
    else weft_text_add(t, "%s", text);
}

/* No step or rank stands for such a cell. */
static void add_many(const weft_drawing *d, weft_text *t) { weft_text_add(t, d->color ? "\x1b[7m+ \x1b[0m" : "+ "); }

static void add_cell(const weft_drawing *d, weft_text *t, const weft_show_cell *c)
{
    weft_draw_blend blend = weft_draw_cell_blend(c);
    if (c->visible == 0) weft_text_add(t, d->color ? "\x1b[2m%c \x1b[0m" : "%c ", marks[weft_draw_why(c)]);
    else if (c->shown == 0) weft_text_add(t, "  ");
    else if (blend == WEFT_DRAW_MANY) add_many(d, t);
    else {
        char second = blend == WEFT_DRAW_MOSTLY ? '+' : c->visible < c->all ? '.' : ' ';
        add_colored(d, t, c->set, (const char[]){weft_draw_symbol(c->step), second, 0});
    }
}

static void add_owner(const weft_drawing *d, weft_text *t, const weft_show_axis *a, int i)
{
    weft_draw_blend blend = weft_draw_owner_blend(a, i);
    const char text[3] = {weft_draw_symbol(a->owner[i]), blend == WEFT_DRAW_MOSTLY ? '+' : ' ', 0};
    if (blend == WEFT_DRAW_MANY) add_many(d, t);
    else add_colored(d, t, a->owner[i], text);
}

/* ---- axes ---------------------------------------------------------------------------------------------------- */

/* Where a share or a document begins. */
static bool is_bound(const weft_drawing *d, const weft_show_axis *a, int i)
{
    return weft_draw_bound(a, i) || weft_draw_document(d, a->cut[i]) >= 0;
}

typedef struct margin {
    int position, document;
} margin; /* columns left of a row */

static int digits_of(int64_t x) { return snprintf(NULL, 0, "%lld", (long long)x); }

static margin margin_for(int64_t tokens, int64_t documents)
{
    return (margin){(int)weft_max_i64(digits_of(tokens), (int)strlen("queries")),
                    documents ? 2 + digits_of(documents - 1) : 0};
}

static margin margin_of(const weft_drawing *d)
{
    return margin_for(d->show->q.cut[d->show->q.n], weft_draw_documents(d) ? d->docs->first[1] - 1 : 0);
}

static int left_of(margin m) { return m.position + m.document + (int)strlen("  0 |"); }

int weft_draw_cells_fit(int columns, int64_t tokens, int64_t documents)
{
    return (int)weft_max_i64(1, (columns - left_of(margin_for(tokens, documents))) / 2);
}

/* A line of words that begin at their cells; what would touch the one before is left out. */
static void add_ruler(const weft_drawing *d, weft_text *t, const weft_show_axis *a, bool documents)
{
    int column = 0, next = 0; /* of the line; from which a word may begin */
    for (int i = 0; i < a->n; i++) {
        char word[24];
        int64_t doc = weft_draw_document(d, a->cut[i]);
        if (documents ? doc < 0 : !is_bound(d, a, i)) continue;
        int n = documents ? snprintf(word, sizeof word, "d%lld", (long long)doc)
                          : snprintf(word, sizeof word, "%lld", (long long)a->cut[i]);
        if (2 * i < next || (i > 0 && 2 * i + n > 2 * a->n)) continue;
        weft_text_add(t, "%*s%s", 2 * i - column, "", word);
        column = 2 * i + n;
        next = documents ? column : column + 1; /* "d1d2" can be read */
    }
    weft_text_add(t, "\n");
}

static void end_line(const weft_drawing *d, weft_text *t)
{
    while (!d->color && t->len > 0 && t->data[t->len - 1] == ' ') t->data[--t->len] = 0;
    weft_text_add(t, "\n");
}

static void add_head(const weft_drawing *d, weft_text *t)
{
    const weft_show_axis *k = &d->show->k;
    int left = left_of(margin_of(d));
    weft_text_add(t, "%*skeys from token\n%-*s", left, "", left, "queries");
    add_ruler(d, t, k, false);
    if (weft_draw_documents(d)) {
        weft_text_add(t, "%*s", left, "");
        add_ruler(d, t, k, true);
    }
    weft_text_add(t, "%*s", left, "owner  ");
    for (int j = 0; j < k->n; j++) add_owner(d, t, k, j);
    end_line(d, t);
    weft_text_add(t, "%*s+", left - 1, "");
    for (int j = 0; j < k->n; j++) weft_text_add(t, "--");
    weft_text_add(t, "\n");
}

static void add_row(const weft_drawing *d, weft_text *t, int i)
{
    const weft_show_axis *q = &d->show->q;
    margin m = margin_of(d);
    int64_t doc = weft_draw_document(d, q->cut[i]);
    char word[24] = "";
    if (is_bound(d, q, i)) weft_text_add(t, "%*lld", m.position, (long long)q->cut[i]);
    else weft_text_add(t, "%*s", m.position, "");
    if (doc >= 0) snprintf(word, sizeof word, "d%lld", (long long)doc);
    if (m.document) weft_text_add(t, " %-*s", m.document - 1, word);
    weft_text_add(t, "  ");
    add_owner(d, t, q, i);
    weft_text_add(t, "|");
    for (int j = 0; j < d->show->k.n; j++) add_cell(d, t, &d->show->cell[(int64_t)i * d->show->k.n + j]);
    end_line(d, t);
}

/* ---- legend -------------------------------------------------------------------------------------------------- */

static void add_ranks(const weft_drawing *d, weft_text *t)
{
    const weft_show *s = d->show;
    int columns = weft_columns(stdout), column = 0;
    for (int i = 0; i < s->sets && s->sets <= WEFT_DRAW_COLORS; i++) {
        weft_text name = {0};
        weft_draw_set(s, i, &name);
        if (column + (int)name.len + 5 > columns) {
            end_line(d, t);
            column = 0;
        }
        add_colored(d, t, i, (const char[]){weft_draw_symbol(i), ' ', 0});
        weft_text_add(t, " %s  ", name.data ? name.data : "");
        column += (int)name.len + 5;
        weft_text_free(&name);
    }
    if (s->sets > WEFT_DRAW_COLORS)
        weft_text_add(t, "0-9, a-z, A-Z are ranks%s and steps, in this order.",
                      s->U > 1 ? " of the context group" : "");
    end_line(d, t);
    if (s->unit > 1)
        weft_text_add(t, "Each letter is %d neighbouring ranks, or the steps around %d times its number.\n", s->unit,
                      s->unit);
}

static bool any_cell(const weft_show *s, bool (*is)(const weft_show_cell *))
{
    for (int64_t i = 0; i < (int64_t)s->q.n * s->k.n; i++)
        if (is(&s->cell[i])) return true;
    return false;
}

static bool is_shown(const weft_show_cell *c, weft_draw_blend blend)
{
    return c->shown > 0 && weft_draw_cell_blend(c) == blend;
}
static bool is_many(const weft_show_cell *c) { return is_shown(c, WEFT_DRAW_MANY); }
static bool is_mixed(const weft_show_cell *c) { return is_shown(c, WEFT_DRAW_MOSTLY); }
static bool is_partly(const weft_show_cell *c) { return is_shown(c, WEFT_DRAW_PURE) && c->visible < c->all; }
static bool is_hidden(const weft_show_cell *c) { return c->visible > 0 && c->shown == 0; }

static void add_marks(const weft_drawing *d, weft_text *t)
{
    const weft_show *s = d->show;
    weft_text_add(t, "Each cell is the step at which the owner of its row computes it, with the keys\n"
                     "and values of the owner of its column.\n");
    weft_draw_cell_size(s, t);
    if (s->R > 1)
        weft_text_add(t, d->ask->options.overlap
                             ? "What is sent at a step travels while the step is computed.\n"
                             : "What is sent at a step is waited for before the step is computed.\n");
    for (int r = 0; r < WEFT_DRAW_REASONS; r++)
        if (weft_draw_masked(&s->sum, (weft_draw_reason)r) > 0)
            weft_text_add(t, "%c   masked: %s, %lld pairs\n", marks[r], weft_draw_reason_text((weft_draw_reason)r),
                          (long long)weft_draw_masked(&s->sum, (weft_draw_reason)r));
    if (any_cell(s, is_partly)) weft_text_add(t, "2.  some of its pairs are masked\n");
    if (any_cell(s, is_mixed)) weft_text_add(t, "2+  most of its pairs are step 2, others are mixed in\n");
    if (any_cell(s, is_many)) weft_text_add(t, "+   several steps or ranks, none with most of the pairs\n");
    if (any_cell(s, is_hidden))
        weft_text_add(t, "blank: computed %s%s%s\n", d->ask->only_step >= 0 ? "at other steps" : "",
                      d->ask->only_step >= 0 && d->ask->only_rank >= 0 ? " or " : "",
                      d->ask->only_rank >= 0 ? "by other ranks" : "");
}

static void add_sums(const weft_drawing *d, weft_text *t)
{
    const weft_show_cell *c = &d->show->sum;
    weft_text_add(t, "%lld pairs, %lld of them visible (%.1f %%)\n", (long long)c->all, (long long)c->visible,
                  c->all ? 100.0 * (double)c->visible / (double)c->all : 0);
}

void weft_draw_grid(const weft_drawing *d)
{
    weft_text t = {0}, legend = {0};
    add_head(d, &t);
    for (int i = 0; i < d->show->q.n; i++) add_row(d, &t, i);
    weft_text_add(&t, "\n");
    add_ranks(d, &t);
    fputs(t.data ? t.data : "", stdout); /* colours take no columns, so these lines are not folded */
    add_marks(d, &legend);
    add_sums(d, &legend);
    weft_print_lines(legend.data ? legend.data : "", 4);
    weft_text_free(&t);
    weft_text_free(&legend);
}
