/* interrupt.c — Ctrl-C and its kin. A handler may do next to nothing and needs global state; a thread that waits for
 * the signals may do what it wants, and keeps its state where its owner says. */
#include "cli/cli.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct weft_interrupt {
    pthread_t thread;
    atomic_bool asked, stop;
    bool speak;
    const char *launcher; /* of this process, or NULL */
};

static sigset_t taken(void)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGUSR1);
    return set;
}

void weft_interrupt_block(const weft_command *command)
{
    sigset_t set = taken();
    if (command == &weft_cmd_train) pthread_sigmask(SIG_BLOCK, &set, NULL);
}

/* As if nobody had taken the signal: the shell and the supervisor see what ended the process. */
static void end_now(int sig)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, sig);
    signal(sig, SIG_DFL);
    pthread_sigmask(SIG_UNBLOCK, &set, NULL);
    raise(sig);
}

static void tell(const weft_interrupt *i, int sig)
{
    char more[160] = "";
    if (!i->speak) return;
    /* Open MPI's mpirun kills ranks two seconds after it was asked to end, saved or not. */
    if (i->launcher && sig != SIGUSR1)
        snprintf(more, sizeof more, ", unless %s ends the ranks before that; SIGUSR1 in place of this leaves them the "
                 "time", i->launcher);
    else if (sig == SIGINT) snprintf(more, sizeof more, "; Ctrl-C again ends it now");
    /* a line of progress stands on a terminal */
    fprintf(stderr, "%sweft: %s: this step is finished and saved, then the run ends%s\n",
            weft_on_terminal(stderr) ? "\n" : "", strsignal(sig), more);
}

static void *watch(void *ud)
{
    weft_interrupt *i = ud;
    sigset_t set = taken();
    while (!atomic_load(&i->stop)) {
        const struct timespec tick = {.tv_nsec = 200000000};
        int sig = sigtimedwait(&set, NULL, &tick);
        if (sig < 0 || atomic_load(&i->stop)) continue;
        bool again = atomic_exchange(&i->asked, true);
        if (again && sig == SIGINT) end_now(sig);
        if (!again) tell(i, sig);
    }
    return NULL;
}

weft_status weft_interrupt_start(weft_interrupt **out, bool speak)
{
    weft_interrupt *i = calloc(1, sizeof *i);
    if (!i) return weft_fail(WEFT_ERR_MEMORY, "no memory to wait for signals");
    i->speak = speak;
    weft_mpi_launch l = {0};
    if (weft_mpi_launched(&l) >= 0 && l.size > 0) i->launcher = l.by;
    int failed = pthread_create(&i->thread, NULL, watch, i);
    if (failed) {
        free(i);
        return weft_fail(WEFT_ERR_LIBRARY, "a thread that waits for signals cannot be started: %s", strerror(failed));
    }
    *out = i;
    return WEFT_OK;
}

bool weft_interrupted(const weft_interrupt *i) { return atomic_load(&i->asked); }

void weft_interrupt_stop(weft_interrupt *i)
{
    if (!i) return;
    atomic_store(&i->stop, true);
    pthread_kill(i->thread, SIGUSR1); /* or a run would end by the tick's end, up to a fifth of a second later */
    pthread_join(i->thread, NULL);
    free(i);
}
