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

#endif
