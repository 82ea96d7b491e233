/* hf_dir.c — the files of a Hugging Face model directory as one sorted list of tensors: a single
 * model.safetensors, or shards named by an index. An index comes from a download: it may name files that
 * are not there, or elsewhere; both are refused before anything is read. */
#include "ckpt/ckpt_impl.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MAX_INDEX = 1 << 28 }; /* bytes; the indices of the largest models take a few MB */

char *weft__join(const char *dir, const char *name)
{
    size_t room = strlen(dir) + strlen(name) + 2;
    char *out = malloc(room);
    if (out) snprintf(out, room, "%s/%s", dir, name);
    return out;
}

/* Published files of one model differ in this prefix only. */
static const char *key_of(const char *name)
{
    static const char *const prefix[] = {"transformer.", "model."};
    for (size_t i = 0; i < sizeof prefix / sizeof *prefix; i++) {
        size_t len = strlen(prefix[i]);
        if (strncmp(name, prefix[i], len) == 0) return name + len;
    }
    return name;
}

static weft_status open_file(weft__hf *hf, const char *name)
{
    char *path = weft__join(hf->dir, name);
    if (!path) return weft_fail(WEFT_ERR_MEMORY, "%s: out of memory", hf->dir);
    weft_status st = weft_st_open(&hf->file[hf->files], path);
    free(path);
    if (st == WEFT_OK) hf->files++;
    return st;
}

/* ---- the index -------------------------------------------------------------------------------------- */

static bool plain_name(const char *file)
{
    return file[0] != '\0' && !strchr(file, '/') && strcmp(file, ".") != 0 && strcmp(file, "..") != 0;
}

/* Opens every file that the map names, once; `opened` maps a file's name to its number. */
static weft_status open_shards(weft__hf *hf, const char *index, json_t *map, json_t *opened)
{
    const char *tensor;
    json_t *value;
    json_object_foreach(map, tensor, value) {
        const char *file = json_string_value(value);
        if (!file || !plain_name(file))
            return weft_fail(WEFT_ERR_REFUSED,
                             "%s: tensor %s is in \"%s\", which is not the name of a file in that folder", index,
                             tensor, file ? file : "?");
        if (json_object_get(opened, file)) continue;
        weft_status st = open_file(hf, file);
        if (st < 0) return weft_fail_at(st, "%s names %s for tensor %s: ", index, file, tensor);
        if (json_object_set_new(opened, file, json_integer(hf->files - 1)) != 0)
            return weft_fail(WEFT_ERR_MEMORY, "%s: out of memory", index);
    }
    return WEFT_OK;
}

/* Index and files must agree in both directions. */
static weft_status check_index(const weft__hf *hf, const char *index, json_t *map, json_t *opened)
{
    const char *tensor;
    json_t *value;
    json_object_foreach(map, tensor, value) {
        const weft_st *st = hf->file[json_integer_value(json_object_get(opened, json_string_value(value)))];
        if (!weft_st_find(st, tensor))
            return weft_fail(WEFT_ERR_REFUSED, "%s: tensor %s is not in %s, where the index has it", index, tensor,
                             weft_st_path(st));
    }
    const char *file;
    json_object_foreach(opened, file, value) {
        const weft_st *st = hf->file[json_integer_value(value)];
        for (int i = 0; i < weft_st_count(st); i++) {
            const char *name = weft_st_at(st, i)->name;
            const char *where = json_string_value(json_object_get(map, name));
            if (!where) return weft_fail(WEFT_ERR_REFUSED, "%s does not name tensor %s of %s", index, name, file);
            if (strcmp(where, file) != 0)
                return weft_fail(WEFT_ERR_REFUSED, "%s: tensor %s is in two places: in %s by the index, and in %s",
                                 index, name, where, file);
        }
    }
    return WEFT_OK;
}

static weft_status parse_index(const char *index, json_t **out)
{
    char *text = NULL;
    size_t bytes = 0;
    WEFT_TRY(weft_read_file(index, MAX_INDEX, &text, &bytes));
    json_error_t e;
    json_t *root = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, &e);
    free(text);
    if (!root) return weft_fail(WEFT_ERR_REFUSED, "%s:%d:%d: %s", index, e.line, e.column, e.text);
    if (json_object_size(json_object_get(root, "weight_map")) == 0) {
        json_decref(root);
        return weft_fail(WEFT_ERR_REFUSED, "%s: no \"weight_map\" with at least one tensor", index);
    }
    *out = root;
    return WEFT_OK;
}

static weft_status open_indexed(weft__hf *hf, const char *index)
{
    json_t *root = NULL;
    WEFT_TRY(parse_index(index, &root));
    json_t *map = json_object_get(root, "weight_map"), *opened = json_object();
    hf->file = calloc(json_object_size(map), sizeof(weft_st *));
    weft_status st = hf->file && opened ? WEFT_OK : weft_fail(WEFT_ERR_MEMORY, "%s: out of memory", index);
    if (st == WEFT_OK) st = open_shards(hf, index, map, opened);
    if (st == WEFT_OK) st = check_index(hf, index, map, opened);
    json_decref(opened);
    json_decref(root);
    return st;
}

static weft_status open_single(weft__hf *hf)
{
    hf->file = calloc(1, sizeof(weft_st *));
    if (!hf->file) return weft_fail(WEFT_ERR_MEMORY, "%s: out of memory", hf->dir);
    return open_file(hf, WEFT__HF_SINGLE);
}

/* ---- the list --------------------------------------------------------------------------------------- */

static int by_key(const void *a, const void *b)
{
    return strcmp(((const weft__hf_tensor *)a)->key, ((const weft__hf_tensor *)b)->key);
}

static weft_status list_tensors(weft__hf *hf)
{
    size_t n = 0;
    for (int f = 0; f < hf->files; f++) n += (size_t)weft_st_count(hf->file[f]);
    hf->tensor = calloc(n + 1, sizeof *hf->tensor);
    if (!hf->tensor) return weft_fail(WEFT_ERR_MEMORY, "%s: out of memory for %zu tensors", hf->dir, n);
    for (int f = 0; f < hf->files; f++)
        for (int i = 0; i < weft_st_count(hf->file[f]); i++) {
            const weft_st_entry *e = weft_st_at(hf->file[f], i);
            hf->tensor[hf->n++] = (weft__hf_tensor){key_of(e->name), e->name, &e->view, hf->file[f], false};
        }
    qsort(hf->tensor, (size_t)hf->n, sizeof *hf->tensor, by_key);
    for (int i = 1; i < hf->n; i++) {
        const weft__hf_tensor *a = &hf->tensor[i - 1], *b = &hf->tensor[i];
        if (strcmp(a->key, b->key) == 0)
            return weft_fail(WEFT_ERR_REFUSED, "a tensor is there twice: %s in %s and %s in %s", a->name,
                             weft_st_path(a->file), b->name, weft_st_path(b->file));
    }
    return WEFT_OK;
}

weft_status weft__hf_open(weft__hf *hf, const char *dir)
{
    *hf = (weft__hf){.dir = dir};
    char *single = weft__join(dir, WEFT__HF_SINGLE), *index = weft__join(dir, WEFT__HF_INDEX);
    weft_status st;
    if (!single || !index) {
        st = weft_fail(WEFT_ERR_MEMORY, "%s: out of memory", dir);
    } else {
        bool has_single = access(single, F_OK) == 0, has_index = access(index, F_OK) == 0;
        /* Both: a save of another form was interrupted, or two downloads met; which one is meant is a guess. */
        if (has_single && has_index)
            st = weft_fail(WEFT_ERR_REFUSED, "%s holds both " WEFT__HF_SINGLE " and " WEFT__HF_INDEX ": remove one",
                           dir);
        else if (has_single)
            st = open_single(hf);
        else if (has_index)
            st = open_indexed(hf, index);
        else
            st = weft_fail(WEFT_ERR_REFUSED, "%s holds neither " WEFT__HF_SINGLE " nor " WEFT__HF_INDEX, dir);
    }
    free(single);
    free(index);
    WEFT_TRY(st);
    return list_tensors(hf);
}

void weft__hf_close(weft__hf *hf)
{
    for (int f = 0; f < hf->files; f++) weft_st_close(hf->file[f]);
    free(hf->file);
    free(hf->tensor);
    *hf = (weft__hf){0};
}

weft__hf_tensor *weft__hf_find(const weft__hf *hf, const char *name)
{
    if (hf->n == 0) return NULL;
    const weft__hf_tensor probe = {.key = key_of(name)};
    return bsearch(&probe, hf->tensor, (size_t)hf->n, sizeof *hf->tensor, by_key);
}
