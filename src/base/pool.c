/* pool.c — equal buffers side by side. */
#include "base/pool.h"

#include <string.h>

weft_status weft_pool_alloc(weft_arena *arena, int count, size_t bytes, const char *label, void **out, size_t *each)
{
    char *base = NULL;
    if (!weft_add_size(bytes, 63, &bytes))
        return weft_fail(WEFT_ERR_REFUSED, "%s: buffers of that size do not fit into memory sizes", label);
    bytes &= ~(size_t)63;
    WEFT_TRY(weft_arena_alloc(arena, count, bytes, label, (void **)&base));
    if (weft_arena_kind(arena) != WEFT_MEM_DEVICE)
        memset(base, 0, (size_t)count * bytes); /* touches every page now, not in the first step */
    for (int i = 0; i < count; i++) out[i] = base + (size_t)i * bytes;
    *each = bytes;
    return WEFT_OK;
}
