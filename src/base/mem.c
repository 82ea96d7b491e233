/* mem.c — the host provider, the account, and the arena. */
#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

enum { ALIGN = 64 };
/* Chunks of host memory grow up to CHUNK_MAX: pages that nobody touches cost nothing there. They begin small, because
 * every rank has several arenas that hold little. Larger requests than CHUNK_SHARED get chunks of their own. */
enum { CHUNK_FIRST = 1 << 16, CHUNK_SHARED = 1 << 20, CHUNK_MAX = 64 << 20 };

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

/* ---- addresses without memory --------------------------------------------------------------------- */

static weft_status take_addresses(void *self, size_t bytes, void **out)
{
    weft_nowhere *n = self;
    *out = (void *)n->next; /* NOLINT: an address to count with, never one to read */
    n->next += (bytes + ALIGN - 1) / ALIGN * ALIGN;
    return WEFT_OK;
}

static void give_addresses(void *self, void *ptr, size_t bytes) { (void)self, (void)ptr, (void)bytes; }

weft_mem_provider weft_mem_nowhere(weft_nowhere *n)
{
    n->next = ALIGN;
    return (weft_mem_provider){.name = "nowhere", .kind = WEFT_MEM_DEVICE, .self = n, .alloc = take_addresses,
                               .release = give_addresses};
}

/* ---- account -------------------------------------------------------------------------------------- */

static int row_of(weft_mem *mem, const char *arena, const char *label)
{
    for (int i = 0; i < mem->rows; i++)
        if (!strcmp(mem->row[i].arena, arena) && !strcmp(mem->row[i].label, label)) return i;
    if (mem->rows == WEFT_MEM_ROWS) return WEFT_MEM_ROWS - 1;
    int i = mem->rows++;
    mem->row[i] = (weft_mem_row){.arena = arena, .label = mem->rows == WEFT_MEM_ROWS ? "other" : label};
    return i;
}

static void account(weft_mem_row *row, size_t bytes)
{
    row->bytes += bytes;
    if (row->bytes > row->peak) row->peak = row->bytes;
}

/* ---- arena ---------------------------------------------------------------------------------------- */

typedef struct chunk {
    char *base;
    size_t bytes, used;
} chunk;

typedef struct block { /* what one allocation put into the account, for the release to take it out again */
    size_t bytes;
    int row;
} block;

struct weft_arena {
    weft_mem *mem;
    const char *name;
    const weft_mem_provider *provider;
    chunk *chunk;
    size_t chunks, chunk_room;
    size_t current; /* chunk that is being filled */
    size_t grow;    /* bytes of the next chunk for small allocations */
    block *block;   /* one per allocation */
    size_t blocks, block_room;
};

weft_status weft_arena_create(weft_arena **out, weft_mem *mem, const char *name, const weft_mem_provider *provider)
{
    weft_arena *a = calloc(1, sizeof *a);
    if (!a) return weft_fail(WEFT_ERR_MEMORY, "arena %s: no memory for its header", name);
    a->mem = mem;
    a->name = name;
    a->provider = provider ? provider : &weft_mem_host;
    a->grow = CHUNK_FIRST;
    *out = a;
    return WEFT_OK;
}

/* Takes all allocations but the first `keep` out of the account: other arenas may have rows of the same names. */
static void forget_blocks(weft_arena *a, size_t keep)
{
    for (; a->blocks > keep; a->blocks--)
        a->mem->row[a->block[a->blocks - 1].row].bytes -= a->block[a->blocks - 1].bytes;
}

void weft_arena_destroy(weft_arena *a)
{
    if (!a) return;
    for (size_t i = 0; i < a->chunks; i++) {
        a->provider->release(a->provider->self, a->chunk[i].base, a->chunk[i].bytes);
        a->mem->bytes -= a->chunk[i].bytes;
    }
    forget_blocks(a, 0);
    free(a->chunk);
    free(a->block);
    free(a);
}

weft_mem_kind weft_arena_kind(const weft_arena *a) { return a->provider->kind; }

/* Room for one more element in a list that doubles; false: no memory, and the list is as it was. */
static bool list_has_room(void **list, size_t used, size_t *room, size_t size)
{
    if (used < *room) return true;
    size_t more = *room ? 2 * *room : 16;
    void *grown = realloc(*list, more * size);
    if (!grown) return false;
    *list = grown;
    *room = more;
    return true;
}

static weft_status lists_have_room(weft_arena *a, const char *label)
{
    if (list_has_room((void **)&a->chunk, a->chunks, &a->chunk_room, sizeof *a->chunk) &&
        list_has_room((void **)&a->block, a->blocks, &a->block_room, sizeof *a->block))
        return WEFT_OK;
    return weft_fail(WEFT_ERR_MEMORY, "arena %s, \"%s\": no memory for its list of %zu allocations", a->name, label,
                     a->blocks);
}

/* A large request gets a chunk of its own size. Only host memory is taken ahead: what others read in place, and what a
 * device holds, is memory from the moment it is taken. */
static size_t chunk_for(weft_arena *a, size_t need)
{
    if (need > CHUNK_SHARED || a->provider->kind != WEFT_MEM_HOST) return need;
    while (a->grow < need) a->grow *= 2;
    size_t bytes = a->grow;
    if (a->grow < CHUNK_MAX) a->grow *= 2;
    return bytes;
}

static weft_status add_chunk(weft_arena *a, size_t need, const char *label)
{
    size_t bytes = chunk_for(a, need);
    void *p = NULL;
    weft_status st = a->provider->alloc(a->provider->self, bytes, &p);
    if (st < 0) return weft_fail_at(st, "arena %s, \"%s\" (%zu bytes held): ", a->name, label, a->mem->bytes);
    a->mem->allocations++;
    a->mem->bytes += bytes;
    if (a->mem->bytes > a->mem->peak) a->mem->peak = a->mem->bytes;
    a->chunk[a->chunks++] = (chunk){p, bytes, 0};
    return WEFT_OK;
}

/* In debug builds whoever reads memory before writing it reads NaN: all bits 1 are NaN in every float type, -1 in every
 * integer, and no address. Of a large block the beginning: a simulated rank's arrays are larger than the machine. */
static void fill(const weft_arena *a, void *p, size_t bytes)
{
#ifdef WEFT_FILL_NAN
    enum { FILL_MAX = 8 << 20 };
    if (a->provider->kind == WEFT_MEM_HOST) memset(p, 0xff, bytes < FILL_MAX ? bytes : FILL_MAX);
#else
    (void)a, (void)p, (void)bytes;
#endif
}

weft_status weft_arena_alloc(weft_arena *a, int64_t count, size_t size, const char *label, void **out)
{
    size_t bytes = 0, padded = 0;
    WEFT_TRY(weft_size_of(count, size, label, &bytes));
    if (!weft_add_size(bytes, ALIGN - 1, &padded))
        return weft_fail(WEFT_ERR_REFUSED, "%s: %zu bytes do not fit into memory sizes", label, bytes);
    padded &= ~(size_t)(ALIGN - 1);
    if (!padded) padded = ALIGN;
    WEFT_TRY(lists_have_room(a, label));
    while (a->current < a->chunks && a->chunk[a->current].bytes - a->chunk[a->current].used < padded) a->current++;
    if (a->current == a->chunks) WEFT_TRY(add_chunk(a, padded, label));
    chunk *c = &a->chunk[a->current];
    *out = c->base + c->used;
    c->used += padded;
    fill(a, *out, padded);
    a->block[a->blocks] = (block){padded, row_of(a->mem, a->name, label)};
    account(&a->mem->row[a->block[a->blocks++].row], padded);
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
    return (weft_mark){a->current, a->current < a->chunks ? a->chunk[a->current].used : 0, a->blocks};
}

void weft_arena_release(weft_arena *a, weft_mark mark)
{
    for (size_t i = mark.chunk; i < a->chunks; i++) a->chunk[i].used = i == mark.chunk ? mark.used : 0;
    a->current = mark.chunk;
    forget_blocks(a, mark.blocks);
}

void weft_arena_reset(weft_arena *a) { weft_arena_release(a, (weft_mark){0}); }

size_t weft_arena_used(const weft_arena *a)
{
    size_t sum = 0;
    for (size_t i = 0; i < a->chunks; i++) sum += a->chunk[i].used;
    return sum;
}
