/* sim_addresses.c — buffers of simulated ranks whose kernels only charge time: addresses without memory behind them.
 *
 * All ranks use the same addresses, since nothing is ever written there, so what is reserved is what the largest rank
 * needs, whatever their number. It is reserved in pieces that grow as blocks ask for them: addresses count against a
 * limit on the process (ulimit -v), which must be left for everything else. */
#include "comm/sim_impl.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#define FIRST_PIECE ((size_t)1 << 26)

/* A new piece, four times the last one, or less where that much is not to be had; at least `bytes`. */
static weft_status reserve(weft_sim *s, const weft_sim_rank *r, size_t bytes)
{
    size_t want = s->pieces ? 4 * s->piece[s->pieces - 1].bytes : FIRST_PIECE;
    void *p = MAP_FAILED;
    if (want < bytes) want = bytes;
    errno = ENOMEM;
    while (s->pieces < WEFT_SIM_PIECES) {
        p = mmap(NULL, want, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (p != MAP_FAILED || want == bytes) break;
        want = want / 2 > bytes ? want / 2 : bytes;
    }
    if (p == MAP_FAILED)
        return weft_fail(
            WEFT_ERR_MEMORY,
            "simulated rank %d: %zu more bytes of addresses: %s; raise the limit on addresses (ulimit -v), "
            "or simulate shorter sequences",
            r->rank, bytes, strerror(errno));
    s->piece[s->pieces++] = (weft_sim_piece){p, want};
    return WEFT_OK;
}

static weft_status take(void *self, size_t bytes, void **out)
{
    weft_sim_rank *r = self;
    weft_sim *s = r->sim;
    size_t padded;
    if (!weft_add_size(bytes, 63, &padded))
        return weft_fail(WEFT_ERR_MEMORY, "simulated rank %d: %zu bytes of addresses", r->rank, bytes);
    padded &= ~(size_t)63;
    while (r->piece < s->pieces && s->piece[r->piece].bytes - r->piece_used < padded) r->piece++, r->piece_used = 0;
    if (r->piece == s->pieces) WEFT_TRY(reserve(s, r, padded ? padded : 64));
    *out = s->piece[r->piece].base + r->piece_used;
    r->piece_used += padded;
    r->address_blocks++;
    return WEFT_OK;
}

/* A rank begins anew when it has given all back. */
static void give(void *self, void *ptr, size_t bytes)
{
    (void)ptr, (void)bytes;
    weft_sim_rank *r = self;
    if (--r->address_blocks == 0) r->piece = 0, r->piece_used = 0;
}

static weft_status copy_nothing(void *self, void *dst, const void *src, size_t bytes, weft_queue *queue)
{
    (void)self, (void)dst, (void)src, (void)bytes, (void)queue;
    return WEFT_OK;
}

weft_mem_provider weft_sim_addresses(weft_sim_rank *r)
{
    return (weft_mem_provider){"addresses", WEFT_MEM_DEVICE, r, take, give, copy_nothing};
}

bool weft_sim_is_address(const weft_sim *s, const void *p)
{
    for (int i = 0; i < s->pieces; i++)
        if ((uintptr_t)p - (uintptr_t)s->piece[i].base < s->piece[i].bytes) return true;
    return false;
}

void weft_sim_free_addresses(weft_sim *s)
{
    for (int i = 0; i < s->pieces; i++) munmap(s->piece[i].base, s->piece[i].bytes);
    s->pieces = 0;
}
