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

#endif
