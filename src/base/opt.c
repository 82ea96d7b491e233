/* opt.c — the option table: finding a row, checking a value, reading the command line. The YAML side is in
 * opt_yaml.c, what is shown to people in opt_help.c.
 *
 * A weaker source never overwrites a stronger one, so the command line may be read before the config file
 * that it names. Every value is checked even when it is then overruled: a typing error in a file must not
 * wait for the day on which the flag is left out. */
#include "base/opt_impl.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- finding rows -------------------------------------------------------------------------------- */

int weft__opt_by_key(const weft_opts *o, const char *key)
{
    for (int i = 0; i < o->n; i++)
        if (weft__opt_mine(o, i) && strcmp(o->table[i].key, key) == 0) return i;
    return -1;
}

/* `name` is one of the words in "a|b|c". */
static bool in_list(const char *list, const char *name, size_t len)
{
    while (list) {
        const char *bar = strchr(list, '|');
        size_t n = bar ? (size_t)(bar - list) : strlen(list);
        if (n == len && memcmp(list, name, n) == 0) return true;
        list = bar ? bar + 1 : NULL;
    }
    return false;
}

static bool has_flag(const weft_opt *row, const char *name, size_t len)
{
    return in_list(row->flag, name, len) || in_list(row->alias, name, len);
}

int weft__opt_by_flag(const weft_opts *o, const char *name, size_t len)
{
    for (int i = 0; i < o->n; i++)
        if (weft__opt_mine(o, i) && has_flag(&o->table[i], name, len)) return i;
    return -1;
}

/* ---- messages ------------------------------------------------------------------------------------- */

const char *weft__opt_printable(const char *s, char buf[WEFT__OPT_QUOTE])
{
    size_t k = 0;
    const size_t room = WEFT__OPT_QUOTE - 4;
    while (*s && k < room) {
        uint32_t code = 0;
        int len = weft__utf8(s, &code);
        if (len == 0 || code < 0x20 || (code >= 0x7f && code < 0xa0)) {
            buf[k++] = '?';
            s += len > 0 ? len : 1;
            continue;
        }
        if (k + (size_t)len > room) break;
        memcpy(buf + k, s, (size_t)len);
        k += (size_t)len;
        s += len;
    }
    snprintf(buf + k, WEFT__OPT_QUOTE - k, "%s", *s ? "..." : "");
    return buf;
}

int weft__utf8(const char *s, uint32_t *code)
{
    static const uint32_t smallest[5] = {0, 0, 0x80, 0x800, 0x10000};
    const unsigned char *u = (const unsigned char *)s;
    int len = u[0] == 0 ? 0 : u[0] < 0x80 ? 1 : u[0] >= 0xf0 && u[0] < 0xf8 ? 4 : u[0] >= 0xe0 && u[0] < 0xf0 ? 3
            : u[0] >= 0xc0 && u[0] < 0xe0 ? 2 : 0;
    if (len == 0) return 0;
    uint32_t c = len == 1 ? u[0] : u[0] & (0x7fu >> len);
    for (int i = 1; i < len; i++) {
        if ((u[i] & 0xc0u) != 0x80u) return 0; /* also stops at the terminating NUL */
        c = c << 6 | (u[i] & 0x3fu);
    }
    /* Overlong forms, surrogates and numbers past Unicode's end are what a YAML reader refuses, too. */
    if (c < smallest[len] || (c >= 0xd800 && c < 0xe000) || c > 0x10ffff) return 0;
    *code = c;
    return len;
}

/* The names that can be suggested: every key, flag and alias of this command. Returns how many, or -1
 * without memory: then there is no suggestion. */
static int names_of(const weft_opts *o, const char **names, int *rows, int max)
{
    int k = 0;
    for (int i = 0; i < o->n; i++) {
        if (!weft__opt_mine(o, i)) continue;
        const char *lists[3] = {o->table[i].key, o->table[i].flag, o->table[i].alias};
        for (int l = 0; l < 3; l++) {
            char *copy = NULL;
            if (!lists[l]) continue;
            if (weft_arena_alloc(o->arena, (int64_t)strlen(lists[l]) + 1, 1, "suggestions", (void **)&copy) < 0)
                return -1;
            strcpy(copy, lists[l]);
            char *save = NULL;
            for (char *w = strtok_r(copy, "|", &save); w && k < max; w = strtok_r(NULL, "|", &save)) {
                names[k] = w;
                rows[k++] = i;
            }
        }
    }
    return k;
}

/* The row whose key or flag is nearest to `word`, or -1. */
static int nearest(const weft_opts *o, const char *word)
{
    weft_mark mark = weft_arena_mark(o->arena);
    const int64_t max = (int64_t)o->n * 8;
    const char **names = NULL;
    int *rows = NULL;
    char *plain = NULL;
    int found = -1;
    if (weft_arena_alloc(o->arena, max, sizeof *names, "suggestions", (void **)&names) == WEFT_OK
        && WEFT_NEW(o->arena, max, "suggestions", &rows) == WEFT_OK
        && WEFT_NEW(o->arena, (int64_t)strlen(word) + 1, "suggestions", &plain) == WEFT_OK) {
        /* context_parallel_size is how other trainers spell --context-parallel-size. */
        strcpy(plain, word);
        if (!strchr(word, '.'))
            for (char *c = plain; *c; c++) *c = *c == '_' ? '-' : *c;
        int k = names_of(o, names, rows, (int)max);
        const char *best = k > 0 ? weft_suggest(plain, names, k) : NULL;
        for (int i = 0; best && i < k; i++)
            if (names[i] == best) found = rows[i];
    }
    weft_arena_release(o->arena, mark);
    return found;
}

/* The row exists for another command: the user has the right name in the wrong place. */
static bool foreign(const weft_opts *o, const char *word, bool is_flag)
{
    for (int i = 0; i < o->n; i++)
        if (is_flag ? has_flag(&o->table[i], word, strlen(word)) : strcmp(o->table[i].key, word) == 0) return true;
    return false;
}

weft_status weft__opt_unknown(const weft_opts *o, const char *word, bool is_flag, const char *where)
{
    char quoted[WEFT__OPT_QUOTE];
    const char *what = is_flag ? "flag" : "key", *dashes = is_flag ? "--" : "";
    const char *shown = weft__opt_printable(word, quoted);
    if (foreign(o, word, is_flag))
        return weft_fail(WEFT_ERR_REFUSED, "%s '%s%s' belongs to another command%s; --help lists what this one takes",
                         what, dashes, shown, where);
    int i = nearest(o, word);
    if (i < 0)
        return weft_fail(WEFT_ERR_REFUSED, "unknown %s '%s%s'%s; --help lists all", what, dashes, shown, where);
    const weft_opt *row = &o->table[i];
    if (is_flag && row->flag)
        return weft_fail(WEFT_ERR_REFUSED, "unknown flag '--%s'%s; did you mean '--%s'?", shown, where, row->flag);
    return weft_fail(WEFT_ERR_REFUSED, "unknown %s '%s%s'%s; did you mean '%s%s'?", what, dashes, shown, where,
                     is_flag ? "--set " : "", row->key);
}

/* ---- values --------------------------------------------------------------------------------------- */

/* One choice against a value: "ring" takes "ring"; "striped[:k]" takes "striped" and "striped:16". */
static bool choice_takes(const char *choice, size_t n, const char *value)
{
    const char *bracket = memchr(choice, '[', n);
    size_t stem = bracket ? (size_t)(bracket - choice) : n;
    if (strncmp(choice, value, stem) != 0) return false;
    if (value[stem] == '\0') return true;
    int64_t k = 0;
    return bracket && value[stem] == ':' && weft_parse_i64(value + stem + 1, &k) == WEFT_OK && k >= 1;
}

static bool is_choice(const char *choices, const char *value)
{
    for (const char *c = choices; c; c = strchr(c, '|') ? strchr(c, '|') + 1 : NULL)
        if (choice_takes(c, strcspn(c, "|"), value)) return true;
    return false;
}

static weft_status refuse_choice(const weft_opts *o, const weft_opt *row, const char *name, const char *value,
                                 const char *where)
{
    enum { MAX = 64 };
    const char *names[MAX];
    char quoted[WEFT__OPT_QUOTE];
    const char *best = NULL;
    char *copy = NULL;
    weft_mark mark = weft_arena_mark(o->arena);
    if (WEFT_NEW(o->arena, (int64_t)strlen(row->choices) + 1, "suggestions", &copy) == WEFT_OK) {
        int k = 0;
        char *save = NULL;
        strcpy(copy, row->choices);
        for (char *w = strtok_r(copy, "|", &save); w && k < MAX; w = strtok_r(NULL, "|", &save)) {
            w[strcspn(w, "[")] = '\0';
            names[k++] = w;
        }
        best = weft_suggest(value, names, k);
    }
    weft_status st = weft_fail(WEFT_ERR_REFUSED, "%s: '%s' is none of %s%s%s%s%s", name,
                               weft__opt_printable(value, quoted), row->choices, where,
                               best ? "; did you mean '" : "", best ? best : "", best ? "'?" : "");
    weft_arena_release(o->arena, mark);
    return st;
}

/* The number in `s` by the row's type; whole numbers also as double, for the range. */
static weft_status parse_number(const weft_opt *row, const char *s, int64_t *whole, double *real)
{
    if (row->type == WEFT_OPT_REAL) return weft_parse_f64(s, real);
    WEFT_TRY(row->type == WEFT_OPT_INT ? weft_parse_i64(s, whole) : weft_parse_size(s, whole));
    *real = (double)*whole;
    return WEFT_OK;
}

/* min >= max (so also a row that names neither): no limit. The default may lie outside the range ("0: the
 * plan chooses"), and may then be written, too: the record of a run holds it. */
static weft_status check_range(const weft_opt *row, const char *name, double x, const char *value, const char *where)
{
    char quoted[WEFT__OPT_QUOTE];
    int64_t whole = 0;
    double def = NAN;
    if (row->min >= row->max || (x >= row->min && x <= row->max)) return WEFT_OK;
    if (row->def && parse_number(row, row->def, &whole, &def) == WEFT_OK && x == def) return WEFT_OK;
    weft__opt_printable(value, quoted);
    if (isinf(row->max))
        return weft_fail(WEFT_ERR_REFUSED, "%s: %s is below the least value %.10g%s", name, quoted, row->min, where);
    return weft_fail(WEFT_ERR_REFUSED, "%s: %s is outside %.10g..%.10g%s", name, quoted, row->min, row->max, where);
}

static weft_status store_number(const weft_opts *o, int i, const char *name, const char *value, bool keep,
                                const char *where)
{
    const weft_opt *row = &o->table[i];
    char quoted[WEFT__OPT_QUOTE];
    int64_t whole = 0;
    double real = 0;
    if (parse_number(row, value, &whole, &real) < 0)
        return weft_fail(WEFT_ERR_REFUSED, "%s: '%s' is not %s%s", name, weft__opt_printable(value, quoted),
                         row->type == WEFT_OPT_INT    ? "a whole number"
                         : row->type == WEFT_OPT_SIZE ? "a size such as 4096, 64K, 16M or 2G"
                                                      : "a number such as 0.1 or 3e-4",
                         where);
    WEFT_TRY(check_range(row, name, real, value, where));
    if (!keep) return WEFT_OK;
    if (row->type == WEFT_OPT_REAL) *(double *)weft__opt_slot(o, i) = real;
    else *(int64_t *)weft__opt_slot(o, i) = whole;
    return WEFT_OK;
}

static weft_status store_text(const weft_opts *o, int i, const char *name, const char *value, bool keep,
                              const char *where)
{
    const weft_opt *row = &o->table[i];
    char quoted[WEFT__OPT_QUOTE];
    if (row->type == WEFT_OPT_ENUM && !is_choice(row->choices, value))
        return refuse_choice(o, row, name, value, where);
    /* The record of the run is YAML, which holds Unicode only. */
    uint32_t code = 0;
    for (const char *s = value; *s;) {
        int len = weft__utf8(s, &code);
        if (len == 0)
            return weft_fail(WEFT_ERR_REFUSED, "%s: '%s' is not UTF-8 text%s", name,
                             weft__opt_printable(value, quoted), where);
        s += len;
    }
    if (!keep) return WEFT_OK;
    const char *copy = NULL;
    WEFT_TRY(weft_arena_strdup(o->arena, value, &copy));
    *(const char **)weft__opt_slot(o, i) = copy;
    return WEFT_OK;
}

static weft_status store_bool(const weft_opts *o, int i, const char *name, const char *value, bool keep,
                              const char *where)
{
    char quoted[WEFT__OPT_QUOTE];
    bool yes = strcmp(value, "true") == 0;
    if (!yes && strcmp(value, "false") != 0)
        return weft_fail(WEFT_ERR_REFUSED, "%s: '%s' is neither true nor false%s", name,
                         weft__opt_printable(value, quoted), where);
    if (keep) *(bool *)weft__opt_slot(o, i) = yes;
    return WEFT_OK;
}

weft_status weft__opt_store(weft_opts *o, int i, const char *name, const char *value, int source, const char *where)
{
    bool keep = source >= o->source[i];
    switch (o->table[i].type) {
    case WEFT_OPT_BOOL: WEFT_TRY(store_bool(o, i, name, value, keep, where)); break;
    case WEFT_OPT_TEXT:
    case WEFT_OPT_ENUM: WEFT_TRY(store_text(o, i, name, value, keep, where)); break;
    default: WEFT_TRY(store_number(o, i, name, value, keep, where)); break;
    }
    if (keep) o->source[i] = (unsigned char)source;
    return WEFT_OK;
}

/* ---- door ----------------------------------------------------------------------------------------- */

static void store_zero(const weft_opts *o, int i)
{
    switch (o->table[i].type) {
    case WEFT_OPT_BOOL: *(bool *)weft__opt_slot(o, i) = false; break;
    case WEFT_OPT_REAL: *(double *)weft__opt_slot(o, i) = 0; break;
    case WEFT_OPT_TEXT:
    case WEFT_OPT_ENUM: *(const char **)weft__opt_slot(o, i) = NULL; break;
    default: *(int64_t *)weft__opt_slot(o, i) = 0; break;
    }
}

weft_status weft_opts_init(weft_opts *o, const weft_opt *table, int n, uint32_t command, void *values,
                           weft_arena *arena)
{
    *o = (weft_opts){.table = table, .n = n, .command = command, .values = values, .arena = arena};
    WEFT_TRY(WEFT_NEW0(arena, n, "option sources", &o->source));
    for (int i = 0; i < n; i++) {
        const weft_opt *row = &table[i];
        store_zero(o, i);
        if (!row->def) continue;
        if (weft__opt_store(o, i, row->key, row->def, 0, "") < 0)
            return weft_fail_at(WEFT_ERR_INTERNAL, "option table, default: ");
    }
    return WEFT_OK;
}

weft_status weft_opts_set(weft_opts *o, const char *key_or_flag, const char *value, int source)
{
    int i = weft__opt_by_key(o, key_or_flag);
    if (i < 0) i = weft__opt_by_flag(o, key_or_flag, strlen(key_or_flag));
    if (i < 0) return weft__opt_unknown(o, key_or_flag, false, "");
    return weft__opt_store(o, i, key_or_flag, value, source, "");
}

static bool is_default(const weft_opts *o, int i)
{
    const weft_opt *row = &o->table[i];
    const void *slot = weft__opt_slot(o, i);
    int64_t whole = 0;
    double real = 0;
    switch (row->type) {
    case WEFT_OPT_BOOL: return *(const bool *)slot == (row->def && strcmp(row->def, "true") == 0);
    case WEFT_OPT_TEXT:
    case WEFT_OPT_ENUM: {
        const char *value = *(const char *const *)slot;
        return value && row->def ? strcmp(value, row->def) == 0 : value == row->def;
    }
    default:
        if (row->def && parse_number(row, row->def, &whole, &real) < 0) return false;
        return row->type == WEFT_OPT_REAL ? *(const double *)slot == real : *(const int64_t *)slot == whole;
    }
}

int weft_opts_source(const weft_opts *o, const char *key)
{
    int i = weft__opt_by_key(o, key);
    if (i < 0 || (o->source[i] == 1 && is_default(o, i))) return 0;
    return o->source[i];
}

bool weft_opts_given(const weft_opts *o, const char *key) { return weft_opts_source(o, key) > 0; }

const char *weft_opts_value(const weft_opts *o, const char *key, char *buf, size_t n)
{
    int i = weft__opt_by_key(o, key);
    return i < 0 ? NULL : weft__opt_value_text(o, i, buf, n);
}

/* ---- the command line ----------------------------------------------------------------------------- */

/* "key=value" after --set. */
static weft_status set_pair(weft_opts *o, const char *pair)
{
    char quoted[WEFT__OPT_QUOTE];
    const char *equals = strchr(pair, '=');
    if (!equals || equals == pair)
        return weft_fail(WEFT_ERR_REFUSED, "--set takes key=value, not '%s'", weft__opt_printable(pair, quoted));
    char *key = NULL;
    WEFT_TRY(WEFT_NEW(o->arena, equals - pair + 1, "option keys", &key));
    memcpy(key, pair, (size_t)(equals - pair));
    key[equals - pair] = '\0';
    int i = weft__opt_by_key(o, key);
    return i < 0 ? weft__opt_unknown(o, key, false, "") : weft__opt_store(o, i, key, equals + 1, 2, "");
}

static bool is_truth(const char *s) { return s && (strcmp(s, "true") == 0 || strcmp(s, "false") == 0); }

/* --no-NAME. */
static weft_status negate(weft_opts *o, const char *shown, const char *name, int i, const char *value)
{
    if (o->table[i].type != WEFT_OPT_BOOL)
        return weft_fail(WEFT_ERR_REFUSED, "%s: --%s is not a switch and cannot be negated", shown, name);
    if (value)
        return weft_fail(WEFT_ERR_REFUSED, "%s takes no value; write --%s=%s", shown, name,
                         is_truth(value) ? value : "true");
    return weft__opt_store(o, i, shown, "false", 2, "");
}

/* One flag at argv[0]; *used = words taken. `name` is a copy without dashes and value. */
static weft_status take_flag(weft_opts *o, char *name, const char *value, const char *next, int *used)
{
    char shown[WEFT__OPT_QUOTE + 2] = "--";
    weft__opt_printable(name, shown + 2);
    bool is_set = strcmp(name, "set") == 0;
    int i = weft__opt_by_flag(o, name, strlen(name));
    *used = 1;
    if (i < 0 && !is_set && strncmp(name, "no-", 3) == 0) {
        int positive = weft__opt_by_flag(o, name + 3, strlen(name + 3));
        if (positive >= 0) return negate(o, shown, name + 3, positive, value);
    }
    if (i < 0 && !is_set) return weft__opt_unknown(o, name, true, "");
    if (!is_set && o->table[i].type == WEFT_OPT_BOOL) {
        if (!value && is_truth(next)) *used = 2;
        return weft__opt_store(o, i, shown, value ? value : *used == 2 ? next : "true", 2, "");
    }
    if (!value) {
        if (!next || strncmp(next, "--", 2) == 0)
            return weft_fail(WEFT_ERR_REFUSED, "%s needs a value%s%s", shown, next ? ", not " : "", next ? next : "");
        value = next;
        *used = 2;
    }
    return is_set ? set_pair(o, value) : weft__opt_store(o, i, shown, value, 2, "");
}

/* A word with one dash: nothing here has one, but "-cp 2" is an easy slip. */
static weft_status refuse_short(const weft_opts *o, const char *word)
{
    char quoted[WEFT__OPT_QUOTE];
    weft__opt_printable(word, quoted);
    size_t n = strcspn(word + 1, "=");
    int i = weft__opt_by_flag(o, word + 1, n);
    if (i >= 0)
        return weft_fail(WEFT_ERR_REFUSED, "unknown flag '%s'; did you mean '--%.*s'?", quoted, (int)n, word + 1);
    return weft_fail(WEFT_ERR_REFUSED, "unknown flag '%s'; flags have two dashes, --help lists them", quoted);
}

weft_status weft_opts_argv(weft_opts *o, int argc, char *const *argv, const char **positional, int max,
                           int *n_positional)
{
    int count = 0;
    bool flags_end = false;
    for (int a = 0; a < argc;) {
        const char *word = argv[a];
        bool dashed = !flags_end && word[0] == '-' && word[1] != '\0';
        if (dashed && strcmp(word, "--") == 0) {
            flags_end = true;
            a++;
        } else if (dashed && word[1] != '-') {
            return refuse_short(o, word);
        } else if (dashed) {
            const char *copy = NULL;
            WEFT_TRY(weft_arena_strdup(o->arena, word + 2, &copy));
            char *name = (char *)(uintptr_t)copy; /* our own copy */
            char *equals = strchr(name, '=');
            if (equals) *equals = '\0';
            int used = 0;
            WEFT_TRY(take_flag(o, name, equals ? equals + 1 : NULL, a + 1 < argc ? argv[a + 1] : NULL, &used));
            a += used;
        } else {
            char quoted[WEFT__OPT_QUOTE];
            if (count >= max)
                return weft_fail(WEFT_ERR_REFUSED, "unexpected word '%s'; this command takes %d besides its flags",
                                 weft__opt_printable(word, quoted), max);
            positional[count++] = word;
            a++;
        }
    }
    *n_positional = count;
    return WEFT_OK;
}
