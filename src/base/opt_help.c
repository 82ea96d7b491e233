/* opt_help.c — what people see of the option table: --help, and the table of values at the start of a run. */
#include "base/opt_impl.h"
#include "base/format.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NAME_BUF = 200 };

/* The shortest decimal that reads back to the same double. */
static void real_text(double x, char *buf, size_t n)
{
    for (int digits = 6; digits <= 17; digits++) {
        weft_format(buf, n, "%.*g", digits, x);
        double back = 0;
        if (weft_parse_f64(buf, &back) == WEFT_OK && back == x) return;
    }
}

const char *weft__opt_value_text(const weft_opts *o, int i, char *buf, size_t n)
{
    const void *slot = weft__opt_slot(o, i);
    switch (o->table[i].type) {
    case WEFT_OPT_BOOL: return *(const bool *)slot ? "true" : "false";
    case WEFT_OPT_TEXT:
    case WEFT_OPT_ENUM: return *(const char *const *)slot;
    case WEFT_OPT_REAL: real_text(*(const double *)slot, buf, n); return buf;
    default: snprintf(buf, n, "%" PRId64, *(const int64_t *)slot); return buf;
    }
}

/* ---- help ----------------------------------------------------------------------------------------- */

static const char *placeholder(weft_opt_type type)
{
    static const char *const words[] = {
        [WEFT_OPT_BOOL] = "", [WEFT_OPT_INT] = " N",       [WEFT_OPT_SIZE] = " SIZE",
        [WEFT_OPT_REAL] = " X", [WEFT_OPT_TEXT] = " TEXT", [WEFT_OPT_ENUM] = " NAME",
    };
    return words[type];
}

/* "--context-parallel-size N, --cp", "--[no-]overlap", or "--set cp.keep-heads=NAME" for a row without a flag. */
static void names_text(const weft_opt *row, char buf[NAME_BUF])
{
    const char *word = placeholder(row->type);
    if (!row->flag) {
        snprintf(buf, NAME_BUF, "--set %s=%s", row->key, row->type == WEFT_OPT_BOOL ? "true|false" : word + 1);
        return;
    }
    int k = snprintf(buf, NAME_BUF, "--%s%s%s", row->type == WEFT_OPT_BOOL ? "[no-]" : "", row->flag, word);
    for (const char *a = row->alias; a && k > 0 && k < NAME_BUF; a = strchr(a, '|') ? strchr(a, '|') + 1 : NULL)
        k += snprintf(buf + k, (size_t)(NAME_BUF - k), ", --%.*s", (int)strcspn(a, "|"), a);
}

static void doc_text(const weft_opt *row, weft_text *doc)
{
    weft_text_add(doc, "%s", row->doc ? row->doc : "");
    if (row->type == WEFT_OPT_ENUM) {
        weft_text_add(doc, "%s", doc->len > 0 ? ": " : "");
        for (const char *c = row->choices; *c; c += strcspn(c, "|"), c += *c == '|')
            weft_text_add(doc, "%s%.*s", c == row->choices ? "" : " | ", (int)strcspn(c, "|"), c);
    }
    if (row->def && !(row->type == WEFT_OPT_BOOL && strcmp(row->def, "false") == 0))
        weft_text_add(doc, " [%s]", row->def);
}

typedef struct page { int left, width; } page; /* documentation stands from `left` to `width` */

static void add_row(weft_text *out, const char *names, const char *doc, page p)
{
    weft_text row = {0};
    const char *gap = (int)strlen(names) + 4 > p.left && *doc ? "\n" : "";
    weft_text_add(&row, "  %-*s%s%*s%s", p.left - 2, names, gap, *gap ? p.left : 0, "", doc);
    weft_text_fold(out, row.data ? row.data : "", p.left, p.width);
    weft_text_free(&row);
}

static size_t group_length(const char *key) { return strchr(key, '.') ? strcspn(key, ".") : 0; }

static bool same_group(const char *a, const char *b)
{
    size_t n = group_length(a);
    return n == group_length(b) && memcmp(a, b, n) == 0;
}

/* The first row of this command in i's group. */
static bool opens_group(const weft_opts *o, int i)
{
    for (int j = 0; j < i; j++)
        if (weft__opt_mine(o, j) && same_group(o->table[j].key, o->table[i].key)) return false;
    return true;
}

static void add_group(const weft_opts *o, int first, page p, weft_text *out)
{
    const char *key = o->table[first].key;
    if (group_length(key) > 0) weft_text_add(out, "%.*s\n", (int)group_length(key), key);
    else weft_text_add(out, "general\n");
    for (int j = first; j < o->n; j++) {
        if (!weft__opt_mine(o, j) || !same_group(o->table[j].key, key)) continue;
        char names[NAME_BUF];
        weft_text doc = {0};
        names_text(&o->table[j], names);
        doc_text(&o->table[j], &doc);
        add_row(out, names, doc.data ? doc.data : "", p);
        weft_text_free(&doc);
    }
}

/* Flags take at most two fifths of the page; longer ones stand on a line of their own. */
static page divide(const weft_opts *o, int width)
{
    page p = {24, width};
    for (int i = 0; i < o->n; i++) {
        char names[NAME_BUF];
        if (!weft__opt_mine(o, i)) continue;
        names_text(&o->table[i], names);
        int n = (int)strlen(names) + 4;
        if (n <= width * 2 / 5 && n > p.left) p.left = n;
    }
    return p;
}

void weft_opts_help(const weft_opts *o, int width, weft_text *out)
{
    const page p = divide(o, width);
    for (int i = 0; i < o->n; i++)
        if (weft__opt_mine(o, i) && opens_group(o, i)) {
            add_group(o, i, p, out);
            weft_text_add(out, "\n");
        }
    weft_text_add(out, "every command\n");
    add_row(out, "--set KEY=VALUE",
            "sets one option by its YAML key, such as parallel.cp_strategy=ring (weft info lists the keys); "
            "may be repeated", p);
}

/* ---- table ---------------------------------------------------------------------------------------- */

int weft_opts_table(const weft_opts *o, bool given, weft_text *out)
{
    int widest = 0, left_out = 0;
    for (int i = 0; i < o->n; i++) {
        if (!weft__opt_mine(o, i)) continue;
        if (given && !o->source[i]) left_out++;
        else if ((int)strlen(o->table[i].key) > widest) widest = (int)strlen(o->table[i].key);
    }
    for (int i = 0; i < o->n; i++) {
        char buf[64];
        if (!weft__opt_mine(o, i) || (given && !o->source[i])) continue;
        const char *value = weft__opt_value_text(o, i, buf, sizeof buf);
        weft_text_add(out, "%c %-*s  %s\n", o->source[i] ? '*' : ' ', widest, o->table[i].key, value ? value : "-");
    }
    return left_out;
}
