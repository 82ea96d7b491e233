/* ckpt.h — the door of the room `ckpt`: safetensors files, Hugging Face directories, whole tensors gathered from the
 * parts that ranks hold. It sees tables of tensors and the mesh only, never the model. LOCAL where nothing else is
 * said. */
#ifndef WEFT_CKPT_H
#define WEFT_CKPT_H

#include "optim/optim.h"

/* ---- one safetensors file, mapped read-only ------------------------------------------------------- */

typedef struct weft_st weft_st;
typedef struct weft_st_entry { const char *name; weft_view view; } weft_st_entry;

/* Checks everything the format demands (header length, JSON, duplicate names, sizes, holes, overlaps, end)
 * before any tensor is looked at. Refuses with file, expected and actual size. */
weft_status weft_st_open(weft_st **out, const char *path);
void weft_st_close(weft_st *st);
int weft_st_count(const weft_st *st);
const weft_st_entry *weft_st_at(const weft_st *st, int i);
const weft_view *weft_st_find(const weft_st *st, const char *name);       /* NULL when absent */
weft_status weft_st_require(const weft_st *st, const char *name, const weft_view **out); /* names the nearest */
const char *weft_st_meta(const weft_st *st, const char *key);             /* NULL when absent */
const char *weft_st_meta_key(const weft_st *st, int i);                   /* NULL past the last */
const char *weft_st_path(const weft_st *st);

/* Writes views in the canonical order (larger alignment first, then name; header padded to 8), to a
 * temporary name, synced, then renamed. meta: key, value, key, value, NULL; or NULL. */
weft_status weft_st_write(const char *path, const weft_st_entry *entries, int n, const char *const *meta);

/* ---- a model directory ---------------------------------------------------------------------------- */

/* Reads every tensor of the table from `dir` (model.safetensors, or shards by the index), converting to
 * `dtype`, into the array `weights`. Refuses missing tensors, other shapes and unknown names (but not
 * known buffers such as `attn.bias`, `rotary_emb.inv_freq`; a tied model may hold lm_head.weight when its bytes equal
 * the embedding's). A name may lack or have the prefix "transformer." / "model." . */
weft_status weft_ckpt_load_weights(const char *dir, const weft_spec *spec, int n, bool tied, void *weights,
                                   weft_dtype dtype);
/* The same where a rank holds a part: whole[n_whole] is the table of the model that lies in `dir`, against which all of
 * it is checked; `into` takes what its pieces need, copies of other ranks' elements too. */
struct weft_held;
weft_status weft_ckpt_load_parts(const char *dir, const weft_spec *whole, int n_whole, bool tied,
                                 const struct weft_held *into);
/* Writes model.safetensors (F32, BF16, F16 or F64 in the file), sharded with an index when larger than
 * max_shard_bytes (0: never). */
weft_status weft_ckpt_save_weights(const char *dir, const weft_spec *spec, int n, const void *weights,
                                   weft_dtype dtype, weft_dtype file_dtype, int64_t max_shard_bytes);

/* ---- whole tensors from parts ---------------------------------------------------------------------- */

/* One rank's part of an array over the tensors of the model: weights, gradients, moments. */
typedef struct weft_held {
    const weft_spec *spec;   /* [n] this rank's table */
    int n;
    const weft_piece *piece; /* [pieces] no element twice; any of `spec`, empty ones too */
    int pieces;
    weft_dtype dtype;
    bool copies;             /* the ranks of dp x cp hold the same pieces; else every rank gives those it has */
} weft_held;
/* One piece per tensor of an array that lies as the table says: into piece[n]. Pure */
void weft_pieces_of(const weft_spec *spec, int n, void *array, weft_dtype dtype, weft_piece *piece);

/* Who has what, and from whom a rank gets it. Every element of whole[n_whole] must be owned (weft_spec.own_*) by one
 * rank, one of each group of copies; else it is refused on all ranks. Keeps the pointers of `parts` and `whole`.
 * COLLECTIVE over the world */
typedef struct weft_gather weft_gather;
weft_status weft_gather_create(weft_gather **out, const weft_mesh *mesh, const weft_held *parts,
                               const weft_spec *whole, int n_whole);
void weft_gather_destroy(weft_gather *g);
/* tensor[r]: which one rank r gets in this round, -1 none; the same on every rank. `into` [whole count] in `dtype` on
 * ranks that get one. What travels is never larger than a few MiB at a time. COLLECTIVE over the world */
weft_status weft_gather_round(weft_gather *g, const int *tensor, void *into, weft_dtype dtype);

/* Every tensor in turn, whole, on rank 0: fn is told whole[i] and its elements (parts->dtype), which it may use until
 * it returns. A failure of fn is one of all ranks, after all tensors have come by. COLLECTIVE over the world */
typedef weft_status (*weft_whole_fn)(void *ud, const weft_spec *spec, const void *data);
weft_status weft_gather_each(const weft_mesh *mesh, const weft_held *parts, const weft_spec *whole, int n_whole,
                             weft_whole_fn fn, void *ud);

/* mkdir -p; refuses a path that exists as a file. */
weft_status weft_make_dir(const char *path);
/* Whole small file, a NUL byte after it; refuses more than max bytes and an empty file. The caller frees *data. */
weft_status weft_read_file(const char *path, size_t max, char **data, size_t *bytes);
/* Temporary name, sync, rename, sync of the folder. */
weft_status weft_write_file(const char *path, const void *data, size_t bytes);

#endif
