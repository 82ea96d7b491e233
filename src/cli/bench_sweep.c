/* bench_sweep.c — `weft bench step --sweep cp=1,2,4`: one job after the other, each of its own ranks, and what a step
 * gains by their number.
 *
 * This process starts itself again for every size and reads the line of JSON that comes back. All jobs give every rank
 * as many threads: the share of the cores that a rank of the largest job has. Otherwise two ranks would be compared
 * with one that has the cores of both. */
#include "cli/bench_step.h"
#include "cli/table.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum { SIZES_MAX = 16, WORDS_MAX = 400 };
static const char *const dimensions[] = {"cp", "tp", "dp", "pp"};
enum { CP, TP, DP, PP, DIMENSIONS };

typedef struct sweep {
    const weft_cli *cli;
    int dimension, n, size[SIZES_MAX];
    int others, threads, cpus; /* ranks of the other dimensions; threads per rank */
    weft_arena *arena;
} sweep;

typedef struct outcome { /* of one job */
    int size, ranks;
    int64_t T, batch;
    double seconds, tokens, flops, comm, exposed, mfu, held;
} outcome;

/* ---- what is asked for ------------------------------------------------------------------------------------- */

static weft_status refuse(const char *text)
{
    return weft_fail(WEFT_ERR_REFUSED, "--sweep %.60s: give one of cp, tp, dp, pp and ascending sizes, as cp=1,2,4,8",
                     text);
}

static weft_status read_size(const char *text, const char *word, size_t length, int *out)
{
    char copy[24];
    int64_t x = 0;
    if (length == 0 || length >= sizeof copy) return refuse(text);
    memcpy(copy, word, length);
    copy[length] = '\0';
    if (weft_parse_i64(copy, &x) < 0 || x < 1 || x > 4096) return refuse(text);
    *out = (int)x;
    return WEFT_OK;
}

static weft_status read_sweep(sweep *s, const char *text)
{
    size_t name = strcspn(text, "=");
    for (s->dimension = 0; s->dimension < DIMENSIONS; s->dimension++)
        if (strlen(dimensions[s->dimension]) == name && !strncmp(text, dimensions[s->dimension], name)) break;
    if (s->dimension == DIMENSIONS || !text[name]) return refuse(text);
    for (const char *at = text + name + 1;; at++) {
        size_t length = strcspn(at, ",");
        if (s->n == SIZES_MAX)
            return weft_fail(WEFT_ERR_REFUSED, "--sweep %.60s: more than %d sizes", text, SIZES_MAX);
        WEFT_TRY(read_size(text, at, length, &s->size[s->n++]));
        if (s->n > 1 && s->size[s->n - 1] <= s->size[s->n - 2]) return refuse(text);
        at += length;
        if (!*at) return WEFT_OK;
    }
}

static weft_status open_sweep(sweep *s, const weft_cli *cli)
{
    const weft_run_options *o = &cli->options;
    const int64_t cp = weft_max_i64(o->cp, weft_max_i64(o->pcp_size, o->dcp_size));
    *s = (sweep){.cli = cli, .others = 1, .cpus = weft_launch_cpus(), .arena = cli->arena};
    WEFT_TRY(read_sweep(s, o->bench_sweep));
    const int64_t size[DIMENSIONS] = {cp, o->tp, o->dp, o->pp};
    for (int d = 0; d < DIMENSIONS; d++)
        if (d != s->dimension) s->others *= (int)weft_max_i64(size[d], 1);
    int most = s->others * s->size[s->n - 1];
    s->threads = o->threads ? (int)o->threads : (int)weft_max_i64(1, s->cpus / most);
    return WEFT_OK;
}

/* Keys that the jobs get from the sweep, or not at all. */
static bool is_own_key(const sweep *s, const char *key)
{
    static const char *const own[] = {"bench.sweep", "bench.format", "run.threads", "train.seq_length",
                                      "train.global_batch_size"};
    for (size_t i = 0; i < sizeof own / sizeof *own; i++)
        if (!strcmp(key, own[i])) return true;
    return !strncmp(key, "parallel.", 9) && !strcmp(key + 9, dimensions[s->dimension]);
}

/* What has nothing to act on where a dimension has one rank only, and would be refused. */
static bool cannot_act(const sweep *s, const char *key, int size)
{
    static const char *const needs_cp[] = {"parallel.cp_strategy", "parallel.cp_comm_type", "parallel.cp_head_size",
                                           "parallel.cp_keep_heads"};
    if (size > 1) return false;
    if (s->dimension == TP) return !strcmp(key, "parallel.sequence_parallel");
    for (size_t i = 0; s->dimension == CP && i < sizeof needs_cp / sizeof *needs_cp; i++)
        if (!strcmp(key, needs_cp[i])) return true;
    return false;
}

weft_status weft_sweep_check(weft_cli *cli)
{
    sweep s;
    weft_mpi_launch launch = {0};
    static const char *const sizes[] = {"parallel.pcp_size", "parallel.dcp_size"};
    if (weft_mpi_launched(&launch) >= 0 && launch.size > 0)
        return weft_fail(WEFT_ERR_REFUSED, "--sweep starts the ranks of every size itself; run it without %s",
                         launch.by);
    WEFT_TRY(open_sweep(&s, cli));
    for (size_t i = 0; s.dimension == CP && i < sizeof sizes / sizeof *sizes; i++)
        if (weft_opts_given(&cli->opts, sizes[i]))
            return weft_fail(WEFT_ERR_REFUSED, "--sweep cp= sets the size that %s sets, too; give --cp-strategy "
                             "instead", sizes[i]);
    char key[32];
    weft_format(key, sizeof key, "parallel.%s", dimensions[s.dimension]);
    if (weft_opts_given(&cli->opts, key))
        return weft_fail(WEFT_ERR_REFUSED, "--%s and --sweep %s=: give one of them", dimensions[s.dimension],
                         dimensions[s.dimension]);
    cli->run.mesh = (weft_mesh_shape){.tp = 1, .cp = 1, .dp = 1, .pp = 1}; /* of the process that starts the jobs */
    return WEFT_OK;
}

/* ---- one job ------------------------------------------------------------------------------------------------ */

typedef struct words { const char *word[WORDS_MAX]; int n; weft_arena *arena; weft_status st; } words;

static void add_word(words *w, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void add_word(words *w, const char *fmt, ...)
{
    weft_text t = {0};
    va_list ap;
    va_start(ap, fmt);
    weft_text_vadd(&t, fmt, ap);
    va_end(ap);
    if (t.failed || w->n + 1 >= WORDS_MAX)
        w->st = weft_fail(WEFT_ERR_MEMORY, "--sweep: no memory for the words of a job");
    else if (w->st >= 0) w->st = weft_arena_strdup(w->arena, t.data, &w->word[w->n++]);
    weft_text_free(&t);
}

/* The options of this command, but those that the sweep sets, as --set key=value. */
static weft_status job_words(const sweep *s, const outcome *job, words *w)
{
    const weft_opts *o = &s->cli->opts;
    char buf[64];
    add_word(w, "%s", s->cli->argv[0]);
    add_word(w, "bench");
    add_word(w, "step");
    for (int i = 0; i < o->n; i++) {
        const char *key = o->table[i].key;
        if (!(o->table[i].commands & o->command) || !weft_opts_given(o, key)) continue;
        if (is_own_key(s, key) || cannot_act(s, key, job->size)) continue;
        add_word(w, "--set");
        add_word(w, "%s=%s", key, weft_opts_value(o, key, buf, sizeof buf));
    }
    add_word(w, "--%s=%d", dimensions[s->dimension], job->size);
    add_word(w, "--seq-length=%lld", (long long)job->T);
    add_word(w, "--global-batch-size=%lld", (long long)job->batch);
    add_word(w, "--threads=%d", s->threads);
    add_word(w, "--format=jsonl");
    return w->st;
}

static weft_status read_all(int fd, weft_text *out)
{
    char block[4096];
    ssize_t n;
    while ((n = read(fd, block, sizeof block)) > 0 || (n < 0 && errno == EINTR))
        if (n > 0) weft_text_add(out, "%.*s", (int)n, block);
    return n < 0 ? weft_fail(WEFT_ERR_IO, "--sweep: cannot read what a job says: %s", strerror(errno)) : WEFT_OK;
}

typedef struct pipes { int out, err; } pipes; /* where a job writes: read at once; when it is over */

/* A job dies with the process that reads it. */
static _Noreturn void become_job(const words *w, pipes to, pid_t parent)
{
    if (prctl(PR_SET_PDEATHSIG, SIGTERM) != 0 || getppid() != parent) _exit(1);
    if (dup2(to.out, STDOUT_FILENO) < 0 || dup2(to.err, STDERR_FILENO) < 0) _exit(1);
    execv("/proc/self/exe", (char *const *)(uintptr_t)w->word);
    _exit(1);
}

static weft_status start(const words *w, pipes to, pid_t *pid)
{
    const pid_t parent = getpid();
    *pid = fork();
    if (*pid == 0) become_job(w, to, parent);
    return *pid < 0 ? weft_fail(WEFT_ERR_LIBRARY, "--sweep: cannot start a job: %s", strerror(errno)) : WEFT_OK;
}

/* A failure has one message, this command's; what else a job said is passed on. */
static weft_status judge(const sweep *s, const outcome *job, int status, const char *said)
{
    static const char prefix[] = "weft: ";
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0) {
        fputs(said, stderr);
        return WEFT_OK;
    }
    const char *message = strncmp(said, prefix, strlen(prefix)) ? said : said + strlen(prefix);
    bool refused = WIFEXITED(status) && WEXITSTATUS(status) == 2;
    return weft_fail(refused ? WEFT_ERR_REFUSED : WEFT_ERR_INTERNAL, "--sweep, %s %d: %.*s", dimensions[s->dimension],
                     job->size, (int)strcspn(message, "\n"), *message ? message : "the job ended without a word");
}

static weft_status run_piped(const sweep *s, const outcome *job, const words *w, const int fd[2], int err,
                             weft_text *out)
{
    int status = 0;
    pid_t pid;
    weft_text said = {0};
    weft_status st = start(w, (pipes){fd[1], err}, &pid);
    close(fd[1]);
    if (st < 0) return st;
    st = read_all(fd[0], out);
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR) continue;
    lseek(err, 0, SEEK_SET);
    if (st >= 0) st = read_all(err, &said);
    if (st >= 0) st = judge(s, job, status, said.data ? said.data : "");
    weft_text_free(&said);
    return st;
}

static weft_status run_words(const sweep *s, const outcome *job, const words *w, weft_text *out)
{
    int fd[2], err = memfd_create("stderr of a job", MFD_CLOEXEC);
    if (err < 0 || pipe2(fd, O_CLOEXEC)) {
        if (err >= 0) close(err);
        return weft_fail(WEFT_ERR_IO, "--sweep: no pipe to a job: %s", strerror(errno));
    }
    weft_status st = run_piped(s, job, w, fd, err, out);
    close(fd[0]);
    close(err);
    return st;
}

static weft_status read_outcome(const char *text, outcome *job)
{
    json_error_t error;
    int repeats;
    json_t *o = json_loads(text ? text : "", 0, &error);
    int bad = json_unpack(o, "{s:i, s:i, s:F, s:F, s:F, s:F, s:F, s:F, s:F}", "ranks", &job->ranks, "repeats", &repeats,
                          "seconds", &job->seconds, "tokens_per_second", &job->tokens, "flops", &job->flops,
                          "comm_share", &job->comm, "exposed_share", &job->exposed, "mfu", &job->mfu, "memory_held",
                          &job->held);
    json_decref(o);
    return bad ? weft_fail(WEFT_ERR_INTERNAL, "--sweep: a job printed what is no result") : WEFT_OK;
}

static weft_status run_job(const sweep *s, outcome *job)
{
    words w = {.arena = s->arena};
    weft_text text = {0};
    weft_status st = job_words(s, job, &w);
    if (st >= 0) st = run_words(s, job, &w, &text);
    if (st >= 0) st = read_outcome(text.data, job);
    weft_text_free(&text);
    return st;
}

/* ---- tables --------------------------------------------------------------------------------------------------- */

/* Strong scaling keeps the work: the tokens of a step, in sequences that the largest dp divides. Weak scaling grows it
 * with the ranks: longer sequences, and more of them for dp. */
static outcome job_of(const sweep *s, int i, bool weak)
{
    const weft_run_options *o = &s->cli->options;
    const int64_t dp = weft_max_i64(o->dp, 1), first = s->size[0], size = s->size[i];
    int64_t batch = o->global_batch ? o->global_batch : o->micro_batch * (s->dimension == DP ? s->size[s->n - 1] : dp);
    outcome x = {.size = s->size[i], .T = o->seq_length, .batch = batch};
    if (!weak) return x;
    if (s->dimension == DP) x.batch = (o->global_batch ? o->global_batch : o->micro_batch * first) * size / first;
    else x.T = o->seq_length * size / first;
    return x;
}

#define COUNT(head, key, width) {head, NULL, key, WEFT_CELL_COUNT, WEFT_FOR_ALL, width, 0, 0, 0, false}
#define SHARE(head, key, width) {head, " %", key, WEFT_CELL_REAL, WEFT_FOR_ALL, width, 100, 1, 6, false}
static const weft_column columns[] = {
    {"scaling", NULL, "scaling", WEFT_CELL_TEXT, WEFT_FOR_ALL, -7, 0, 0, 0, false},
    COUNT("size", "size", 4),
    COUNT("ranks", "ranks", 5),
    COUNT("T", "seq_length", 7),
    COUNT("batch", "batch", 5),
    {"ms", NULL, "seconds", WEFT_CELL_REAL, WEFT_FOR_ALL, 9, 1e3, 2, 9, false},
    {"tokens/s", NULL, "tokens_per_second", WEFT_CELL_REAL, WEFT_FOR_ALL, 9, 0, 0, 6, false},
    {"speed-up", NULL, "speed_up", WEFT_CELL_REAL, WEFT_FOR_ALL, 8, 0, 2, 6, false},
    SHARE("effic.", "efficiency", 6),
    SHARE("comm", "comm_share", 5),
    SHARE("exposed", "exposed_share", 7),
    {"MFU", " %", "mfu", WEFT_CELL_REAL, WEFT_FOR_ALL, 5, 100, 1, 6, true},
    {"memory", " MiB", "memory_held", WEFT_CELL_REAL, WEFT_FOR_ALL, 8, 1.0 / (1 << 20), 1, 15, false},
};
#undef COUNT
#undef SHARE

/* Of work done a second, against that of the first size: so it also holds where the work has grown. */
static void print_row(const weft_table *t, const char *scaling, const outcome *x, const outcome *first)
{
    double speed_up = x->flops / x->seconds / (first->flops / first->seconds);
    const weft_cell cells[] = {
        {.text = scaling}, {.count = x->size}, {.count = x->ranks}, {.count = x->T}, {.count = x->batch},
        {.real = x->seconds}, {.real = x->tokens}, {.real = speed_up}, {.real = speed_up * first->ranks / x->ranks},
        {.real = x->comm}, {.real = x->exposed}, {.real = x->mfu}, {.real = x->held}};
    weft_table_row(t, cells);
}

static void print_head(const sweep *s)
{
    int most = s->others * s->size[s->n - 1];
    weft_say("%s %d to %d: jobs of %d to %d ranks, one after the other; %d thread%s each, on %d core%s\n",
             dimensions[s->dimension], s->size[0], s->size[s->n - 1], s->others * s->size[0], most, s->threads,
             s->threads > 1 ? "s" : "", s->cpus, s->cpus > 1 ? "s" : "");
    if ((int64_t)most * s->threads > s->cpus)
        weft_say("Jobs of more than %d threads share cores: how the work divides shows, and not how much sooner it "
                 "would be done on more cores.\n", s->cpus);
    weft_say("\n");
}

static void print_notes(void)
{
    weft_print_prose(stdout,
                     "\nstrong: the same step on more ranks; weak: a step that grows with them. speed-up: work per "
                     "second (model operations, visible attention counted) over that of the first size; efficiency: "
                     "that, per rank. memory: of the rank that holds most.\n",
                     0);
}

/* A row as soon as it is measured. */
static weft_status run_sizes(const sweep *s, const weft_table *t, bool weak, outcome *first)
{
    for (int i = 0; i < s->n; i++) {
        outcome x = job_of(s, i, weak);
        const bool again = i == 0 && weak && x.T == first->T && x.batch == first->batch;
        if (again) x = *first;
        else WEFT_TRY(run_job(s, &x));
        if (i == 0) *first = x;
        if (i == 0 && !weak) {
            if (weft_table_is_text(t)) print_head(s);
            weft_table_head(t);
        }
        print_row(t, weak ? "weak" : "strong", &x, first);
    }
    return WEFT_OK;
}

weft_status weft_sweep_run(weft_cli *cli)
{
    const weft_table t = weft_table_of(cli->options.bench_format, columns, sizeof columns / sizeof *columns);
    outcome first = {0};
    sweep s;
    WEFT_TRY(open_sweep(&s, cli));
    WEFT_TRY(run_sizes(&s, &t, false, &first));
    WEFT_TRY(run_sizes(&s, &t, true, &first));
    if (weft_table_is_text(&t)) print_notes();
    return WEFT_OK;
}
