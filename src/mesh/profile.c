/* profile.c — the default rates, and profiles as JSON: every key is required and none other is taken, so that a
 * profile that was written for another version, or by a hand that slipped, is not half used. */
#include "mesh/profile.h"

#include <jansson.h>
#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

/* Only their ratios choose a strategy. */
weft_profile weft_profile_default(void)
{
    return (weft_profile){.latency_seconds = 10e-6,
                          .link_bytes_per_second = 10e9,
                          .rank_bytes_per_second = 10e9,
                          .memory_bytes_per_second = 20e9,
                          .flops_per_second = {1e9, 100e9, 100e9, 100e9},
                          .backward_factor = 2.5,
                          .node_latency_seconds = 10e-6,
                          .node_bytes_per_second = 10e9};
}

/* ---- the keys -------------------------------------------------------------------------------------------- */

/* Limits far beyond any machine, within which sums of times keep their digits. */
#define LATENCY_MAX 1e3
#define RATE_MIN 1.0
#define RATE_MAX 1e24
#define REAL(field, low, high) {#field, offsetof(weft_profile, field), low, high}
static const struct key {
    const char *name;
    size_t offset;
    double low, high;
} keys[] = {REAL(latency_seconds, 0, LATENCY_MAX),
            REAL(link_bytes_per_second, RATE_MIN, RATE_MAX),
            REAL(rank_bytes_per_second, RATE_MIN, RATE_MAX),
            REAL(memory_bytes_per_second, RATE_MIN, RATE_MAX),
            REAL(backward_factor, 1e-3, 1e3),
            REAL(node_latency_seconds, 0, LATENCY_MAX),
            REAL(node_bytes_per_second, RATE_MIN, RATE_MAX)};
#undef REAL
enum { REALS = sizeof keys / sizeof *keys };
static const char flops_key[] = "flops_per_second", node_key[] = "node_ranks";

static double *field(weft_profile *p, int i) { return (double *)((char *)p + keys[i].offset); }

/* ---- reading ----------------------------------------------------------------------------------------------- */

/* Above 0, and within `low` and `high`. */
static weft_status read_positive(const json_t *from, const char *path, const char *prefix, const char *key, double low,
                                 double high, double *out)
{
    const json_t *v = json_object_get(from, key);
    if (!v) return weft_fail(WEFT_ERR_REFUSED, "%s: %s%s is missing; a positive number is needed", path, prefix, key);
    double x = json_is_number(v) ? json_number_value(v) : NAN;
    if (!(x > 0 && x >= low && x <= high)) {
        char *text = json_dumps(v, JSON_ENCODE_ANY | JSON_COMPACT);
        weft_status st = weft_fail(WEFT_ERR_REFUSED, "%s: %s%s is %.40s; it must be a positive number, %g to %g", path,
                                   prefix, key, text ? text : "?", low, high);
        free(text);
        return st;
    }
    *out = x;
    return WEFT_OK;
}

static weft_status read_node(const json_t *root, const char *path, int *out)
{
    const json_t *v = json_object_get(root, node_key);
    json_int_t n = v && json_is_integer(v) ? json_integer_value(v) : -1;
    if (n < 0 || n > INT32_MAX)
        return weft_fail(WEFT_ERR_REFUSED,
                         "%s: %s is missing or no number of ranks; give how many share a node, 0 for all", path,
                         node_key);
    *out = (int)n;
    return WEFT_OK;
}

/* Every key of `object` is among the names. */
static weft_status refuse_unknown(json_t *object, const char *path, const char *prefix, const char *const *names, int n)
{
    const char *key;
    json_t *value;
    json_object_foreach(object, key, value)
    {
        bool known = false;
        for (int i = 0; i < n; i++) known |= !strcmp(key, names[i]);
        if (known) continue;
        const char *near = weft_suggest(key, names, n);
        return weft_fail(WEFT_ERR_REFUSED, "%s: %s%.60s is unknown%s%s%s", path, prefix, key,
                         near ? "; did you mean " : "", near ? prefix : "",
                         near ? near : "; weft bench profile writes what is needed");
    }
    return WEFT_OK;
}

static weft_status read_flops(json_t *root, const char *path, weft_profile *p)
{
    const char *names[WEFT_PREC_COUNT];
    json_t *flops = json_object_get(root, flops_key);
    if (!json_is_object(flops))
        return weft_fail(WEFT_ERR_REFUSED, "%s: %s is missing or no object; a rate per precision is needed", path,
                         flops_key);
    for (int i = 0; i < WEFT_PREC_COUNT; i++) names[i] = weft_prec_name((weft_prec)i);
    WEFT_TRY(refuse_unknown(flops, path, "flops_per_second.", names, WEFT_PREC_COUNT));
    for (int i = 0; i < WEFT_PREC_COUNT; i++)
        WEFT_TRY(read_positive(flops, path, "flops_per_second.", names[i], RATE_MIN, RATE_MAX,
                               &p->flops_per_second[i]));
    return WEFT_OK;
}

static weft_status read_root(json_t *root, const char *path, weft_profile *p)
{
    const char *names[REALS + 2];
    if (!json_is_object(root)) return weft_fail(WEFT_ERR_REFUSED, "%s: a profile is a JSON object", path);
    for (int i = 0; i < REALS; i++) names[i] = keys[i].name;
    names[REALS] = flops_key, names[REALS + 1] = node_key;
    WEFT_TRY(refuse_unknown(root, path, "", names, REALS + 2));
    for (int i = 0; i < REALS; i++)
        WEFT_TRY(read_positive(root, path, "", names[i], keys[i].low, keys[i].high, field(p, i)));
    WEFT_TRY(read_node(root, path, &p->node_ranks));
    return read_flops(root, path, p);
}

weft_status weft_profile_read(weft_profile *out, const char *path)
{
    weft_map map = {0};
    json_error_t error;
    weft_profile p = {0};
    WEFT_TRY(weft_map_open(&map, path));
    json_t *root = json_loadb((const char *)map.data, map.bytes, JSON_REJECT_DUPLICATES, &error);
    weft_status st = root ? read_root(root, path, &p)
                          : weft_fail(WEFT_ERR_REFUSED, "%s: line %d: %s", path, error.line, error.text);
    json_decref(root);
    weft_map_close(&map);
    if (st == WEFT_OK) *out = p;
    return st;
}

/* ---- writing ------------------------------------------------------------------------------------------------- */

static bool set(json_t *object, const char *key, json_t *value) { return json_object_set_new(object, key, value) == 0; }

static char *profile_text(const weft_profile *profile)
{
    weft_profile p = *profile;
    json_t *root = json_object(), *flops = json_object();
    bool ok = root && flops;
    for (int i = 0; i < REALS; i++) ok = ok && set(root, keys[i].name, json_real(*field(&p, i)));
    for (int i = 0; i < WEFT_PREC_COUNT; i++)
        ok = ok && set(flops, weft_prec_name((weft_prec)i), json_real(p.flops_per_second[i]));
    ok = ok && set(root, node_key, json_integer(p.node_ranks)) && json_object_set(root, flops_key, flops) == 0;
    char *text = ok ? json_dumps(root, JSON_INDENT(2)) : NULL;
    json_decref(flops);
    json_decref(root);
    return text;
}

weft_status weft_profile_write(const weft_profile *profile, const char *path)
{
    weft_writer w;
    char *text = profile_text(profile); /* NULL also for a rate that is not finite: JSON cannot say it */
    if (!text) return weft_fail(WEFT_ERR_REFUSED, "%s: the profile holds a rate that is not a number", path);
    weft_status st = weft_writer_open(&w, path);
    if (st < 0) goto free_text;
    st = weft_writer_put(&w, text, strlen(text));
    if (st == WEFT_OK) st = weft_writer_put(&w, "\n", 1);
    if (st == WEFT_OK) st = weft_writer_commit(&w);
    else weft_writer_abandon(&w);
free_text:
    free(text);
    return st;
}
