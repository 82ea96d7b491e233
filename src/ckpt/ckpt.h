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
weft_glance weft_st_glance(const weft_st *st);

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
/* Of the files of weights in `dir`. */
weft_status weft_ckpt_glance_weights(const char *dir, weft_glance *out);
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

/* ---- checkpoints of a run -------------------------------------------------------------------------- */

/* step-00000100/
 *   config.json, model.safetensors (or shards and model.safetensors.index.json)  what Hugging Face transformers loads
 *   optimizer-00001-of-00003.safetensors ...  "exp_avg.<name>", "exp_avg_sq.<name>", and "master.<name>" where the
 *                                             model's file is narrower than the weights
 *   state.json                                where the run stands; the trainer's
 *   manifest.json                             every file with its size and checksum; written last
 *
 * Files hold whole tensors and are cut by size alone: a checkpoint knows no layout, any layout writes the same files
 * and reads what it needs. It is written as step-00000100.tmp-<process>; when every file is synced it gets its name.
 * What has the name and fits its manifest is complete. */

typedef struct weft_ckpt_array {
    const char *prefix;    /* of the tensors' names: "" for the weights, which are the model's files */
    weft_dtype file_dtype;
    weft_held held;
} weft_ckpt_array;

typedef enum { WEFT_CKPT_ALL, WEFT_CKPT_NODE, WEFT_CKPT_ONE } weft_ckpt_writers; /* ranks that write */

typedef struct weft_ckpt_save {
    const char *dir;       /* with the name that it gets in the end; rank 0's counts */
    int64_t step;
    const weft_mesh *mesh;
    const weft_spec *whole; /* [n_whole] the table of the whole model */
    int n_whole;
    const weft_ckpt_array *array;
    int arrays;
    const char *config_json, *state_json; /* rank 0's are written */
    int64_t max_shard_bytes; /* of a model's file; 0: one file */
    int64_t buffer_bytes;    /* memory in which a rank keeps what it has to write; 0: room for all of it */
    weft_ckpt_writers writers;
} weft_ckpt_save;

/* The ranks that write, ascending, in memory of the arena. COLLECTIVE over `all` */
weft_status weft_ckpt_choose_writers(weft_comm *all, weft_arena *arena, weft_ckpt_writers who, int **writer, int *n);
/* bytes[r], of as many ranks as are asked for: memory in which rank r of the world will keep what it has to write of
 * such a checkpoint. Of `save` it looks at tables, types and sizes. LOCAL */
weft_status weft_ckpt_snapshot_bytes(const weft_ckpt_save *save, weft_arena *arena, const int *writer, int writers,
                                     int ranks, int64_t *bytes);

/* Owns the memory for one checkpoint at a time, and the thread that writes it. */
typedef struct weft_ckpt_writer weft_ckpt_writer;
weft_status weft_ckpt_writer_create(weft_ckpt_writer **out, weft_ctx *ctx);
/* Ends the thread; what was not finished is left as a folder with a temporary name. NULL is fine. */
void weft_ckpt_writer_destroy(weft_ckpt_writer *w);
/* Brings every tensor to the rank that writes it, and returns; a thread writes. With a smaller buffer it returns when
 * the last tensor has found room. What is saved is as it was at the call. The previous one must be finished. COLLECTIVE
 * over the world */
weft_status weft_ckpt_begin(weft_ckpt_writer *w, const weft_ckpt_save *save);
typedef enum { WEFT_CKPT_IDLE, WEFT_CKPT_WRITING, WEFT_CKPT_WRITTEN, WEFT_CKPT_FAILED } weft_ckpt_stage;
/* Of this rank's part. LOCAL, cheap */
weft_ckpt_stage weft_ckpt_stage_of(const weft_ckpt_writer *w);
/* Waits for all ranks' files, then writes the manifest, gives the folder its name and points `latest` beside it at it.
 * What failed on one rank fails on all, with path and cause; nothing of it is then left. COLLECTIVE over the world */
weft_status weft_ckpt_finish(weft_ckpt_writer *w);

/* A complete checkpoint. Opening reads the manifest and compares every file's size. LOCAL */
typedef struct weft_ckpt weft_ckpt;
weft_status weft_ckpt_open(weft_ckpt **out, const char *dir);
void weft_ckpt_close(weft_ckpt *c);
typedef struct weft_ckpt_file { char name[64]; int64_t bytes; weft_hash hash; } weft_ckpt_file;
typedef struct weft_ckpt_about { /* what the manifest says */
    int64_t step;
    weft_mesh_shape layout; /* that wrote it */
    int files;
    const weft_ckpt_file *file;
    weft_hash hash;         /* of the manifest: equal for equal checkpoints */
} weft_ckpt_about;
void weft_ckpt_tell(const weft_ckpt *c, weft_ckpt_about *out);
/* Reads every byte of every parts-th file from `part` on, and compares checksums. Refuses with file and reason.
 * LOCAL */
weft_status weft_ckpt_verify(const weft_ckpt *c, int part, int parts);
/* A small file of it, as text that the caller frees. LOCAL */
weft_status weft_ckpt_text(const weft_ckpt *c, const char *name, char **text, size_t *bytes);
/* Whether tensors with this prefix are there, and the type of the first. LOCAL */
weft_status weft_ckpt_has(weft_ckpt *c, const char *prefix, bool *there, weft_dtype *type);
/* What the pieces of `into` need of the tensors with this prefix. Refuses missing tensors and other shapes. LOCAL */
weft_status weft_ckpt_read(weft_ckpt *c, const char *prefix, const weft_held *into);

/* Of a run's folder: the steps of its checkpoints, complete or not, newest first; the caller frees *step. LOCAL */
weft_status weft_ckpt_list(const char *run_dir, int64_t **step, int *n);
/* "run_dir/step-00000100" into path. LOCAL */
weft_status weft_ckpt_path(const char *run_dir, int64_t step, char *path, size_t size);
/* Removes the checkpoints of a run's folder that are neither among the newest keep_last (0: all are kept) nor of a step
 * that keep_every (0: none) divides; the newest complete one always stays, and so does a folder with files that no
 * checkpoint has, which is told through `log`. Also removes what killed runs left under temporary names. LOCAL */
weft_status weft_ckpt_prune(const char *run_dir, int64_t keep_last, int64_t keep_every, const weft_log *log);
/* "step-00000012", or with `temporary` also "step-00000012.tmp-4711", which a killed run leaves. Pure */
bool weft_ckpt_is_name(const char *name, bool temporary);
/* ".tmp-4711" or ".tmp-4711-4712": where a name ends whose file was never complete. Pure */
bool weft_ckpt_is_temporary_end(const char *text);
/* Refuses what is no folder, or holds anything but files of a checkpoint. LOCAL */
weft_status weft_ckpt_check_folder(const char *dir);
/* Removes the files and the folder, which loses its name first; best after a check. LOCAL */
weft_status weft_ckpt_remove(const char *dir);
/* Writes the model of checkpoint or model directory `from` to the new folder `to`: in files of max_shard_bytes (0: one)
 * of type file_dtype, with a manifest. config_json: its text. LOCAL */
weft_status weft_ckpt_reshard(const char *from, const char *to, weft_dtype file_dtype, int64_t max_shard_bytes,
                              const char *config_json);

/* mkdir -p; refuses a path that exists as a file. */
weft_status weft_make_dir(const char *path);
/* Whole small file, a NUL byte after it; refuses more than max bytes and an empty file. The caller frees *data. */
weft_status weft_read_file(const char *path, size_t max, char **data, size_t *bytes);
/* Temporary name, sync, rename, sync of the folder. */
weft_status weft_write_file(const char *path, const void *data, size_t bytes);

#endif
