/* mem.c — the host provider, the account, and the arena. */
#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

enum { ALIGN = 64, CHUNK_MIN = 1 << 20, CHUNKS = 256 };

/* ---- host provider -------------------------------------------------------------------------------- */

static weft_status host_alloc(void *self, size_t bytes, void **out)
{
    (void)self;
    void *p = NULL;
    if (posix_memalign(&p, ALIGN, bytes ? bytes : ALIGN))
        return weft_fail(WEFT_ERR_MEMORY, "cannot get %zu bytes of host memory", bytes);
    *out = p;
    return WEFT_OK;
}

static void host_release(void *self, void *ptr, size_t bytes)
{
    (void)self;
    (void)bytes;
    free(ptr);
}

static weft_status host_copy(void *self, void *dst, const void *src, size_t bytes, weft_queue *queue)
{
    (void)self;
    (void)queue;
    if (bytes) memcpy(dst, src, bytes);
    return WEFT_OK;
}

const weft_mem_provider weft_mem_host = {"host", WEFT_MEM_HOST, NULL, host_alloc, host_release, host_copy};

/* ---- account -------------------------------------------------------------------------------------- */

static weft_mem_row *row_of(weft_mem *mem, const char *arena, const char *label)
{
    for (int i = 0; i < mem->rows; i++)
        if (!strcmp(mem->row[i].arena, arena) && !strcmp(mem->row[i].label, label)) return &mem->row[i];
    if (mem->rows == WEFT_MEM_ROWS) return &mem->row[WEFT_MEM_ROWS - 1];
    weft_mem_row *r = &mem->row[mem->rows++];
    *r = (weft_mem_row){.arena = arena, .label = mem->rows == WEFT_MEM_ROWS ? "other" : label};
    return r;
}

static void account_label(weft_mem *mem, const char *arena, const char *label, size_t bytes)
{
    weft_mem_row *r = row_of(mem, arena, label);
    r->bytes += bytes;
    if (r->bytes > r->peak) r->peak = r->bytes;
}

static void unaccount_arena(weft_mem *mem, const char *arena)
{
    for (int i = 0; i < mem->rows; i++)
        if (!strcmp(mem->row[i].arena, arena)) mem->row[i].bytes = 0;
}

/* ---- arena ---------------------------------------------------------------------------------------- */

typedef struct chunk {
    char *base;
    size_t bytes, used;
} chunk;

struct weft_arena {
    weft_mem *mem;
    const char *name;
    const weft_mem_provider *provider;
    size_t current; /* chunk that is being filled */
    size_t chunks;
    chunk chunk[CHUNKS];
};

weft_status weft_arena_create(weft_arena **out, weft_mem *mem, const char *name, const weft_mem_provider *provider)
{
    weft_arena *a = calloc(1, sizeof *a);
    if (!a) return weft_fail(WEFT_ERR_MEMORY, "arena %s: no memory for its header", name);
    a->mem = mem;
    a->name = name;
    a->provider = provider ? provider : &weft_mem_host;
    *out = a;
    return WEFT_OK;
}

void weft_arena_destroy(weft_arena *a)
{
    if (!a) return;
    for (size_t i = 0; i < a->chunks; i++) {
        a->provider->release(a->provider->self, a->chunk[i].base, a->chunk[i].bytes);
        a->mem->bytes -= a->chunk[i].bytes;
    }
    unaccount_arena(a->mem, a->name);
    free(a);
}

weft_mem_kind weft_arena_kind(const weft_arena *a) { return a->provider->kind; }

/* Chunks double, so 256 of them hold any size; a large request gets a chunk of its own. */
static weft_status add_chunk(weft_arena *a, size_t need, const char *label)
{
    if (a->chunks == CHUNKS)
        return weft_fail(WEFT_ERR_MEMORY, "arena %s: more than %d chunks (at \"%s\")", a->name, CHUNKS, label);
    size_t bytes = CHUNK_MIN;
    if (a->chunks && a->chunk[a->chunks - 1].bytes <= ((size_t)64 << 20)) bytes = a->chunk[a->chunks - 1].bytes * 2;
    if (bytes < need || need > CHUNK_MIN) bytes = need;
    void *p = NULL;
    weft_status st = a->provider->alloc(a->provider->self, bytes, &p);
    if (st < 0) return weft_fail_at(st, "arena %s, \"%s\" (%zu bytes held): ", a->name, label, a->mem->bytes);
    a->mem->allocations++;
    a->mem->bytes += bytes;
    if (a->mem->bytes > a->mem->peak) a->mem->peak = a->mem->bytes;
    a->chunk[a->chunks++] = (chunk){p, bytes, 0};
    return WEFT_OK;
}

weft_status weft_arena_alloc(weft_arena *a, int64_t count, size_t size, const char *label, void **out)
{
    size_t bytes = 0, padded = 0;
    WEFT_TRY(weft_size_of(count, size, label, &bytes));
    if (!weft_add_size(bytes, ALIGN - 1, &padded))
        return weft_fail(WEFT_ERR_REFUSED, "%s: %zu bytes do not fit into memory sizes", label, bytes);
    padded &= ~(size_t)(ALIGN - 1);
    if (!padded) padded = ALIGN;
    while (a->current < a->chunks && a->chunk[a->current].bytes - a->chunk[a->current].used < padded) a->current++;
    if (a->current == a->chunks) WEFT_TRY(add_chunk(a, padded, label));
    chunk *c = &a->chunk[a->current];
    *out = c->base + c->used;
    c->used += padded;
    account_label(a->mem, a->name, label, padded);
    return WEFT_OK;
}

weft_status weft_arena_zalloc(weft_arena *a, int64_t count, size_t size, const char *label, void **out)
{
    WEFT_TRY(weft_arena_alloc(a, count, size, label, out));
    memset(*out, 0, (size_t)count * size);
    return WEFT_OK;
}

weft_status weft_arena_strdup(weft_arena *a, const char *s, const char **out)
{
    char *p = NULL;
    size_t n = strlen(s) + 1;
    WEFT_TRY(WEFT_NEW(a, (int64_t)n, "text", &p));
    memcpy(p, s, n);
    *out = p;
    return WEFT_OK;
}

weft_mark weft_arena_mark(const weft_arena *a)
{
    return (weft_mark){a->current, a->current < a->chunks ? a->chunk[a->current].used : 0};
}

void weft_arena_release(weft_arena *a, weft_mark mark)
{
    for (size_t i = mark.chunk; i < a->chunks; i++) a->chunk[i].used = i == mark.chunk ? mark.used : 0;
    a->current = mark.chunk;
    if (!mark.chunk && !mark.used) unaccount_arena(a->mem, a->name);
}

void weft_arena_reset(weft_arena *a) { weft_arena_release(a, (weft_mark){0, 0}); }

size_t weft_arena_used(const weft_arena *a)
{
    size_t sum = 0;
    for (size_t i = 0; i < a->chunks; i++) sum += a->chunk[i].used;
    return sum;
}
