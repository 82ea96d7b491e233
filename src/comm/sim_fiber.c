/* sim_fiber.c — switching between stacks with ucontext. The address sanitizer is told of every switch, because it
 * keeps a record of the stack that code runs on. */
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
        return weft_fail(WEFT_ERR_MEMORY, "stacks of %d simulated ranks (%zu bytes of addresses): %s", n, s->bytes, strerror(errno));
    s->base = p;
    for (int i = 0; i < n; i++)
        if (mprotect(s->base + (size_t)i * s->each, s->page, PROT_NONE) != 0) {
            weft_fail(WEFT_ERR_MEMORY, "guard page of simulated rank %d: %s (vm.max_map_count limits how many there can be)",
                      i, strerror(errno));
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

/* makecontext hands over ints only: the pointer comes in two halves. */
static void start(unsigned high, unsigned low)
{
    weft_fiber *f = (weft_fiber *)(uintptr_t)((uint64_t)high << 32 | low);
    after_switch(NULL, &f->home_stack, &f->home_bytes);
    f->main(f->ud);
    f->ended = true;
    before_switch(NULL, f->home_stack, f->home_bytes); /* NULL: this stack is done with */
    setcontext(f->home);
}

weft_status weft_fiber_init(weft_fiber *f, const weft_stacks *stacks, int i, void (*main)(void *ud), void *ud)
{
    *f = (weft_fiber){.stack = stacks->base + (size_t)i * stacks->each + stacks->page, .stack_bytes = STACK_BYTES,
                      .main = main, .ud = ud};
    if (getcontext(&f->self) != 0) return weft_fail(WEFT_ERR_LIBRARY, "getcontext: %s", strerror(errno));
    f->self.uc_stack.ss_sp = f->stack;
    f->self.uc_stack.ss_size = f->stack_bytes;
    f->self.uc_link = NULL;
    uint64_t p = (uint64_t)(uintptr_t)f;
    makecontext(&f->self, (void (*)(void))start, 2, (unsigned)(p >> 32), (unsigned)p);
    return WEFT_OK;
}

void weft_fiber_enter(weft_fiber *f, ucontext_t *home)
{
    void *mine = NULL;
    f->home = home;
    before_switch(&mine, f->stack, f->stack_bytes);
    swapcontext(home, &f->self);
    after_switch(mine, NULL, NULL);
}

void weft_fiber_leave(weft_fiber *f)
{
    before_switch(&f->sanitizer, f->home_stack, f->home_bytes);
    swapcontext(&f->self, f->home);
    after_switch(f->sanitizer, &f->home_stack, &f->home_bytes);
}
