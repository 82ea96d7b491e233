/* pool.h — a fixed number of equal buffers, allocated once and touched at set-up (pre-faulted).
 * Communication buffers come from here, so that a long run cannot fragment memory. */
#ifndef WEFT_BASE_POOL_H
#define WEFT_BASE_POOL_H

#include "base/mem.h"

typedef struct weft_pool {
    char *base;
    size_t bytes;     /* of one buffer, a multiple of 64 */
    int count, free_count;
    int *free_list;
} weft_pool;

/* The buffers come from `buffers`, which may be of any kind; memory that this processor cannot touch is not touched. The
 * list comes from `arena`, of host memory. */
weft_status weft_pool_init(weft_pool *pool, weft_arena *arena, weft_arena *buffers, int count, size_t bytes,
                           const char *label);
/* NULL when all are taken: the plan that sized the pool is wrong, and the caller says so. */
void *weft_pool_take(weft_pool *pool);
void weft_pool_give(weft_pool *pool, void *buffer);

#endif
