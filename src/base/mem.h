/* mem.h — memory kinds, providers, the account of every byte, and arenas.
 *
 * Every buffer has a kind and comes from a provider; host memory is the only kind that code may read
 * through a pointer. An account (weft_mem) counts allocations and bytes per arena and label, which is
 * what the tests "no allocation in a step after the first" and the memory table read.
 *
 * An arena is a bump allocator over chunks it takes from its provider. Chunks are kept on reset, so an
 * arena that is reset every step allocates in the first step only. Of memory that is not the host's an arena takes no
 * more than was asked for. Allocations live until the arena is
 * released to an earlier mark, reset or destroyed. One arena belongs to one rank (not thread safe). */
#ifndef WEFT_BASE_MEM_H
#define WEFT_BASE_MEM_H

#include "base/checked.h"

typedef enum {
    WEFT_MEM_HOST,   /* private to the rank                     */
    WEFT_MEM_SHARED, /* host memory that local peers can read   */
    WEFT_MEM_PINNED, /* host memory registered with a device    */
    WEFT_MEM_DEVICE  /* not readable through a host pointer     */
} weft_mem_kind;

/* A queue of device work; NULL on the CPU, where every call is complete when it returns. */
typedef struct weft_queue weft_queue;

typedef struct weft_mem_provider {
    const char *name;
    weft_mem_kind kind;
    void *self;
    weft_status (*alloc)(void *self, size_t bytes, void **out); /* 64-byte aligned, content undefined */
    void (*release)(void *self, void *ptr, size_t bytes);
    weft_status (*copy)(void *self, void *dst, const void *src, size_t bytes, weft_queue *queue);
} weft_mem_provider;

extern const weft_mem_provider weft_mem_host;

/* Addresses without memory, which nobody may touch: for code that makes a plan, to say what it would allocate. The
 * provider works as long as *n lives. */
typedef struct weft_nowhere { uintptr_t next; } weft_nowhere;
weft_mem_provider weft_mem_nowhere(weft_nowhere *n);

typedef struct weft_mem_row { /* one line of the memory table */
    const char *arena, *label;
    size_t bytes, peak;
} weft_mem_row;

enum { WEFT_MEM_ROWS = 192 };

typedef struct weft_mem { /* the account of one rank */
    int64_t allocations;  /* calls to a provider since the start */
    size_t bytes, peak;   /* held from providers, now and at most */
    int rows;
    weft_mem_row row[WEFT_MEM_ROWS]; /* labels past the last row are summed in it as "other" */
} weft_mem;

typedef struct weft_arena weft_arena;
typedef struct weft_mark { size_t chunk, used, blocks; } weft_mark;

/* `name` and all labels are string constants that outlive the arena. provider NULL: weft_mem_host. */
weft_status weft_arena_create(weft_arena **out, weft_mem *mem, const char *name, const weft_mem_provider *provider);
void weft_arena_destroy(weft_arena *arena); /* NULL is fine */
weft_mem_kind weft_arena_kind(const weft_arena *arena); /* its provider's */

/* count x size bytes, 64-byte aligned, content undefined (all bits 1, NaN, in debug and sanitizer builds, so that work
 * memory is never relied on); count 0 gives a valid pointer. */
weft_status weft_arena_alloc(weft_arena *arena, int64_t count, size_t size, const char *label, void **out);
weft_status weft_arena_zalloc(weft_arena *arena, int64_t count, size_t size, const char *label, void **out);
/* WEFT_TRY(WEFT_NEW(arena, 10, "weights", &p)) with `float *p`. */
#define WEFT_NEW(arena, count, label, pp) weft_arena_alloc((arena), (count), sizeof **(pp), (label), (void **)(pp))
#define WEFT_NEW0(arena, count, label, pp) weft_arena_zalloc((arena), (count), sizeof **(pp), (label), (void **)(pp))
/* A copy of a string. */
weft_status weft_arena_strdup(weft_arena *arena, const char *s, const char **out);

weft_mark weft_arena_mark(const weft_arena *arena);
void weft_arena_release(weft_arena *arena, weft_mark mark); /* gives back all that came after the mark */
void weft_arena_reset(weft_arena *arena);
size_t weft_arena_used(const weft_arena *arena);

#endif
