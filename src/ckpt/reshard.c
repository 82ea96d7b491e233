/* reshard.c — the model of a checkpoint in other files: of another size, of another type. Nothing is held in memory
 * but what is mapped and the piece that is converted. */
#include "ckpt/ckpt_impl.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static weft_status write_model(const char *from, const char *to, weft_dtype file_dtype, int64_t max_shard_bytes)
{
    weft__hf hf;
    weft_status st = weft__hf_open(&hf, from);
    weft__st_item *items = st >= 0 ? calloc((size_t)hf.n + 1, sizeof *items) : NULL;
    if (st >= 0 && !items) st = weft_fail(WEFT_ERR_MEMORY, "%s: no memory for %d tensors", from, hf.n);
    for (int i = 0; i < hf.n && st >= 0; i++) {
        const weft_view *v = hf.tensor[i].view;
        if (!weft__is_weight_type(v->dtype))
            st = weft_fail(WEFT_ERR_REFUSED, "%s: tensor %s is %s; weights are floating-point numbers", from,
                           hf.tensor[i].name, weft_dtype_safetensors(v->dtype));
        items[i] =
            (weft__st_item){hf.tensor[i].name, v->data, v->dtype, file_dtype, v->nd, v->shape, weft_view_count(v)};
    }
    if (st >= 0) st = weft__save_items(to, items, hf.n, max_shard_bytes);
    free(items);
    weft__hf_close(&hf);
    return st;
}

/* The manifest of what has just been written. */
static weft_status add_file(const char *dir, const char *name, weft_ckpt_file *out)
{
    weft_map map = {0};
    char *path = weft__join(dir, name);
    if (!path) return weft_fail(WEFT_ERR_MEMORY, "%s: no memory for a path", dir);
    weft_status st = weft_map_open(&map, path);
    free(path);
    WEFT_TRY(st);
    *out = (weft_ckpt_file){.bytes = (int64_t)map.bytes, .hash = weft_hash_of(map.data, map.bytes)};
    memcpy(out->name, name, strlen(name) + 1);
    weft_map_close(&map);
    return WEFT_OK;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const weft_ckpt_file *)a)->name, ((const weft_ckpt_file *)b)->name);
}

static weft_status list_files(const char *dir, weft_ckpt_file **file, int *n)
{
    DIR *d = opendir(dir);
    int room = 0;
    if (!d) return weft_fail(WEFT_ERR_IO, "cannot read the folder %s: %s", dir, strerror(errno));
    weft_status st = WEFT_OK;
    for (struct dirent *e; st >= 0 && (e = readdir(d));) {
        if (!weft__is_checkpoint_file(e->d_name) || strlen(e->d_name) >= sizeof(*file)->name) continue;
        if (*n == room) {
            room = room ? 2 * room : 8;
            weft_ckpt_file *more = realloc(*file, (size_t)room * sizeof *more);
            if (!more) st = weft_fail(WEFT_ERR_MEMORY, "%s: no memory for its files", dir);
            else *file = more;
        }
        if (st >= 0) st = add_file(dir, e->d_name, &(*file)[(*n)++]);
    }
    closedir(d);
    return st;
}

static weft_status write_manifest(const char *dir, int64_t step)
{
    weft_ckpt_file *file = NULL;
    int n = 0;
    weft_text text = {0};
    weft_status st = list_files(dir, &file, &n);
    if (st >= 0) {
        qsort(file, (size_t)n, sizeof *file, by_name);
        const weft_ckpt_about about = {.step = step, .layout = {1, 1, 1, 1, 0}, .files = n, .file = file};
        st = weft__manifest_text(&about, &text);
    }
    char *path = weft__join(dir, WEFT__CKPT_MANIFEST);
    if (st >= 0)
        st = path ? weft_write_file(path, text.data, text.len) : weft_fail(WEFT_ERR_MEMORY, "%s: out of memory", dir);
    weft_text_free(&text);
    free(path);
    free(file);
    return st;
}

/* What a model directory without a manifest was trained for is not known. */
static int64_t step_of(const char *dir)
{
    weft_ckpt *c = NULL;
    weft_ckpt_about about = {0};
    if (weft_ckpt_open(&c, dir) >= 0) weft_ckpt_tell(c, &about);
    weft_ckpt_close(c);
    return about.step;
}

weft_status weft_ckpt_reshard(const char *from, const char *to, weft_dtype file_dtype, int64_t max_shard_bytes,
                              const char *config_json)
{
    struct stat there;
    if (!lstat(to, &there)) return weft_fail(WEFT_ERR_REFUSED, "%s exists already; give the name of a new folder", to);
    WEFT_TRY(write_model(from, to, file_dtype, max_shard_bytes));
    char *path = weft__join(to, WEFT__CKPT_CONFIG);
    weft_status st = path ? weft_write_file(path, config_json, strlen(config_json))
                          : weft_fail(WEFT_ERR_MEMORY, "%s: out of memory", to);
    free(path);
    return st < 0 ? st : write_manifest(to, step_of(from));
}
