/* labels: small */
/* timeout: 90 */
/* Ranks as processes under the supervisor: this program starts copies of itself, which play a scenario named
 * by their first argument. Every rank holds the write end of a pipe; that the pipe ends is the proof that no
 * process stayed behind. Includes field report G17. */
#include "harness/test.h"
#include "comm/local_map.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static double now(void) { return weft_now(&weft_clock_real); }

static void nap(double seconds)
{
    struct timespec t = {.tv_sec = (time_t)seconds, .tv_nsec = (long)((seconds - (double)(time_t)seconds) * 1e9)};
    while (nanosleep(&t, &t) != 0 && errno == EINTR) {}
}

/* ---- the ranks ------------------------------------------------------------------------------------------ */

typedef struct rank_env { weft_world *w; weft_comm *all; weft_local *map; int rank, size, pipe; } rank_env;

static weft_status require(bool ok, const char *what)
{
    return ok ? WEFT_OK : weft_fail(WEFT_ERR_INTERNAL, "the test expects: %s", what);
}

static weft_status steps(rank_env *e, int n)
{
    for (int i = 0; i < n; i++) {
        int64_t x = e->rank;
        weft_place(e->w, "test.steps", 1, i);
        WEFT_TRY(weft_all_reduce(e->all, &x, 1, WEFT_I64, WEFT_SUM));
        WEFT_TRY(require(x == (int64_t)e->size * (e->size - 1) / 2, "the sum of ranks"));
        WEFT_TRY(weft_barrier(e->all));
    }
    return WEFT_OK;
}

static weft_status play_normal(rank_env *e)
{
    if (e->size == 1) return steps(e, 50);
    char *a = malloc(3 << 20), *b = malloc(3 << 20);
    weft_req r[2];
    memset(a, e->rank + 1, 3 << 20);
    int next = (e->rank + 1) % e->size, prev = (e->rank + e->size - 1) % e->size;
    WEFT_TRY(weft_isend(e->all, a, 3 << 20, next, 0, WEFT_MEM_HOST, NULL, &r[0]));
    WEFT_TRY(weft_irecv(e->all, b, 3 << 20, prev, 0, WEFT_MEM_HOST, NULL, &r[1]));
    WEFT_TRY(weft_wait_all(r, 2));
    for (int i = 0; i < 3 << 20; i++) WEFT_TRY(require(b[i] == prev + 1, "the neighbour's bytes"));
    free(a);
    free(b);
    return steps(e, 50);
}

static weft_status play_fault(rank_env *e) /* the fault comes from WEFT_FAULT */
{
    WEFT_TRY(weft_fault_parse(&weft_world_ctx(e->w)->fault, getenv("WEFT_FAULT")));
    weft_world_set_timeout(e->w, 1.0);
    return steps(e, 1000);
}

static weft_status play_exit7(rank_env *e)
{
    WEFT_TRY(steps(e, 3));
    if (e->rank == 1) _exit(7);
    return steps(e, 1000);
}

/* What OpenMP does when a thread cannot be started; 1 is also the code of a failed comparison. */
static weft_status play_exit1(rank_env *e)
{
    WEFT_TRY(steps(e, 3));
    if (e->rank == 1) _exit(1);
    return steps(e, 1000);
}

static weft_status play_exit0(rank_env *e)
{
    WEFT_TRY(steps(e, 3));
    if (e->rank == 1) _exit(0);
    return steps(e, 1000);
}

static weft_status play_stopped(rank_env *e)
{
    weft_world_set_timeout(e->w, 0.7);
    WEFT_TRY(steps(e, 3));
    weft_place(e->w, "model.block.forward", 2, 3);
    if (e->rank == 2) raise(SIGSTOP);
    weft_place(e->w, "cp.ring.forward", 2, 3);
    return weft_barrier(e->all);
}

/* G17 (a): a rank cannot open its data file. */
static weft_status play_nofile(rank_env *e)
{
    WEFT_TRY(steps(e, 1));
    FILE *f = e->rank == 1 ? fopen("/no/such/data.bin", "rb") : stdin;
    if (!f) return weft_fail(WEFT_ERR_IO, "/no/such/data.bin: %s", strerror(errno));
    return steps(e, 1000);
}

static weft_status play_late(rank_env *e) { return steps(e, 1); } /* not reached: rank 1 does not join in time */

/* Rank 1 is killed while it writes the record of its failure. */
static weft_status play_midway(rank_env *e)
{
    WEFT_TRY(steps(e, 3));
    weft_place(e->w, "test.midway", -1, 7);
    if (e->rank == 1) {
        atomic_store(&e->map->header->failed, WEFT_LOCAL_FAILING + 1);
        raise(SIGKILL);
    }
    return steps(e, 1000);
}

/* Rank 0 hangs after it has told of its failure, rank 1 without looking. */
static weft_status play_hang(rank_env *e)
{
    WEFT_TRY(steps(e, 1));
    if (e->rank == 0) weft_world_abort(e->w, WEFT_ERR_IO, "disk full");
    nap(20);
    return WEFT_OK;
}

/* G17 (b): a rank meets a NaN at step 2. */
static weft_status play_nan(rank_env *e)
{
    for (int step = 0; step < 1000; step++) {
        WEFT_TRY(steps(e, 1));
        float x[3] = {0, 1, e->rank == 2 && step == 2 ? NAN : 2};
        int64_t bad = weft_guard_f32(x, 3, 1e30f);
        if (bad >= 0) return weft_fail(WEFT_ERR_NUMERIC, "step %d: gradient[%lld] is not finite", step, (long long)bad);
    }
    return WEFT_OK;
}

static weft_status play_hold(rank_env *e) /* until it is killed */
{
    WEFT_TRY(steps(e, 1));
    if (write(e->pipe, "r", 1) != 1) return weft_fail(WEFT_ERR_IO, "pipe");
    for (;;) nap(10);
}

static weft_status play_usr1(rank_env *e)
{
    sigset_t set;
    int sig;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    sigprocmask(SIG_BLOCK, &set, NULL);
    WEFT_TRY(steps(e, 1));
    if (write(e->pipe, "r", 1) != 1) return weft_fail(WEFT_ERR_IO, "pipe");
    sigwait(&set, &sig);
    if (write(e->pipe, "u", 1) != 1) return weft_fail(WEFT_ERR_IO, "pipe");
    return steps(e, 2);
}

static weft_status play_cores(rank_env *e)
{
    cpu_set_t set;
    sched_getaffinity(0, sizeof set, &set);
    WEFT_TRY(require(weft_local_ranks(e->map) == e->size && weft_local_threads(e->map) == 1,
                     "one thread for each of the ranks"));
    WEFT_TRY(require(strcmp(getenv("OMP_NUM_THREADS"), "1") == 0, "OMP_NUM_THREADS=1"));
    int64_t first = -1;
    for (size_t cpu = 0; cpu < CPU_SETSIZE && first < 0; cpu++)
        if (CPU_ISSET(cpu, &set)) first = (int64_t)cpu;
    int64_t low = first, high = first;
    WEFT_TRY(weft_all_reduce(e->all, &low, 1, WEFT_I64, WEFT_MIN));
    WEFT_TRY(weft_all_reduce(e->all, &high, 1, WEFT_I64, WEFT_MAX));
    return require((low != high) == (atoi(getenv("TEST_PINNED")) == 1), "different first cores exactly when pinned");
}

static weft_status play_verdict(rank_env *e) { return steps(e, 2); } /* then exits with code 1, all in order */

static const struct { const char *name; weft_status (*play)(rank_env *); } scenarios[] = {
    {"normal", play_normal}, {"fault", play_fault}, {"exit7", play_exit7},   {"exit1", play_exit1},
    {"exit0", play_exit0},
    {"stopped", play_stopped}, {"nofile", play_nofile}, {"nan", play_nan},   {"hold", play_hold},
    {"usr1", play_usr1},     {"cores", play_cores}, {"verdict", play_verdict},
    {"late", play_late},     {"midway", play_midway}, {"hang", play_hang},
};

static int rank_main(weft_local *map, int rank, char **argv)
{
    if (strcmp(argv[1], "refuse") == 0) return 2; /* bad arguments: before there is a world */
    if (strcmp(argv[1], "absent") == 0 && rank == 1) return 0;
    weft_ctx ctx;
    rank_env e = {.map = map, .rank = rank, .pipe = atoi(argv[2]), .size = weft_local_ranks(map)};
    weft_ctx_init(&ctx);
    if (strcmp(argv[1], "late") == 0 && rank == 1) nap(20);
    weft_status st = weft_world_local(&e.w, &ctx, map, rank);
    if (st != WEFT_OK) return weft_exit_code(st);
    int ranks[64];
    for (int i = 0; i < e.size; i++) ranks[i] = i;
    weft_world_set_timeout(e.w, 20);
    st = weft_comm_create(&e.all, e.w, ranks, e.size, "all");
    for (size_t i = 0; i < sizeof scenarios / sizeof *scenarios; i++)
        if (st == WEFT_OK && strcmp(argv[1], scenarios[i].name) == 0) st = scenarios[i].play(&e);
    if (st < 0) weft_world_abort(e.w, st, weft_last_error());
    weft_world_close(e.w);
    if (strcmp(argv[1], "verdict") == 0) {
        if (rank == 0) nap(0.5); /* longer than the grace */
        if (write(e.pipe, "v", 1) != 1) return 3;
        return 1;
    }
    return weft_exit_code(st);
}

/* ---- running a scenario ------------------------------------------------------------------------------------- */

typedef struct result {
    weft_status status;
    int exit_code;
    double begin, seconds, told_after; /* told_after: 0 when nothing was told while ranks were there */
    char message[1024], said[64], told[1024];
} result;

/* Reads what the ranks wrote until all of them have gone, for at most `limit` seconds; false: some live on. */
static bool read_to_end(int fd, char *said, size_t n, double limit)
{
    double end = now() + limit;
    size_t k = strlen(said);
    for (;;) {
        struct pollfd p = {.fd = fd, .events = POLLIN};
        double left = end - now();
        if (left <= 0 || poll(&p, 1, (int)(left * 1e3) + 1) <= 0) return false;
        char c;
        ssize_t got = read(fd, &c, 1);
        if (got == 0) return true;
        if (got == 1 && k + 1 < n) said[k++] = c, said[k] = 0;
    }
}

static void say_wait(int fd, char what, int times)
{
    for (char c; times > 0;) {
        assert_int_equal(read(fd, &c, 1), 1);
        if (c == what) times--;
    }
}

static void note_told(void *ud, const char *message)
{
    result *x = ud;
    if (x->told_after > 0) fail_msg("told twice: \"%s\" and \"%s\"", x->told, message);
    x->told_after = now() - x->begin;
    snprintf(x->told, sizeof x->told, "%s", message);
}

static weft_status supervise_for(const char *scenario, int ranks, int pipe_fd, double grace, result *x)
{
    char fd_text[16];
    snprintf(fd_text, sizeof fd_text, "%d", pipe_fd);
    char *argv[] = {"test_comm.supervise", (char *)(uintptr_t)scenario, fd_text, NULL};
    return weft_local_supervise(&(weft_spawn){.ranks = ranks, .argv = argv, .grace_seconds = grace, .told = note_told,
                                              .ud = x, .timeout_seconds = strcmp(scenario, "late") == 0 ? 0.5 : 0},
                                &x->exit_code);
}

static weft_status supervise(const char *scenario, int ranks, int pipe_fd, int *exit_code)
{
    result x = {.begin = now()};
    weft_status st = supervise_for(scenario, ranks, pipe_fd, 0.3, &x);
    *exit_code = x.exit_code;
    return st;
}

static result run_for(const char *scenario, int ranks, double grace)
{
    result x = {.begin = now()};
    int p[2];
    assert_int_equal(pipe(p), 0);
    x.status = supervise_for(scenario, ranks, p[1], grace, &x);
    x.seconds = now() - x.begin;
    snprintf(x.message, sizeof x.message, "%s", x.status < 0 ? weft_last_error() : "");
    close(p[1]);
    if (!read_to_end(p[0], x.said, sizeof x.said, 2)) fail_msg("%s: a process stayed behind", scenario);
    close(p[0]);
    return x;
}

static result run(const char *scenario, int ranks) { return run_for(scenario, ranks, 0.3); }

#define assert_has(text, part) \
    do { \
        if (!strstr((text), (part))) fail_msg("\"%s\" lacks \"%s\"", (text), (part)); \
    } while (0)

/* ---- tests ---------------------------------------------------------------------------------------------------- */

static void ranks_run_and_end(void **state)
{
    (void)state;
    static const int sizes[] = {1, 2, 3, 9}; /* 9: more than the cores of most test machines */
    for (int i = 0; i < 4; i++) {
        result x = run("normal", sizes[i]);
        if (x.status != WEFT_OK) fail_msg("%d ranks: %s", sizes[i], x.message);
        assert_int_equal(x.exit_code, 0);
        assert_at_most(x.seconds, 10);
    }
}

static result run_fault(const char *spec, int ranks)
{
    setenv("WEFT_FAULT", spec, 1);
    result x = run("fault", ranks);
    unsetenv("WEFT_FAULT");
    return x;
}

static void a_killed_rank_is_named(void **state)
{
    (void)state;
    result x = run_fault("kill:rank=2:site=comm.wait:hit=40", 4);
    assert_int_equal(x.exit_code, 3);
    assert_has(x.message, "rank 2 was killed by signal 9 (Killed) while in test.steps, layer 1, step ");
    assert_at_most(x.seconds, 5);
}

static void a_rank_that_leaves_is_named(void **state)
{
    (void)state;
    result x = run("exit7", 3);
    assert_int_equal(x.exit_code, 3);
    assert_has(x.message, "rank 1 exited with code 7 while in test.steps, layer 1, step 2");
    x = run("exit1", 3);
    assert_int_equal(x.exit_code, 3);
    assert_has(x.message, "rank 1 exited with code 1 while in test.steps, layer 1, step 2");
    x = run("exit0", 3);
    assert_int_equal(x.exit_code, 3);
    assert_has(x.message, "rank 1 exited with code 0 while in test.steps, layer 1, step 2, without closing its world");
    x = run("absent", 3);
    assert_int_equal(x.exit_code, 3);
    assert_has(x.message, "rank 1 ended before it joined");
    assert_at_most(x.seconds, 5);
    x = run_fault("fail:rank=0:site=comm.send:hit=9", 3);
    assert_int_equal(x.exit_code, 3);
    assert_has(x.message, "rank 0");
    x = run_fault("exit:rank=0:site=comm.recv:hit=9", 3);
    assert_int_equal(x.exit_code, 3);
    assert_has(x.message, "rank 0 exited with code 5");
}

static void a_stopped_rank_is_found_by_deadline(void **state)
{
    (void)state;
    result x = run("stopped", 4);
    assert_int_equal(x.status, WEFT_ERR_TIMEOUT);
    assert_int_equal(x.exit_code, 3);
    assert_has(x.message, "in cp.ring.forward, layer 2, step 3");
    assert_has(x.message, "rank 2 is stopped in model.block.forward, layer 2, step 3");
    assert_has(x.message, "0 of 1 bytes done");
    assert_at_most(x.seconds, 5);
    x = run_fault("stop:rank=1:site=comm.wait:hit=30", 3);
    assert_int_equal(x.status, WEFT_ERR_TIMEOUT);
    assert_has(x.message, "rank 1 is ");
}

/* Rank 1 was waiting for rank 0 when it was stopped: the wait that it noted is not why it stands still. */
static void a_stopped_rank_ends_the_chain_of_waits(void **state)
{
    (void)state;
    weft_local *map = NULL;
    char text[400];
    assert_ok(weft_local_create(&map, 2));
    pid_t child = fork();
    if (child == 0) _exit(raise(SIGSTOP));
    int status;
    assert_int_equal(waitpid(child, &status, WUNTRACED), child);
    assert_true(WIFSTOPPED(status));
    local_area *a = map->areas;
    for (int r = 0; r < 2; r++) {
        atomic_store(&a[r].state, WEFT_LOCAL_JOINED);
        atomic_store(&a[r].pid, r ? (int)child : (int)getpid());
        atomic_store(&a[r].thread, r ? (int)child : (int)getpid());
        atomic_store(&a[r].waits_for, 2 - r); /* one more than the peer */
    }
    weft_local_peer_text(map, 1, text, sizeof text);
    assert_has(text, "rank 1 is stopped");
    assert_null(strstr(text, "dead-lock"));
    kill(child, SIGKILL);
    waitpid(child, &status, 0);
    weft_local_destroy(map);
}

/* Ranks 0 to 3 in a ring of waits, of which one does something else: whoever is asked about, it is named with its
 * place. */
static void a_circle_names_the_rank_that_strayed(void **state)
{
    (void)state;
    weft_local *map = NULL;
    assert_ok(weft_local_create(&map, 4));
    for (int r = 0; r < 4; r++) {
        local_area *a = &map->areas[r];
        atomic_store(&a->state, WEFT_LOCAL_JOINED);
        atomic_store(&a->waits_for, (r + 1) % 4 + 1);
        weft_local_place(a, r == 2 ? "cp.ring.forward: barrier of cp" : "cp.ring.forward", 5, 1);
    }
    for (int r = 0; r < 4; r++) {
        char text[600], start[64];
        weft_local_peer_text(map, r, text, sizeof text);
        snprintf(start, sizeof start, "rank %d is in cp.ring.forward", r);
        assert_int_equal(strncmp(text, start, strlen(start)), 0);
        assert_has(text, "it waits in a circle of ranks (a dead-lock): rank ");
        assert_has(text, r == 2 ? "rank 2 is in cp.ring.forward: barrier of cp, layer 5, step 1"
                                : "rank 2 (in cp.ring.forward: barrier of cp, layer 5, step 1) -> rank 3");
    }
    /* Where rank 3 goes on, the chain ends with it. */
    atomic_store(&map->areas[3].waits_for, 0);
    char text[600];
    weft_local_peer_text(map, 0, text, sizeof text);
    assert_has(text, "; it waits, through rank 1, rank 2 (in cp.ring.forward: barrier of cp, layer 5, step 1): rank 3 "
                     "is in cp.ring.forward");
    weft_local_destroy(map);
}

/* Rank 1 waits now for rank 0, now for rank 2, which both wait for it; at last for rank 2. */
static void *change_waits(void *arg)
{
    weft_local *map = arg;
    unsigned x = (unsigned)time(NULL);
    for (int i = 0; i < 400; i++) {
        atomic_store(&map->areas[1].waits_for, i % 2 ? 1 : 3);
        x = x * 1103515245u + 12345u;
        for (volatile unsigned k = 0; k < x / 65536 % 300 + 100; k++) {}
    }
    atomic_store(&map->areas[1].waits_for, 3);
    atomic_store(&map->areas[0].gone, 1);
    return NULL;
}

/* Who reads it must not follow the circle that was there a moment before for ever. */
static void a_circle_that_changes_is_left_again(void **state)
{
    (void)state;
    weft_local *map = NULL;
    char text[600];
    assert_ok(weft_local_create(&map, 3));
    for (int r = 0; r < 3; r++) {
        atomic_store(&map->areas[r].state, WEFT_LOCAL_JOINED);
        atomic_store(&map->areas[r].waits_for, 2);
    }
    for (int trial = 0; trial < 300; trial++) {
        pthread_t thread;
        atomic_store(&map->areas[0].gone, 0);
        assert_int_equal(pthread_create(&thread, NULL, change_waits, map), 0);
        do weft_local_peer_text(map, 0, text, sizeof text);
        while (!atomic_load(&map->areas[0].gone));
        pthread_join(thread, NULL);
        assert_has(text, "rank 0 is ");
    }
    weft_local_destroy(map);
}

/* Field report G17: the whole job ends within 30 s, names rank and cause, nothing stays behind. */
static void g17_one_failure_ends_the_job(void **state)
{
    (void)state;
    result x = run("nofile", 4);
    assert_int_equal(x.status, WEFT_ERR_IO);
    assert_int_equal(x.exit_code, 3);
    assert_string_equal(x.message, "rank 1: /no/such/data.bin: No such file or directory");
    assert_at_most(x.seconds, 5);
    x = run("nan", 4);
    assert_int_equal(x.status, WEFT_ERR_NUMERIC);
    assert_int_equal(x.exit_code, 3);
    assert_string_equal(x.message, "rank 2: step 2: gradient[2] is not finite");
    assert_at_most(x.seconds, 5);
}

static void a_rank_that_does_not_join_is_named_in_time(void **state)
{
    (void)state;
    result x = run("late", 2);
    assert_int_equal(x.status, WEFT_ERR_TIMEOUT);
    assert_string_equal(x.message, "rank 0: rank 1 has not joined the others within 0.5 s");
    assert_at_most(x.seconds, 5);
}

static void a_half_written_record_is_no_success(void **state)
{
    (void)state;
    result x = run("midway", 2);
    assert_int_equal(x.exit_code, 3);
    assert_has(x.message, "rank 1 was killed by signal 9");
    assert_has(x.message, "test.midway, step 7");
}

static void ranks_that_hang_after_a_failure_are_ended(void **state)
{
    (void)state;
    result x = run("hang", 2);
    assert_int_equal(x.status, WEFT_ERR_IO);
    assert_string_equal(x.message, "rank 0: disk full");
    assert_at_most(x.seconds, 5);
}

/* A stopped rank stays for the whole grace; who it is is known, and told, long before. */
static void a_failure_is_told_before_the_grace_is_over(void **state)
{
    (void)state;
    result x = run_for("stopped", 4, 1.5);
    assert_has(x.told, "rank 2 is stopped in model.block.forward");
    assert_string_equal(x.told, x.message);
    assert_true(x.told_after > 0.7 && x.told_after < x.seconds - 0.5);
    x = run("nofile", 3); /* all leave at once: the caller has the message, and prints it */
    assert_has(x.message, "/no/such/data.bin");
    if (x.told_after > 0) assert_string_equal(x.told, x.message); /* on a busy machine */
}

static void why_a_rank_could_not_start_is_told(void **state)
{
    (void)state;
    int code = 0;
    char *huge = malloc(1 << 18); /* more than an argument may have */
    assert_non_null(huge);
    memset(huge, 'x', 1 << 18);
    huge[(1 << 18) - 1] = 0;
    char *argv[] = {"test_comm.supervise", huge, NULL};
    assert_int_equal(weft_local_supervise(&(weft_spawn){.ranks = 2, .argv = argv, .grace_seconds = 0.3}, &code),
                     WEFT_ERR_LIBRARY);
    assert_has(weft_last_error(), " of 2 could not be started: Argument list too long");
    assert_int_equal(code, 3);
    free(huge);
}

static void exit_codes_are_passed_on(void **state)
{
    (void)state;
    result x = run("refuse", 3);
    assert_int_equal(x.exit_code, 2);
    assert_int_equal(x.status, WEFT_ERR_REFUSED);
    /* A verdict after a world that was closed in good order: nobody is cut short. */
    x = run("verdict", 3);
    assert_int_equal(x.exit_code, 1);
    assert_string_equal(x.said, "vvv");
}

static void ranks_get_their_own_cores(void **state)
{
    (void)state;
    cpu_set_t set;
    assert_int_equal(sched_getaffinity(0, sizeof set, &set), 0);
    int cores = CPU_COUNT(&set);
    unsetenv("OMP_NUM_THREADS");
    if (cores >= 2 && cores <= 60) {
        setenv("TEST_PINNED", "1", 1);
        result x = run("cores", cores);
        assert_string_equal(x.message, "");
    }
    if (cores < 60) {
        setenv("TEST_PINNED", "0", 1);
        result x = run("cores", cores + 1);
        assert_string_equal(x.message, "");
    }
}

/* Starts the supervisor as a process of its own, with 3 ranks that have said that they are ready. */
static pid_t supervisor_process(const char *scenario, int fd[2])
{
    assert_int_equal(pipe(fd), 0);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        int code;
        prctl(PR_SET_PDEATHSIG, SIGKILL); /* if the test itself fails */
        close(fd[0]);
        supervise(scenario, 3, fd[1], &code);
        _exit(code);
    }
    close(fd[1]);
    say_wait(fd[0], 'r', 3);
    return pid;
}

static int end_of(pid_t pid)
{
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return status;
}

static void ranks_die_with_their_supervisor(void **state)
{
    (void)state;
    int fd[2];
    char said[64] = "";
    pid_t pid = supervisor_process("hold", fd);
    assert_int_equal(kill(pid, SIGKILL), 0);
    assert_true(WIFSIGNALED(end_of(pid)));
    assert_true(read_to_end(fd[0], said, sizeof said, 2));
    close(fd[0]);
}

static void signals_reach_the_ranks(void **state)
{
    (void)state;
    int fd[2], status;
    char said[64] = "";
    pid_t pid = supervisor_process("usr1", fd);
    nap(0.05); /* the last rank is between its word and sigwait; the signal stays pending there */
    assert_int_equal(kill(pid, SIGUSR1), 0);
    assert_true(read_to_end(fd[0], said, sizeof said, 5));
    assert_string_equal(said, "uuu");
    status = end_of(pid);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    close(fd[0]);

    pid = supervisor_process("hold", fd);
    assert_int_equal(kill(pid, SIGTERM), 0);
    status = end_of(pid);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 3);
    assert_true(read_to_end(fd[0], said, sizeof said, 2));
    close(fd[0]);
}

static void supervising_nothing_is_refused(void **state)
{
    (void)state;
    int code = 0;
    assert_refused(supervise("normal", 0, 1, &code), "1 to 128");
    assert_int_equal(code, 2);
}

int main(int argc, char **argv)
{
    weft_local *map;
    int rank;
    if (weft_local_from_env(&map, &rank) != WEFT_OK) return 2;
    if (map) {
        int code = argc >= 3 ? rank_main(map, rank, argv) : 2;
        weft_local_destroy(map); /* on every path: a leak under a sanitizer changes the exit code */
        return code;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_run_and_end),
        cmocka_unit_test(a_killed_rank_is_named),
        cmocka_unit_test(a_rank_that_leaves_is_named),
        cmocka_unit_test(a_stopped_rank_is_found_by_deadline),
        cmocka_unit_test(a_stopped_rank_ends_the_chain_of_waits),
        cmocka_unit_test(a_circle_names_the_rank_that_strayed),
        cmocka_unit_test(a_circle_that_changes_is_left_again),
        cmocka_unit_test(g17_one_failure_ends_the_job),
        cmocka_unit_test(a_rank_that_does_not_join_is_named_in_time),
        cmocka_unit_test(a_half_written_record_is_no_success),
        cmocka_unit_test(ranks_that_hang_after_a_failure_are_ended),
        cmocka_unit_test(a_failure_is_told_before_the_grace_is_over),
        cmocka_unit_test(why_a_rank_could_not_start_is_told),
        cmocka_unit_test(exit_codes_are_passed_on),
        cmocka_unit_test(ranks_get_their_own_cores),
        cmocka_unit_test(ranks_die_with_their_supervisor),
        cmocka_unit_test(signals_reach_the_ranks),
        cmocka_unit_test(supervising_nothing_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
