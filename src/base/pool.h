/* pool.h — a fixed number of equal buffers, allocated once and touched at set-up (pre-faulted).
 * Communication buffers come from here, so that a long run cannot fragment memory. */
#ifndef WEFT_BASE_POOL_H
#define WEFT_BASE_POOL_H

#include "base/mem.h"

/* out[count]: the buffers, 64-byte aligned, which live as long as what is in `arena`. *each: bytes of one, `bytes`
 * rounded up to a multiple of 64. The arena may be of any kind; memory that this processor cannot touch is not touched.
 * LOCAL */
weft_status weft_pool_alloc(weft_arena *arena, int count, size_t bytes, const char *label, void **out, size_t *each);

#endif
