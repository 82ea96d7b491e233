/* ckpt_impl.h — what the files of the room `ckpt` share; nobody else includes it. */
#ifndef WEFT_CKPT_IMPL_H
#define WEFT_CKPT_IMPL_H

#include "ckpt/ckpt.h"

/* Readers use the bytes of the files as they lie; all formats here are little-endian. */
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "safetensors files are read in place");

/* The format's own limit on the JSON header. */
#define WEFT__ST_MAX_HEADER 100000000u

typedef struct weft__st_item { /* a tensor to be written: data of type `dtype`, stored as `file_dtype` */
    const char *name;
    const void *data;
    weft_dtype dtype, file_dtype;
    int nd;
    const int64_t *shape;
    int64_t count;
} weft__st_item;

/* As weft_st_write; sorts `items`. Converts while it writes, so no second copy of the weights exists. */
weft_status weft__st_write_items(const char *path, weft__st_item *items, int n, const char *const *meta);

/* The length and the padded JSON that a file begins with; the caller frees *text. Items in the canonical order
 * (weft__st_sort); only their names, types and shapes are looked at. */
weft_status weft__st_header(const char *path, const weft__st_item *items, int n, const char *const *meta, char **text,
                            size_t *length);
int weft__st_order(const void *a, const void *b); /* of qsort over weft__st_item */
extern const char *const weft__hf_meta[];

/* Names inside a model directory. */
#define WEFT__HF_SINGLE "model.safetensors"
#define WEFT__HF_INDEX "model.safetensors.index.json"

/* "dir/name" in fresh memory, or NULL; the caller frees it. */
char *weft__join(const char *dir, const char *name);

typedef struct weft__hf_tensor { /* one tensor of a model directory */
    const char *key;  /* the name without "transformer." or "model." */
    const char *name; /* as in the file */
    const weft_view *view;
    const weft_st *file;
    bool used;
} weft__hf_tensor;

typedef struct weft__hf { /* the files of a model directory, and all their tensors sorted by key */
    const char *dir;
    weft_st **file;
    int files;
    weft__hf_tensor *tensor;
    int n;
} weft__hf;

/* Opens model.safetensors or all shards of the index. Refuses both and neither, shards that are missing
 * or lie elsewhere, and a tensor that is in two places. Close also after a failure. */
weft_status weft__hf_open(weft__hf *hf, const char *dir);
void weft__hf_close(weft__hf *hf);
weft__hf_tensor *weft__hf_find(const weft__hf *hf, const char *name); /* with or without prefix; NULL when absent */

/* The elements of a piece, from its whole tensor. */
void weft__read_piece(const weft_view *whole, const weft_spec *s, const weft_piece *p, weft_dtype dtype);

/* Writes model.safetensors, or shards and their index when larger than max_shard_bytes (0: never); sorts `items`. */
weft_status weft__save_items(const char *dir, weft__st_item *items, int n, int64_t max_shard_bytes);
bool weft__is_weight_type(weft_dtype t); /* that weights are saved in */
/* first[s] is the first item of shard s, in order; an item above the limit gets its own shard; limit 0: one. first has
 * room for n + 1. Returns the number of shards. Pure */
int weft__cut_shards(const int64_t *bytes, int n, int64_t limit, int *first);
/* The text of an index; map: name of tensor -> file. */
struct json_t;
weft_status weft__index_text(const char *dir, struct json_t *map, int64_t total, weft_text *out);

/* ---- a checkpoint's files (pack.c) ------------------------------------------------------------------------ */

#define WEFT__CKPT_MANIFEST "manifest.json"
#define WEFT__CKPT_STATE "state.json"
#define WEFT__CKPT_CONFIG "config.json"

typedef struct weft__pack_item { /* a tensor to be written */
    int array, tensor;       /* of save->array, of save->whole */
    int64_t bytes;
} weft__pack_item;

typedef struct weft__pack_file {
    char name[64];
    int first, n;            /* items */
    int writer;              /* rank */
    int64_t bytes;           /* of tensors */
} weft__pack_file;

typedef struct weft__pack { /* which tensor stands in which file, and who writes it: the same on every rank */
    weft_arena *arena;       /* the caller's */
    weft_spec *whole;        /* [n_whole] a copy: shapes */
    weft__st_item *st;       /* [n] as the files' headers have them */
    weft__pack_item *item;   /* [n] */
    int n;
    weft__pack_file *file;
    int files;
    int64_t model_bytes;
} weft__pack;

/* writers[n_writers]: ranks, ascending. */
weft_status weft__pack_make(weft__pack *pack, weft_arena *arena, const weft_ckpt_save *save, const int *writers,
                            int n_writers);
/* Memory in which `rank` keeps what it has to write: room for all of it, or `limit` (0: none), but for its largest
 * tensor at least. Pure */
size_t weft__pack_ring(const weft__pack *pack, int rank, int64_t limit);
/* The index of the model's files; *out stays empty when the model is one file. */
weft_status weft__pack_index(const weft__pack *pack, const weft_ckpt_save *save, weft_text *out);

/* ---- the thread that writes (drain.c) ---------------------------------------------------------------------- */

typedef struct weft__drain weft__drain;
typedef struct weft__small { const char *name, *text; } weft__small; /* a small file; both are copied */

/* Begins to write the files of `rank` in `pack` into `folder`: the small ones at once, the others as their tensors
 * come, in the order of the pack. Keeps `pack`, `ring` and `fault`, which only the thread looks at from now on. */
weft_status weft__drain_begin(weft__drain **out, int rank, const weft__pack *pack, const char *folder,
                              const weft__small *small, int n_small, void *ring, size_t ring_bytes, weft_fault *fault);
/* Room for this rank's next tensor of `bytes`; waits until there is some. */
void *weft__drain_room(weft__drain *d, size_t bytes);
void weft__drain_push(weft__drain *d); /* it is filled */
bool weft__drain_over(weft__drain *d, bool *failed);
void weft__drain_cancel(weft__drain *d); /* what has not been written will not be */
/* Ends the thread. The status and message are those of the first failure; files[*n] of this rank, in the drain. */
weft_status weft__drain_end(weft__drain *d, const weft_ckpt_file **files, int *n);
void weft__drain_free(weft__drain *d);

/* ---- the manifest (manifest.c) ----------------------------------------------------------------------------- */

typedef struct weft__manifest {
    weft_ckpt_about about;
    weft_ckpt_file *file; /* about.file; free */
} weft__manifest;
weft_status weft__manifest_text(const weft_ckpt_about *about, weft_text *out);
/* Refuses any byte that does not belong; `path` for messages. */
weft_status weft__manifest_parse(weft__manifest *m, const char *path, const char *text, size_t bytes);

/* Syncs a folder; file systems that cannot are fine. */
weft_status weft__sync_folder(const char *dir);
/* Points the link dir/latest at a folder beside it, atomically. */
weft_status weft__point_latest(const char *run_dir, const char *name);
/* Whether a checkpoint has files of this name. */
bool weft__is_checkpoint_file(const char *name);

#endif
