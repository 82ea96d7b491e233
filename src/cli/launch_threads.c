/* launch_threads.c — a rank's OpenMP threads, started before anything is computed. Where the machine has no room for
 * them (ulimit -u, ulimit -v, a container's limit), the OpenMP library ends the process with a line of its own and exit
 * code 1, the code of a failed comparison. So as many plain threads are started first, all alive at once, and a failure
 * is a refusal like any other; then OpenMP takes the room that they leave, before buffers can. */
#include "cli/cli.h"

#include <ctype.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#ifdef _OPENMP
#include <omp.h>
#endif

int weft_launch_cpus(void)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    return sched_getaffinity(0, sizeof set, &set) ? 1 : CPU_COUNT(&set);
}

#ifdef _OPENMP

/* OMP_STACKSIZE: a number in KiB, or with B, K, M or G behind it. 0: not set, or for the library to complain of. */
static size_t stack_of_openmp(void)
{
    const char *text = getenv("OMP_STACKSIZE");
    char *unit = NULL;
    unsigned long long n = text ? strtoull(text, &unit, 10) : 0;
    if (!text || n == 0 || n >= 1u << 31) return 0;
    while (isspace((unsigned char)*unit)) unit++;
    const char *at = *unit ? strchr("BKMG", toupper((unsigned char)*unit)) : "K";
    static const char units[] = "BKMG";
    return at ? (size_t)n << (10 * (strchr(units, *at) - units)) : 0;
}

/* Holds every thread until all are there or one could not be started. */
static void *stay(void *lock)
{
    pthread_mutex_lock(lock);
    pthread_mutex_unlock(lock);
    return NULL;
}

/* How many of `wanted` threads can be alive at once beside this one; *error: why not all. */
static int count_startable(pthread_t *thread, int wanted, int *error)
{
    int started = 0;
    pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    pthread_attr_t attr;
    pthread_attr_init(&attr);
    size_t stack = stack_of_openmp();
    if (stack) pthread_attr_setstacksize(&attr, stack); /* what it refuses, OpenMP refuses, and takes the default */
    pthread_mutex_lock(&lock);
    *error = 0;
    while (started < wanted && (*error = pthread_create(&thread[started], &attr, stay, &lock)) == 0) started++;
    pthread_mutex_unlock(&lock);
    for (int i = 0; i < started; i++) pthread_join(thread[i], NULL);
    pthread_attr_destroy(&attr);
    pthread_mutex_destroy(&lock);
    return started;
}

/* Half of what can be started leaves room for what is computed; more than the processors would only be slower. */
static int threads_that_fit(int startable)
{
    int cpus = weft_launch_cpus(), half = startable / 2 > 1 ? startable / 2 : 1;
    return cpus < half ? cpus : half;
}

static weft_status check_room(int threads, int alive)
{
    int error = 0, wanted = threads - alive;
    if (wanted <= 0) return WEFT_OK;
    pthread_t *thread = calloc((size_t)wanted, sizeof *thread);
    if (!thread) return weft_fail(WEFT_ERR_MEMORY, "no memory to start %d threads", threads);
    int started = count_startable(thread, wanted, &error);
    free(thread);
    if (started == wanted) return WEFT_OK;
    return weft_fail(WEFT_ERR_REFUSED,
                     "%d threads cannot be started, %d can (%s; see ulimit -u and ulimit -v); --threads %d fits",
                     threads, alive + started, strerror(error), threads_that_fit(alive + started));
}

weft_status weft_launch_threads(int threads, int alive)
{
    WEFT_TRY(check_room(threads, alive));
    omp_set_dynamic(0);
    omp_set_num_threads(threads);
    if (threads > alive) {
#pragma omp parallel num_threads(threads)
        {
        }
    }
    return WEFT_OK;
}

#else

weft_status weft_launch_threads(int threads, int alive)
{
    (void)threads, (void)alive;
    return WEFT_OK;
}

#endif
