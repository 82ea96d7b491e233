/* place.c — regions between unreadable pages. They are kept for the next test: a region that is asked for again costs
 * no system call and no page fault. */
#include "harness/place.h"

#include "harness/test.h"

#include <sys/mman.h>

enum { PAGE = 4096, CLASSES = 48, KEEP = 64 << 20, FILL = 0xff };

typedef struct region {
    struct region *next;
    unsigned char *base; /* PAGE << class bytes; the pages before and behind them cannot be read */
    int class;
    unsigned char *block; /* what place_new returned, and its size */
    size_t bytes;
} region;

static region *unused[CLASSES], *used;

static size_t room_of(int class) { return (size_t)PAGE << class; }

static region *new_region(int class)
{
    region *r = calloc(1, sizeof *r);
    assert_non_null(r);
    void *p = mmap(NULL, room_of(class) + 2 * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED) fail_msg("no address space for %zu bytes", room_of(class));
    r->base = (unsigned char *)p + PAGE;
    r->class = class;
    assert_int_equal(mprotect(r->base, room_of(class), PROT_READ | PROT_WRITE), 0);
    return r;
}

void *place_new(size_t bytes, size_t align, place_side side)
{
    int class = 0;
    while (room_of(class) < bytes) class++;
    region *r = unused[class];
    if (r) unused[class] = r->next;
    else r = new_region(class);
    r->next = used, used = r;
    r->block = r->base + (side == PLACE_FIRST ? 0 : (room_of(class) - bytes) & ~(align - 1));
    r->bytes = bytes;
    size_t slack = side == PLACE_FIRST ? 0 : (size_t)(r->base + room_of(class) - (r->block + bytes));
    memset(r->block, FILL, bytes + slack);
    return r->block;
}

static void check_slack(const region *r)
{
    const unsigned char *from = r->block + r->bytes, *end = r->base + room_of(r->class);
    if (r->block == r->base) return; /* PLACE_FIRST, or a block of whole pages */
    for (const unsigned char *x = from; x < end; x++)
        if (*x != FILL) fail_msg("byte %d behind a block of %zu was written", (int)(x - from), r->bytes);
}

void place_free(void *p)
{
    if (!p) return;
    region **at = &used;
    while (*at && (*at)->block != p) at = &(*at)->next;
    assert_non_null(*at);
    region *r = *at;
    *at = r->next;
    check_slack(r);
    if (room_of(r->class) <= KEEP) {
        r->next = unused[r->class], unused[r->class] = r;
        return;
    }
    munmap(r->base - PAGE, room_of(r->class) + 2 * PAGE);
    free(r);
}
