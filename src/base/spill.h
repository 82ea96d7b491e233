/* spill.h — places for blocks of bytes outside of the working memory, and a thread that moves blocks there and back
 * while their owner computes.
 *
 * The places lie in memory of the owner's choice (a pool of the host beside a device; on a CPU the same memory), or in
 * a file without a name, which is gone when the process ends, however it ends. All room is taken when it is opened: a
 * full disk is refused then, and not met after hours of work.
 *
 * Moves are made in the order in which they were asked for, so what is put and then got is what was put. After a
 * failure nothing is moved any more, and every wait tells of it. For one owner, on one thread. */
#ifndef WEFT_BASE_SPILL_H
#define WEFT_BASE_SPILL_H

#include "base/fault.h"
#include "base/mem.h"

typedef struct weft_spill weft_spill;

enum { WEFT_SPILL_MOVES = 64 }; /* under way at once, at most */

typedef struct weft_spill_options {
    int64_t places;
    size_t bytes;                /* of one place: a multiple of weft_spill_unit */
    void *const *memory;         /* [places] where they lie, which must outlive it; NULL: in a file */
    const weft_mem_provider *provider; /* copies to and from that memory; NULL: weft_mem_host */
    const char *folder;          /* of the file */
    int rank;
    weft_fault *fault;           /* sites spill.put and spill.get, which nobody else may pass; or NULL */
} weft_spill_options;

/* Places begin at multiples of it: cache lines of memory, pages of a file. */
static inline size_t weft_spill_unit(bool file) { return file ? 4096 : 64; }

/* Refuses a folder where no file can be made, or without room for it. LOCAL */
weft_status weft_spill_open(weft_spill **out, const weft_spill_options *options);
/* Waits for the move that is being made, and drops the others; NULL is fine. LOCAL */
void weft_spill_close(weft_spill *s);

/* Whether its file lies in memory after all (tmpfs). LOCAL */
bool weft_spill_in_memory(const weft_spill *s);

/* Asks for a move between memory and a place; `bytes` of the place's first. The memory stays as it is (put), or is not
 * looked at (get), until the move is over. *move: its number, ascending from 1. LOCAL, returns at once */
weft_status weft_spill_put(weft_spill *s, int64_t place, const void *from, size_t bytes, int64_t *move);
weft_status weft_spill_get(weft_spill *s, int64_t place, void *to, size_t bytes, int64_t *move);
/* Whether this move and all before it are over, for which it waits so many seconds at most. Move 0 is over. LOCAL */
weft_status weft_spill_wait(weft_spill *s, int64_t move, double seconds, bool *over);

#endif
