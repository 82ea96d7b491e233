/* labels: small */
/* timeout: 120 */
/* A rank that is killed, that sleeps, that calls another collective than the rest, in every strategy, with ranks as
 * processes and as threads: the job ends within seconds, and its message names the rank, operation, layer and step
 * (field report G17). Also rings of small and large blocks (G16). Strategies run side by side: what takes time is
 * waiting for deadlines. */
#include "harness/test.h"
#include "harness/cp_case.h"
#include "harness/ranks.h"
#include "cp/cp_impl.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define DEADLINE 1.5   /* seconds; of what takes a millisecond, on machines that are busy with other tests as well */
#define WITHIN 5.0     /* seconds until the rank is named */

enum { RANKS = 4, BAD = 2, STRATEGIES_MAX = 16 };

/* ---- one strategy ------------------------------------------------------------------------------------------ */

/* When the first rank of each strategy heard of the failure, as threads: their run lasts as long as the sleep. */
/* left: when the bad one did */
static struct { char strategy[32]; _Atomic int64_t microseconds, left; } heard[STRATEGIES_MAX];

static int64_t now_us(void) { return (int64_t)(weft_now(&weft_clock_real) * 1e6); }

static void note_failure(const char *strategy)
{
    for (int i = 0; i < STRATEGIES_MAX; i++) {
        int64_t none = 0;
        if (!strcmp(heard[i].strategy, strategy))
            atomic_compare_exchange_strong(&heard[i].microseconds, &none, now_us());
    }
}

/* The bad rank takes its time between its failure and the end of its function. */
static void linger(const char *strategy)
{
    struct timespec second = {.tv_sec = 1};
    while (nanosleep(&second, &second) != 0 && errno == EINTR) {}
    for (int i = 0; i < STRATEGIES_MAX; i++)
        if (!strcmp(heard[i].strategy, strategy)) heard[i].left = now_us();
}

/* From here on a rank that does not answer is at fault: before, it may still be starting. */
static void set_deadline(weft_cp_plan *plan) { weft_world_set_timeout(plan->world, DEADLINE); }

/* arg: the strategy. Forward and backward several times, so that a fault at any pass acts. */
static weft_status steps_body(weft_ctx *ctx, weft_world *w, const char *arg)
{
    static const cp_case c = {.name = "faults", .prec = WEFT_PREC_F32, .B = 1, .Tq = 96, .T = 96, .H = 8, .Hkv = 4,
                              .D = 8,
                              .Dv = 8, .mask = {true, -1, -1, 0}};
    int ranks[RANKS] = {0, 1, 2, 3};
    weft_comm *comm;
    ctx->threads = 1;
    WEFT_TRY(weft_comm_create(&comm, w, ranks, RANKS, "cp"));
    cp_data data = cp_data_make(&c);
    cp_job job = {.c = &c, .data = &data, .strategy = arg, .layout = WEFT_LAYOUT_ZIGZAG, .overlap = true, .repeat = 5,
                  .tamper = set_deadline, .out = cp_result_make(&c, RANKS)};
    weft_status st = cp_run_rank(ctx, comm, &job);
    if (st < 0 && weft_world_rank(w) != BAD) note_failure(arg);
    if (st < 0 && ctx->fault.kind == WEFT_FAULT_FAIL && weft_world_rank(w) == BAD) {
        char message[256];
        snprintf(message, sizeof message, "%s", weft_last_error());
        linger(arg);
        st = weft_fail(st, "%s", message);
    }
    cp_result_free(job.out);
    cp_data_free(&data);
    return st;
}

/* ---- all strategies ------------------------------------------------------------------------------------------ */

typedef struct result { weft_status status; double seconds; char message[1024]; } result;

static const test_body steps = {"steps", steps_body};

static int strategies(const char *out[STRATEGIES_MAX])
{
    int all, n = 0;
    const char *const *names = weft_cp_names(&all);
    for (int i = 0; i < all; i++) {
        if (!strcmp(names[i], "none")) continue; /* one rank alone waits for nobody */
        assert_true(n < STRATEGIES_MAX);
        snprintf(heard[n].strategy, sizeof heard[n].strategy, "%s", names[i]);
        heard[n].microseconds = heard[n].left = 0;
        out[n++] = names[i];
    }
    return n;
}

static result play(test_way way, const char *strategy)
{
    result r = {0};
    double begin = weft_now(&weft_clock_real);
    r.status = test_ranks(way, RANKS, &steps, strategy);
    r.seconds = weft_now(&weft_clock_real) - begin;
    snprintf(r.message, sizeof r.message, "%s", r.status < 0 ? weft_last_error() : "");
    return r;
}

/* Each supervisor is a process of its own: it takes the signals of its children. */
static void start_process(const char *strategy, int fd[2], pid_t *pid)
{
    assert_int_equal(pipe(fd), 0);
    *pid = fork();
    assert_true(*pid >= 0);
    if (*pid > 0) {
        close(fd[1]);
        return;
    }
    close(fd[0]);
    result r = play(TEST_PROCESSES, strategy);
    _exit(write(fd[1], &r, sizeof r) == (ssize_t)sizeof r ? 0 : 1);
}

static void play_processes(const char *const *names, int n, result *out)
{
    int fd[STRATEGIES_MAX][2];
    pid_t pid[STRATEGIES_MAX];
    for (int i = 0; i < n; i++) start_process(names[i], fd[i], &pid[i]);
    for (int i = 0; i < n; i++) {
        int status;
        assert_int_equal(read(fd[i][0], &out[i], sizeof out[i]), sizeof out[i]);
        close(fd[i][0]);
        assert_int_equal(waitpid(pid[i], &status, 0), pid[i]);
        assert_int_equal(status, 0);
    }
}

typedef struct threaded { pthread_t thread; const char *strategy; result *out; } threaded;

static void *play_thread(void *arg)
{
    threaded *t = arg;
    *t->out = play(TEST_THREADS, t->strategy);
    return NULL;
}

static void play_threads(const char *const *names, int n, result *out)
{
    threaded t[STRATEGIES_MAX];
    int64_t begin = now_us();
    for (int i = 0; i < n; i++) {
        t[i] = (threaded){.strategy = names[i], .out = &out[i]};
        assert_int_equal(pthread_create(&t[i].thread, NULL, play_thread, &t[i]), 0);
    }
    for (int i = 0; i < n; i++) {
        pthread_join(t[i].thread, NULL);
        if (heard[i].microseconds) out[i].seconds = (double)(heard[i].microseconds - begin) * 1e-6;
    }
}

/* Every strategy with this fault; each part must stand in the message, with the strategy's own operation. */
static void every_strategy(test_way way, const char *fault, weft_status status, const char *const *parts)
{
    const char *names[STRATEGIES_MAX];
    result r[STRATEGIES_MAX];
    int n = strategies(names);
    assert_true(n >= 3);
    setenv("WEFT_FAULT", fault, 1);
    if (way == TEST_THREADS) play_threads(names, n, r);
    else play_processes(names, n, r);
    unsetenv("WEFT_FAULT");
    for (int i = 0; i < n; i++) {
        if (getenv("TEST_SHOW")) print_message("%s, %s: %.1f s: %s\n", names[i], fault, r[i].seconds, r[i].message);
        if (r[i].status != status)
            fail_msg("%s, %s: %s: %s", names[i], fault, weft_status_text(r[i].status), r[i].message);
        for (const char *const *p = parts; *p; p++)
            if (!strstr(r[i].message, *p)) fail_msg("%s, %s: \"%s\" lacks \"%s\"", names[i], fault, r[i].message, *p);
        assert_at_most(r[i].seconds, WITHIN);
    }
}

#define PARTS(...) ((const char *const[]){__VA_ARGS__, NULL})

static void without_a_fault_all_is_well(void **state)
{
    (void)state;
    every_strategy(TEST_PROCESSES, "", WEFT_OK, PARTS(""));
    every_strategy(TEST_THREADS, "", WEFT_OK, PARTS(""));
}

static void g17_a_killed_rank_is_named(void **state)
{
    (void)state;
    every_strategy(TEST_PROCESSES, "kill:rank=2:site=cp.step:hit=2", WEFT_ERR_PEER,
                   PARTS("rank 2 was killed by signal 9", "while in cp.", "ward, layer 3, step "));
    /* A thread cannot be killed alone; it can leave with an error. */
    every_strategy(TEST_THREADS, "fail:rank=2:site=cp.step:hit=2", WEFT_ERR_INTERNAL,
                   PARTS("rank 2: injected fault at cp.step, pass 2"));
    /* The others hear of it where it happens, and not when its function has returned and freed what it had posted. */
    for (int i = 0; i < STRATEGIES_MAX && *heard[i].strategy; i++) assert_true(heard[i].microseconds < heard[i].left);
}

static void g17_a_sleeping_rank_is_named(void **state)
{
    (void)state;
    const char *const *parts =
        PARTS("ward, layer 3, step ", " rank 2 is asleep in cp.", "passed its deadline of 1.5 s with", "bytes", "tag ");
    every_strategy(TEST_PROCESSES, "sleep:30:rank=2:site=cp.step:hit=2", WEFT_ERR_TIMEOUT, parts);
    every_strategy(TEST_THREADS, "sleep:3:rank=2:site=cp.step:hit=2", WEFT_ERR_TIMEOUT, parts);
}

/* It waits in a barrier that the others do not call: the message says which rank is in a barrier, and where. */
static void g17_a_rank_in_another_collective_is_named(void **state)
{
    (void)state;
    const char *const *parts =
        PARTS("ward, layer 3, step ", "passed its deadline of 1.5 s with", "group cp", "rank 2", "barrier");
    every_strategy(TEST_PROCESSES, "stray:rank=2:site=cp.step:hit=2", WEFT_ERR_TIMEOUT, parts);
    every_strategy(TEST_THREADS, "stray:rank=2:site=cp.step:hit=2", WEFT_ERR_TIMEOUT, parts);
}

/* ---- blocks of every size (field report G16) ------------------------------------------------------------------ */

static double ones(const cp_case *c, char what, int64_t b, int64_t t, int h, int d)
{
    (void)c, (void)b, (void)h, (void)d;
    return what == 'v' ? (double)(t % 64) : what == 'o' ? 1 : 0;
}

/* With a window of 0 keys to the left a row is its own v: cheap at any length, and every block still goes round. */
static void ring_of_blocks(int P, int64_t rows, int heads, int D)
{
    cp_case c = {.name = "G16", .prec = WEFT_PREC_F32, .B = 1, .Tq = P * rows, .T = P * rows, .H = heads, .Hkv = heads,
                 .D = D,
                 .Dv = D, .mask = {true, 0, -1, 0}, .value = ones};
    cp_data data = cp_data_make(&c);
    const char *names[STRATEGIES_MAX];
    int n = strategies(names);
    for (int i = 0; i < n; i++) {
        /* the others send no more in one piece than the ring does */
        if (rows > 64 && strcmp(names[i], "ring")) continue;
        cp_job job = {.c = &c, .data = &data, .strategy = names[i], .layout = WEFT_LAYOUT_CONTIGUOUS, .overlap = true,
                      .out = cp_result_make(&c, P)};
        double begin = weft_now(&weft_clock_real);
        assert_ok(cp_run(P, &job, 1));
        assert_at_most(weft_now(&weft_clock_real) - begin, 30);
        for (int64_t t = 0; t < c.T; t++) assert_true(job.out->o[t * heads * D] == (double)(t % 64));
        cp_result_free(job.out);
    }
    cp_data_free(&data);
}

static void g16_small_and_large_blocks_go_round(void **state)
{
    (void)state;
    ring_of_blocks(2, 2, 4, 16);     /* K and V: 1 KiB */
    ring_of_blocks(4, 2, 4, 16);
    ring_of_blocks(2, 2048 / test_every(8), 8, 128); /* 16 MiB, but for sanitizers */
}

int main(int argc, char **argv)
{
    int code;
    if (test_ranks_child(argc, argv, &steps, 1, &code)) return code;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(without_a_fault_all_is_well),
        cmocka_unit_test(g17_a_killed_rank_is_named),
        cmocka_unit_test(g17_a_sleeping_rank_is_named),
        cmocka_unit_test(g17_a_rank_in_another_collective_is_named),
        cmocka_unit_test(g16_small_and_large_blocks_go_round),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
