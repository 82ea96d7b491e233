/* st_read.c — reading a safetensors file: every rule of the format is checked before a tensor is handed
 * out, so that a truncated download or a hostile header is a message and never a wrong number or a read
 * past the end. Tensors are views into the mapped file; only those that lie unaligned are copied. */
#include "ckpt/ckpt_impl.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

struct weft_st {
    char *path;
    weft_map map;
    json_t *header;          /* owns the names and the metadata */
    size_t data_at;          /* where the byte buffer starts in the file */
    weft_st_entry *entry;    /* [n] in file order */
    size_t *begin, *end;     /* [n] offsets in the byte buffer */
    const char **name;       /* [n] sorted, for look-up and suggestions */
    int *by_name;            /* [n] entry of name[i] */
    int n;
    void *copies;            /* aligned copies of unaligned tensors */
};

static weft_status refuse(const weft_st *st, const char *what)
{
    return weft_fail(WEFT_ERR_REFUSED, "%s: %s", st->path, what);
}

/* ---- header ----------------------------------------------------------------------------------------- */

static weft_status read_header(weft_st *st)
{
    const size_t size = st->map.bytes;
    if (size < 8)
        return weft_fail(WEFT_ERR_REFUSED, "%s: not a safetensors file: %zu bytes, and the header length alone takes 8",
                         st->path, size);
    uint64_t length;
    memcpy(&length, st->map.data, 8);
    if (length > WEFT__ST_MAX_HEADER)
        return weft_fail(WEFT_ERR_REFUSED,
                         "%s: not a safetensors file: header length %llu is above the limit of %u bytes", st->path,
                         (unsigned long long)length, WEFT__ST_MAX_HEADER);
    if (length > size - 8)
        return weft_fail(WEFT_ERR_REFUSED, "%s: truncated: the header needs %llu bytes, the file has %zu", st->path,
                         (unsigned long long)length + 8, size);
    const char *text = (const char *)st->map.data + 8;
    if (length == 0 || text[0] != '{') return refuse(st, "not a safetensors file: the header does not begin with '{'");
    json_error_t e;
    st->header = json_loadb(text, (size_t)length, JSON_REJECT_DUPLICATES, &e);
    if (!st->header) return weft_fail(WEFT_ERR_REFUSED, "%s: header byte %d: %s", st->path, e.position, e.text);
    st->data_at = 8 + (size_t)length;
    return WEFT_OK;
}

static weft_status check_metadata(const weft_st *st)
{
    json_t *meta = json_object_get(st->header, "__metadata__");
    if (!meta) return WEFT_OK;
    if (!json_is_object(meta)) return refuse(st, "__metadata__ is not an object of texts");
    const char *key;
    json_t *value;
    json_object_foreach(meta, key, value)
        if (!json_is_string(value))
            return weft_fail(WEFT_ERR_REFUSED, "%s: __metadata__ \"%s\" is not a text", st->path, key);
    return WEFT_OK;
}

/* ---- one tensor's description ------------------------------------------------------------------------- */

static weft_status read_dtype(const weft_st *st, const char *name, const json_t *info, weft_dtype *out)
{
    const char *text = json_string_value(json_object_get(info, "dtype"));
    if (!text) return weft_fail(WEFT_ERR_REFUSED, "%s: tensor %s has no \"dtype\" text", st->path, name);
    if (strcmp(text, "BOOL") == 0) { /* mask buffers in published files: one byte per element */
        *out = WEFT_U8;
        return WEFT_OK;
    }
    if (weft_dtype_from_safetensors(text, out)) return WEFT_OK;
    return weft_fail(WEFT_ERR_REFUSED,
                     "%s: tensor %s has dtype %s; known: F64 F32 BF16 F16 F8_E4M3 F8_E5M2 I64 I32 U16 U8 BOOL",
                     st->path,
                     name, text);
}

static weft_status read_shape(const weft_st *st, const char *name, const json_t *info, weft_view *v)
{
    const json_t *shape = json_object_get(info, "shape");
    if (!json_is_array(shape))
        return weft_fail(WEFT_ERR_REFUSED, "%s: tensor %s has no \"shape\" list", st->path, name);
    if (json_array_size(shape) > WEFT_MAX_DIMS)
        return weft_fail(WEFT_ERR_REFUSED, "%s: tensor %s has %zu dimensions, at most %d are supported", st->path, name,
                         json_array_size(shape), WEFT_MAX_DIMS);
    v->nd = (int)json_array_size(shape);
    for (int d = 0; d < v->nd; d++) {
        const json_t *x = json_array_get(shape, (size_t)d);
        if (!json_is_integer(x) || json_integer_value(x) < 0)
            return weft_fail(WEFT_ERR_REFUSED, "%s: tensor %s: dimension %d is not a whole number >= 0", st->path, name,
                             d);
        v->shape[d] = json_integer_value(x);
    }
    return WEFT_OK;
}

static weft_status read_range(const weft_st *st, const char *name, const json_t *info, size_t *begin, size_t *end)
{
    const json_t *range = json_object_get(info, "data_offsets");
    const json_t *b = json_array_get(range, 0), *e = json_array_get(range, 1);
    if (json_array_size(range) != 2 || !json_is_integer(b) || !json_is_integer(e) || json_integer_value(b) < 0 ||
        json_integer_value(e) < json_integer_value(b))
        return weft_fail(WEFT_ERR_REFUSED, "%s: tensor %s: \"data_offsets\" is not [begin, end] with 0 <= begin <= end",
                         st->path, name);
    *begin = (size_t)json_integer_value(b);
    *end = (size_t)json_integer_value(e);
    return WEFT_OK;
}

static weft_status read_entry(weft_st *st, int i, const char *name, const json_t *info)
{
    weft_view *v = &st->entry[i].view;
    st->entry[i].name = name;
    /* A key that this reader does not know could change what the bytes mean (strides, say). */
    if (!json_is_object(info) || json_object_size(info) != 3)
        return weft_fail(WEFT_ERR_REFUSED, "%s: tensor %s must have exactly dtype, shape and data_offsets", st->path,
                         name);
    WEFT_TRY(read_dtype(st, name, info, &v->dtype));
    WEFT_TRY(read_shape(st, name, info, v));
    WEFT_TRY(read_range(st, name, info, &st->begin[i], &st->end[i]));
    int64_t count;
    weft_status counted = weft_count_of(v->shape, v->nd, name, &count);
    if (counted != WEFT_OK) return weft_fail_at(counted, "%s: ", st->path);
    size_t need, have = st->end[i] - st->begin[i];
    if (!weft_mul_size((size_t)count, weft_dtype_size(v->dtype), &need) || need != have) {
        char text[128];
        return weft_fail(WEFT_ERR_REFUSED, "%s: tensor %s: %s %s needs %lld x %zu bytes, its data_offsets give %zu",
                         st->path, name, weft_dtype_safetensors(v->dtype),
                         weft_shape_text(v->shape, v->nd, text, sizeof text), (long long)count,
                         weft_dtype_size(v->dtype), have);
    }
    return WEFT_OK;
}

/* ---- all tensors together ----------------------------------------------------------------------------- */

typedef struct place { weft_st_entry entry; size_t begin, end; } place;

/* Empty tensors share their begin with the tensor after them; end decides, so that they come first. */
static int place_order(const void *a, const void *b)
{
    const place *x = a, *y = b;
    if (x->begin != y->begin) return x->begin < y->begin ? -1 : 1;
    if (x->end != y->end) return x->end < y->end ? -1 : 1;
    return strcmp(x->entry.name, y->entry.name);
}

static weft_status sort_by_place(weft_st *st)
{
    place *p = malloc(((size_t)st->n + 1) * sizeof *p);
    if (!p) return weft_fail(WEFT_ERR_MEMORY, "%s: out of memory for %d tensors", st->path, st->n);
    for (int i = 0; i < st->n; i++) p[i] = (place){st->entry[i], st->begin[i], st->end[i]};
    qsort(p, (size_t)st->n, sizeof *p, place_order);
    for (int i = 0; i < st->n; i++) {
        st->entry[i] = p[i].entry;
        st->begin[i] = p[i].begin;
        st->end[i] = p[i].end;
    }
    free(p);
    return WEFT_OK;
}

static weft_status check_places(const weft_st *st)
{
    const size_t have = st->map.bytes - st->data_at;
    size_t at = 0;
    for (int i = 0; i < st->n; i++) {
        const char *name = st->entry[i].name;
        if (st->begin[i] < at)
            return weft_fail(WEFT_ERR_REFUSED, "%s: tensor %s begins at byte %zu, inside tensor %s, which ends at %zu",
                             st->path, name, st->begin[i], st->entry[i - 1].name, at);
        if (st->begin[i] > at)
            return weft_fail(WEFT_ERR_REFUSED, "%s: hole before tensor %s: it begins at byte %zu, expected %zu",
                             st->path, name, st->begin[i], at);
        at = st->end[i];
        if (at > have)
            return weft_fail(WEFT_ERR_REFUSED,
                             "%s: truncated: tensor %s ends at byte %zu, the file has %zu bytes of data", st->path,
                             name, at, have);
    }
    if (at != have)
        return weft_fail(WEFT_ERR_REFUSED, "%s: the tensors end at byte %zu, but the file has %zu bytes of data",
                         st->path, at, have);
    return WEFT_OK;
}

/* ---- views and names ------------------------------------------------------------------------------------ */

static bool unaligned(const weft_st *st, int i)
{
    return (st->data_at + st->begin[i]) % weft_dtype_size(st->entry[i].view.dtype) != 0;
}

static weft_status point_views(weft_st *st)
{
    size_t total = 0;
    for (int i = 0; i < st->n; i++)
        if (unaligned(st, i)) total += (st->end[i] - st->begin[i] + 7) / 8 * 8;
    if (total > 0) {
        st->copies = malloc(total);
        if (!st->copies)
            return weft_fail(WEFT_ERR_MEMORY, "%s: out of memory for aligned copies (%zu bytes)", st->path, total);
    }
    size_t used = 0;
    for (int i = 0; i < st->n; i++) {
        const size_t bytes = st->end[i] - st->begin[i];
        const unsigned char *source = st->map.data + st->data_at + st->begin[i];
        st->entry[i].view.kind = WEFT_MEM_HOST;
        if (bytes == 0) {
            st->entry[i].view.data = (void *)st->map.data; /* never read; aligned */
        } else if (!unaligned(st, i)) {
            st->entry[i].view.data = (void *)source;
        } else {
            st->entry[i].view.data = memcpy((char *)st->copies + used, source, bytes);
            used += (bytes + 7) / 8 * 8;
        }
    }
    return WEFT_OK;
}

typedef struct named { const char *name; int entry; } named;
static int name_order(const void *a, const void *b)
{
    return strcmp(((const named *)a)->name, ((const named *)b)->name);
}

static weft_status index_names(weft_st *st)
{
    named *list = malloc(((size_t)st->n + 1) * sizeof *list);
    if (!list) return weft_fail(WEFT_ERR_MEMORY, "%s: out of memory for %d names", st->path, st->n);
    for (int i = 0; i < st->n; i++) list[i] = (named){st->entry[i].name, i};
    qsort(list, (size_t)st->n, sizeof *list, name_order);
    for (int i = 0; i < st->n; i++) {
        st->name[i] = list[i].name;
        st->by_name[i] = list[i].entry;
    }
    free(list);
    return WEFT_OK;
}

static weft_status allocate(weft_st *st, size_t n)
{
    st->entry = calloc(n + 1, sizeof *st->entry);
    st->begin = calloc(n + 1, sizeof *st->begin);
    st->end = calloc(n + 1, sizeof *st->end);
    st->name = calloc(n + 1, sizeof *st->name);
    st->by_name = calloc(n + 1, sizeof *st->by_name);
    if (!st->entry || !st->begin || !st->end || !st->name || !st->by_name)
        return weft_fail(WEFT_ERR_MEMORY, "%s: out of memory for %zu tensors", st->path, n);
    return WEFT_OK;
}

static weft_status load(weft_st *st)
{
    WEFT_TRY(weft_map_open(&st->map, st->path));
    WEFT_TRY(read_header(st));
    WEFT_TRY(check_metadata(st));
    WEFT_TRY(allocate(st, json_object_size(st->header)));
    const char *name;
    json_t *info;
    json_object_foreach(st->header, name, info) {
        if (strcmp(name, "__metadata__") == 0) continue;
        WEFT_TRY(read_entry(st, st->n, name, info));
        st->n++;
    }
    WEFT_TRY(sort_by_place(st));
    WEFT_TRY(check_places(st));
    WEFT_TRY(point_views(st));
    return index_names(st);
}

/* ---- the door ------------------------------------------------------------------------------------------- */

weft_status weft_st_open(weft_st **out, const char *path)
{
    weft_st *st = calloc(1, sizeof *st);
    if (st) st->path = strdup(path);
    if (!st || !st->path) {
        weft_st_close(st);
        return weft_fail(WEFT_ERR_MEMORY, "%s: out of memory", path);
    }
    weft_status s = load(st);
    if (s < 0) {
        weft_st_close(st);
        return s;
    }
    *out = st;
    return WEFT_OK;
}

void weft_st_close(weft_st *st)
{
    if (!st) return;
    weft_map_close(&st->map);
    json_decref(st->header);
    free(st->entry);
    free(st->begin);
    free(st->end);
    free(st->name);
    free(st->by_name);
    free(st->copies);
    free(st->path);
    free(st);
}

int weft_st_count(const weft_st *st) { return st->n; }
const weft_st_entry *weft_st_at(const weft_st *st, int i) { return &st->entry[i]; }
const char *weft_st_path(const weft_st *st) { return st->path; }
weft_glance weft_st_glance(const weft_st *st) { return weft_glance_of(st->map.data, st->map.bytes); }

const weft_view *weft_st_find(const weft_st *st, const char *name)
{
    int low = 0, high = st->n;
    while (low < high) {
        int mid = low + (high - low) / 2;
        int c = strcmp(name, st->name[mid]);
        if (c == 0) return &st->entry[st->by_name[mid]].view;
        if (c < 0) high = mid;
        else low = mid + 1;
    }
    return NULL;
}

weft_status weft_st_require(const weft_st *st, const char *name, const weft_view **out)
{
    *out = weft_st_find(st, name);
    if (*out) return WEFT_OK;
    const char *near = weft_suggest(name, st->name, st->n);
    if (near) return weft_fail(WEFT_ERR_REFUSED, "%s: tensor %s is missing; did you mean %s?", st->path, name, near);
    return weft_fail(WEFT_ERR_REFUSED, "%s: tensor %s is missing; the file holds %d tensors", st->path, name, st->n);
}

const char *weft_st_meta_key(const weft_st *st, int i)
{
    json_t *meta = json_object_get(st->header, "__metadata__");
    void *at = json_object_iter(meta);
    while (at && i-- > 0) at = json_object_iter_next(meta, at);
    return at ? json_object_iter_key(at) : NULL;
}

const char *weft_st_meta(const weft_st *st, const char *key)
{
    return json_string_value(json_object_get(json_object_get(st->header, "__metadata__"), key));
}
