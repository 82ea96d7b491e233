/* cmd_doctor.c — `weft doctor`: what the machine has and what stands in the way, a line each, with the command that
 * mends it. Whatever could hang, crash or start threads runs in a process of its own that is ended after a while, so
 * that a broken machine gives lines, too. */
#include "cli/doctor.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

static const weft_doctor_check checks[] = {
    {"processor", weft_doctor_processor, 0, NULL},
    {"cores", weft_doctor_cores, 0, NULL},
    {"numa", weft_doctor_numa, 0, NULL},
    {"clock", weft_doctor_clock, 0, NULL},
    {"memory", weft_doctor_memory, 0, NULL},
    {"limits", weft_doctor_limits, 0, NULL},
    {"/dev/shm", weft_doctor_shared, 0, NULL},
    {"pages", weft_doctor_pages, 0, NULL},
    {"variables", weft_doctor_variables, 0, NULL},
    {"oneDNN", weft_doctor_library, 10, "WEFT_ISA=ref weft doctor"},
    {"kernels", weft_doctor_kernels, 60, "WEFT_ISA=ref weft doctor"},
    {"ranks", weft_doctor_ranks, 20, "weft train --cp 1 ..."},
    {"Open MPI", weft_doctor_openmpi, 10, "sudo apt install --reinstall openmpi-bin libopenmpi-dev && make"},
    {"MPICH", weft_doctor_mpich, 10, "sudo apt install --reinstall mpich libmpich-dev && make"},
    {"GPU", weft_doctor_gpu, 10, "nvidia-smi"},
    {"folder", weft_doctor_folder, 10, "weft train --runs FOLDER ... (a folder of another disk)"},
};
enum { CHECKS = sizeof checks / sizeof *checks, SUBJECT = 13, LEFT = 6 + SUBJECT + 1 };

static const struct { const char *name, *colour; } verdicts[WEFT_DOCTOR_VERDICTS] = {
    {"ok", "\033[32m"}, {"note", "\033[36m"}, {"look", "\033[33m"}, {"bad", "\033[31m"}};

/* ---- lines ---------------------------------------------------------------------------------------------- */

static void print_text(weft_doctor_verdict v, const char *subject, const char *mend, const char *text)
{
    const bool terminal = weft_on_terminal(stdout), colour = weft_in_colour(stdout);
    const char *name = verdicts[v].name;
    weft_text plain = {0}, folded = {0};
    weft_text_add(&plain, "%-4s  %-*s %s%s%s", name, SUBJECT, subject, text, *mend ? "; mend: " : "", mend);
    weft_text_fold(&folded, plain.data ? plain.data : "", LEFT, terminal ? weft_columns(stdout) : 0);
    const char *line = folded.data ? folded.data : "";
    if (colour && strlen(line) > strlen(name)) printf("%s%s\033[0m%s", verdicts[v].colour, name, line + strlen(name));
    else fputs(line, stdout);
    weft_text_free(&plain);
    weft_text_free(&folded);
}

static void print_json(weft_doctor_verdict v, const char *subject, const char *mend, const char *text)
{
    const char *const rows[][2] = {{"verdict", verdicts[v].name}, {"subject", subject}, {"text", text}, {"mend", mend}};
    for (int i = 0; i < 4; i++) {
        printf("%s\"%s\": ", i ? ", " : "{", rows[i][0]);
        weft_print_json_text(rows[i][1]);
    }
    printf("}\n");
}

static void print_line(weft_doctor *d, weft_doctor_verdict v, const char *subject, const char *mend, const char *text)
{
    d->lines[v]++;
    (d->jsonl ? print_json : print_text)(v, subject, mend, text);
    fflush(stdout);
}

/* A line on its way to the process that prints: verdict, subject, mend and text, each up to a mark. */
enum { MARK = 0x1f, LINE_BYTES = 2048 };

static void clean(char *text)
{
    for (; *text; text++)
        if ((unsigned char)*text < ' ' || *text == 0x7f) *text = ' ';
}

void weft_doctor_add(weft_doctor *d, weft_doctor_verdict verdict, const char *subject, const char *mend,
                     const char *fmt, ...)
{
    char text[LINE_BYTES / 2], line[LINE_BYTES];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    clean(text);
    if (d->to < 0) {
        print_line(d, verdict, subject, mend ? mend : "", text);
        return;
    }
    int n = snprintf(line, sizeof line, "%d%c%s%c%s%c%s\n", (int)verdict, MARK, subject, MARK, mend ? mend : "", MARK,
                     text);
    n = n < LINE_BYTES ? n : LINE_BYTES - 1;
    line[n - 1] = '\n';
    if (write(d->to, line, (size_t)n) != n) _exit(0); /* nobody is there to read it */
}

static void take_line(weft_doctor *d, char *line)
{
    char *part[4] = {line};
    for (int i = 1; i < 4; i++) {
        char *mark = strchr(part[i - 1], MARK);
        if (!mark) return;
        *mark = 0;
        part[i] = mark + 1;
    }
    int v = atoi(part[0]);
    if (v >= 0 && v < WEFT_DOCTOR_VERDICTS) print_line(d, (weft_doctor_verdict)v, part[1], part[2], part[3]);
}

/* ---- a check in a process of its own ---------------------------------------------------------------------- */

typedef struct reader { char data[4 * LINE_BYTES]; size_t n; } reader;

static void take_lines(weft_doctor *d, reader *r)
{
    char *begin = r->data, *end;
    r->data[r->n] = 0;
    while ((end = strchr(begin, '\n'))) {
        *end = 0;
        take_line(d, begin);
        begin = end + 1;
    }
    r->n -= (size_t)(begin - r->data);
    if (r->n == sizeof r->data - 1) r->n = 0; /* no line is so long */
    memmove(r->data, begin, r->n);
}

/* Lines as they come, until the other end is closed; false when that takes too long. */
static bool read_lines(weft_doctor *d, int from, double seconds)
{
    reader r = {.n = 0};
    const weft_deadline late = weft_deadline_in(&weft_clock_real, seconds);
    for (;;) {
        const double left = late.at - weft_now(&weft_clock_real);
        struct pollfd p = {.fd = from, .events = POLLIN};
        if (left <= 0 || (poll(&p, 1, (int)(left * 1000) + 1) < 0 && errno != EINTR)) return false;
        if (!p.revents) continue;
        const ssize_t n = read(from, r.data + r.n, sizeof r.data - 1 - r.n);
        if (n <= 0) return true;
        r.n += (size_t)n;
        take_lines(d, &r);
    }
}

/* What it starts ends with it, and libraries that speak do so to nobody. */
static _Noreturn void become_check(weft_doctor *d, const weft_doctor_check *c, int to, pid_t parent)
{
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 || getppid() != parent) _exit(0);
    setpgid(0, 0);
    signal(SIGXFSZ, SIG_IGN); /* a limit on files is a line, not an end */
    int nowhere = open("/dev/null", O_RDWR);
    for (int fd = 0; fd <= 2 && nowhere >= 0; fd++) dup2(nowhere, fd);
    d->to = to;
    c->run(d);
    _exit(0);
}

/* A process that hangs in the kernel does not end either: it is left alone then. */
static void wait_for_end(pid_t pid, int *status)
{
    for (int i = 0; i < 100; i++) {
        if (waitpid(pid, status, WNOHANG) != 0) return;
        poll(NULL, 0, 10);
    }
}

static void tell_end(weft_doctor *d, const weft_doctor_check *c, bool in_time, int status)
{
    if (!in_time)
        weft_doctor_add(d, WEFT_DOCTOR_BAD, c->name, c->mend, "this check did not end within %.0f s", c->seconds);
    else if (WIFSIGNALED(status))
        weft_doctor_add(d, WEFT_DOCTOR_BAD, c->name, c->mend, "this check was ended by signal %d (%s)",
                        WTERMSIG(status), strsignal(WTERMSIG(status)));
    else if (WEXITSTATUS(status))
        weft_doctor_add(d, WEFT_DOCTOR_BAD, c->name, c->mend, "this check ended with exit code %d: a library gave up",
                        WEXITSTATUS(status));
}

static void run_apart(weft_doctor *d, const weft_doctor_check *c)
{
    int ends[2] = {-1, -1}, status = 0;
    const pid_t me = getpid();
    fflush(stdout);
    const pid_t pid = pipe2(ends, O_CLOEXEC) == 0 ? fork() : -1;
    if (pid < 0) {
        weft_doctor_add(d, WEFT_DOCTOR_BAD, c->name, "ulimit -u unlimited; ulimit -n 1024",
                        "no process could be started for this check: %s", strerror(errno));
        for (int i = 0; i < 2 && ends[i] >= 0; i++) close(ends[i]);
        return;
    }
    if (pid == 0) become_check(d, c, ends[1], me);
    setpgid(pid, pid);
    close(ends[1]);
    const bool in_time = read_lines(d, ends[0], c->seconds);
    if (!in_time) kill(-pid, SIGKILL);
    wait_for_end(pid, &status);
    close(ends[0]);
    weft_doctor_folder_clean(d, pid);
    tell_end(d, c, in_time, status);
}

/* ---- the command -------------------------------------------------------------------------------------------- */

static int ranks_of(const weft_cli *cli)
{
    return cli->options.search_ranks ? (int)cli->options.search_ranks : weft_mesh_ranks(cli->run.mesh);
}

static weft_status check(weft_cli *cli)
{
    const char *format = cli->options.bench_format;
    const int ranks = ranks_of(cli), sizes = weft_mesh_ranks(cli->run.mesh);
    if (strcmp(format, "text") && strcmp(format, "jsonl"))
        return weft_fail(WEFT_ERR_REFUSED, "--format %s: weft doctor prints text or jsonl", format);
    if (sizes > 1 && ranks != sizes)
        return weft_fail(WEFT_ERR_REFUSED, "--ranks %d, but the sizes of the groups make %d; leave one of them out",
                         ranks, sizes);
    if (ranks > WEFT_LOCAL_MOST)
        return weft_fail(WEFT_ERR_REFUSED, "%d ranks: one machine has at most %d; give the ranks of one node", ranks,
                         WEFT_LOCAL_MOST);
    return WEFT_OK;
}

static void tell_launcher(weft_doctor *d, const weft_mpi_launch *l)
{
    if (d->launched)
        weft_doctor_add(d, WEFT_DOCTOR_NOTE, "launcher", NULL,
                        "%s started %d process%s; this is the machine, and what may be used of it, of the first", l->by,
                        l->size, l->size == 1 ? "" : "es");
}

static void print_sum(const weft_doctor *d, double seconds)
{
    const int64_t *n = d->lines;
    if (d->jsonl) return;
    weft_say("\n%lld ok, %lld note%s, %lld to look at, %lld bad (%.1f s)\n", (long long)n[WEFT_DOCTOR_OK],
             (long long)n[WEFT_DOCTOR_NOTE], n[WEFT_DOCTOR_NOTE] == 1 ? "" : "s", (long long)n[WEFT_DOCTOR_LOOK],
             (long long)n[WEFT_DOCTOR_BAD], seconds);
}

int weft_doctor_run(weft_cli *cli)
{
    weft_local *local = NULL;
    weft_mpi_launch launch = {0};
    int rank = 0;
    if (weft_local_from_env(&local, &rank) >= 0 && local) return weft_doctor_rank(cli, local, rank);
    weft_mpi_launched(&launch); /* a launcher that is half an MPI is a line of the checks */
    if (launch.rank > 0) return 0;
    const double start = weft_now(&weft_clock_real);
    const bool launched = launch.size > 0;
    const int ranks = launched ? launch.size : ranks_of(cli);
    weft_doctor d = {.cli = cli,
                     .ranks = ranks,
                     .launched = launched,
                     .share = weft_local_share_of(launched ? 1 : ranks, (int)cli->options.threads),
                     .folder = cli->n_positional ? cli->positional[0] : access("runs", F_OK) == 0 ? "runs" : ".",
                     .jsonl = !strcmp(cli->options.bench_format, "jsonl"),
                     .to = -1};
    tell_launcher(&d, &launch);
    for (int i = 0; i < CHECKS; i++)
        if (checks[i].seconds > 0) run_apart(&d, &checks[i]);
        else checks[i].run(&d);
    print_sum(&d, weft_now(&weft_clock_real) - start);
    return d.lines[WEFT_DOCTOR_BAD] > 0;
}

const weft_command weft_cmd_doctor =
    {"doctor",
     "doctor [DIR] [options]",
     "what this machine has and what stands in the way of a run, with the command that mends it; checks every kernel, "
     "two ranks, and the disk of DIR",
     WEFT_CMD_DOCTOR,
     0,
     1,
     false,
     false,
     check,
     NULL};
