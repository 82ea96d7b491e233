/* profile_json.c — profiles as JSON. The rates that auto needs are required, and no unknown key is taken, so that a
 * profile that was written for another version, or by a hand that slipped, is not half used; what came later has a
 * value when it is missing, so that older files stay good. */
#include "mesh/mesh_impl.h"

#include <jansson.h>
#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

/* ---- the keys -------------------------------------------------------------------------------------------- */

typedef enum { NAME, REAL, RATES, RANKS, BYTES } kind; /* text; double; a double per precision; int; size_t */
typedef enum { REQUIRED, OPTIONAL, OR_NONE } need;     /* OR_NONE: optional, and 0 says that there is none */

/* Limits far beyond any machine, within which sums of times keep their digits. */
#define LATENCY_MAX 1e3
#define RATE_MIN 1.0
#define RATE_MAX 1e24
#define FIELD(field, kind, need, low, high) {#field, kind, need, offsetof(weft_profile, field), low, high}
#define RATE(field, need) FIELD(field, REAL, need, RATE_MIN, RATE_MAX)
static const struct key { /* in the order in which they are written */
    const char *name;
    kind kind;
    need need;
    size_t offset;
    double low, high;
} keys[] = {FIELD(name, NAME, OPTIONAL, 0, 0),
            FIELD(latency_seconds, REAL, REQUIRED, 0, LATENCY_MAX),
            RATE(link_bytes_per_second, REQUIRED),
            RATE(rank_bytes_per_second, REQUIRED),
            RATE(memory_bytes_per_second, REQUIRED),
            FIELD(backward_factor, REAL, REQUIRED, 1e-3, 1e3),
            FIELD(node_latency_seconds, REAL, REQUIRED, 0, LATENCY_MAX),
            RATE(node_bytes_per_second, REQUIRED),
            FIELD(node_ranks, RANKS, REQUIRED, 0, INT32_MAX),
            FIELD(flops_per_second, RATES, REQUIRED, RATE_MIN, RATE_MAX),
            FIELD(attention_pair_seconds, RATES, OR_NONE, 0, LATENCY_MAX),
            FIELD(attention_edge_keys, REAL, OR_NONE, 0, 1e6),
            FIELD(attention_row_keys, REAL, OR_NONE, 0, 1e6),
            FIELD(product_flops_per_second, RATES, OPTIONAL, RATE_MIN, RATE_MAX),
            RATE(fp8_flops_per_second, OR_NONE),
            RATE(fp8_attention_flops_per_second, OR_NONE),
            RATE(product_bytes_per_second, OR_NONE),
            FIELD(product_seconds, REAL, OR_NONE, 0, LATENCY_MAX),
            FIELD(attention_seconds, REAL, OR_NONE, 0, LATENCY_MAX),
            RATE(element_bytes_per_second, OPTIONAL),
            RATE(memory_bytes, OR_NONE),
            RATE(host_bytes_per_second, OR_NONE),
            RATE(host_bytes, OR_NONE),
            FIELD(buffer_bytes, BYTES, OR_NONE, 64 << 10, (double)(1LL << 40)),
            FIELD(in_place_share, REAL, OR_NONE, 0, 1),
            FIELD(unhidden_share, REAL, OR_NONE, 0, 1),
            FIELD(collective_factor, REAL, OPTIONAL, 1e-3, 1)};
#undef RATE
#undef FIELD
enum { KEYS = sizeof keys / sizeof *keys };
static const char sources_key[] = "sources";

static void *field(weft_profile *p, const struct key *k) { return (char *)p + k->offset; }

/* ---- values ------------------------------------------------------------------------------------------------ */

typedef struct reader { /* of one object of a file */
    const char *path, *prefix; /* for messages: the file, and "flops_per_second." inside of it */
    const json_t *from;
} reader;

static weft_status refuse_value(const reader *r, const char *key, const json_t *value, const char *must)
{
    char *text = json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT);
    weft_status st = weft_fail(WEFT_ERR_REFUSED, "%s: %s%s is %.40s; it must be %s", r->path, r->prefix, key,
                               text ? text : "?", must);
    free(text);
    return st;
}

/* Above 0, and within the key's limits. */
static weft_status read_positive(const reader *r, const struct key *k, const char *key, double *out)
{
    char must[100];
    const json_t *v = json_object_get(r->from, key);
    if (!v) return weft_fail(WEFT_ERR_REFUSED, "%s: %s%s is missing; a positive number is needed", r->path, r->prefix,
                             key);
    double x = json_is_number(v) ? json_number_value(v) : NAN;
    bool none = k->need == OR_NONE && x == 0;
    if (!none && !(x > 0 && x >= k->low && x <= k->high)) {
        weft_format(must, sizeof must, "a positive number, %g to %g%s", k->low, k->high,
                    k->need == OR_NONE ? ", or 0 for none" : "");
        return refuse_value(r, key, v, must);
    }
    *out = x;
    return WEFT_OK;
}

static weft_status read_ranks(const reader *r, const struct key *k, int *out)
{
    const json_t *v = json_object_get(r->from, k->name);
    json_int_t n = v && json_is_integer(v) ? json_integer_value(v) : -1;
    if (n < 0 || n > INT32_MAX)
        return weft_fail(WEFT_ERR_REFUSED,
                         "%s: %s is missing or no number of ranks; give how many share a node, 0 for all", r->path,
                         k->name);
    *out = (int)n;
    return WEFT_OK;
}

static weft_status read_bytes(const reader *r, const struct key *k, size_t *out)
{
    const json_t *v = json_object_get(r->from, k->name);
    json_int_t n = json_is_integer(v) ? json_integer_value(v) : -1;
    if (n && !((double)n >= k->low && (double)n <= k->high))
        return refuse_value(r, k->name, v, "a whole number of bytes, 65536 to 2^40, or 0 for whole messages");
    *out = (size_t)n;
    return WEFT_OK;
}

/* What is printed, in tables, is a line: not empty, and nothing in it that moves the cursor. */
static const char *line_of(const json_t *v)
{
    const char *text = json_string_value(v);
    if (!text || !*text) return NULL;
    for (const char *c = text; *c; c++)
        if ((unsigned char)*c < ' ' || *c == 127) return NULL;
    return text;
}

static weft_status read_name(const reader *r, const struct key *k, char out[WEFT_PROFILE_NAME])
{
    const json_t *v = json_object_get(r->from, k->name);
    const char *text = line_of(v);
    if (!text || strlen(text) >= WEFT_PROFILE_NAME)
        return refuse_value(r, k->name, v, "a word or two, of at most 63 bytes");
    memcpy(out, text, strlen(text) + 1);
    return WEFT_OK;
}

/* Every key of the object is among the names. */
static weft_status refuse_unknown(const reader *r, const char *const *names, int n)
{
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)r->from, key, value)
    {
        bool known = false;
        for (int i = 0; i < n; i++) known |= !strcmp(key, names[i]);
        if (known) continue;
        const char *near = weft_suggest(key, names, n);
        return weft_fail(WEFT_ERR_REFUSED, "%s: %s%.60s is unknown%s%s%s", r->path, r->prefix, key,
                         near ? "; did you mean " : "", near ? r->prefix : "",
                         near ? near : "; weft bench profile writes what is needed");
    }
    return WEFT_OK;
}

static weft_status read_rates(const reader *outer, const struct key *k, double out[WEFT_PREC_COUNT])
{
    char prefix[64];
    const char *names[WEFT_PREC_COUNT];
    const reader r = {outer->path, prefix, json_object_get(outer->from, k->name)};
    if (!json_is_object(r.from))
        return weft_fail(WEFT_ERR_REFUSED, "%s: %s is missing or no object; a number per precision is needed", r.path,
                         k->name);
    weft_format(prefix, sizeof prefix, "%s.", k->name);
    for (int i = 0; i < WEFT_PREC_COUNT; i++) names[i] = weft_prec_name((weft_prec)i);
    WEFT_TRY(refuse_unknown(&r, names, WEFT_PREC_COUNT));
    for (int i = 0; i < WEFT_PREC_COUNT; i++) WEFT_TRY(read_positive(&r, k, names[i], &out[i]));
    return WEFT_OK;
}

/* ---- reading ----------------------------------------------------------------------------------------------- */

static int key_names(const char *names[KEYS + 1])
{
    for (int i = 0; i < KEYS; i++) names[i] = keys[i].name;
    names[KEYS] = sources_key;
    return KEYS + 1;
}

/* A source is a text about a key. */
static weft_status check_sources(const reader *outer)
{
    const char *names[KEYS + 1], *key;
    const reader r = {outer->path, "sources.", json_object_get(outer->from, sources_key)};
    json_t *value;
    if (!r.from) return WEFT_OK;
    if (!json_is_object(r.from)) return refuse_value(outer, sources_key, r.from, "an object with a text for a key");
    WEFT_TRY(refuse_unknown(&r, names, key_names(names) - 1));
    json_object_foreach((json_t *)r.from, key, value)
        if (!line_of(value)) return refuse_value(&r, key, value, "a line of text that says where the value is from");
    return WEFT_OK;
}

static weft_status read_key(const reader *r, const struct key *k, weft_profile *p)
{
    switch (k->kind) {
    case NAME: return read_name(r, k, field(p, k));
    case REAL: return read_positive(r, k, k->name, field(p, k));
    case RATES: return read_rates(r, k, field(p, k));
    case RANKS: return read_ranks(r, k, field(p, k));
    case BYTES: return read_bytes(r, k, field(p, k));
    }
    return WEFT_OK;
}

/* What stands for keys that are missing, where 0 does not (profile.h). */
static void derive(weft_profile *p, const char *name)
{
    snprintf(p->name, sizeof p->name, "%s", name);
    memcpy(p->product_flops_per_second, p->flops_per_second, sizeof p->flops_per_second);
    p->element_bytes_per_second = fmin(2 * p->memory_bytes_per_second, RATE_MAX);
    p->collective_factor = 1;
}

static weft_status read_root(const reader *r, const char *name, weft_profile *p)
{
    const char *names[KEYS + 1];
    if (!json_is_object(r->from)) return weft_fail(WEFT_ERR_REFUSED, "%s: a profile is a JSON object", r->path);
    WEFT_TRY(refuse_unknown(r, names, key_names(names)));
    for (int i = 0; i < KEYS; i++)
        if (keys[i].need == REQUIRED) WEFT_TRY(read_key(r, &keys[i], p));
    derive(p, name);
    for (int i = 0; i < KEYS; i++)
        if (keys[i].need != REQUIRED && json_object_get(r->from, keys[i].name)) WEFT_TRY(read_key(r, &keys[i], p));
    return check_sources(r);
}

/* *root: the caller's to release. */
static weft_status load(json_t **root, const char *text, size_t bytes, const char *where)
{
    json_error_t error;
    *root = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, &error);
    return *root ? WEFT_OK : weft_fail(WEFT_ERR_REFUSED, "%s: line %d: %s", where, error.line, error.text);
}

weft_status weft__mesh_profile_parse(weft_profile *out, const char *text, size_t bytes, const char *where,
                                     const char *name)
{
    json_t *root;
    weft_profile p = {0};
    WEFT_TRY(load(&root, text, bytes, where));
    weft_status st = read_root(&(reader){where, "", root}, name, &p);
    json_decref(root);
    if (st == WEFT_OK) *out = p;
    return st;
}

weft_status weft__mesh_profile_sources(weft_text *out, const char *text, size_t bytes, const char *where,
                                       const char *key)
{
    json_t *root;
    weft_profile ignored = {0};
    WEFT_TRY(load(&root, text, bytes, where));
    weft_status st = read_root(&(reader){where, "", root}, "", &ignored);
    const json_t *sources = json_object_get(root, sources_key);
    for (int i = 0; st == WEFT_OK && i < KEYS; i++) {
        const char *source = json_string_value(json_object_get(sources, keys[i].name));
        if (!source || (key && strcmp(key, keys[i].name))) continue;
        if (key) weft_text_add(out, "%s", source);
        else weft_text_add(out, "%-30s  %s\n", keys[i].name, source);
    }
    json_decref(root);
    return st == WEFT_OK && out->failed ? weft_fail(WEFT_ERR_MEMORY, "no memory for the sources of %s", where) : st;
}

/* ---- writing ------------------------------------------------------------------------------------------------- */

static json_t *rates(const double x[WEFT_PREC_COUNT])
{
    json_t *object = json_object();
    bool ok = object != NULL;
    for (int i = 0; i < WEFT_PREC_COUNT; i++)
        ok = ok && json_object_set_new(object, weft_prec_name((weft_prec)i), json_real(x[i])) == 0;
    if (ok) return object;
    json_decref(object);
    return NULL;
}

/* NULL, which no object takes, for a number that is not finite: JSON cannot say it. */
static json_t *value_of(weft_profile *p, const struct key *k)
{
    void *at = field(p, k);
    switch (k->kind) {
    case NAME: return json_string(at);
    case REAL: return json_real(*(double *)at);
    case RATES: return rates(at);
    case RANKS: return json_integer(*(int *)at);
    case BYTES: return json_integer((json_int_t) * (size_t *)at);
    }
    return NULL;
}

/* "sources", in the order of the keys: the notes, and what the file said before of the other keys. */
static weft_status sources_of(json_t **out, const char *from, const weft_profile_note *notes, int n)
{
    weft_status st = WEFT_OK;
    bool ok = (*out = json_object()) != NULL;
    for (int k = 0; k < KEYS && st == WEFT_OK; k++) {
        weft_text before = {0};
        const char *text = NULL;
        for (int i = 0; i < n; i++)
            if (!strcmp(notes[i].key, keys[k].name)) text = notes[i].text;
        if (!text && from) st = weft_profile_source(&before, from, keys[k].name), text = before.data;
        if (text && *text) ok = ok && json_object_set_new(*out, keys[k].name, json_string(text)) == 0;
        weft_text_free(&before);
    }
    if (st == WEFT_OK && !ok) st = weft_fail(WEFT_ERR_REFUSED, "a source of a profile is no text of UTF-8");
    return st;
}

/* NULL where a value cannot be said. */
static char *profile_text(const weft_profile *profile, json_t *sources)
{
    weft_profile p = *profile;
    json_t *root = json_object();
    bool ok = root != NULL;
    for (int i = 0; i < KEYS; i++)
        if (keys[i].kind != NAME || *p.name)
            ok = ok && json_object_set_new(root, keys[i].name, value_of(&p, &keys[i])) == 0;
    if (ok && json_object_size(sources)) ok = json_object_set(root, sources_key, sources) == 0;
    char *text = ok ? json_dumps(root, JSON_INDENT(2)) : NULL;
    json_decref(root);
    return text;
}

static weft_status write_text(const char *path, const char *text)
{
    weft_writer w;
    WEFT_TRY(weft_writer_open(&w, path));
    weft_status st = weft_writer_put(&w, text, strlen(text));
    if (st == WEFT_OK) st = weft_writer_put(&w, "\n", 1);
    if (st == WEFT_OK) return weft_writer_commit(&w);
    weft_writer_abandon(&w);
    return st;
}

weft_status weft_profile_write_noted(const weft_profile *profile, const char *path, const char *from,
                                     const weft_profile_note *notes, int n)
{
    json_t *sources = NULL;
    char *text = NULL;
    weft_status st = sources_of(&sources, from, notes, n);
    if (st < 0) goto release;
    text = profile_text(profile, sources);
    st = text ? write_text(path, text)
              : weft_fail(WEFT_ERR_REFUSED, "%s: the profile holds a rate that is not a number", path);
release:
    free(text);
    json_decref(sources);
    return st;
}

weft_status weft_profile_write(const weft_profile *profile, const char *path)
{
    return weft_profile_write_noted(profile, path, NULL, NULL, 0);
}
