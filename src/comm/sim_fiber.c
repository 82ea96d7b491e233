/* sim_fiber.c — switching between stacks, by hand on x86-64 and with ucontext elsewhere. The address sanitizer is told
 * of every switch, because it keeps a record of the stack that code runs on. */
#include "comm/sim_fiber.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#if defined(__SANITIZE_ADDRESS__)
#define WITH_SANITIZER 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define WITH_SANITIZER 1
#endif
#endif
#ifdef WITH_SANITIZER
#include <sanitizer/common_interface_defs.h>
enum { STACK_BYTES = 1 << 20 }; /* its frames are several times larger */
#else
enum { STACK_BYTES = 1 << 18 };
#endif

static void before_switch(void **save, const void *stack, size_t bytes)
{
#ifdef WITH_SANITIZER
    __sanitizer_start_switch_fiber(save, stack, bytes);
#else
    (void)save, (void)stack, (void)bytes;
#endif
}

static void after_switch(void *saved, const void **from, size_t *bytes)
{
#ifdef WITH_SANITIZER
    __sanitizer_finish_switch_fiber(saved, from, bytes);
#else
    (void)saved, (void)from, (void)bytes;
#endif
}

weft_status weft_stacks_map(weft_stacks *s, int n)
{
    long page = sysconf(_SC_PAGESIZE);
    *s = (weft_stacks){.page = page > 0 ? (size_t)page : 4096};
    s->each = STACK_BYTES + s->page;
    s->bytes = s->each * (size_t)n;
    void *p = mmap(NULL, s->bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED)
        return weft_fail(WEFT_ERR_MEMORY, "stacks of %d simulated ranks (%zu bytes of addresses): %s", n, s->bytes,
                         strerror(errno));
    s->base = p;
    for (int i = 0; i < n; i++)
        if (mprotect(s->base + (size_t)i * s->each, s->page, PROT_NONE) != 0) {
            weft_fail(WEFT_ERR_MEMORY,
                      "guard page of simulated rank %d: %s (vm.max_map_count limits how many there can be)", i,
                      strerror(errno));
            weft_stacks_unmap(s);
            return WEFT_ERR_MEMORY;
        }
    return WEFT_OK;
}

void weft_stacks_unmap(weft_stacks *s)
{
    if (s->base) munmap(s->base, s->bytes);
    *s = (weft_stacks){0};
}

static void run(weft_fiber *f);

/* ---- one stack for another ---------------------------------------------------------------------------- */

#ifdef WEFT_FIBER_UCONTEXT

static void change(weft_fiber_state *from, weft_fiber_state *to) { swapcontext(from, to); }

/* makecontext hands over ints only: the pointer comes in two halves. */
static void start(unsigned high, unsigned low) { run((weft_fiber *)(uintptr_t)((uint64_t)high << 32 | low)); }

static weft_status prepare(weft_fiber *f)
{
    if (getcontext(&f->self) != 0) return weft_fail(WEFT_ERR_LIBRARY, "getcontext: %s", strerror(errno));
    f->self.uc_stack.ss_sp = f->stack;
    f->self.uc_stack.ss_size = f->stack_bytes;
    f->self.uc_link = NULL;
    uint64_t p = (uint64_t)(uintptr_t)f;
    makecontext(&f->self, (void (*)(void))start, 2, (unsigned)(p >> 32), (unsigned)p);
    return WEFT_OK;
}

#else

/* A call, to the compiler: only what a callee must keep is kept, on the stack that is left. The signal mask is the same
 * for all fibers, so no system call is needed. The frame, from the top of the stack: control words of SSE and x87, r15,
 * r14, r13, r12, rbx, rbp, the place to return to. A new fiber returns to weft__fiber_begin, with itself in rbx and run
 * in r12. */
void weft__fiber_change(void **from, void *to) __attribute__((visibility("hidden")));
void weft__fiber_begin(void) __attribute__((visibility("hidden")));
__asm__(".text\n"
        ".p2align 4\n"
        ".globl weft__fiber_change\n"
        ".hidden weft__fiber_change\n"
        ".type weft__fiber_change, @function\n"
        "weft__fiber_change:\n"
        "    pushq %rbp\n"
        "    pushq %rbx\n"
        "    pushq %r12\n"
        "    pushq %r13\n"
        "    pushq %r14\n"
        "    pushq %r15\n"
        "    subq $8, %rsp\n"
        "    stmxcsr (%rsp)\n"
        "    fnstcw 4(%rsp)\n"
        "    movq %rsp, (%rdi)\n"
        "    movq %rsi, %rsp\n"
        "    ldmxcsr (%rsp)\n"
        "    fldcw 4(%rsp)\n"
        "    addq $8, %rsp\n"
        "    popq %r15\n"
        "    popq %r14\n"
        "    popq %r13\n"
        "    popq %r12\n"
        "    popq %rbx\n"
        "    popq %rbp\n"
        "    ret\n"
        ".size weft__fiber_change, .-weft__fiber_change\n"
        ".p2align 4\n"
        ".globl weft__fiber_begin\n"
        ".hidden weft__fiber_begin\n"
        ".type weft__fiber_begin, @function\n"
        "weft__fiber_begin:\n"
        "    .cfi_startproc\n"
        "    .cfi_undefined rip\n" /* nothing called it: here a debugger's list of calls ends */
        "    movq %rbx, %rdi\n"
        "    call *%r12\n"
        "    ud2\n"
        "    .cfi_endproc\n"
        ".size weft__fiber_begin, .-weft__fiber_begin\n");

static void change(weft_fiber_state *from, weft_fiber_state *to) { weft__fiber_change(&from->top, to->top); }

static weft_status prepare(weft_fiber *f)
{
    enum { CONTROL, R15, R14, R13, R12, RBX, RBP, RETURN, ABOVE, WORDS = ABOVE + 1 };
    /* weft__fiber_begin finds the stack as a caller leaves it: a multiple of 16 bytes. */
    uint64_t *frame = (uint64_t *)(void *)((char *)f->stack + f->stack_bytes / 16 * 16) - WORDS - 1;
    memset(frame, 0, (WORDS + 1) * sizeof *frame);
    uint32_t sse;
    uint16_t x87;
    __asm__ volatile("stmxcsr %0\n\tfnstcw %1" : "=m"(sse), "=m"(x87));
    frame[CONTROL] = (uint64_t)x87 << 32 | sse;
    frame[RBX] = (uint64_t)(uintptr_t)f;
    frame[R12] = (uint64_t)(uintptr_t)run;
    frame[RETURN] = (uint64_t)(uintptr_t)weft__fiber_begin;
    f->self.top = frame;
    return WEFT_OK;
}

#endif

/* ---- fibers --------------------------------------------------------------------------------------------- */

/* Where a fiber begins. The last change does not come back. */
static void run(weft_fiber *f)
{
    after_switch(NULL, &f->home_stack, &f->home_bytes);
    f->main(f->ud);
    f->ended = true;
    before_switch(NULL, f->home_stack, f->home_bytes); /* NULL: this stack is done with */
    change(&f->self, f->home);
}

weft_status weft_fiber_init(weft_fiber *f, const weft_stacks *stacks, int i, void (*main)(void *ud), void *ud)
{
    *f = (weft_fiber){.stack = stacks->base + (size_t)i * stacks->each + stacks->page, .stack_bytes = STACK_BYTES,
                      .main = main, .ud = ud};
    return prepare(f);
}

void weft_fiber_enter(weft_fiber *f, weft_fiber_state *home)
{
    void *mine = NULL;
    f->home = home;
    before_switch(&mine, f->stack, f->stack_bytes);
    change(home, &f->self);
    after_switch(mine, NULL, NULL);
}

void weft_fiber_leave(weft_fiber *f)
{
    before_switch(&f->sanitizer, f->home_stack, f->home_bytes);
    change(&f->self, f->home);
    after_switch(f->sanitizer, &f->home_stack, &f->home_bytes);
}
