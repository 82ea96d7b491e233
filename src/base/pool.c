/* pool.c — equal buffers with a stack of free ones. */
#include "base/pool.h"

#include <string.h>

weft_status weft_pool_init(weft_pool *pool, weft_arena *arena, weft_arena *buffers, int count, size_t bytes,
                           const char *label)
{
    if (!weft_add_size(bytes, 63, &bytes))
        return weft_fail(WEFT_ERR_REFUSED, "%s: buffers of that size do not fit into memory sizes", label);
    bytes &= ~(size_t)63;
    *pool = (weft_pool){.bytes = bytes, .count = count, .free_count = count};
    WEFT_TRY(weft_arena_alloc(buffers, count, bytes ? bytes : 64, label, (void **)&pool->base));
    WEFT_TRY(WEFT_NEW(arena, count, "pool list", &pool->free_list));
    if (weft_arena_kind(buffers) != WEFT_MEM_DEVICE)
        memset(pool->base, 0, (size_t)count * bytes); /* touches every page now, not in the first step */
    for (int i = 0; i < count; i++) pool->free_list[i] = count - 1 - i;
    return WEFT_OK;
}

void *weft_pool_take(weft_pool *pool)
{
    if (!pool->free_count) return NULL;
    return pool->base + (size_t)pool->free_list[--pool->free_count] * pool->bytes;
}

void weft_pool_give(weft_pool *pool, void *buffer)
{
    if (pool->bytes) pool->free_list[pool->free_count++] = (int)((size_t)((char *)buffer - pool->base) / pool->bytes);
}
