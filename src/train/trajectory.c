/* trajectory.c — reads trajectory.json: the optimizer's settings, and loss and gradient norm of each step. */
#include "train/verify_impl.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static weft_status number(const json_t *from, const char *path, const char *key, double *out)
{
    const json_t *v = json_object_get(from, key);
    if (!json_is_number(v)) return weft_fail(WEFT_ERR_REFUSED, "%s: adamw.%s is missing or no number", path, key);
    *out = json_number_value(v);
    return WEFT_OK;
}

static weft_status numbers(const json_t *root, const char *path, const char *key, weft_arena *arena, int64_t *n,
                           double **out)
{
    const json_t *list = json_object_get(root, key);
    if (!json_is_array(list) || !json_array_size(list))
        return weft_fail(WEFT_ERR_REFUSED, "%s: %s is missing, empty or no list", path, key);
    int64_t count = (int64_t)json_array_size(list);
    if (*n >= 0 && count != *n)
        return weft_fail(WEFT_ERR_REFUSED, "%s: loss and grad_norm have different lengths", path);
    *n = count;
    WEFT_TRY(WEFT_NEW(arena, count, key, out));
    for (int64_t i = 0; i < count; i++) {
        const json_t *v = json_array_get(list, (size_t)i);
        if (!json_is_number(v))
            return weft_fail(WEFT_ERR_REFUSED, "%s: %s[%lld] is no number", path, key, (long long)i);
        (*out)[i] = json_number_value(v);
    }
    return WEFT_OK;
}

static weft_status read_object(weft_trajectory *t, weft_arena *arena, const char *path, const json_t *root)
{
    const json_t *a = json_object_get(root, "adamw");
    weft_optim_options *o = &t->options;
    int64_t steps = -1;
    if (!json_is_object(a)) return weft_fail(WEFT_ERR_REFUSED, "%s: adamw is missing", path);
    WEFT_TRY(number(a, path, "lr", &o->lr));
    WEFT_TRY(number(a, path, "beta1", &o->beta1));
    WEFT_TRY(number(a, path, "beta2", &o->beta2));
    WEFT_TRY(number(a, path, "eps", &o->eps));
    WEFT_TRY(number(a, path, "weight_decay", &o->weight_decay));
    WEFT_TRY(number(a, path, "clip", &o->clip));
    WEFT_TRY(weft_optim_check(o));
    WEFT_TRY(numbers(root, path, "loss", arena, &steps, &t->loss));
    WEFT_TRY(numbers(root, path, "grad_norm", arena, &steps, &t->norm));
    t->steps = steps;
    return WEFT_OK;
}

weft_status weft_trajectory_read(weft_trajectory *t, weft_arena *arena, const char *case_path)
{
    char path[4096];
    const char *slash = strrchr(case_path, '/');
    int folder = slash ? (int)(slash - case_path) + 1 : 0;
    *t = (weft_trajectory){
        .options = {.lr = 1e-3, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .weight_decay = 0.1, .clip = 1}};
    if ((size_t)snprintf(path, sizeof path, "%.*strajectory.json", folder, case_path) >= sizeof path ||
        access(path, F_OK))
        return WEFT_OK;
    json_error_t e;
    weft_map map = {0}; /* not json_load_file: it would wait at a pipe for a writer */
    WEFT_TRY(weft_map_open(&map, path));
    t->file = weft_glance_of(map.data, map.bytes);
    json_t *root = json_loadb((const char *)map.data, map.bytes, 0, &e);
    weft_map_close(&map);
    if (!root) return weft_fail(WEFT_ERR_REFUSED, "%s:%d:%d: %s", path, e.line, e.column, e.text);
    weft_status st = read_object(t, arena, path, root);
    json_decref(root);
    return st;
}
