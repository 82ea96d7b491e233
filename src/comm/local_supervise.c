/* local_supervise.c — starting the ranks of one machine and ending them together.
 *
 * One rank that fails ends the job: the others are told through the mapping (their waits return), get a few
 * seconds to leave, and are killed if they do not. Ranks die with the supervisor (PR_SET_PDEATHSIG), so
 * nothing stays behind whatever is killed. Signals are taken from a file descriptor, so there is no handler
 * and no global state. */
#include "comm/local_map.h"
#include "comm/local_spawn.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#define DEFAULT_GRACE 3.0 /* seconds */
#define TELL_AFTER 0.25   /* what ranks print when they leave comes before the cause */

typedef struct supervisor {
    weft_local *map;
    pid_t *pid;        /* [ranks]; 0: has ended */
    int ranks, alive;
    int signals;       /* file descriptor */
    double grace;
    bool failing, killed;
    weft_deadline give_up, tell;
    const weft_spawn *spawn;
    bool told;
    int odd_rank, odd_code; /* first rank that left in good order with an exit code; -1 none */
} supervisor;

/* ---- judging an end ---------------------------------------------------------------------------------------- */

static weft_status status_of_code(int code)
{
    return code == 1 ? WEFT_ERR_COMPARE : code == 2 ? WEFT_ERR_REFUSED : WEFT_ERR_PEER;
}

static void start_grace(supervisor *s)
{
    if (s->failing) return;
    s->failing = true;
    s->give_up = weft_deadline_in(&weft_clock_real, s->grace);
    s->tell = weft_deadline_in(&weft_clock_real, TELL_AFTER);
}

/* A rank that is stopped does not leave, and who watches should not wait for its end to hear of it. */
static void tell(supervisor *s)
{
    if (s->told || !s->spawn->told || !weft_deadline_look(&weft_clock_real, &s->tell)) return;
    weft_local_fail_with(s->map, WEFT_OK);
    s->spawn->told(s->spawn->ud, weft_last_error());
    s->told = true;
}

static void record_killed(supervisor *s, int rank, int sig)
{
    char place[80], text[WEFT_LOCAL_MESSAGE];
    weft_local_place_text(&s->map->areas[rank], place, sizeof place);
    const char *name = sigdescr_np(sig);
    snprintf(text, sizeof text, "rank %d was killed by signal %d (%s) while in %s", rank, sig, name ? name : "unknown",
             place);
    weft_local_abort(s->map, rank, WEFT_ERR_PEER, text);
}

static void record_no_start(supervisor *s, int rank, int error)
{
    char text[WEFT_LOCAL_MESSAGE];
    snprintf(text, sizeof text, "rank %d of %d could not be started: %s", rank, s->ranks, strerror(error));
    weft_local_abort(s->map, rank, WEFT_ERR_LIBRARY, text);
}

/* A verdict comes only from a rank that closed its world: a library that gives up calls exit(1), as OpenMP does without
 * threads, and that is no failed comparison. */
static void record_exit(supervisor *s, int rank, int code, bool joined)
{
    weft_status st = joined || code == 1 ? WEFT_ERR_PEER : status_of_code(code);
    char place[80], text[WEFT_LOCAL_MESSAGE];
    weft_local_place_text(&s->map->areas[rank], place, sizeof place);
    snprintf(text, sizeof text, "rank %d exited with code %d while in %s%s", rank, code, place,
             code == 0 ? ", without closing its world" : "");
    weft_local_abort(s->map, rank, st, text);
}

/* A rank that closed its world in good order may carry a verdict in its exit code (a comparison failed):
 * the others have closed as well and need no telling. Any other end with a code, or without a closed world,
 * leaves the others waiting. */
static void judge(supervisor *s, int rank, int wait_status)
{
    local_area *a = &s->map->areas[rank];
    int state = atomic_load(&a->state);
    bool killed = WIFSIGNALED(wait_status);
    int code = killed ? 0 : WEXITSTATUS(wait_status), no_start = atomic_load(&a->start_error);
    weft_local_reopen_record(s->map, rank);
    if (no_start) record_no_start(s, rank, no_start);
    else if (killed) record_killed(s, rank, WTERMSIG(wait_status));
    else if (state == WEFT_LOCAL_JOINED || (state == WEFT_LOCAL_ABSENT && code != 0))
        record_exit(s, rank, code, state == WEFT_LOCAL_JOINED);
    else if (code != 0 && s->odd_rank < 0) s->odd_rank = rank, s->odd_code = code;
    atomic_store(&a->gone, 1);
    for (int r = 0; r < s->ranks; r++) weft_local_ring_bell(&s->map->areas[r]);
}

/* ---- the loop ------------------------------------------------------------------------------------------------- */

static void signal_all(const supervisor *s, int sig)
{
    for (int r = 0; r < s->ranks; r++)
        if (s->pid[r] > 0) kill(s->pid[r], sig);
}

static void reap(supervisor *s)
{
    for (int r = 0; r < s->ranks; r++) {
        int wait_status;
        if (s->pid[r] <= 0 || waitpid(s->pid[r], &wait_status, WNOHANG) != s->pid[r]) continue;
        s->pid[r] = 0;
        s->alive--;
        judge(s, r, wait_status);
    }
}

static void take_signals(const supervisor *s)
{
    struct signalfd_siginfo info;
    while (read(s->signals, &info, sizeof info) == (ssize_t)sizeof info) {
        if (info.ssi_signo == SIGCHLD) continue;
        /* A key typed at the terminal goes to the whole process group: the ranks have it already. */
        if (info.ssi_code != SI_KERNEL) signal_all(s, (int)info.ssi_signo);
    }
}

static void watch(supervisor *s)
{
    enum { TICK_MS = 200 }; /* in case a signal is lost; an end is seen at once through SIGCHLD */
    while (s->alive > 0) {
        struct pollfd p = {.fd = s->signals, .events = POLLIN};
        poll(&p, 1, s->failing ? TICK_MS / 10 : TICK_MS);
        take_signals(s);
        reap(s);
        if (weft_local_failed(s->map)) start_grace(s); /* also of ranks that hang after they have told */
        if (s->failing && s->alive > 0) tell(s);
        if (s->failing && !s->killed && weft_deadline_look(&weft_clock_real, &s->give_up)) {
            signal_all(s, SIGKILL);
            s->killed = true;
        }
    }
}

static weft_status start_ranks(supervisor *s, const weft_spawn *spawn, const sigset_t *old)
{
    weft_spawner spawner;
    weft_status st = weft_spawner_init(&spawner, spawn, s->map, old);
    for (int r = 0; r < s->ranks && st == WEFT_OK; r++) {
        st = weft_spawner_start(&spawner, r, &s->pid[r]);
        if (st == WEFT_OK) s->alive++;
    }
    weft_spawner_free(&spawner);
    return st;
}

static weft_status outcome(const supervisor *s)
{
    if (weft_local_failed(s->map)) return weft_local_fail_with(s->map, (weft_status)s->map->header->failed_status);
    if (s->odd_rank < 0) return WEFT_OK;
    return weft_fail(status_of_code(s->odd_code), "rank %d exited with code %d", s->odd_rank, s->odd_code);
}

static weft_status run_ranks(supervisor *s, const weft_spawn *spawn, const sigset_t *old)
{
    weft_status st = start_ranks(s, spawn, old);
    if (st != WEFT_OK) {
        weft_local_abort(s->map, s->alive, st, weft_last_error());
        signal_all(s, SIGKILL);
    }
    watch(s);
    return outcome(s);
}

/* ---- the door --------------------------------------------------------------------------------------------------- */

/* Signals go to a file descriptor while the ranks run. A SIGCHLD that the caller ignores would make the
 * kernel swallow the ranks' ends. */
static weft_status supervise_with_signals(supervisor *s, const weft_spawn *spawn)
{
    sigset_t take, old;
    sigemptyset(&take);
    const int taken[] = {SIGCHLD, SIGINT, SIGTERM, SIGUSR1};
    for (size_t i = 0; i < sizeof taken / sizeof *taken; i++) sigaddset(&take, taken[i]);
    s->signals = signalfd(-1, &take, SFD_NONBLOCK | SFD_CLOEXEC);
    if (s->signals < 0) return weft_fail(WEFT_ERR_LIBRARY, "supervising ranks: signalfd: %s", strerror(errno));
    struct sigaction normal = {.sa_handler = SIG_DFL}, before;
    sigaction(SIGCHLD, &normal, &before);
    pthread_sigmask(SIG_BLOCK, &take, &old);
    weft_status st = run_ranks(s, spawn, &old);
    take_signals(s); /* what is still pending was for the ranks, which have ended */
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    sigaction(SIGCHLD, &before, NULL);
    close(s->signals);
    return st;
}

weft_status weft_local_supervise(const weft_spawn *spawn, int *exit_code)
{
    weft_status st;
    supervisor s = {.spawn = spawn, .ranks = spawn->ranks, .odd_rank = -1,
                    .grace = spawn->grace_seconds > 0 ? spawn->grace_seconds : DEFAULT_GRACE};
    WEFT_TRY_OR(st, weft_local_create(&s.map, spawn->ranks), out);
    if (spawn->timeout_seconds > 0) s.map->header->timeout = spawn->timeout_seconds;
    s.pid = calloc((size_t)spawn->ranks, sizeof *s.pid);
    if (s.pid) st = supervise_with_signals(&s, spawn);
    else st = weft_fail(WEFT_ERR_MEMORY, "supervising ranks: no memory for %d of them", spawn->ranks);
    free(s.pid);
    weft_local_destroy(s.map);
out:
    *exit_code = weft_exit_code(st);
    return st;
}
