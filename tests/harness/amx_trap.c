/* amx_trap.c — tile instructions in software. The arithmetic follows Intel's description of TDPBF16PS (Software
 * Developer's Manual, volume 2): per row and column one sum of the even products and one of the odd ones, each an fp32
 * multiply-add in ascending order with one rounding to nearest; then even + odd; then the old value + that.
 * Denormal operands count as 0 and denormal results become 0, whatever MXCSR says. A processor may differ in the last
 * bit of a sum, so tests compare with tolerances, and bits only with bits of the same machine.
 *
 * Everything here may run in a signal handler: thread-local and atomic variables, no allocation, no libc but write,
 * sigaction, memcpy, memset. */
#include "harness/amx_trap_impl.h"

#include "kern/kern.h"

#include <string.h>

#if defined(__x86_64__) && defined(__linux__)

#include <immintrin.h>
#include <signal.h>
#include <stdatomic.h>
#include <ucontext.h>
#include <unistd.h>

enum { TILES = 8, ROWS = 16, ROW_BYTES = 64, CONFIG_BYTES = 64 };

typedef struct tiles { /* the tile registers of a thread; palette 0: not configured */
    uint8_t config[CONFIG_BYTES];
    _Alignas(64) uint8_t data[TILES][ROWS][ROW_BYTES]; /* 0 beyond a tile's rows and bytes, always */
} tiles;
static _Thread_local tiles state __attribute__((tls_model("initial-exec")));
static atomic_llong products, loads, stores;
static struct sigaction former; /* what SIGILL did before */

/* ---- configuration: byte 0 palette, 1 start row, 16.. bytes per row (16 bits each), 48.. rows --------- */

static int rows_of(int t) { return state.config[48 + t]; }
static int bytes_of(int t) { return state.config[16 + 2 * t] | state.config[17 + 2 * t] << 8; }
static bool configured(int t) { return state.config[0] == 1 && rows_of(t) > 0; }

/* NULL or what is wrong with it. */
static const char *load_config(const uint8_t *from)
{
    uint8_t new[CONFIG_BYTES];
    memcpy(new, from, sizeof new);
    if (new[0] > 1) return "a palette other than 0 and 1";
    for (int i = 2; i < CONFIG_BYTES; i++)
        if (new[i] != 0 && (i < 16 || (i >= 32 && i < 48) || i >= 56)) return "a reserved byte that is not 0";
    for (int t = 0; t < TILES; t++) {
        int rows = new[48 + t], bytes = new[16 + 2 * t] | new[17 + 2 * t] << 8;
        if (rows > ROWS || bytes > ROW_BYTES) return "a tile of more than 16 rows of 64 bytes";
        if ((rows == 0) != (bytes == 0)) return "a tile with rows of no bytes, or bytes in no rows";
    }
    memset(&state, 0, sizeof state);
    if (new[0] == 1) memcpy(state.config, new, sizeof new);
    return NULL;
}

/* ---- what an instruction does ------------------------------------------------------------------------ */

static void load(int t, const uint8_t *from, int64_t stride)
{
    for (int r = 0; r < rows_of(t); r++) memcpy(state.data[t][r], from + r * stride, (size_t)bytes_of(t));
    atomic_fetch_add_explicit(&loads, 1, memory_order_relaxed);
}

static void store(int t, uint8_t *to, int64_t stride)
{
    for (int r = 0; r < rows_of(t); r++) memcpy(to + r * stride, state.data[t][r], (size_t)bytes_of(t));
    atomic_fetch_add_explicit(&stores, 1, memory_order_relaxed);
}

#define AVX512 __attribute__((target("avx512f")))
typedef struct sums { __m512 even, odd; } sums;

AVX512 static inline sums zero_sums(void) { return (sums){_mm512_setzero_ps(), _mm512_setzero_ps()}; }

/* One pair of a row of the first operand times a row of pairs of the second, which are taken apart. */
AVX512 static inline sums step(sums s, const uint8_t *pair, sums b)
{
    int both;
    memcpy(&both, pair, sizeof both);
    __m512i a = _mm512_set1_epi32(both);
    s.even = _mm512_fmadd_ps(_mm512_castsi512_ps(_mm512_slli_epi32(a, 16)), b.even, s.even);
    a = _mm512_and_si512(a, _mm512_set1_epi32((int)0xffff0000u));
    s.odd = _mm512_fmadd_ps(_mm512_castsi512_ps(a), b.odd, s.odd);
    return s;
}

AVX512 static inline void add(uint8_t *to, sums s, __mmask16 lanes)
{
    __m512 old = _mm512_load_ps(to);
    _mm512_store_ps(to, _mm512_maskz_add_ps(lanes, old, _mm512_add_ps(s.even, s.odd)));
}

/* c += a b for tiles whose shapes fit. Four rows at a time, so that eight sums hide the latency of one; rows beyond the
 * tile's are 0 and stay 0. */
AVX512 static void multiply(int c, int a, int b)
{
    const __mmask16 lanes = (__mmask16)((1u << bytes_of(c) / 4) - 1);
    const int depth = rows_of(b), rows = rows_of(c);
    const unsigned mxcsr = _mm_getcsr();
    sums row[ROWS];
    _mm_setcsr(0x9fc0); /* nothing raised, to nearest, denormals are 0 and become 0 */
    for (int k = 0; k < depth; k++) {
        __m512i pair = _mm512_load_si512(state.data[b][k]);
        row[k].even = _mm512_castsi512_ps(_mm512_slli_epi32(pair, 16));
        row[k].odd = _mm512_castsi512_ps(_mm512_and_si512(pair, _mm512_set1_epi32((int)0xffff0000u)));
    }
    for (int r = 0; r < rows; r += 4) {
        uint8_t(*from)[ROW_BYTES] = state.data[a] + r, (*to)[ROW_BYTES] = state.data[c] + r;
        sums s0 = zero_sums(), s1 = s0, s2 = s0, s3 = s0;
        for (int k = 0; k < depth; k++) {
            s0 = step(s0, from[0] + 4 * k, row[k]);
            s1 = step(s1, from[1] + 4 * k, row[k]);
            s2 = step(s2, from[2] + 4 * k, row[k]);
            s3 = step(s3, from[3] + 4 * k, row[k]);
        }
        add(to[0], s0, lanes);
        if (r + 1 < rows) add(to[1], s1, lanes);
        if (r + 2 < rows) add(to[2], s2, lanes);
        if (r + 3 < rows) add(to[3], s3, lanes);
    }
    _mm_setcsr(mxcsr);
    atomic_fetch_add_explicit(&products, 1, memory_order_relaxed);
}

/* The rules of the manual; a product of unfit tiles is an illegal instruction. */
static const char *check_product(int c, int a, int b)
{
    if (a == b || a == c || b == c) return "a product that names a tile twice";
    if (!configured(a) || !configured(b) || !configured(c)) return "a product of tiles that are not configured";
    if (bytes_of(a) % 4 != 0 || bytes_of(b) % 4 != 0 || bytes_of(c) % 4 != 0) return "rows of no whole pairs";
    if (rows_of(a) != rows_of(c) || bytes_of(b) != bytes_of(c) || bytes_of(a) / 4 != rows_of(b))
        return "a product of tiles whose shapes do not fit";
    return NULL;
}

/* ---- decoding ---------------------------------------------------------------------------------------- */

typedef struct instruction {
    const uint8_t *code, *next; /* next: behind what has been read */
    int opcode, prefix;         /* prefix: 0 none, 1 = 66, 2 = F3, 3 = F2 */
    int reg, rm, vvvv;          /* tiles; rm only when it is no address */
    bool memory;
    uintptr_t address;          /* base + displacement */
    int64_t stride;             /* index x scale, 0 without an index */
} instruction;

static int64_t signed32(const uint8_t *p)
{
    int32_t x;
    memcpy(&x, p, sizeof x);
    return x;
}

/* The bytes after ModRM: SIB, displacement. x and b: the fourth bits of the index and the base. */
static void decode_address(instruction *in, const amx_site *site, const int64_t *g, int mod, int rm, int x, int b)
{
    int64_t base = 0, displacement = 0;
    int low = rm;
    bool relative = false;
    if (rm == 4) {
        int sib = *in->next++, index = (sib >> 3 & 7) | x;
        low = sib & 7;
        if (index != 4) in->stride = (int64_t)((uint64_t)g[index] << (sib >> 6));
    } else relative = mod == 0 && rm == 5;
    bool no_base = mod == 0 && low == 5;
    if (!no_base) base = g[low | b];
    if (mod == 1) displacement = (int8_t)*in->next++;
    if (mod == 2 || no_base) displacement = signed32(in->next), in->next += 4;
    if (relative) base = (int64_t)(intptr_t)site->at + (in->next - in->code);
    in->address = (uintptr_t)base + (uintptr_t)displacement;
}

/* VEX with three bytes, map 0F38, W0, 128 bits, which all tile instructions have; before it perhaps the prefix of
 * thread-local data, whose segment begins at the address that its first word holds. */
static bool decode(instruction *in, const amx_site *site, const int64_t *g)
{
    const uint8_t *at = in->code = site->code;
    bool thread_local_data = *at == 0x64;
    if (thread_local_data) at++;
    if (at[0] != 0xc4 || (at[1] & 0x1f) != 2 || (at[2] & 0x84) != 0) return false;
    in->opcode = at[3];
    if (in->opcode != 0x49 && in->opcode != 0x4b && in->opcode != 0x5c) return false;
    in->prefix = at[2] & 3;
    in->vvvv = ~at[2] >> 3 & 15;
    int mod = at[4] >> 6, rm = at[4] & 7;
    in->reg = (at[4] >> 3 & 7) | (at[1] & 0x80 ? 0 : 8);
    in->memory = mod != 3;
    in->next = at + 5;
    int x = at[1] & 0x40 ? 0 : 8, b = at[1] & 0x20 ? 0 : 8;
    in->rm = rm | b;
    if (in->memory) decode_address(in, site, g, mod, rm, x, b);
    if (in->memory && in->opcode == 0x4b && rm != 4) return false; /* rows need an index for their distance */
    if (thread_local_data) {
        uintptr_t segment;
        __asm__("mov %%fs:0, %0" : "=r"(segment));
        in->address += segment;
    }
    return true;
}

/* ---- execution --------------------------------------------------------------------------------------- */

static const char not_tiles[] = "";

static void *whole_address(const instruction *in) { return (void *)(in->address + (uintptr_t)in->stride); }

/* opcode 49: ldtilecfg (no prefix), tilerelease (its form without memory), sttilecfg (66), tilezero (F2) */
static const char *configure(const instruction *in)
{
    if (in->vvvv != 0) return not_tiles;
    if (in->memory && in->reg == 0 && in->prefix == 0) return load_config(whole_address(in));
    if (in->memory && in->reg == 0 && in->prefix == 1) {
        memcpy(whole_address(in), state.config, CONFIG_BYTES);
        return NULL;
    }
    if (!in->memory && in->prefix == 0 && in->reg == 0 && in->rm == 0) {
        memset(&state, 0, sizeof state);
        return NULL;
    }
    if (in->memory || in->prefix != 3 || in->rm != 0 || in->reg >= TILES) return not_tiles;
    if (!configured(in->reg)) return "a tile that is not configured";
    memset(state.data[in->reg], 0, sizeof state.data[in->reg]);
    return NULL;
}

/* opcode 4B: tileloadd (F2), tileloaddt1 (66), tilestored (F3) */
static const char *move(const instruction *in)
{
    if (!in->memory || in->prefix == 0 || in->vvvv != 0 || in->reg >= TILES) return not_tiles;
    if (!configured(in->reg)) return "a tile that is not configured";
    if (in->prefix == 2) store(in->reg, (uint8_t *)in->address, in->stride);
    else load(in->reg, (const uint8_t *)in->address, in->stride);
    return NULL;
}

/* opcode 5C: tdpbf16ps (F3); the others of this opcode belong to later extensions */
static const char *product(const instruction *in)
{
    if (in->memory || in->prefix != 2 || in->reg >= TILES || in->rm >= TILES || in->vvvv >= TILES) return not_tiles;
    const char *wrong = check_product(in->reg, in->rm, in->vvvv);
    if (!wrong) multiply(in->reg, in->rm, in->vvvv);
    return wrong;
}

const char *amx_execute(amx_site *site, const int64_t g[16])
{
    instruction in = {0};
    if (!decode(&in, site, g)) return not_tiles;
    site->length = (int)(in.next - in.code);
    return in.opcode == 0x49 ? configure(&in) : in.opcode == 0x4b ? move(&in) : product(&in);
}

static void say(const char *text)
{
    static const char before[] = "amx_trap: the processor would refuse ", after[] = "\n";
    if (write(STDERR_FILENO, before, sizeof before - 1) < 0 || write(STDERR_FILENO, text, strlen(text)) < 0) return;
    if (write(STDERR_FILENO, after, 1) < 0) return;
}

void amx_refuse(const char *wrong)
{
    if (wrong != not_tiles) say(wrong);
    sigaction(SIGILL, &former, NULL);
}

/* ---- the signal --------------------------------------------------------------------------------------- */

static const int greg[16] = {REG_RAX, REG_RCX, REG_RDX, REG_RBX, REG_RSP, REG_RBP, REG_RSI, REG_RDI,
                             REG_R8,  REG_R9,  REG_R10, REG_R11, REG_R12, REG_R13, REG_R14, REG_R15};

static void trap(int signal, siginfo_t *info, void *context)
{
    (void)signal, (void)info;
    greg_t *regs = ((ucontext_t *)context)->uc_mcontext.gregs;
    int64_t g[16];
    amx_site site = {0};
    site.at = (uint8_t *)(intptr_t)regs[REG_RIP];
    if (!amx_patch_read(&site)) return; /* another thread has changed it: once more, with what stands there now */
    for (int i = 0; i < 16; i++) g[i] = regs[greg[i]];
    const char *wrong = amx_execute(&site, g);
    if (wrong) {
        amx_refuse(wrong); /* and the instruction raises the signal again */
        return;
    }
    regs[REG_RIP] += site.length;
    amx_patch(&site);
}

bool amx_trap_install(void)
{
    if (weft_isa_available(WEFT_ISA_AMX) || !weft_isa_available(WEFT_ISA_AVX512)) return false;
    if (!weft_cpu_has_avx512_bf16() || !__builtin_cpu_supports("avx512vbmi")) return false; /* used between tiles */
    struct sigaction now, action;
    sigaction(SIGILL, NULL, &now);
    if ((now.sa_flags & SA_SIGINFO) && now.sa_sigaction == trap) return true;
    former = now;
    amx_patch_prepare();
    memset(&action, 0, sizeof action);
    action.sa_sigaction = trap;
    action.sa_flags = SA_SIGINFO | SA_NODEFER;
    return sigaction(SIGILL, &action, NULL) == 0;
}

bool amx_trap_released(void) { return state.config[0] == 0; }

amx_trap_counts amx_trap_count(void)
{
    return (amx_trap_counts){atomic_load(&products), atomic_load(&loads), atomic_load(&stores)};
}

#else

bool amx_trap_install(void) { return false; }
bool amx_trap_released(void) { return true; }
amx_trap_counts amx_trap_count(void) { return (amx_trap_counts){0, 0, 0}; }

#endif
