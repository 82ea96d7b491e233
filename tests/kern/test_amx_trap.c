/* test_amx_trap.c — the tile instructions do what their manual says, by the processor or by harness/amx_trap: the tests
 * of kernels with tiles stand on it.
 * labels: small */
#include "harness/test.h"

#include <math.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "harness/amx_trap.h"
#include "kern/kern.h"
#include "kern/roof/roof_impl.h"

#if defined(__x86_64__)

#define TILES __attribute__((target("amx-tile,amx-bf16")))

typedef struct config { /* of eight tiles, as ldtilecfg reads it */
    uint8_t palette, start_row, reserved[14];
    uint16_t bytes[16];
    uint8_t rows[16];
} config;

static bool runs_here(void)
{
    if (weft_isa_available(WEFT_ISA_AMX) || amx_trap_install()) return true;
    skip();
    return false;
}

TILES static void configure(const config *c) { __asm__ volatile("ldtilecfg %0" ::"m"(*c)); }
TILES static void release(void) { __asm__ volatile("tilerelease"); }

/* tmm0 (m rows, n columns) += tmm1 (m rows, k pairs) tmm2 (k rows, n columns) */
static config shapes(int m, int n, int k)
{
    config c = {.palette = 1};
    c.rows[0] = c.rows[1] = (uint8_t)m, c.rows[2] = (uint8_t)k;
    c.bytes[0] = c.bytes[2] = (uint16_t)(4 * n), c.bytes[1] = (uint16_t)(4 * k);
    return c;
}

/* ---- products ----------------------------------------------------------------------------------------- */

enum { LD = 21 }; /* words between rows in memory */

TILES static void product(float *c, const uint32_t *a, const uint32_t *b)
{
    const int64_t stride = LD * 4;
    __asm__ volatile("tileloadd (%0,%3,1), %%tmm0\n"
                     "tileloaddt1 (%1,%3,1), %%tmm1\n"
                     "tileloadd (%2,%3,1), %%tmm2\n"
                     "tdpbf16ps %%tmm2, %%tmm1, %%tmm0\n"
                     "tilestored %%tmm0, (%0,%3,1)\n" ::"r"(c), "r"(a), "r"(b), "r"(stride)
                     : "memory");
}

static float flush(float x) { return fabsf(x) < 0x1p-126f ? copysignf(0, x) : x; }
static float half_of(uint32_t pair, int odd) { return flush(weft_bf16_to_f32((uint16_t)(pair >> 16 * odd))); }

static float model(float old, const uint32_t *a, const uint32_t *b, int k)
{
    float sum[2] = {0, 0};
    for (int i = 0; i < k; i++)
        for (int odd = 0; odd < 2; odd++) sum[odd] = flush(fmaf(half_of(a[i], odd), half_of(b[i * LD], odd), sum[odd]));
    return flush(flush(old) + flush(sum[0] + sum[1]));
}

static void check_product(int m, int n, int k, double size)
{
    static float c[16 * LD], want[16 * LD];
    static uint32_t a[16 * LD], b[16 * LD];
    const bool real = weft_isa_available(WEFT_ISA_AMX);
    for (int i = 0; i < 16 * LD; i++) {
        double x[4];
        for (int j = 0; j < 4; j++) x[j] = size * test_normal((uint64_t)(m * 1000 + n * 31 + k), 4 * i + j);
        a[i] = (uint32_t)weft_f32_to_bf16((float)x[0]) | (uint32_t)weft_f32_to_bf16((float)x[1]) << 16;
        b[i] = (uint32_t)weft_f32_to_bf16((float)x[2]) | (uint32_t)weft_f32_to_bf16((float)x[3]) << 16;
        c[i] = want[i] = (float)(x[0] * x[1]);
    }
    for (int i = 0; i < m; i++)
        for (int j = 0; j < n; j++) want[i * LD + j] = model(c[i * LD + j], a + i * LD, b + j, k);
    const config shape = shapes(m, n, k);
    configure(&shape);
    product(c, a, b);
    release();
    for (int i = 0; i < 16 * LD; i++) {
        double limit = real ? 1e-6 * size * size * k : 0; /* a processor may add in another order */
        if (!(fabs((double)c[i] - (double)want[i]) <= limit))
            fail_msg("%d x %d x %d: word %d is %.9g, not %.9g", m, n, k, i, c[i], want[i]);
    }
}

static void products(void **state)
{
    (void)state;
    if (!runs_here()) return;
    static const int sizes[] = {1, 2, 3, 5, 7, 16};
    for (int m = 0; m < 6; m++)
        for (int n = 0; n < 6; n++)
            for (int k = 0; k < 6; k++) check_product(sizes[m], sizes[n], sizes[k], 1);
}

/* Products of about 1e-37 and sums below: some are denormal, and count as 0. */
static void denormals_are_zero(void **state)
{
    (void)state;
    if (!runs_here()) return;
    const unsigned modes = 0xffc0, before = __builtin_ia32_stmxcsr();
    check_product(16, 16, 16, 3e-19);
    check_product(16, 16, 16, 1e-38); /* as operands */
    assert_int_equal(__builtin_ia32_stmxcsr() & modes, before & modes);
}

/* ---- addresses ---------------------------------------------------------------------------------------- */

enum { STACK = 1 << 16, ROW_BYTES = 20, TALL = 5 };

/* Loads a tile through base and index, which change places with rax and rcx, and stores it in the same way. With rsp as
 * the base the handler's frame lies below the tile in memory: there must be room. */
#define FORM(name, base, index, scale, displacement) \
    TILES static void name(const uint8_t *from, uint8_t *to, int64_t stride) \
    { \
        const uint8_t *at = from - (displacement); \
        uint8_t *back = to - (displacement); \
        int64_t step = stride / (scale); \
        __asm__ volatile("xchg %%rax, %%" base "\n" \
                         "xchg %%rcx, %%" index "\n" \
                         "tileloadd " #displacement "(%%" base ", %%" index ", " #scale "), %%tmm7\n" \
                         "xchg %%rcx, %%" index "\n" \
                         "xchg %%rax, %%" base "\n" \
                         "mov %%rdx, %%rax\n" \
                         "xchg %%rax, %%" base "\n" \
                         "xchg %%rcx, %%" index "\n" \
                         "tilestored %%tmm7, " #displacement "(%%" base ", %%" index ", " #scale ")\n" \
                         "xchg %%rcx, %%" index "\n" \
                         "xchg %%rax, %%" base "\n" \
                         : "+a"(at), "+c"(step) \
                         : "d"(back) \
                         : "memory"); \
    }
FORM(form_rax_rcx, "rax", "rcx", 1, 0)
FORM(form_rbx_rsi, "rbx", "rsi", 2, 1)
FORM(form_rsp_rbp, "rsp", "rbp", 4, 0)
FORM(form_rbp_rdi, "rbp", "rdi", 1, 0)
FORM(form_rsi_rbx, "rsi", "rbx", 4, -128)
FORM(form_rdi_r8, "rdi", "r8", 1, 127)
FORM(form_r8_r12, "r8", "r12", 2, 0)
FORM(form_r9_r13, "r9", "r13", 4, 128)
FORM(form_r10_r15, "r10", "r15", 1, -100000)
FORM(form_r11_r14, "r11", "r14", 2, 4)
FORM(form_r12_r9, "r12", "r9", 1, 0)
FORM(form_r13_r10, "r13", "r10", 1, 0)
FORM(form_r14_r11, "r14", "r11", 4, -4)
FORM(form_r15_rbp, "r15", "rbp", 1, 64)
FORM(form_of_threads, "r8", "r9", 1, 0) /* which several threads meet for the first time */

/* Without an index the stride is 0: all rows are the same. Without a base, the index is the address. */
TILES static void form_no_index(const uint8_t *from, uint8_t *to)
{
    __asm__ volatile(".byte 0xc4, 0xe2, 0x7b, 0x4b, 0x3c, 0x20\n" /* tileloadd (%rax), %tmm7 */
                     "tilestored %%tmm7, (%1,%2,1)\n" ::"a"(from),
                     "r"(to), "r"((int64_t)ROW_BYTES)
                     : "memory");
}

static void addresses(void **state)
{
    (void)state;
    if (!runs_here()) return;
    static void (*const form[])(const uint8_t *, uint8_t *, int64_t) = {
        form_rax_rcx, form_rbx_rsi, form_rsp_rbp, form_rbp_rdi, form_rsi_rbx, form_rdi_r8, form_r8_r12,
        form_r9_r13,  form_r10_r15, form_r11_r14, form_r12_r9, form_r13_r10, form_r14_r11, form_r15_rbp};
    static const int64_t strides[] = {ROW_BYTES, 64, -24};
    uint8_t room[2][STACK];
    config c = {.palette = 1};
    c.rows[7] = TALL, c.bytes[7] = ROW_BYTES;
    configure(&c);
    for (size_t f = 0; f < sizeof form / sizeof *form; f++)
        for (int s = 0; s < 3; s++) {
            uint8_t *from = room[0] + STACK - 1000, *to = room[1] + STACK - 1000;
            for (int i = 0; i < 1000; i++) from[i] = (uint8_t)(i * 7 + i / 256), to[i] = 255;
            from += 200, to += 200;
            form[f](from, to, strides[s]);
            for (int r = 0; r < TALL; r++) assert_memory_equal(from + r * strides[s], to + r * strides[s], ROW_BYTES);
        }
    uint8_t *from = room[0], same[TALL * ROW_BYTES];
    for (int i = 0; i < ROW_BYTES; i++) from[i] = (uint8_t)i;
    form_no_index(from, same);
    for (int r = 0; r < TALL; r++) assert_memory_equal(same + r * ROW_BYTES, from, ROW_BYTES);
    release();
}

/* What an instruction does not name stays as it is: general and vector registers, masks, flags, the red zone below the
 * stack pointer. */
typedef struct registers {
    uint8_t zmm[4][64];
    int64_t general[6], mask[2], red_zone[2];
    uint8_t carry;
} registers;

__attribute__((target("amx-tile,amx-bf16,avx512f,avx512bw"))) static void around_an_instruction(const registers *in,
                                                                                              registers *out)
{
    __asm__ volatile("vmovdqu64 (%%rdi), %%zmm0\n vmovdqu64 64(%%rdi), %%zmm7\n"
                     "vmovdqu64 128(%%rdi), %%zmm16\n vmovdqu64 192(%%rdi), %%zmm31\n"
                     "mov 256(%%rdi), %%rax\n mov 264(%%rdi), %%rbx\n mov 272(%%rdi), %%rcx\n"
                     "mov 280(%%rdi), %%rdx\n mov 288(%%rdi), %%r8\n mov 296(%%rdi), %%r15\n"
                     "kmovq 304(%%rdi), %%k1\n kmovq 312(%%rdi), %%k7\n"
                     "mov 320(%%rdi), %%r9\n mov %%r9, -8(%%rsp)\n mov 328(%%rdi), %%r9\n mov %%r9, -128(%%rsp)\n"
                     "stc\n"
                     "tilezero %%tmm0\n"
                     "setc 336(%%rsi)\n"
                     "mov -8(%%rsp), %%r9\n mov %%r9, 320(%%rsi)\n mov -128(%%rsp), %%r9\n mov %%r9, 328(%%rsi)\n"
                     "kmovq %%k1, 304(%%rsi)\n kmovq %%k7, 312(%%rsi)\n"
                     "mov %%rax, 256(%%rsi)\n mov %%rbx, 264(%%rsi)\n mov %%rcx, 272(%%rsi)\n"
                     "mov %%rdx, 280(%%rsi)\n mov %%r8, 288(%%rsi)\n mov %%r15, 296(%%rsi)\n"
                     "vmovdqu64 %%zmm0, (%%rsi)\n vmovdqu64 %%zmm7, 64(%%rsi)\n"
                     "vmovdqu64 %%zmm16, 128(%%rsi)\n vmovdqu64 %%zmm31, 192(%%rsi)\n" ::"D"(in),
                     "S"(out)
                     : "memory", "cc", "rax", "rbx", "rcx", "rdx", "r8", "r9", "r15", "xmm0", "xmm7", "xmm16", "xmm31",
                       "k1", "k7");
}

static void registers_survive(void **state)
{
    (void)state;
    if (!runs_here()) return;
    registers in, out;
    memset(&in, 0, sizeof in);
    for (size_t i = 0; i < offsetof(registers, carry); i++) ((uint8_t *)&in)[i] = (uint8_t)(i * 13 + 1);
    in.carry = 1;
    const config c = {.palette = 1, .bytes = {4}, .rows = {1}};
    configure(&c);
    for (int turn = 0; turn < 3; turn++) { /* as a trap, then as a jump */
        memset(&out, 0, sizeof out);
        around_an_instruction(&in, &out);
        assert_memory_equal(&in, &out, sizeof in);
    }
    release();
}

static _Thread_local config local_config;
static const config static_config = {.palette = 1, .bytes = {[3] = 8}, .rows = {[3] = 2}};

/* Configurations beside the program counter, thread-local, and behind base, index and displacement. */
TILES static void configurations(void **state)
{
    (void)state;
    if (!runs_here()) return;
    config got[3], want = {.palette = 1, .rows = {3, 4}, .bytes = {12, 16}};
    local_config = want;
    __asm__ volatile("ldtilecfg %0" ::"m"(local_config));
    __asm__ volatile("sttilecfg -64(%0,%1,8)" ::"r"(got), "r"((int64_t)16) : "memory");
    assert_memory_equal(&got[1], &want, sizeof want);
    __asm__ volatile("ldtilecfg %0" ::"m"(static_config));
    __asm__ volatile("sttilecfg %0" : "=m"(got[2]));
    assert_memory_equal(&got[2], &static_config, sizeof want);
    assert_true(weft_isa_available(WEFT_ISA_AMX) || !amx_trap_released());
    release();
    assert_true(amx_trap_released());
    memset(&want, 0, sizeof want);
    __asm__ volatile("sttilecfg %0" : "=m"(got[0]));
    assert_memory_equal(&got[0], &want, sizeof want);
}

/* ---- threads, the loop of the roof, what is refused ---------------------------------------------------- */

static void every_thread_has_its_tiles(void **state)
{
    (void)state;
    if (!runs_here()) return;
    int wrong = 0;
#pragma omp parallel for num_threads(3) schedule(static, 1) reduction(+ : wrong)
    for (int t = 0; t < 3; t++) {
        int32_t in[16], out[16];
        config c = {.palette = 1};
        c.rows[7] = (uint8_t)(t + 1), c.bytes[7] = 4;
        for (int i = 0; i < 16; i++) in[i] = 100 * t + i, out[i] = -1;
        configure(&c);
        for (int turn = 0; turn < 200; turn++) {
            form_of_threads((const uint8_t *)in, (uint8_t *)out, 4);
            for (int i = 0; i < 16; i++) wrong += out[i] != (i <= t ? in[i] : -1);
        }
        release();
    }
    assert_int_equal(wrong, 0);
}

static void the_loop_of_the_roof(void **state)
{
    (void)state;
    if (!runs_here()) return;
    const amx_trap_counts before = amx_trap_count();
    assert_true(weft_roof_amx_bf16(3) == 3 * 8 * 16 * 16 * 32 * 2.0);
    const amx_trap_counts after = amx_trap_count();
    if (weft_isa_available(WEFT_ISA_AMX)) return;
    assert_int_equal(after.products - before.products, 24);
    assert_int_equal(after.loads - before.loads, 4);
    assert_int_equal(after.stores, before.stores);
}

TILES static void not_configured(void) { __asm__ volatile("tilezero %tmm0"); }
TILES static void unfit_shapes(void)
{
    config c = shapes(3, 4, 5);
    c.rows[2] = 4;
    configure(&c);
    __asm__ volatile("tdpbf16ps %tmm2, %tmm1, %tmm0");
}
static void another_instruction(void) { __asm__ volatile("ud2"); }

static void what_is_no_tile_instruction_ends_the_program(void **state)
{
    (void)state;
    if (!runs_here()) return;
    static void (*const wrong[])(void) = {not_configured, unfit_shapes, another_instruction};
    for (int i = 0; i < 3; i++) {
        pid_t child = fork();
        if (child == 0) {
            signal(SIGILL, SIG_DFL); /* in place of cmocka's handler */
            amx_trap_install();
            fclose(stderr);
            wrong[i]();
            _exit(0);
        }
        int status = 0;
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGILL);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(products),
        cmocka_unit_test(denormals_are_zero),
        cmocka_unit_test(addresses),
        cmocka_unit_test(registers_survive),
        cmocka_unit_test(configurations),
        cmocka_unit_test(every_thread_has_its_tiles),
        cmocka_unit_test(the_loop_of_the_roof),
        cmocka_unit_test(what_is_no_tile_instruction_ends_the_program),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

#else

int main(void) { return 0; }

#endif
