/* table.c — a table in four forms. */
#include "cli/table.h"

#include "cli/cli.h"

#include <math.h>
#include <string.h>

weft_table weft_table_of(const char *format, const weft_column *columns, int n)
{
    static const struct { const char *name; unsigned form; } forms[] = {
        {"md", WEFT_IN_MD}, {"csv", WEFT_IN_CSV}, {"jsonl", WEFT_IN_JSONL}};
    weft_table t = {columns, n, WEFT_IN_TEXT, 0};
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++)
        if (!strcmp(format, forms[i].name)) t.form = forms[i].form;
    return t;
}

bool weft_table_is_text(const weft_table *t) { return t->form == WEFT_IN_TEXT; }

/* ---- for people -------------------------------------------------------------------------------------------- */

static bool is_text(const weft_column *c) { return c->kind == WEFT_CELL_TEXT || c->kind == WEFT_CELL_CODE; }

static const char *unit(const weft_column *c) { return c->unit ? c->unit : ""; }

/* A bar would end the cell of md. */
static void add_escaped(weft_text *t, const char *s)
{
    for (; *s; s++) weft_text_add(t, *s == '|' ? "\\%c" : "%c", *s);
}

static void add_number(weft_text *t, const weft_column *c, weft_cell x, bool *none)
{
    const double real = x.real * (c->scale != 0 ? c->scale : 1);
    *none = c->kind == WEFT_CELL_REAL ? isnan(real) || (c->or_none && real == 0) : c->or_none && x.count == 0;
    if (*none) weft_text_add(t, "-");
    else if (c->kind == WEFT_CELL_REAL) weft_text_add(t, "%.*f", c->decimals, real);
    else weft_text_add(t, "%lld", (long long)x.count);
}

static void add_padded(weft_text *t, const weft_column *c, const char *s, const char *behind)
{
    weft_text_add(t, "%*s%s", c->width, s, behind);
}

/* Spaces stand for the unit where there is no number, and in the head. */
static void add_space(weft_text *t, const weft_column *c) { weft_text_add(t, "%*s", (int)strlen(unit(c)), ""); }

static void add_text_cell(weft_text *t, const weft_column *c, weft_cell x)
{
    weft_text cell = {0};
    bool none = false;
    if (is_text(c)) weft_text_add(&cell, "%s", x.text);
    else add_number(&cell, c, x, &none);
    add_padded(t, c, cell.data ? cell.data : "", none ? "" : unit(c));
    if (none) add_space(t, c);
    weft_text_free(&cell);
}

static void add_md_cell(weft_text *t, const weft_column *c, weft_cell x)
{
    const char *quote = c->kind == WEFT_CELL_CODE ? "`" : "";
    bool none;
    weft_text_add(t, "| %s", quote);
    if (is_text(c)) add_escaped(t, x.text);
    else add_number(t, c, x, &none);
    weft_text_add(t, "%s ", quote);
}

/* ---- for programs ------------------------------------------------------------------------------------------ */

static void add_real(weft_text *t, const weft_column *c, double x)
{
    char number[40];
    weft_text_add(t, "%s", weft_format_json(number, sizeof number, x, c->digits));
}

/* Quoted where a reader would take it for more than one cell. */
static void add_csv_cell(weft_text *t, const weft_column *c, weft_cell x)
{
    if (c->kind == WEFT_CELL_COUNT) weft_text_add(t, "%lld", (long long)x.count);
    else if (c->kind == WEFT_CELL_REAL && isfinite(x.real)) add_real(t, c, x.real);
    else if (is_text(c) && !strpbrk(x.text, ",\"\n\r")) weft_text_add(t, "%s", x.text);
    else if (is_text(c)) {
        weft_text_add(t, "\"");
        for (const char *s = x.text; *s; s++) weft_text_add(t, *s == '"' ? "\"%c" : "%c", *s);
        weft_text_add(t, "\"");
    }
}

static void add_jsonl_cell(weft_text *t, const weft_column *c, weft_cell x)
{
    weft_text_add(t, "\"%s\": ", c->key);
    if (c->kind == WEFT_CELL_COUNT) weft_text_add(t, "%lld", (long long)x.count);
    else if (c->kind == WEFT_CELL_REAL) add_real(t, c, x.real);
    else weft_add_json_text(t, x.text);
}

/* ---- lines ------------------------------------------------------------------------------------------------- */

static void print(const weft_table *t, weft_text *line)
{
    while (line->len && line->data[line->len - 1] == ' ') line->data[--line->len] = '\0';
    weft_text_add(line, "\n");
    if (weft_table_is_text(t)) weft_print_lines(line->data ? line->data : "", WEFT_FOLD_UNDER);
    else fputs(line->data ? line->data : "", stdout);
    fflush(stdout);
    weft_text_free(line);
}

void weft_table_head(const weft_table *t)
{
    weft_text line = {0};
    const char *between = "";
    if (t->form == WEFT_IN_JSONL) return;
    if (weft_table_is_text(t)) weft_text_add(&line, "%*s", t->left, "");
    for (int i = 0; i < t->n; i++) {
        const weft_column *c = &t->column[i];
        if (!(c->in & t->form)) continue;
        if (t->form == WEFT_IN_MD) weft_text_add(&line, "| %s%s ", c->head, unit(c));
        else if (t->form == WEFT_IN_CSV) weft_text_add(&line, "%s%s", between, c->key);
        else weft_text_add(&line, "%s", between), add_padded(&line, c, c->head, ""), add_space(&line, c);
        between = t->form == WEFT_IN_CSV ? "," : " ";
    }
    if (t->form == WEFT_IN_MD) {
        weft_text_add(&line, "|\n");
        for (int i = 0; i < t->n; i++)
            if (t->column[i].in & t->form) weft_text_add(&line, "|---");
        weft_text_add(&line, "|");
    }
    print(t, &line);
}

void weft_table_row(const weft_table *t, const weft_cell *cells)
{
    weft_text line = {0};
    const char *between = t->form == WEFT_IN_JSONL ? "{" : "";
    if (weft_table_is_text(t)) weft_text_add(&line, "%*s", t->left, "");
    for (int i = 0; i < t->n; i++) {
        const weft_column *c = &t->column[i];
        if (!(c->in & t->form)) continue;
        if (t->form == WEFT_IN_MD) add_md_cell(&line, c, cells[i]);
        else {
            weft_text_add(&line, "%s", between);
            (t->form == WEFT_IN_CSV ? add_csv_cell : t->form == WEFT_IN_JSONL ? add_jsonl_cell : add_text_cell)(
                &line, c, cells[i]);
        }
        between = t->form == WEFT_IN_CSV ? "," : t->form == WEFT_IN_JSONL ? ", " : " ";
    }
    if (t->form == WEFT_IN_MD) weft_text_add(&line, "|");
    if (t->form == WEFT_IN_JSONL) weft_text_add(&line, "}");
    print(t, &line);
}
