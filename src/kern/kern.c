/* kern.c — fills the table of kernels: the reference first, then what each instruction set has. */
#include "kern/kern_impl.h"

#include <stdlib.h>
#include <string.h>

/* Rows above the precision or the instruction set asked for are left out; later rows replace earlier. */
static void fill(weft_kern *kern, weft_isa isa)
{
#define KERN(name, prec, from, symbol) \
    if (WEFT_ISA_##from <= isa) kern->op[WEFT_PREC_##prec].name = symbol;
#define KERN_ATTN(prec, from, fill_attn) \
    if (WEFT_ISA_##from <= isa) fill_attn(&kern->op[WEFT_PREC_##prec].attn, WEFT_PREC_##prec);
#define KERN_MOVE(prec, from, fill_move) \
    if (WEFT_ISA_##from <= isa) fill_move(&kern->op[WEFT_PREC_##prec].move, WEFT_PREC_##prec);
#include "kern/kern_list.inc"
#undef KERN
#undef KERN_ATTN
#undef KERN_MOVE
}

static const char *available_list(char *buf, size_t size)
{
    size_t used = 0;
    buf[0] = '\0';
    for (int i = 0; i < WEFT_ISA_COUNT; i++) {
        if (!weft_isa_available((weft_isa)i)) continue;
        const char *name = weft_isa_name((weft_isa)i);
        const size_t need = strlen(name) + (used ? 2 : 0);
        if (used + need >= size) break;
        if (used) memcpy(buf + used, ", ", 2);
        memcpy(buf + used + (used ? 2 : 0), name, strlen(name) + 1);
        used += need;
    }
    return buf;
}

/* The environment's WEFT_ISA must be a name and available, although an explicit `isa` is stronger: a
 * misspelt limit would otherwise be ignored in silence. */
static weft_status check_environment(void)
{
    const char *text = getenv("WEFT_ISA");
    weft_isa asked;
    char have[64];
    if (!text || (weft_isa_parse(text, &asked) && weft_isa_available(asked))) return WEFT_OK;
    return weft_fail(WEFT_ERR_REFUSED, "WEFT_ISA=%s: this machine has %s", text, available_list(have, sizeof have));
}

weft_status weft_kern_init(weft_kern *kern, weft_isa isa)
{
    char have[64];
    WEFT_TRY(check_environment());
    if (!weft_isa_available(isa))
        return weft_fail(WEFT_ERR_REFUSED, "instruction set %s: this machine has %s", weft_isa_name(isa),
                         available_list(have, sizeof have));
    memset(kern, 0, sizeof *kern);
    kern->isa = isa;
    fill(kern, isa);
    return WEFT_OK;
}

size_t weft_norm_work_bytes(weft_prec p, int64_t n, int threads)
{
    (void)threads; /* blocks do not depend on threads, so that the sums do not either */
    /* layernorm keeps partial rows of dw and of db */
    return 2 * (size_t)WEFT_NORM_BLOCKS * (size_t)n * weft_dtype_size(weft_prec_real(p));
}

const weft_kern_entry *weft_kern_manifest(int *n)
{
    static const weft_kern_entry entries[] = {
#define KERN(name, prec, from, symbol) {#name, WEFT_PREC_##prec, WEFT_ISA_##from, #symbol},
#define KERN_ATTN(prec, from, fill_attn) {"attn", WEFT_PREC_##prec, WEFT_ISA_##from, #fill_attn},
#define KERN_MOVE(prec, from, fill_move) {"move", WEFT_PREC_##prec, WEFT_ISA_##from, #fill_move},
#include "kern/kern_list.inc"
#undef KERN
#undef KERN_ATTN
#undef KERN_MOVE
    };
    *n = (int)(sizeof entries / sizeof *entries);
    return entries;
}
