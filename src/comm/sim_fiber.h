/* sim_fiber.h — ranks that take turns in one thread: stacks and switching (private to this room).
 *
 * A fiber runs until it switches back to the thread that runs all fibers; that thread decides who is next. */
#ifndef WEFT_COMM_SIM_FIBER_H
#define WEFT_COMM_SIM_FIBER_H

#include "base/base.h"

/* ucontext takes two system calls for every switch, a third of a simulation's time. The thread sanitizer knows no other
 * way, and a shadow stack (Intel CET) would have to be exchanged too. */
#if defined(__SANITIZE_THREAD__)
#define WEFT_FIBER_UCONTEXT 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define WEFT_FIBER_UCONTEXT 1
#endif
#endif
#if !defined(__x86_64__) || defined(__SHSTK__)
#define WEFT_FIBER_UCONTEXT 1
#endif

#ifdef WEFT_FIBER_UCONTEXT
#include <ucontext.h>
typedef ucontext_t weft_fiber_state;
#else
typedef struct weft_fiber_state { void *top; } weft_fiber_state; /* of a stack on which the rest is kept */
#endif

typedef struct weft_fiber {
    weft_fiber_state self, *home; /* home: the thread's own, while this fiber runs */
    void *stack;             /* lowest usable byte */
    size_t stack_bytes;
    void *sanitizer;         /* the address sanitizer's record of this stack */
    const void *home_stack;  /* the thread's, as the sanitizer knows it */
    size_t home_bytes;
    void (*main)(void *ud);
    void *ud;
    bool ended;
} weft_fiber;

typedef struct weft_stacks { /* one mapping; a page that faults below every stack */
    char *base;
    size_t bytes, each, page;
} weft_stacks;

weft_status weft_stacks_map(weft_stacks *s, int n);
void weft_stacks_unmap(weft_stacks *s);

/* A fiber that will run main(ud) on stack `i`. */
weft_status weft_fiber_init(weft_fiber *f, const weft_stacks *stacks, int i, void (*main)(void *ud), void *ud);
/* From the thread: runs f until it leaves or ends. */
void weft_fiber_enter(weft_fiber *f, weft_fiber_state *home);
/* From f: back to the thread. */
void weft_fiber_leave(weft_fiber *f);

#endif
