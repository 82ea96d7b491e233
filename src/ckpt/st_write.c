/* st_write.c — writing a safetensors file in the canonical order (larger alignment first, then name;
 * header padded to 8 bytes), so that every tensor lies aligned in a mapping and equal contents give equal
 * files. The file appears under its name only when all of it is on the disk. */
#include "ckpt/ckpt_impl.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

/* Elements converted at a time: large enough for few writes, small enough to stay in a cache. */
enum { PIECE = 32768 };

/* The format's order of types, larger first; where alignments are equal it is only a convention. */
static int rank_of(weft_dtype t)
{
    static const int rank[WEFT_DTYPE_COUNT] = {
        [WEFT_I64] = 9, [WEFT_F64] = 8, [WEFT_F32] = 7,     [WEFT_I32] = 6,     [WEFT_BF16] = 5,
        [WEFT_F16] = 4, [WEFT_U16] = 3, [WEFT_F8_E4M3] = 2, [WEFT_F8_E5M2] = 1, [WEFT_U8] = 0,
    };
    return rank[t];
}

int weft__st_order(const void *a, const void *b)
{
    const weft__st_item *x = a, *y = b;
    int rx = rank_of(x->file_dtype), ry = rank_of(y->file_dtype);
    return rx != ry ? ry - rx : strcmp(x->name, y->name);
}

/* ---- header ----------------------------------------------------------------------------------------- */

static weft_status add_metadata(json_t *header, const char *path, const char *const *meta)
{
    if (!meta || !meta[0]) return WEFT_OK;
    json_t *object = json_object();
    if (json_object_set_new(header, "__metadata__", object) != 0)
        return weft_fail(WEFT_ERR_MEMORY, "%s: out of memory", path);
    for (int i = 0; meta[i]; i += 2)
        if (!meta[i + 1] || json_object_set_new(object, meta[i], json_string(meta[i + 1])) != 0)
            return weft_fail(WEFT_ERR_REFUSED, "%s: metadata \"%s\" has no value or is not UTF-8", path, meta[i]);
    return WEFT_OK;
}

static weft_status add_tensor(json_t *header, const char *path, const weft__st_item *item, size_t *at)
{
    size_t bytes = 0, end;
    WEFT_TRY(weft_size_of(item->count, weft_dtype_size(item->file_dtype), item->name, &bytes));
    if (!weft_add_size(*at, bytes, &end) || end > INT64_MAX)
        return weft_fail(WEFT_ERR_REFUSED, "%s: more than 2^63 bytes of tensors", path);
    if (strcmp(item->name, "__metadata__") == 0 || json_object_get(header, item->name))
        return weft_fail(WEFT_ERR_REFUSED, "%s: the tensor name %s is reserved or used twice", path, item->name);
    json_t *shape = json_array();
    for (int d = 0; d < item->nd; d++) json_array_append_new(shape, json_integer(item->shape[d]));
    json_t *info = json_pack("{s:s, s:o, s:[I, I]}", "dtype", weft_dtype_safetensors(item->file_dtype), "shape", shape,
                             "data_offsets", (json_int_t)*at, (json_int_t)end);
    if (json_object_set_new(header, item->name, info) != 0)
        return weft_fail(WEFT_ERR_REFUSED, "%s: the tensor name %s is not UTF-8", path, item->name);
    *at = end;
    return WEFT_OK;
}

weft_status weft__st_header(const char *path, const weft__st_item *items, int n, const char *const *meta, char **text,
                            size_t *length)
{
    json_t *header = json_object();
    size_t at = 0;
    weft_status st = add_metadata(header, path, meta);
    for (int i = 0; i < n && st == WEFT_OK; i++) st = add_tensor(header, path, &items[i], &at);
    char *compact = st == WEFT_OK ? json_dumps(header, JSON_COMPACT) : NULL;
    json_decref(header);
    WEFT_TRY(st);
    size_t used = compact ? strlen(compact) : 0, padded = (used + 7) / 8 * 8;
    char *out = compact ? realloc(compact, padded + 1) : NULL;
    if (!out) {
        free(compact);
        return weft_fail(WEFT_ERR_MEMORY, "%s: out of memory for the header", path);
    }
    memset(out + used, ' ', padded - used);
    *text = out;
    *length = padded;
    if (padded <= WEFT__ST_MAX_HEADER) return WEFT_OK;
    free(out);
    return weft_fail(WEFT_ERR_REFUSED, "%s: the header needs %zu bytes, the format allows %u: write shards", path,
                     padded, WEFT__ST_MAX_HEADER);
}

/* ---- data ------------------------------------------------------------------------------------------- */

static weft_status put_data(weft_writer *w, const weft__st_item *item, void *piece)
{
    const size_t from = weft_dtype_size(item->dtype), to = weft_dtype_size(item->file_dtype);
    if (item->dtype == item->file_dtype) return weft_writer_put(w, item->data, (size_t)item->count * to);
    for (int64_t i = 0; i < item->count; i += PIECE) {
        const int64_t m = weft_min_i64(PIECE, item->count - i);
        weft_convert(piece, item->file_dtype, (const char *)item->data + (size_t)i * from, item->dtype, m);
        WEFT_TRY(weft_writer_put(w, piece, (size_t)m * to));
    }
    return WEFT_OK;
}

static weft_status put_all(weft_writer *w, const char *path, const weft__st_item *items, int n, const char *text,
                           size_t length)
{
    const uint64_t prefix = length;
    WEFT_TRY(weft_writer_put(w, &prefix, 8));
    WEFT_TRY(weft_writer_put(w, text, length));
    void *piece = malloc(PIECE * sizeof(double));
    if (!piece) return weft_fail(WEFT_ERR_MEMORY, "%s: out of memory", path);
    weft_status st = WEFT_OK;
    for (int i = 0; i < n && st == WEFT_OK; i++) st = put_data(w, &items[i], piece);
    free(piece);
    return st;
}

/* ---- the room's and the world's door ------------------------------------------------------------------ */

weft_status weft__st_write_items(const char *path, weft__st_item *items, int n, const char *const *meta)
{
    qsort(items, (size_t)n, sizeof *items, weft__st_order);
    char *text = NULL;
    size_t length = 0;
    WEFT_TRY(weft__st_header(path, items, n, meta, &text, &length));
    weft_writer w;
    weft_status st = weft_writer_open(&w, path);
    if (st == WEFT_OK) {
        st = put_all(&w, path, items, n, text, length);
        if (st == WEFT_OK) st = weft_writer_commit(&w);
        else weft_writer_abandon(&w);
    }
    free(text);
    return st;
}

static weft_status item_of(const char *path, const weft_st_entry *e, weft__st_item *item)
{
    const weft_view *v = &e->view;
    if (!e->name) return weft_fail(WEFT_ERR_REFUSED, "%s: a tensor has no name", path);
    if (v->kind == WEFT_MEM_DEVICE)
        return weft_fail(WEFT_ERR_REFUSED, "%s: tensor %s is in device memory: copy it to the host first", path,
                         e->name);
    *item = (weft__st_item){.name = e->name, .data = v->data, .dtype = v->dtype, .file_dtype = v->dtype, .nd = v->nd,
                            .shape = v->shape};
    WEFT_TRY(weft_count_of(v->shape, v->nd, e->name, &item->count));
    if (item->count > 0 && !v->data) return weft_fail(WEFT_ERR_REFUSED, "%s: tensor %s has no data", path, e->name);
    return WEFT_OK;
}

weft_status weft_st_write(const char *path, const weft_st_entry *entries, int n, const char *const *meta)
{
    weft__st_item *items = calloc((size_t)n + 1, sizeof *items);
    if (!items) return weft_fail(WEFT_ERR_MEMORY, "%s: out of memory for %d tensors", path, n);
    weft_status st = WEFT_OK;
    for (int i = 0; i < n && st == WEFT_OK; i++) st = item_of(path, &entries[i], &items[i]);
    if (st == WEFT_OK) st = weft__st_write_items(path, items, n, meta);
    free(items);
    return st;
}
