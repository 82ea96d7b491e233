/* hf_save.c — writing an array of weights as a model directory that Hugging Face's loaders read.
 *
 * A sharded save is complete when its index exists, and the index is written last. So a folder that holds
 * an index is never written into: half-replaced shards under an old index would load without complaint. */
#include "ckpt/ckpt_impl.h"

#include <jansson.h>
#include <stdlib.h>
#include <unistd.h>

const char *const weft__hf_meta[] = {"format", "pt", NULL};

/* ---- checks ------------------------------------------------------------------------------------------- */

static bool has(const char *dir, const char *name)
{
    char *path = weft__join(dir, name);
    bool yes = path && access(path, F_OK) == 0;
    free(path);
    return yes;
}

static weft_status check_folder(const char *dir, bool sharded)
{
    WEFT_TRY(weft_make_dir(dir));
    if (has(dir, WEFT__HF_INDEX))
        return weft_fail(WEFT_ERR_REFUSED, "%s already holds a sharded model: save into a fresh folder", dir);
    if (sharded && has(dir, WEFT__HF_SINGLE))
        return weft_fail(WEFT_ERR_REFUSED, "%s already holds " WEFT__HF_SINGLE ": save shards into a fresh folder",
                         dir);
    return WEFT_OK;
}

bool weft__is_weight_type(weft_dtype t)
{
    return t == WEFT_F64 || t == WEFT_F32 || t == WEFT_BF16 || t == WEFT_F16;
}

/* ---- items -------------------------------------------------------------------------------------------- */

static int64_t item_bytes(const weft__st_item *item)
{
    return item->count * (int64_t)weft_dtype_size(item->file_dtype);
}

/* ---- shards ------------------------------------------------------------------------------------------- */

int weft__cut_shards(const int64_t *bytes, int n, int64_t limit, int *first)
{
    int shards = 0;
    int64_t used = 0;
    for (int i = 0; i < n; i++) {
        if (i == 0 || (limit > 0 && bytes[i] > limit - used)) {
            first[shards++] = i;
            used = 0;
        }
        used += bytes[i];
    }
    first[shards] = n;
    return shards;
}

weft_status weft__index_text(const char *dir, json_t *map, int64_t total, weft_text *out)
{
    json_t *root = json_pack("{s:{s:I}, s:O}", "metadata", "total_size", (json_int_t)total, "weight_map", map);
    char *text = root ? json_dumps(root, JSON_INDENT(2) | JSON_SORT_KEYS) : NULL;
    json_decref(root);
    if (text) weft_text_add(out, "%s\n", text);
    bool good = text && !out->failed;
    free(text);
    return good ? WEFT_OK : weft_fail(WEFT_ERR_MEMORY, "%s: out of memory for the index", dir);
}

static weft_status write_index(const char *dir, json_t *map, int64_t total)
{
    weft_text text = {0};
    char *path = weft__join(dir, WEFT__HF_INDEX);
    weft_status st = path ? weft__index_text(dir, map, total, &text)
                          : weft_fail(WEFT_ERR_MEMORY, "%s: out of memory for the index", dir);
    if (st == WEFT_OK) st = weft_write_file(path, text.data, text.len);
    weft_text_free(&text);
    free(path);
    return st;
}

static weft_status write_shard(const char *dir, int s, int shards, weft__st_item *items, int n, json_t *map)
{
    char file[64];
    snprintf(file, sizeof file, "model-%05d-of-%05d.safetensors", s + 1, shards);
    for (int i = 0; i < n; i++)
        if (json_object_set_new(map, items[i].name, json_string(file)) != 0)
            return weft_fail(WEFT_ERR_REFUSED, "%s: the tensor name %s is not UTF-8", dir, items[i].name);
    char *path = weft__join(dir, file);
    if (!path) return weft_fail(WEFT_ERR_MEMORY, "%s: out of memory", dir);
    weft_status st = weft__st_write_items(path, items, n, weft__hf_meta);
    free(path);
    return st;
}

static weft_status save_shards(const char *dir, weft__st_item *items, int n, int64_t limit, int64_t total)
{
    int *first = calloc((size_t)n + 1, sizeof *first);
    int64_t *bytes = calloc((size_t)n + 1, sizeof *bytes);
    json_t *map = json_object();
    weft_status st = first && bytes && map ? WEFT_OK : weft_fail(WEFT_ERR_MEMORY, "%s: out of memory", dir);
    for (int i = 0; i < n && st == WEFT_OK; i++) bytes[i] = item_bytes(&items[i]);
    int shards = st == WEFT_OK ? weft__cut_shards(bytes, n, limit, first) : 0;
    for (int s = 0; s < shards && st == WEFT_OK; s++)
        st = write_shard(dir, s, shards, items + first[s], first[s + 1] - first[s], map);
    if (st == WEFT_OK) st = write_index(dir, map, total);
    json_decref(map);
    free(bytes);
    free(first);
    return st;
}

static weft_status save_single(const char *dir, weft__st_item *items, int n)
{
    char *path = weft__join(dir, WEFT__HF_SINGLE);
    if (!path) return weft_fail(WEFT_ERR_MEMORY, "%s: out of memory", dir);
    weft_status st = weft__st_write_items(path, items, n, weft__hf_meta);
    free(path);
    return st;
}

weft_status weft__save_items(const char *dir, weft__st_item *items, int n, int64_t max_shard_bytes)
{
    int64_t total = 0;
    for (int i = 0; i < n; i++) {
        int64_t bytes;
        if (!weft_mul_i64(items[i].count, (int64_t)weft_dtype_size(items[i].file_dtype), &bytes) ||
            __builtin_add_overflow(total, bytes, &total))
            return weft_fail(WEFT_ERR_REFUSED, "tensor %s: the model is larger than 2^63 bytes", items[i].name);
    }
    const bool sharded = max_shard_bytes > 0 && total > max_shard_bytes;
    WEFT_TRY(check_folder(dir, sharded));
    return sharded ? save_shards(dir, items, n, max_shard_bytes, total) : save_single(dir, items, n);
}

weft_status weft_ckpt_save_weights(const char *dir, const weft_spec *spec, int n, const void *weights,
                                   weft_dtype dtype, weft_dtype file_dtype, int64_t max_shard_bytes)
{
    if (!weft__is_weight_type(dtype) || !weft__is_weight_type(file_dtype))
        return weft_fail(WEFT_ERR_REFUSED, "%s: weights of type %s cannot be saved as %s; use fp64, fp32, bf16 or fp16",
                         dir, weft_dtype_name(dtype), weft_dtype_name(file_dtype));
    if (n < 1 || max_shard_bytes < 0)
        return weft_fail(WEFT_ERR_REFUSED, "%s: %d tensors in shards of %lld bytes cannot be saved", dir, n,
                         (long long)max_shard_bytes);
    weft__st_item *items = calloc((size_t)n, sizeof *items);
    if (!items) return weft_fail(WEFT_ERR_MEMORY, "%s: out of memory for %d tensors", dir, n);
    for (int i = 0; i < n; i++)
        items[i] = (weft__st_item){spec[i].name,
                                   (const char *)weights + (size_t)spec[i].offset * weft_dtype_size(dtype),
                                   dtype, file_dtype, spec[i].nd, spec[i].shape, spec[i].count};
    weft_status st = weft__save_items(dir, items, n, max_shard_bytes);
    free(items);
    return st;
}
