/* local_spawn.c — starting one rank as a process. Ranks are started by fork and exec of this same program,
 * never by fork alone: a forked copy of a process that has used OpenMP has a thread pool without threads. */
#include "comm/local_spawn.h"
#include "comm/pattern.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

extern char **environ;

/* ---- what a rank gets ---------------------------------------------------------------------------------- */

/* Threads: what was asked for, else what the user set for OpenMP, else an even share of the cores. */
static int threads_for(int ranks, int threads_per_rank, int cores)
{
    if (threads_per_rank > 0) return threads_per_rank;
    const char *omp = getenv("OMP_NUM_THREADS");
    int64_t n;
    if (omp && weft_parse_i64(omp, &n) == WEFT_OK && n > 0 && n <= 4096) return (int)n;
    return cores / ranks > 1 ? cores / ranks : 1;
}

weft_local_share weft_local_share_of(int ranks, int threads_per_rank)
{
    weft_local_share s = {.ranks = ranks, .cores = weft_local_cores()};
    s.threads = threads_for(ranks, threads_per_rank, s.cores);
    s.pinned = sched_getaffinity(0, sizeof s.allowed, &s.allowed) == 0 && (int64_t)s.threads * ranks <= s.cores;
    return s;
}

/* A contiguous slice, so that neighbours in the numbering (one socket, one cache) stay together. */
cpu_set_t weft_local_share_cpus(const weft_local_share *s, int rank)
{
    cpu_set_t mine;
    CPU_ZERO(&mine);
    int64_t cores = CPU_COUNT(&s->allowed), seen = 0;
    int64_t begin = weft_share_begin(cores, s->ranks, rank), end = weft_share_begin(cores, s->ranks, rank + 1);
    for (size_t cpu = 0; cpu < CPU_SETSIZE; cpu++) {
        if (!CPU_ISSET(cpu, &s->allowed)) continue;
        if (seen >= begin && seen < end) CPU_SET(cpu, &mine);
        seen++;
    }
    return mine;
}

static weft_status make_env(weft_spawner *s)
{
    size_t n = 0, kept = 0;
    while (environ[n]) n++;
    s->env = calloc(n + 6, sizeof *s->env);
    if (!s->env) return weft_fail(WEFT_ERR_MEMORY, "starting ranks: no memory for the environment");
    bool omp = false, spin = false;
    for (size_t i = 0; i < n; i++) {
        if (strncmp(environ[i], "OMP_NUM_THREADS=", 16) == 0) omp = true;
        if (strncmp(environ[i], "OMP_WAIT_POLICY=", 16) == 0 || strncmp(environ[i], "GOMP_SPINCOUNT=", 15) == 0)
            spin = true;
        if (strncmp(environ[i], "WEFT_LOCAL_", 11) != 0) s->env[kept++] = environ[i];
    }
    snprintf(s->fd_text, sizeof s->fd_text, "WEFT_LOCAL_FD=%d", s->fd);
    snprintf(s->parent_text, sizeof s->parent_text, "WEFT_LOCAL_PARENT=%ld", (long)s->parent);
    snprintf(s->threads_text, sizeof s->threads_text, "OMP_NUM_THREADS=%d", s->share.threads);
    s->env[kept++] = s->rank_text;
    s->env[kept++] = s->fd_text;
    s->env[kept++] = s->parent_text;
    if (!omp) s->env[kept++] = s->threads_text;
    /* libgomp's idle threads spin some 300,000 turns by default, which takes the cores from other ranks. 2,000
     * turns last as long as the gaps between the parallel regions of a step. */
    snprintf(s->spin_text, sizeof s->spin_text, "GOMP_SPINCOUNT=2000");
    if (!spin) s->env[kept++] = s->spin_text;
    return WEFT_OK;
}

weft_status weft_spawner_init(weft_spawner *s, const weft_spawn *spawn, weft_local *map, const sigset_t *signals)
{
    *s = (weft_spawner){.argv = spawn->argv, .map = map, .fd = weft_local_fd(map), .parent = getpid(),
                        .share = weft_local_share_of(spawn->ranks, spawn->threads_per_rank), .signals = *signals};
    map->header->threads = s->share.threads;
    map->header->pinned = s->share.pinned;
    return make_env(s);
}

void weft_spawner_free(weft_spawner *s) { free(s->env); }

/* ---- the child ------------------------------------------------------------------------------------------- */

/* Between fork and exec: only calls that are safe after a fork of a process with threads. */
static _Noreturn void become_rank(const weft_spawner *s, int rank, const cpu_set_t *cores)
{
    enum { NOT_STARTED = 127 };
    /* The parent may have died before the request to die with it was made. */
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 || getppid() != s->parent) _exit(NOT_STARTED);
    if (s->share.pinned) sched_setaffinity(0, sizeof *cores, cores); /* only speed depends on it */
    fcntl(s->fd, F_SETFD, 0);
    sigprocmask(SIG_SETMASK, &s->signals, NULL);
    execve("/proc/self/exe", s->argv, s->env);
    atomic_store(&s->map->areas[rank].start_error, errno);
    _exit(NOT_STARTED);
}

weft_status weft_spawner_start(weft_spawner *s, int rank, pid_t *pid)
{
    snprintf(s->rank_text, sizeof s->rank_text, "WEFT_LOCAL_RANK=%d", rank);
    cpu_set_t cores = weft_local_share_cpus(&s->share, rank);
    pid_t child = fork();
    if (child < 0)
        return weft_fail(WEFT_ERR_LIBRARY, "starting rank %d of %d: %s; fewer ranks may fit", rank, s->share.ranks,
                         strerror(errno));
    if (child == 0) become_rank(s, rank, &cores);
    *pid = child;
    return WEFT_OK;
}

/* ---- in the rank -------------------------------------------------------------------------------------------- */

static weft_status env_number(const char *name, int *out)
{
    return weft_env_number(name, "weft sets these variables for its ranks; unset WEFT_LOCAL_RANK", out);
}

weft_status weft_local_from_env(weft_local **local, int *rank)
{
    *local = NULL;
    if (!getenv("WEFT_LOCAL_RANK")) return WEFT_OK;
    int fd, number, parent;
    WEFT_TRY(env_number("WEFT_LOCAL_RANK", &number));
    WEFT_TRY(env_number("WEFT_LOCAL_FD", &fd));
    WEFT_TRY(env_number("WEFT_LOCAL_PARENT", &parent));
    /* A program that a rank starts inherits the variables, but is no rank. */
    if (parent != getppid()) return WEFT_OK;
    weft_local *map;
    WEFT_TRY(weft_local_attach(&map, fd));
    fcntl(fd, F_SETFD, FD_CLOEXEC);
    if (number >= map->header->ranks) {
        weft_status st = weft_fail(WEFT_ERR_REFUSED, "WEFT_LOCAL_RANK=%d: the job has ranks 0 to %d", number,
                                   map->header->ranks - 1);
        weft_local_destroy(map);
        return st;
    }
    *rank = number;
    *local = map;
    return WEFT_OK;
}
