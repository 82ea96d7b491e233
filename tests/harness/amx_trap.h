/* amx_trap.h — runs the tile instructions (AMX-TILE, AMX-BF16) where the processor has none, so that their kernels
 * are tested on every machine. Such an instruction raises SIGILL there; the handler decodes it, does in memory what it
 * would have done to the thread's tiles, and steps over it. A trap takes some twenty microseconds in a virtual machine,
 * so the handler also replaces the instruction by a jump to code that does the same without a trap. */
#ifndef WEFT_TEST_AMX_TRAP_H
#define WEFT_TEST_AMX_TRAP_H

#include <stdbool.h>
#include <stdint.h>

/* Installs the handler for the whole process and returns true. Returns false, and does nothing, when the processor has
 * the instructions, and when it lacks the AVX-512 (with BF16 and VBMI) that kernels with tiles need besides. So they
 * run here when `weft_isa_available(WEFT_ISA_AMX) || amx_trap_install()`. Called in every test that needs it, by one
 * thread: cmocka puts a handler of its own in front of each test.
 *
 * What the processor would refuse (tiles of a thread that are not configured, operands whose shapes do not fit, a tile
 * used twice in a product, bits that must be 0) is said on stderr and left to the signal's former action, which ends
 * the program. Memory is read and written like any other: a page without permission is a SIGSEGV, and the address
 * sanitizer looks on. */
bool amx_trap_install(void);

/* Whether the calling thread has released its tiles, as a kernel must before it returns. Always true where nothing is
 * trapped. */
bool amx_trap_released(void);

/* Instructions of all threads so far: a test shows with it that a kernel used its tiles. */
typedef struct amx_trap_counts {
    int64_t products, loads, stores;
} amx_trap_counts;
amx_trap_counts amx_trap_count(void);

#endif
