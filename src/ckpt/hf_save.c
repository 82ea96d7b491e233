/* hf_save.c — writing an array of weights as a model directory that Hugging Face's loaders read.
 *
 * A sharded save is complete when its index exists, and the index is written last. So a folder that holds
 * an index is never written into: half-replaced shards under an old index would load without complaint. */
#include "ckpt/ckpt_impl.h"

#include <jansson.h>
#include <stdlib.h>
#include <unistd.h>

static const char *const hf_meta[] = {"format", "pt", NULL};

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

static bool is_weight_type(weft_dtype t) { return t == WEFT_F64 || t == WEFT_F32 || t == WEFT_BF16 || t == WEFT_F16; }

/* ---- items -------------------------------------------------------------------------------------------- */

static int64_t item_bytes(const weft__st_item *item)
{
    return item->count * (int64_t)weft_dtype_size(item->file_dtype);
}

static weft_status make_items(const weft_spec *spec, int n, const void *weights, weft_dtype dtype,
                              weft_dtype file_dtype, weft__st_item *items, int64_t *total)
{
    *total = 0;
    for (int i = 0; i < n; i++) {
        const char *at = (const char *)weights + (size_t)spec[i].offset * weft_dtype_size(dtype);
        items[i] = (weft__st_item){spec[i].name, at, dtype, file_dtype, spec[i].nd, spec[i].shape, spec[i].count};
        int64_t bytes;
        if (!weft_mul_i64(spec[i].count, (int64_t)weft_dtype_size(file_dtype), &bytes) ||
            __builtin_add_overflow(*total, bytes, total))
            return weft_fail(WEFT_ERR_REFUSED, "tensor %s: the model is larger than 2^63 bytes", spec[i].name);
    }
    return WEFT_OK;
}

/* ---- shards ------------------------------------------------------------------------------------------- */

/* first[s] is the first tensor of shard s, in the table's order; a tensor above the limit gets its own
 * shard. Returns the number of shards. */
static int cut_shards(const weft__st_item *items, int n, int64_t limit, int *first)
{
    int shards = 0;
    int64_t used = 0;
    for (int i = 0; i < n; i++) {
        const int64_t bytes = item_bytes(&items[i]);
        if (i == 0 || bytes > limit - used) {
            first[shards++] = i;
            used = 0;
        }
        used += bytes;
    }
    first[shards] = n;
    return shards;
}

static weft_status write_index(const char *dir, json_t *map, int64_t total)
{
    json_t *root = json_pack("{s:{s:I}, s:O}", "metadata", "total_size", (json_int_t)total, "weight_map", map);
    char *text = root ? json_dumps(root, JSON_INDENT(2) | JSON_SORT_KEYS) : NULL;
    json_decref(root);
    char *path = weft__join(dir, WEFT__HF_INDEX);
    weft_text out = {0};
    if (text) weft_text_add(&out, "%s\n", text);
    weft_status st = text && path && !out.failed ? weft_write_file(path, out.data, out.len)
                                                 : weft_fail(WEFT_ERR_MEMORY, "%s: out of memory for the index", dir);
    weft_text_free(&out);
    free(path);
    free(text);
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
    weft_status st = weft__st_write_items(path, items, n, hf_meta);
    free(path);
    return st;
}

static weft_status save_shards(const char *dir, weft__st_item *items, int n, int64_t limit, int64_t total)
{
    int *first = calloc((size_t)n + 1, sizeof *first);
    json_t *map = json_object();
    weft_status st = first && map ? WEFT_OK : weft_fail(WEFT_ERR_MEMORY, "%s: out of memory", dir);
    int shards = st == WEFT_OK ? cut_shards(items, n, limit, first) : 0;
    for (int s = 0; s < shards && st == WEFT_OK; s++)
        st = write_shard(dir, s, shards, items + first[s], first[s + 1] - first[s], map);
    if (st == WEFT_OK) st = write_index(dir, map, total);
    json_decref(map);
    free(first);
    return st;
}

static weft_status save_single(const char *dir, weft__st_item *items, int n)
{
    char *path = weft__join(dir, WEFT__HF_SINGLE);
    if (!path) return weft_fail(WEFT_ERR_MEMORY, "%s: out of memory", dir);
    weft_status st = weft__st_write_items(path, items, n, hf_meta);
    free(path);
    return st;
}

weft_status weft_ckpt_save_weights(const char *dir, const weft_spec *spec, int n, const void *weights,
                                   weft_dtype dtype, weft_dtype file_dtype, int64_t max_shard_bytes)
{
    if (!is_weight_type(dtype) || !is_weight_type(file_dtype))
        return weft_fail(WEFT_ERR_REFUSED, "%s: weights of type %s cannot be saved as %s; use fp64, fp32, bf16 or fp16",
                         dir, weft_dtype_name(dtype), weft_dtype_name(file_dtype));
    if (n < 1 || max_shard_bytes < 0)
        return weft_fail(WEFT_ERR_REFUSED, "%s: %d tensors in shards of %lld bytes cannot be saved", dir, n,
                         (long long)max_shard_bytes);
    weft__st_item *items = calloc((size_t)n, sizeof *items);
    if (!items) return weft_fail(WEFT_ERR_MEMORY, "%s: out of memory for %d tensors", dir, n);
    int64_t total;
    weft_status st = make_items(spec, n, weights, dtype, file_dtype, items, &total);
    const bool sharded = max_shard_bytes > 0 && st == WEFT_OK && total > max_shard_bytes;
    if (st == WEFT_OK) st = check_folder(dir, sharded);
    if (st == WEFT_OK)
        st = sharded ? save_shards(dir, items, n, max_shard_bytes, total) : save_single(dir, items, n);
    free(items);
    return st;
}
