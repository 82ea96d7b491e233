/* profile.c — the default rates, and profiles by name: those that are built in, and files. */
#include "mesh/mesh_impl.h"

#include <string.h>
#include <unistd.h>

/* Only their ratios choose a strategy. */
weft_profile weft_profile_default(void)
{
    return (weft_profile){.name = "plain machine",
                          .latency_seconds = 10e-6,
                          .link_bytes_per_second = 10e9,
                          .rank_bytes_per_second = 10e9,
                          .memory_bytes_per_second = 20e9,
                          .flops_per_second = {1e9, 100e9, 100e9, 100e9},
                          .backward_factor = 2.5,
                          .node_latency_seconds = 10e-6,
                          .node_bytes_per_second = 10e9,
                          .product_flops_per_second = {1e9, 100e9, 100e9, 100e9},
                          .element_bytes_per_second = 40e9,
                          .collective_factor = 1};
}

/* docs/maths/plan.md; kern/charge/charge.c charges the same. */
double weft_profile_attention(const weft_profile *p, weft_prec prec, weft_attention_amount a, int64_t D, int64_t Dv)
{
    const double computed = a.pairs + a.edges * p->attention_edge_keys + a.rows * p->attention_row_keys;
    return computed * (2.0 * (double)(D + Dv) / p->flops_per_second[prec] + p->attention_pair_seconds[prec]);
}

double weft_profile_shown(const weft_profile *p, double exposed, double moving)
{
    return moving > exposed ? exposed + p->unhidden_share * (moving - exposed) : exposed;
}

/* ---- by name ----------------------------------------------------------------------------------------------- */

const char *const *weft_profile_names(int *n)
{
    *n = weft__mesh_profile_count;
    return weft__mesh_profile_names;
}

static const struct weft__mesh_profile_text *built_in(const char *name)
{
    for (int i = 0; i < weft__mesh_profile_count; i++)
        if (!strcmp(name, weft__mesh_profile_names[i])) return &weft__mesh_profile_texts[i];
    return NULL;
}

/* "folder/h100-ib.json" is h100-ib. Names are printed, and written to JSON: of other letters "?" is left. */
static void name_of_path(const char *path, char name[WEFT_PROFILE_NAME])
{
    const char *slash = strrchr(path, '/'), *base = slash ? slash + 1 : path, *dot = strrchr(base, '.');
    size_t n = weft_min_size(dot && dot > base ? (size_t)(dot - base) : strlen(base), WEFT_PROFILE_NAME - 1);
    for (size_t i = 0; i < n; i++) name[i] = (char)(base[i] >= ' ' && base[i] <= '~' ? base[i] : '?');
    name[n] = '\0';
}

static weft_status refuse_name(const char *name)
{
    weft_text list = {0};
    const char *near = weft_suggest(name, weft__mesh_profile_names, weft__mesh_profile_count);
    for (int i = 0; i < weft__mesh_profile_count; i++)
        weft_text_add(&list, "%s%s", i ? ", " : "", weft__mesh_profile_names[i]);
    weft_status st = weft_fail(WEFT_ERR_REFUSED,
                               "\"%.200s\" is neither a profile's name nor a file%s%s%s; there is: %s, and any file of "
                               "weft bench profile --out",
                               name, near ? "; did you mean \"" : "", near ? near : "", near ? "\"?" : "",
                               list.data ? list.data : "");
    weft_text_free(&list);
    return st;
}

/* What looks like a path is one, and its own message says what is wrong with it. */
static bool is_path(const char *name) { return strchr(name, '/') || strstr(name, ".json") || !access(name, F_OK); }

weft_status weft_profile_read(weft_profile *out, const char *path)
{
    weft_map map = {0};
    char name[WEFT_PROFILE_NAME];
    WEFT_TRY(weft_map_open(&map, path));
    name_of_path(path, name);
    weft_status st = weft__mesh_profile_parse(out, (const char *)map.data, map.bytes, path, name);
    weft_map_close(&map);
    return st;
}

weft_status weft_profile_find(weft_profile *out, const char *name)
{
    const struct weft__mesh_profile_text *t = built_in(name);
    if (t) return weft__mesh_profile_parse(out, (const char *)t->json, t->bytes, name, name);
    return is_path(name) ? weft_profile_read(out, name) : refuse_name(name);
}

weft_status weft_profile_source(weft_text *out, const char *name, const char *key)
{
    weft_map map = {0};
    const struct weft__mesh_profile_text *t = built_in(name);
    if (t) return weft__mesh_profile_sources(out, (const char *)t->json, t->bytes, name, key);
    if (!is_path(name)) return refuse_name(name);
    WEFT_TRY(weft_map_open(&map, name));
    weft_status st = weft__mesh_profile_sources(out, (const char *)map.data, map.bytes, name, key);
    weft_map_close(&map);
    return st;
}
