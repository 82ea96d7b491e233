/* amx_trap_impl.h — between the files of amx_trap. */
#ifndef WEFT_TEST_AMX_TRAP_IMPL_H
#define WEFT_TEST_AMX_TRAP_IMPL_H

#include "harness/amx_trap.h"

/* An instruction: where it stands, and its bytes as they were before it became a jump. */
typedef struct amx_site {
    uint8_t *at;
    uint8_t code[16];
    int length; /* set by amx_execute */
} amx_site;

/* Does what the instruction does; g: the general registers, in the order of their numbers. NULL, or why not. */
const char *amx_execute(amx_site *site, const int64_t g[16]);
/* Says why, and gives the signal back to who had it. */
void amx_refuse(const char *why);

/* Reads the instruction at site->at; false when it has become a jump meanwhile. */
bool amx_patch_read(amx_site *site);
/* Makes the instruction a jump to code that executes it. Where that is not possible it stays as it is. */
void amx_patch(const amx_site *site);
void amx_patch_prepare(void);

#endif
