/* launch_mpi_start.c — MPI_Init with a deadline. It returns on no rank before all have come, and a rank that was
 * stopped on its way there (or whose node cannot be reached) would leave the others waiting without a word: a thread
 * looks at the clock, and past the deadline prints and ends the process, since nothing else can end that call. */
#include "cli/cli.h"

#include <pthread.h>
#include <time.h>
#include <unistd.h>

typedef struct starting {
    const weft_mpi_launch *launch;
    double seconds;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool done;
} starting;

static void give_up(const starting *s)
{
    weft_status st = weft_fail(WEFT_ERR_TIMEOUT,
                               "MPI_Init did not return within %.3g s (--timeout): not every rank has come to it; "
                               "one may be stopped, or its node cannot be reached",
                               s->seconds);
    weft_launch_print_alone(s->launch);
    weft_mpi_leave_job(weft_exit_code(st));
    _exit(weft_exit_code(st));
}

/* The deadline moves with a job that was suspended, so it is looked at now and then, not slept for. */
static void *look(void *ud)
{
    starting *s = ud;
    weft_deadline deadline = weft_deadline_in(&weft_clock_real, s->seconds);
    pthread_mutex_lock(&s->lock);
    while (!s->done) {
        struct timespec next;
        clock_gettime(CLOCK_MONOTONIC, &next);
        next.tv_nsec += 200000000;
        if (next.tv_nsec >= 1000000000) next.tv_sec++, next.tv_nsec -= 1000000000;
        pthread_cond_timedwait(&s->changed, &s->lock, &next);
        if (!s->done && weft_deadline_look(&weft_clock_real, &deadline)) give_up(s);
    }
    pthread_mutex_unlock(&s->lock);
    return NULL;
}

weft_status weft_launch_start_mpi(const weft_mpi_launch *launch, weft_mpi *mpi, double seconds)
{
    starting s = {.launch = launch, .seconds = seconds, .lock = PTHREAD_MUTEX_INITIALIZER};
    pthread_condattr_t attr;
    pthread_t thread;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&s.changed, &attr);
    pthread_condattr_destroy(&attr);
    bool looked_at = pthread_create(&thread, NULL, look, &s) == 0; /* without it there is only no deadline */
    weft_status st = weft_mpi_start(mpi);
    pthread_mutex_lock(&s.lock);
    s.done = true;
    pthread_cond_signal(&s.changed);
    pthread_mutex_unlock(&s.lock);
    if (looked_at) pthread_join(thread, NULL);
    pthread_cond_destroy(&s.changed);
    return st;
}
