/* opt_yaml.c — options from a YAML file, and back into YAML.
 *
 * The file is read as a stream of events and never becomes a document: nothing is resolved or expanded, so
 * no input can grow, and every complaint has the line and column of its own token. What an option file
 * does not need is refused by name: lists, aliases, tags, several documents, keys that are not plain
 * words, keys given twice. libfyaml's own complaints are collected and never printed.
 *
 * Before libfyaml sees the text, what version 0.7.12 gets wrong is refused: a directive (a line that
 * starts with %) can make its scanner loop for ever, and malformed UTF-8 in an unquoted value makes the
 * value empty without a word. */
#include "base/opt_impl.h"

#include <errno.h>
#include <libfyaml.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum {
    FILE_LIMIT = 1 << 20, /* bytes; a config is a few thousand, anything larger is the wrong file */
    DEPTH_LIMIT = 8,
    PATH_LIMIT = 256
};

typedef struct reader {
    weft_opts *o;
    const char *file;
    struct fy_parser *parser;
    char where[PATH_LIMIT + 64]; /* " (file:line:column)" of the event at hand */
    char path[PATH_LIMIT];       /* dotted key of the section or value at hand */
    weft_text seen;              /* "\npath\n" of all that was given so far */
} reader;

/* ---- the file ------------------------------------------------------------------------------------- */

/* Unicode text without control characters and without directives; see the top of this file. */
static weft_status check_text(const char *path, const char *text, size_t n)
{
    int line = 1;
    bool fresh = true; /* at the start of a line */
    for (const char *s = text; s < text + n;) {
        if (!*s) return weft_fail(WEFT_ERR_REFUSED, "%s:%d: holds zero bytes, which is no YAML text", path, line);
        uint32_t code = 0;
        int len = weft__utf8(s, &code);
        bool blank = code == '\n' || code == '\r' || code == '\t';
        if (len == 0) return weft_fail(WEFT_ERR_REFUSED, "%s:%d: not UTF-8 text, so no YAML file", path, line);
        if ((code < 0x20 && !blank) || code == 0x7f)
            return weft_fail(WEFT_ERR_REFUSED, "%s:%d: holds control characters, so it is no YAML file", path, line);
        if (fresh && code == '%')
            return weft_fail(WEFT_ERR_REFUSED, "%s:%d: a line cannot start with %%: directives are not taken", path,
                             line);
        fresh = code == '\n' || code == '\r';
        line += code == '\n';
        s += len;
    }
    return WEFT_OK;
}

static weft_status read_file(const char *path, char **out, size_t *len)
{
    weft_status st = WEFT_OK;
    struct stat s;
    /* A pipe could be read once only, and every rank reads the file; without a writer it would never end. */
    if (stat(path, &s) == 0 && !S_ISREG(s.st_mode))
        return weft_fail(WEFT_ERR_REFUSED, "%s: is no plain file, and a configuration must be one", path);
    FILE *f = fopen(path, "rb");
    if (!f) return weft_fail(WEFT_ERR_REFUSED, "%s: cannot be opened: %s", path, strerror(errno));
    char *text = malloc(FILE_LIMIT + 1);
    if (!text) {
        fclose(f);
        return weft_fail(WEFT_ERR_MEMORY, "%s: no memory to read it", path);
    }
    size_t n = fread(text, 1, FILE_LIMIT + 1, f);
    text[n <= FILE_LIMIT ? n : 0] = '\0';
    if (ferror(f)) st = weft_fail(WEFT_ERR_REFUSED, "%s: cannot be read: %s", path, strerror(errno));
    else if (n > FILE_LIMIT)
        st = weft_fail(WEFT_ERR_REFUSED, "%s: larger than 1 MiB, which is no configuration file", path);
    else st = check_text(path, text, n);
    fclose(f);
    if (st < 0) {
        free(text);
        return st;
    }
    *out = text;
    *len = n;
    return WEFT_OK;
}

/* ---- events --------------------------------------------------------------------------------------- */

/* The next event, never NULL on success; its place is in r->where. */
static weft_status next_event(reader *r, struct fy_event **out)
{
    struct fy_event *e = fy_parser_parse(r->parser);
    if (!e) {
        struct fy_diag *diag = fy_parser_get_diag(r->parser);
        void *iter = NULL;
        struct fy_diag_error *err = fy_diag_errors_iterate(diag, &iter);
        char quoted[WEFT__OPT_QUOTE];
        weft_status st = err ? weft_fail(WEFT_ERR_REFUSED, "%s:%d:%d: not valid YAML: %s", r->file, err->line,
                                         err->column, weft__opt_printable(err->msg ? err->msg : "", quoted))
                             : weft_fail(WEFT_ERR_REFUSED, "%s: not valid YAML", r->file);
        fy_diag_unref(diag);
        return st;
    }
    const struct fy_mark *mark = fy_event_start_mark(e);
    if (mark) snprintf(r->where, sizeof r->where, " (%s:%d:%d)", r->file, mark->line + 1, mark->column + 1);
    if (fy_event_get_tag_token(e)) {
        fy_parser_event_free(r->parser, e);
        return weft_fail(WEFT_ERR_REFUSED, "a type tag (!) cannot be given%s; write the value alone", r->where);
    }
    *out = e;
    return WEFT_OK;
}

/* The text of a scalar event, allocated; the event stays the caller's. */
static weft_status scalar_text(struct fy_event *e, char **out)
{
    size_t len = 0;
    const char *s = e->scalar.value ? fy_token_get_text(e->scalar.value, &len) : NULL;
    char *copy = malloc(len + 1);
    if (!copy) return weft_fail(WEFT_ERR_MEMORY, "no memory for a configuration value");
    if (len > 0) memcpy(copy, s, len);
    copy[len] = '\0';
    if (strlen(copy) != len) { /* "\0" in double quotes */
        free(copy);
        return weft_fail(WEFT_ERR_REFUSED, "a value holds a zero character");
    }
    *out = copy;
    return WEFT_OK;
}

static bool is_plain(struct fy_event *e)
{
    return !e->scalar.value || fy_token_scalar_style(e->scalar.value) == FYSS_PLAIN;
}

static bool is_null(struct fy_event *e, const char *text)
{
    static const char *const words[] = {"", "~", "null", "Null", "NULL"};
    for (size_t i = 0; is_plain(e) && i < sizeof words / sizeof *words; i++)
        if (strcmp(text, words[i]) == 0) return true;
    return false;
}

/* ---- keys and values ------------------------------------------------------------------------------ */

static bool is_section(const weft_opts *o, const char *path)
{
    size_t n = strlen(path);
    for (int i = 0; i < o->n; i++)
        if (weft__opt_mine(o, i) && strncmp(o->table[i].key, path, n) == 0 && o->table[i].key[n] == '.') return true;
    return false;
}

/* Appends ".key" to the path and refuses what was there before. */
static weft_status enter(reader *r, const char *key)
{
    char quoted[WEFT__OPT_QUOTE];
    size_t at = strlen(r->path);
    if (*key == '\0') return weft_fail(WEFT_ERR_REFUSED, "an empty key%s", r->where);
    int n = snprintf(r->path + at, sizeof r->path - at, "%s%s", at > 0 ? "." : "", key);
    if (n < 0 || (size_t)n >= sizeof r->path - at || strchr(key, '\n'))
        return weft_fail(WEFT_ERR_REFUSED, "unknown key '%s'%s; --help lists all", weft__opt_printable(key, quoted),
                         r->where);
    char needle[PATH_LIMIT + 2];
    snprintf(needle, sizeof needle, "\n%s\n", r->path);
    if (r->seen.data && strstr(r->seen.data, needle))
        return weft_fail(WEFT_ERR_REFUSED, "key '%s' is given twice%s", weft__opt_printable(r->path, quoted), r->where);
    weft_text_add(&r->seen, "%s", needle);
    return r->seen.failed ? weft_fail(WEFT_ERR_MEMORY, "no memory for the keys of %s", r->file) : WEFT_OK;
}

static weft_status take_value(reader *r, struct fy_event *e, const char *key_where)
{
    char *text = NULL;
    WEFT_TRY(scalar_text(e, &text));
    weft_status st = WEFT_OK;
    int i = weft__opt_by_key(r->o, r->path);
    if (i < 0 && is_section(r->o, r->path)) {
        /* "cp:" with all its keys commented out */
        if (!is_null(e, text))
            st = weft_fail(WEFT_ERR_REFUSED, "'%s' is a group of keys and takes no value%s", r->path, r->where);
    } else if (i < 0) {
        st = weft__opt_unknown(r->o, r->path, false, key_where);
    } else if (is_null(e, text)) {
        st = weft_fail(WEFT_ERR_REFUSED,
                       "%s has no value%s; leave the key out for the default, write \"%s\" for the text", r->path,
                       key_where, text);
    } else {
        st = weft__opt_store(r->o, i, r->path, text, 1, r->where);
    }
    free(text);
    return st;
}

static weft_status refuse_kind(const reader *r, enum fy_event_type type, const char *what)
{
    const char *kind = type == FYET_SEQUENCE_START ? "a list" : type == FYET_ALIAS ? "an alias (*)" : "a mapping";
    return weft_fail(WEFT_ERR_REFUSED, "%s cannot be %s%s", what, kind, r->where);
}

/* One key of a mapping. *end: the mapping is over. */
static weft_status take_key(reader *r, bool *end, char key_where[sizeof r->where])
{
    struct fy_event *e = NULL;
    WEFT_TRY(next_event(r, &e));
    char *key = NULL;
    weft_status st = WEFT_OK;
    *end = e->type == FYET_MAPPING_END;
    if (!*end) {
        if (e->type != FYET_SCALAR) st = refuse_kind(r, e->type, "a key");
        else st = scalar_text(e, &key);
        if (st == WEFT_OK) st = enter(r, key);
        snprintf(key_where, sizeof r->where, "%s", r->where);
    }
    free(key);
    fy_parser_event_free(r->parser, e);
    return st;
}

/* The entries of a mapping whose start was read. An unknown group is reported at its first key, where a
 * suggestion can be made; an empty one here. Recursion is bounded by DEPTH_LIMIT. */
static weft_status take_mapping(reader *r, int depth)
{
    char start[sizeof r->where], key_where[sizeof r->where];
    size_t at = strlen(r->path);
    snprintf(start, sizeof start, "%s", r->where);
    if (depth > DEPTH_LIMIT) return weft_fail(WEFT_ERR_REFUSED, "keys are nested too deeply%s", r->where);
    for (int entries = 0;; entries++) {
        bool end = false;
        r->path[at] = '\0';
        WEFT_TRY(take_key(r, &end, key_where));
        if (end && entries == 0 && at > 0 && !is_section(r->o, r->path))
            return weft__opt_unknown(r->o, r->path, false, start);
        if (end) return WEFT_OK;
        struct fy_event *e = NULL;
        WEFT_TRY(next_event(r, &e));
        enum fy_event_type type = e->type;
        weft_status st = WEFT_OK;
        if (type == FYET_SCALAR) st = take_value(r, e, key_where);
        fy_parser_event_free(r->parser, e);
        WEFT_TRY(st);
        if (type == FYET_MAPPING_START) {
            if (weft__opt_by_key(r->o, r->path) >= 0) return refuse_kind(r, type, r->path);
            WEFT_TRY(take_mapping(r, depth + 1));
        } else if (type != FYET_SCALAR) {
            return refuse_kind(r, type, r->path);
        }
    }
}

/* Stream start, one document with one mapping, stream end. */
static weft_status take_stream(reader *r)
{
    int documents = 0;
    for (bool over = false; !over;) {
        struct fy_event *e = NULL;
        WEFT_TRY(next_event(r, &e));
        enum fy_event_type type = e->type;
        fy_parser_event_free(r->parser, e);
        over = type == FYET_STREAM_END;
        if (type == FYET_DOCUMENT_START && ++documents > 1)
            return weft_fail(WEFT_ERR_REFUSED, "a second document (---) cannot follow%s", r->where);
        if (type == FYET_MAPPING_START) WEFT_TRY(take_mapping(r, 1));
        if (type == FYET_SCALAR || type == FYET_SEQUENCE_START || type == FYET_ALIAS)
            return weft_fail(WEFT_ERR_REFUSED, "%s: the file must hold lines of the form key: value", r->file);
    }
    if (documents == 0) return weft_fail(WEFT_ERR_REFUSED, "%s: the file is empty: it sets no option", r->file);
    return WEFT_OK;
}

static weft_status read_text(weft_opts *o, const char *path, const char *text, size_t len)
{
    reader r = {.o = o, .file = path};
    weft_status st = WEFT_ERR_MEMORY;
    struct fy_diag_cfg quiet;
    fy_diag_cfg_default(&quiet);
    quiet.fp = NULL;
    struct fy_diag *diag = fy_diag_create(&quiet);
    if (!diag) return weft_fail(st, "%s: no memory to read it", path);
    fy_diag_set_collect_errors(diag, true);
    struct fy_parse_cfg cfg = {.flags = FYPCF_QUIET | FYPCF_COLLECT_DIAG | FYPCF_JSON_NONE, .diag = diag};
    r.parser = fy_parser_create(&cfg);
    if (r.parser && fy_parser_set_string(r.parser, text, len) == 0) st = take_stream(&r);
    else st = weft_fail(st, "%s: no memory to read it", path);
    if (r.parser) fy_parser_destroy(r.parser);
    fy_diag_destroy(diag);
    weft_text_free(&r.seen);
    return st;
}

weft_status weft_opts_yaml(weft_opts *o, const char *path)
{
    char *text = NULL;
    size_t len = 0;
    WEFT_TRY(read_file(path, &text, &len));
    weft_status st = read_text(o, path, text, len);
    free(text);
    return st;
}

/* ---- writing -------------------------------------------------------------------------------------- */

/* Needs no quotes: every reader of YAML takes it as this text, and ours never as "no value". */
static bool is_plain_word(const char *s)
{
    static const char safe[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./+-";
    static const char *const words[] = {"true", "false", "null", "Null", "NULL", "yes", "no", "on", "off"};
    if (*s == '\0' || *s == '-' || *s == '+' || s[strspn(s, safe)] != '\0') return false;
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (strcmp(s, words[i]) == 0) return false;
    return strncmp(s, "...", 3) != 0;
}

static void add_quoted(weft_text *out, const char *s)
{
    weft_text_add(out, "\"");
    while (*s) {
        uint32_t c = 0;
        int len = weft__utf8(s, &c);
        if (c == '"' || c == '\\') weft_text_add(out, "\\%c", (int)c);
        else if (c == '\n') weft_text_add(out, "\\n");
        else if (c == '\t') weft_text_add(out, "\\t");
        /* Control characters and what some YAML version takes for a line's end or forbids. */
        else if (c < 0x20 || (c >= 0x7f && c < 0xa0) || c == 0x2028 || c == 0x2029 || c == 0xfeff || c == 0xfffe
                 || c == 0xffff)
            weft_text_add(out, "\\u%04x", (unsigned)c);
        else weft_text_add(out, "%.*s", len, s);
        s += len > 0 ? len : 1;
    }
    weft_text_add(out, "\"");
}

static void add_entry(const weft_opts *o, int i, const char *key, const char *indent, weft_text *out)
{
    char buf[64];
    const char *value = weft__opt_value_text(o, i, buf, sizeof buf);
    if (!value) return; /* a text that was not given has no YAML value */
    weft_text_add(out, "%s%s: ", indent, key);
    bool quoted = o->table[i].type == WEFT_OPT_TEXT && !is_plain_word(value);
    if (quoted) add_quoted(out, value);
    else weft_text_add(out, "%s", value);
    weft_text_add(out, "\n");
}

void weft_opts_lines(const weft_opts *o, weft_text *out)
{
    char buf[64];
    for (int i = 0; i < o->n; i++) {
        if (!weft__opt_mine(o, i)) continue;
        if (weft__opt_value_text(o, i, buf, sizeof buf)) add_entry(o, i, o->table[i].key, "", out);
        else weft_text_add(out, "%s: not given\n", o->table[i].key);
    }
}

/* Keys with the same first part are written together, whatever their order in the table: a group that is
 * opened twice would be refused on reading. */
void weft_opts_yaml_text(const weft_opts *o, weft_text *out)
{
    for (int i = 0; i < o->n; i++) {
        const char *key = o->table[i].key;
        size_t first = strcspn(key, ".") + 1;
        if (!weft__opt_mine(o, i)) continue;
        if (key[first - 1] == '\0') {
            add_entry(o, i, key, "", out);
            continue;
        }
        bool opened = false;
        for (int j = 0; j < i && !opened; j++)
            opened = weft__opt_mine(o, j) && strncmp(o->table[j].key, key, first) == 0;
        if (opened) continue;
        weft_text_add(out, "%.*s:\n", (int)first - 1, key);
        for (int j = i; j < o->n; j++)
            if (weft__opt_mine(o, j) && strncmp(o->table[j].key, key, first) == 0)
                add_entry(o, j, o->table[j].key + first, "  ", out);
    }
}
