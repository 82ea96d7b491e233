/* fuzz_memory.h — an arena that has no more than a machine could spare: a file or a word that asks for more must get
 * the status of missing memory, and not the machine's. */
#ifndef WEFT_FUZZ_MEMORY_H
#define WEFT_FUZZ_MEMORY_H

#include "fuzz/fuzz.h"

enum { FUZZ_MEMORY = 16 << 20 };

static inline weft_status fuzz_memory_alloc(void *self, size_t bytes, void **out)
{
    (void)self;
    if (bytes > FUZZ_MEMORY) return weft_fail(WEFT_ERR_MEMORY, "%zu bytes are more than there are", bytes);
    *out = aligned_alloc(64, (bytes + 63) / 64 * 64);
    return *out ? WEFT_OK : weft_fail(WEFT_ERR_MEMORY, "no memory");
}

static inline void fuzz_memory_release(void *self, void *ptr, size_t bytes)
{
    (void)self;
    (void)bytes;
    free(ptr);
}

static inline weft_arena *fuzz_arena(weft_mem *mem)
{
    static const weft_mem_provider provider = {.name = "fuzz",
                                               .kind = WEFT_MEM_HOST,
                                               .alloc = fuzz_memory_alloc,
                                               .release = fuzz_memory_release};
    weft_arena *arena = NULL;
    *mem = (weft_mem){0};
    FUZZ_CHECK(weft_arena_create(&arena, mem, "fuzz", &provider) == WEFT_OK);
    return arena;
}

/* As fuzz_taken, where too little memory is an answer, too. */
static inline bool fuzz_taken_or_full(weft_status st) { return st != WEFT_ERR_MEMORY && fuzz_taken(st); }

#endif
