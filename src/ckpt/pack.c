/* pack.c — which tensor of a checkpoint stands in which file, and which rank writes that file. A function of the
 * tables and sizes alone, so every rank knows it without a message, and every layout writes the same files. */
#include "ckpt/ckpt_impl.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

/* A file of the optimizer's: large enough that files stay few, and small enough that ranks can share them. */
enum { OPTIMIZER_BYTES = 256 << 20, OPTIMIZER_FILES = 64 };

static bool is_model(const weft_ckpt_array *a) { return a->prefix[0] == '\0'; }

/* ---- items -------------------------------------------------------------------------------------------------- */

static weft_status add_item(weft__pack *p, const weft_ckpt_save *save, int array, int tensor)
{
    const weft_ckpt_array *a = &save->array[array];
    const weft_spec *s = &p->whole[tensor];
    char *name = NULL;
    size_t prefix = strlen(a->prefix), len = strlen(s->name), bytes = 0;
    int64_t count = weft_spec_whole_count(s);
    WEFT_TRY(weft_size_of(count, weft_dtype_size(a->file_dtype), s->name, &bytes));
    WEFT_TRY(WEFT_NEW(p->arena, (int64_t)(prefix + len + 1), "names in a checkpoint", &name));
    memcpy(name, a->prefix, prefix);
    memcpy(name + prefix, s->name, len + 1);
    p->item[p->n] = (weft__pack_item){array, tensor, (int64_t)bytes};
    p->st[p->n++] = (weft__st_item){.name = name,
                                    .dtype = a->held.dtype,
                                    .file_dtype = a->file_dtype,
                                    .nd = s->nd,
                                    .shape = s->whole,
                                    .count = count};
    return WEFT_OK;
}

/* First the model, then what belongs to it, tensor by tensor. */
static weft_status list_items(weft__pack *p, const weft_ckpt_save *save, int *model)
{
    int64_t most = (int64_t)save->arrays * save->n_whole;
    WEFT_TRY(WEFT_NEW(p->arena, save->n_whole, "tensors of a checkpoint", &p->whole));
    memcpy(p->whole, save->whole, (size_t)save->n_whole * sizeof *p->whole);
    WEFT_TRY(WEFT_NEW(p->arena, most, "tensors of a checkpoint", &p->item));
    WEFT_TRY(WEFT_NEW(p->arena, most, "tensors of a checkpoint", &p->st));
    for (int pass = 0; pass < 2; pass++) {
        for (int t = 0; t < save->n_whole; t++)
            for (int a = 0; a < save->arrays; a++)
                if (is_model(&save->array[a]) == (pass == 0)) WEFT_TRY(add_item(p, save, a, t));
        if (pass == 0) *model = p->n;
    }
    return WEFT_OK;
}

/* ---- files --------------------------------------------------------------------------------------------------- */

typedef struct numbered {
    weft__st_item st;
    weft__pack_item item;
} numbered; /* the item first: it is what is sorted by */

/* Tensors stand in the order of the format. */
static weft_status sort_file(weft__pack *p, const weft__pack_file *f)
{
    weft_mark mark = weft_arena_mark(p->arena);
    numbered *all = NULL;
    WEFT_TRY(WEFT_NEW(p->arena, f->n, "tensors of a checkpoint", &all));
    for (int i = 0; i < f->n; i++) all[i] = (numbered){p->st[f->first + i], p->item[f->first + i]};
    qsort(all, (size_t)f->n, sizeof *all, weft__st_order);
    for (int i = 0; i < f->n; i++) p->st[f->first + i] = all[i].st, p->item[f->first + i] = all[i].item;
    weft_arena_release(p->arena, mark);
    return WEFT_OK;
}

/* Items [from, to) as files "STEM-00001-of-00003.safetensors". */
static weft_status cut(weft__pack *p, int from, int to, const char *stem, int64_t limit)
{
    int *first = NULL, n = to - from;
    int64_t *bytes = NULL;
    WEFT_TRY(WEFT_NEW(p->arena, n + 1, "files of a checkpoint", &first));
    WEFT_TRY(WEFT_NEW(p->arena, n + 1, "files of a checkpoint", &bytes));
    for (int i = 0; i < n; i++) bytes[i] = p->item[from + i].bytes;
    int shards = n ? weft__cut_shards(bytes, n, limit, first) : 0;
    for (int s = 0; s < shards; s++) {
        weft__pack_file *f = &p->file[p->files++];
        *f = (weft__pack_file){.first = from + first[s], .n = first[s + 1] - first[s]};
        for (int i = 0; i < f->n; i++) f->bytes += p->item[f->first + i].bytes;
        snprintf(f->name, sizeof f->name, "%s-%05d-of-%05d.safetensors", stem, s + 1, shards);
        WEFT_TRY(sort_file(p, f));
    }
    return WEFT_OK;
}

/* The largest file goes to whom has least: files of one size are dealt out in turn. */
static void deal(weft__pack *p, const int *writers, int n_writers, int64_t *load)
{
    for (int w = 0; w < n_writers; w++) load[w] = 0;
    for (int i = 0; i < p->files; i++) p->file[i].writer = -1;
    for (int done = 0; done < p->files; done++) {
        int big = -1, least = 0;
        for (int i = 0; i < p->files; i++)
            if (p->file[i].writer < 0 && (big < 0 || p->file[i].bytes > p->file[big].bytes)) big = i;
        for (int w = 1; w < n_writers; w++)
            if (load[w] < load[least]) least = w;
        p->file[big].writer = writers[least];
        load[least] += p->file[big].bytes + 1; /* empty files count, too */
    }
}

weft_status weft__pack_make(weft__pack *p, weft_arena *arena, const weft_ckpt_save *save, const int *writers,
                            int n_writers)
{
    int model = 0;
    int64_t *load = NULL, optimizer = 0;
    *p = (weft__pack){.arena = arena};
    WEFT_TRY(list_items(p, save, &model));
    for (int i = 0; i < p->n; i++) *(i < model ? &p->model_bytes : &optimizer) += p->item[i].bytes;
    WEFT_TRY(WEFT_NEW(arena, p->n + 1, "files of a checkpoint", &p->file));
    WEFT_TRY(WEFT_NEW(arena, n_writers, "files of a checkpoint", &load));
    WEFT_TRY(cut(p, 0, model, "model", save->max_shard_bytes));
    if (p->files == 1) snprintf(p->file[0].name, sizeof p->file[0].name, "%s", WEFT__HF_SINGLE);
    WEFT_TRY(
        cut(p, model, p->n, "optimizer", weft_max_i64(OPTIMIZER_BYTES, weft_ceil_div(optimizer, OPTIMIZER_FILES))));
    deal(p, writers, n_writers, load);
    return WEFT_OK;
}

/* The drain gives each tensor a stretch of whole cache lines, and the next one begins behind it. */
size_t weft__pack_ring(const weft__pack *p, int rank, int64_t limit)
{
    enum { ALIGN = 64 };
    size_t total = 0, largest = 0;
    for (int i = 0; i < p->files; i++) {
        const weft__pack_file *f = &p->file[i];
        for (int k = f->first; k < f->first + f->n && f->writer == rank; k++) {
            size_t room = ((size_t)p->item[k].bytes + ALIGN) / ALIGN * ALIGN;
            total += room;
            largest = weft_max_size(largest, room);
        }
    }
    return limit > 0 ? weft_min_size(total, weft_max_size((size_t)limit, largest)) : total;
}

weft_status weft_ckpt_snapshot_bytes(const weft_ckpt_save *save, weft_arena *arena, const int *writer, int writers,
                                     int ranks, int64_t *bytes)
{
    weft__pack pack;
    weft_mark mark = weft_arena_mark(arena);
    weft_status st = weft__pack_make(&pack, arena, save, writer, writers);
    for (int r = 0; st >= 0 && r < ranks; r++) bytes[r] = (int64_t)weft__pack_ring(&pack, r, save->buffer_bytes);
    weft_arena_release(arena, mark);
    return st;
}

weft_status weft__pack_index(const weft__pack *p, const weft_ckpt_save *save, weft_text *out)
{
    json_t *map = json_object();
    bool sharded = false;
    weft_status st = map ? WEFT_OK : weft_fail(WEFT_ERR_MEMORY, "%s: no memory for the index", save->dir);
    for (int i = 0; i < p->files && st >= 0; i++) {
        const weft__pack_file *f = &p->file[i];
        if (!is_model(&save->array[p->item[f->first].array]) || !strcmp(f->name, WEFT__HF_SINGLE)) continue;
        sharded = true;
        for (int k = f->first; k < f->first + f->n && st >= 0; k++)
            if (json_object_set_new(map, p->st[k].name, json_string(f->name)))
                st = weft_fail(WEFT_ERR_REFUSED, "the tensor name %s is not UTF-8", p->st[k].name);
    }
    if (st >= 0 && sharded) st = weft__index_text(save->dir, map, p->model_bytes, out);
    json_decref(map);
    return st;
}
