/* amx_patch.c — puts a jump in the place of a tile instruction that has trapped once; the shortest of them is as long
 * as a jump, five bytes. It leads to a stub near the program's code, and the stub to `amx_patch_enter`, which saves all
 * registers, executes the instruction in C and returns behind it: half a microsecond instead of twenty.
 *
 * Other threads may be in the same code. The first byte becomes an instruction that does not exist in 64-bit mode, then
 * the rest changes, then the first byte; between the steps every thread of the process is made to forget what it has
 * fetched (membarrier). So a thread sees the old instruction, the trap, or the jump, never a mixture. */
#include "harness/amx_trap_impl.h"

#if defined(__x86_64__) && defined(__linux__)

#include <linux/membarrier.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { JUMP_BYTES = 5, NO_INSTRUCTION = 0x06, JUMP = 0xe9, POOL_BYTES = 1 << 16, PAGE = 4096 };

typedef struct stub {
    uint8_t code[32];
    amx_site site;
} stub;
enum { RETURN_TO = 10 }; /* where the call in stub.code returns to */

static atomic_flag busy = ATOMIC_FLAG_INIT;
static stub *pool, *pool_end; /* stubs not yet taken */

static void lock(void)
{
    while (atomic_flag_test_and_set_explicit(&busy, memory_order_acquire)) __builtin_ia32_pause();
}
static void unlock(void) { atomic_flag_clear_explicit(&busy, memory_order_release); }

/* On entry the stack holds the address in the stub, and above it 128 bytes that the code below a red zone may use.
 * C code may change all that is saved here. Upper halves of vectors that were not in use (bits 2 and 6 of what xgetbv
 * says) are zeroed again in the way that the processor notices: SSE code is several times slower otherwise. */
#define ALL_ZMM(X) \
    ALL_MASKS(X) X(8) X(9) X(10) X(11) X(12) X(13) X(14) X(15) X(16) X(17) X(18) X(19) X(20) X(21) X(22) X(23) X(24) \
    X(25) X(26) X(27) X(28) X(29) X(30) X(31)
#define ALL_MASKS(X) X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7)
#define SAVE_ZMM(i) "vmovdqu64 %zmm" #i ", 128+64*" #i "(%rsp)\n"
#define LOAD_ZMM(i) "vmovdqu64 128+64*" #i "(%rsp), %zmm" #i "\n"
#define SAVE_MASK(i) "kmovq %k" #i ", 8+8*" #i "(%rsp)\n"
#define LOAD_MASK(i) "kmovq 8+8*" #i "(%rsp), %k" #i "\n"

__asm__(".text\n"
        ".p2align 4\n"
        ".type amx_patch_enter, @function\n"
        "amx_patch_enter:\n"
        "pushfq\n"
        "push %r15\n push %r14\n push %r13\n push %r12\n push %r11\n push %r10\n push %r9\n push %r8\n"
        "push %rdi\n push %rsi\n push %rbp\n push %rsp\n push %rbx\n push %rdx\n push %rcx\n push %rax\n"
        "mov %rsp, %rdi\n"
        "mov 136(%rsp), %rsi\n"
        "mov %rsp, %rbx\n"
        "cld\n"
        "mov $1, %ecx\n"
        "xgetbv\n"
        "mov %eax, %r12d\n"
        "and $-64, %rsp\n"
        "sub $(128 + 32 * 64), %rsp\n"
        "stmxcsr (%rsp)\n" ALL_MASKS(SAVE_MASK) ALL_ZMM(SAVE_ZMM)
        "call amx_patch_run\n" ALL_ZMM(LOAD_ZMM) ALL_MASKS(LOAD_MASK)
        "ldmxcsr (%rsp)\n"
        "test $0x44, %r12d\n"
        "jnz 1f\n"
        "vzeroupper\n"
        "1:\n"
        "mov %rbx, %rsp\n"
        "pop %rax\n pop %rcx\n pop %rdx\n pop %rbx\n lea 8(%rsp), %rsp\n pop %rbp\n pop %rsi\n pop %rdi\n"
        "pop %r8\n pop %r9\n pop %r10\n pop %r11\n pop %r12\n pop %r13\n pop %r14\n pop %r15\n"
        "popfq\n"
        "ret\n"
        ".size amx_patch_enter, .-amx_patch_enter\n");
extern const uint8_t amx_patch_enter[]; /* as bytes: C has no distance to a function */
void amx_patch_run(int64_t *g, uint8_t *return_to);

/* g lies on the stack, in front of the flags, the address in the stub, and the 128 bytes. */
void amx_patch_run(int64_t *g, uint8_t *return_to)
{
    stub *s = (stub *)(void *)(return_to - RETURN_TO);
    g[4] = (int64_t)(intptr_t)(g + 18) + 128; /* rsp before all this */
    amx_site site = s->site;
    const char *wrong = amx_execute(&site, g);
    if (!wrong) return;
    amx_refuse(wrong);
    raise(SIGILL);
    abort();
}

/* ---- stubs -------------------------------------------------------------------------------------------- */

static bool near(const void *a, const void *b)
{
    intptr_t distance = (intptr_t)a - (intptr_t)b;
    return distance > -0x7fff0000 && distance < 0x7fff0000;
}

/* Memory for stubs below the program, as far as a jump reaches; above it would be in the way of the heap. */
static bool new_pool(const uint8_t *at)
{
    uintptr_t page = (uintptr_t)at & ~(uintptr_t)(PAGE - 1);
    for (uintptr_t down = 1 << 24; down < 0x70000000 && down < page; down += 1 << 24) {
        void *p = mmap((void *)(page - down), POOL_BYTES, PROT_READ | PROT_WRITE | PROT_EXEC,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
        if (p == MAP_FAILED) continue;
        if (!near(p, at)) { /* an old kernel takes the address as a wish */
            munmap(p, POOL_BYTES);
            continue;
        }
        pool = p, pool_end = pool + POOL_BYTES / sizeof *pool;
        return true;
    }
    return false;
}

static void put32(uint8_t *to, const uint8_t *target)
{
    int32_t distance = (int32_t)(target - (to + 4));
    memcpy(to, &distance, sizeof distance);
}

static stub *new_stub(const amx_site *site)
{
    static const uint8_t code[] = {0x48, 0x8d, 0x64, 0x24, 0x80,                   /* lea -128(%rsp), %rsp */
                                   0xe8, 0,    0,    0,    0,                      /* call amx_patch_enter */
                                   0x48, 0x8d, 0xa4, 0x24, 0x80, 0,    0,    0,    /* lea 128(%rsp), %rsp */
                                   0xe9, 0,    0,    0,    0};                     /* jmp behind the instruction */
    if (pool == pool_end || !near(pool, site->at))
        if (!new_pool(site->at)) return NULL;
    if (!near(pool, amx_patch_enter)) return NULL;
    stub *s = pool++;
    memcpy(s->code, code, sizeof code);
    put32(s->code + 6, amx_patch_enter);
    put32(s->code + 19, site->at + site->length);
    s->site = *site;
    return s;
}

/* ---- the program's code ------------------------------------------------------------------------------- */

static bool forget_fetched(void) { return syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED_SYNC_CORE, 0) == 0; }

void amx_patch_prepare(void) { syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED_SYNC_CORE, 0); }

bool amx_patch_read(amx_site *site)
{
    lock();
    memcpy(site->code, site->at, JUMP_BYTES);
    if (site->code[0] == 0x64 || site->code[0] == 0xc4) memcpy(site->code, site->at, sizeof site->code);
    unlock();
    return site->code[0] != JUMP;
}

static void write_jump(uint8_t *at, const stub *to)
{
    uint8_t jump[JUMP_BYTES] = {JUMP};
    int32_t distance = (int32_t)(to->code - (at + JUMP_BYTES));
    memcpy(jump + 1, &distance, sizeof distance);
    __atomic_store_n(at, (uint8_t)NO_INSTRUCTION, __ATOMIC_SEQ_CST);
    forget_fetched();
    memcpy(at + 1, jump + 1, JUMP_BYTES - 1);
    forget_fetched();
    __atomic_store_n(at, jump[0], __ATOMIC_SEQ_CST);
    forget_fetched();
}

void amx_patch(const amx_site *site)
{
    uint8_t *page = (uint8_t *)((uintptr_t)site->at & ~(uintptr_t)(PAGE - 1));
    size_t bytes = (size_t)(site->at + JUMP_BYTES - page);
    lock();
    if (memcmp(site->at, site->code, JUMP_BYTES) == 0 && forget_fetched()) {
        stub *s = new_stub(site);
        if (s && mprotect(page, bytes, PROT_READ | PROT_WRITE | PROT_EXEC) == 0) {
            write_jump(site->at, s);
            mprotect(page, bytes, PROT_READ | PROT_EXEC);
        }
    }
    unlock();
}

#else

typedef int amx_patch_has_nothing_here;

#endif
