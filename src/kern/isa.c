/* isa.c — which instruction sets this machine can run. A CPUID bit alone is not enough: the operating
 * system must save the registers too (XCR0), and AMX tiles need a permission per process. */
#include "kern/kern.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

static const char *const isa_names[WEFT_ISA_COUNT] = {"ref", "avx2", "avx512", "amx"};

const char *weft_isa_name(weft_isa isa)
{
    return isa >= 0 && isa < WEFT_ISA_COUNT ? isa_names[isa] : "unknown";
}

bool weft_isa_parse(const char *s, weft_isa *out)
{
    for (int i = 0; s && i < WEFT_ISA_COUNT; i++)
        if (strcmp(s, isa_names[i]) == 0) {
            *out = (weft_isa)i;
            return true;
        }
    return false;
}

#if defined(__x86_64__)

typedef struct cpu_facts { uint32_t f1c, f7b, f7c, f7d, f7a1, xcr0; } cpu_facts;

static cpu_facts read_cpu(void)
{
    cpu_facts f = {0};
    uint32_t a, b, c, d;
    if (__get_cpuid(1, &a, &b, &c, &d)) f.f1c = c;
    if (__get_cpuid_count(7, 0, &a, &b, &c, &d)) {
        f.f7b = b;
        f.f7c = c;
        f.f7d = d;
    }
    if (__get_cpuid_count(7, 1, &a, &b, &c, &d)) f.f7a1 = a;
    if (f.f1c & bit_OSXSAVE) { /* xgetbv without OSXSAVE is an illegal instruction */
        uint32_t lo, hi;
        __asm__ volatile("xgetbv" : "=a"(lo), "=d"(hi) : "c"(0));
        f.xcr0 = lo;
    }
    return f;
}

static bool all_set(uint32_t word, uint32_t bits) { return (word & bits) == bits; }

/* ---- what the processor has, by CPUID ----------------------------------------------------------------- */

static bool has_avx2(const cpu_facts *f)
{
    return all_set(f->f1c, bit_AVX | bit_FMA | bit_F16C) && all_set(f->f7b, bit_AVX2);
}

static bool has_avx512(const cpu_facts *f)
{
    return has_avx2(f) && all_set(f->f7b, bit_AVX512F | bit_AVX512BW | bit_AVX512DQ | bit_AVX512VL);
}

static bool has_avx512_bf16(const cpu_facts *f) { return has_avx512(f) && (f->f7a1 & 1 << 5); }

/* With what its kernels use between tiles; every processor with AMX has that. */
static bool has_amx(const cpu_facts *f)
{
    enum { AMX_BF16 = 1 << 22, AMX_TILE = 1 << 24 };
    return has_avx512_bf16(f) && all_set(f->f7c, bit_AVX512VBMI) && all_set(f->f7d, AMX_BF16 | AMX_TILE);
}

/* ---- what the system saves and permits ------------------------------------------------------------------ */

enum { SAVES_YMM = 0x6 /* xmm, ymm */, SAVES_ZMM = 0xe6 /* + opmask, both halves of zmm */, SAVES_TILES = 3 << 17 };

static bool may_use_tiles(void)
{
    enum { REQUEST_PERMISSION = 0x1023, XTILEDATA = 18 }; /* arch_prctl(ARCH_REQ_XCOMP_PERM, ...) */
    return syscall(SYS_arch_prctl, REQUEST_PERMISSION, XTILEDATA) == 0;
}

static void read_name(char name[64])
{
    uint32_t part[12] = {0};
    for (uint32_t i = 0; i < 3; i++) {
        uint32_t *p = part + 4 * i;
        if (!__get_cpuid(0x80000002u + i, &p[0], &p[1], &p[2], &p[3])) return;
    }
    memcpy(name, part, sizeof part); /* ends with zeros, or is 48 letters long */
}

static void describe(weft_cpu *out, bool *avx512_bf16)
{
    const cpu_facts f = read_cpu();
    const bool has[WEFT_ISA_COUNT] = {true, has_avx2(&f), has_avx512(&f), has_amx(&f)};
    const uint32_t saves[WEFT_ISA_COUNT] = {0, SAVES_YMM, SAVES_ZMM, SAVES_ZMM | SAVES_TILES};
    read_name(out->name);
    out->xcr0 = f.xcr0;
    for (int i = 0; i < WEFT_ISA_COUNT; i++) {
        out->has[i] = has[i];
        out->saved[i] = all_set(f.xcr0, saves[i]);
        out->allowed[i] = has[i] && out->saved[i] && (i != WEFT_ISA_AMX || may_use_tiles());
    }
    *avx512_bf16 = has_avx512_bf16(&f) && out->saved[WEFT_ISA_AVX512];
}

#else

static void describe(weft_cpu *out, bool *avx512_bf16) { (void)out, (void)avx512_bf16; }

#endif

/* A fact of the hardware, found once per process. */
static pthread_once_t once = PTHREAD_ONCE_INIT;
static struct { weft_cpu cpu; bool avx512_bf16; } found;

static void describe_once(void)
{
    describe(&found.cpu, &found.avx512_bf16);
    found.cpu.has[WEFT_ISA_REF] = found.cpu.saved[WEFT_ISA_REF] = found.cpu.allowed[WEFT_ISA_REF] = true;
}

void weft_cpu_describe(weft_cpu *out)
{
    pthread_once(&once, describe_once);
    *out = found.cpu;
}

bool weft_isa_available(weft_isa isa)
{
    if (isa < 0 || isa >= WEFT_ISA_COUNT) return false;
    pthread_once(&once, describe_once);
    return found.cpu.allowed[isa];
}

bool weft_cpu_has_avx512_bf16(void)
{
    pthread_once(&once, describe_once);
    return found.avx512_bf16;
}

/* WEFT_ISA lowers the choice, so that a whole test suite can run at each level. A value that is no name, or
 * names what the machine lacks, is refused by weft_kern_init, which can say so. */
weft_isa weft_isa_best(void)
{
    weft_isa best = WEFT_ISA_REF, cap = WEFT_ISA_AMX;
    weft_isa_parse(getenv("WEFT_ISA"), &cap);
    for (int i = 0; i <= (int)cap; i++)
        if (weft_isa_available((weft_isa)i)) best = (weft_isa)i;
    return best;
}

bool weft_isa_roof(weft_isa isa, weft_prec prec, weft_roof_unit *out)
{
    *out = isa == WEFT_ISA_AVX2                              ? WEFT_ROOF_FMA256
           : isa == WEFT_ISA_AMX && prec == WEFT_PREC_BF16 ? WEFT_ROOF_AMX_BF16
                                                           : WEFT_ROOF_FMA512;
    return isa > WEFT_ISA_REF && prec != WEFT_PREC_F64;
}
