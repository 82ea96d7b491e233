/* doctor_processor.c — the processor's instructions and what the system lets a process use of them; cores and the share
 * that each rank gets; memory nodes; the clock. */
#include "cli/doctor.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* ---- instructions --------------------------------------------------------------------------------------- */

static const char new_kernel[] = "sudo apt install linux-image-amd64 (and reboot; in a virtual machine, the host's)";

static void tell_withheld(weft_doctor *d, const weft_cpu *c)
{
    for (int i = WEFT_ISA_AVX2; i < WEFT_ISA_COUNT; i++) {
        const char *name = weft_isa_name((weft_isa)i);
        if (!c->has[i] || c->allowed[i]) continue;
        if (!c->saved[i])
            weft_doctor_add(d, WEFT_DOCTOR_LOOK, "processor", new_kernel,
                            "it has %s, but the system does not save its registers (XCR0 0x%llx)", name,
                            (unsigned long long)c->xcr0);
        else
            weft_doctor_add(d, WEFT_DOCTOR_LOOK, "processor", new_kernel,
                            "it has %s, but the system refuses the permission for its tiles (arch_prctl)", name);
    }
}

static weft_isa strongest(void)
{
    weft_isa best = WEFT_ISA_REF;
    for (int i = 0; i < WEFT_ISA_COUNT; i++)
        if (weft_isa_available((weft_isa)i)) best = (weft_isa)i;
    return best;
}

static void tell_choice(weft_doctor *d, const weft_cpu *c)
{
    const weft_isa best = strongest(), used = d->cli->run.isa;
    weft_text have = {0};
    for (int i = 0; i < WEFT_ISA_COUNT; i++)
        weft_text_add(&have, "%s%s %s", i ? ", " : "", weft_isa_name((weft_isa)i),
                      c->allowed[i] ? "yes" : c->has[i] ? "withheld" : "no");
    const char *all = have.data ? have.data : "";
    if (!weft_isa_available(used))
        weft_doctor_add(d, WEFT_DOCTOR_BAD, "processor", "unset WEFT_ISA (or --isa best)", "%s was asked for: %s",
                        weft_isa_name(used), all);
    else if (used < best)
        weft_doctor_add(d, WEFT_DOCTOR_NOTE, "processor", "unset WEFT_ISA (or --isa best)",
                        "kernels use %s because that was asked for, %s would be faster: %s", weft_isa_name(used),
                        weft_isa_name(best), all);
    else
        weft_doctor_add(d, best == WEFT_ISA_REF ? WEFT_DOCTOR_NOTE : WEFT_DOCTOR_OK, "processor", NULL,
                        "kernels use %s, the strongest set that processor and system allow: %s", weft_isa_name(used),
                        all);
    weft_text_free(&have);
}

void weft_doctor_processor(weft_doctor *d)
{
    weft_cpu c;
    weft_cpu_describe(&c);
    weft_doctor_add(d, WEFT_DOCTOR_OK, "processor", NULL, "%s", *c.name ? c.name + strspn(c.name, " ") : "no x86-64");
    tell_choice(d, &c);
    tell_withheld(d, &c);
}

/* ---- cores ---------------------------------------------------------------------------------------------- */

enum { PATH_BYTES = 128, RANKS_SHOWN = 8 };

/* "0-3,8" */
static void add_cpus(weft_text *t, const cpu_set_t *set)
{
    const char *comma = "";
    for (int from = 0; from < CPU_SETSIZE; from++) {
        int to = from;
        if (!CPU_ISSET((size_t)from, set)) continue;
        while (to + 1 < CPU_SETSIZE && CPU_ISSET((size_t)to + 1, set)) to++;
        weft_text_add(t, to > from ? "%s%d-%d" : "%s%d", comma, from, to);
        comma = ",";
        from = to;
    }
}

/* The processors of a list "0-3,8"; none of what is no list. */
static cpu_set_t parse_cpus(const char *list)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    for (char *end; *list >= '0' && *list <= '9'; list = *end == ',' ? end + 1 : end) {
        long from = strtol(list, &end, 10), to = *end == '-' ? strtol(end + 1, &end, 10) : from;
        for (; from <= to && from < CPU_SETSIZE; from++) CPU_SET((size_t)from, &set);
    }
    return set;
}

static cpu_set_t siblings_of(int cpu)
{
    char path[PATH_BYTES], list[256];
    snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%d/topology/thread_siblings_list", cpu);
    weft_machine_line(path, list, sizeof list);
    return parse_cpus(list);
}

/* Cores among so many processors: those whose first allowed hardware thread this is. */
static int count_cores(const cpu_set_t *allowed)
{
    int cores = 0;
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
        if (!CPU_ISSET((size_t)cpu, allowed)) continue;
        const cpu_set_t all = siblings_of(cpu);
        bool first = true;
        for (int other = 0; other < cpu; other++)
            first &= !(CPU_ISSET((size_t)other, &all) && CPU_ISSET((size_t)other, allowed));
        cores += first;
    }
    return cores;
}

static const char *plural(int64_t n) { return n == 1 ? "" : "s"; }

static void tell_share(weft_doctor *d)
{
    const weft_local_share *s = &d->share;
    const int64_t wanted = (int64_t)s->ranks * s->threads;
    char mend[64];
    weft_text list = {0};
    for (int r = 0; r < s->ranks && r < RANKS_SHOWN && s->pinned; r++) {
        const cpu_set_t mine = weft_local_share_cpus(s, r);
        weft_text_add(&list, "%srank %d on ", r ? "; " : "", r);
        add_cpus(&list, &mine);
    }
    if (s->ranks > RANKS_SHOWN && s->pinned) weft_text_add(&list, "; ...");
    if (s->pinned)
        weft_doctor_add(d, WEFT_DOCTOR_OK, "cores", NULL, "%d rank%s x %d thread%s, each rank on its own: %s", s->ranks,
                        plural(s->ranks), s->threads, plural(s->threads), list.data ? list.data : "");
    else {
        if (s->ranks <= s->cores) snprintf(mend, sizeof mend, "--threads %d", s->cores / s->ranks);
        else snprintf(mend, sizeof mend, "--cp %d (at most %d rank%s in all)", s->cores, s->cores, plural(s->cores));
        weft_doctor_add(d, WEFT_DOCTOR_LOOK, "cores", mend,
                        "%d rank%s x %d thread%s are %lld on %d processor%s: they share them all, and wait for each "
                        "other",
                        s->ranks, plural(s->ranks), s->threads, plural(s->threads), (long long)wanted, s->cores,
                        plural(s->cores));
    }
    weft_text_free(&list);
}

static void tell_threads_of_cores(weft_doctor *d)
{
    const weft_local_share *s = &d->share;
    const int cores = count_cores(&s->allowed);
    char mend[64];
    if (cores >= s->cores) {
        weft_doctor_add(d, WEFT_DOCTOR_OK, "cores", NULL, "%d core%s, one hardware thread of each", cores,
                        plural(cores));
        return;
    }
    if ((int64_t)s->ranks * s->threads <= cores) {
        weft_doctor_add(d, WEFT_DOCTOR_NOTE, "cores", NULL, "%d cores with %d hardware threads; no more threads than "
                        "cores run, but two may meet on one", cores, s->cores);
        return;
    }
    snprintf(mend, sizeof mend, "--threads %d", cores / s->ranks > 1 ? cores / s->ranks : 1);
    weft_doctor_add(d, WEFT_DOCTOR_NOTE, "cores", mend,
                    "%d cores have %d hardware threads; two on one core share its arithmetic units", cores, s->cores);
}

static void tell_allowed(weft_doctor *d)
{
    const long online = sysconf(_SC_NPROCESSORS_ONLN);
    char mend[96];
    if (online <= d->share.cores) return;
    if (weft_doctor_binds()) snprintf(mend, sizeof mend, "unset OMP_PROC_BIND");
    else if (d->launched) snprintf(mend, sizeof mend, "mpirun --bind-to none (MPICH: -bind-to none) weft ...");
    else snprintf(mend, sizeof mend, "taskset -c 0-%ld weft ...", online - 1);
    const char *why = weft_doctor_binds() ? "OpenMP has bound it as it started"
                      : d->launched       ? "by its launcher"
                                          : "by taskset, a job, or a container's cpuset";
    weft_doctor_add(d, WEFT_DOCTOR_NOTE, "cores", mend, "this process may use %d of %ld processors (%s)",
                    d->share.cores, online, why);
}

static void tell_quota(weft_doctor *d)
{
    const weft_local_share *s = &d->share;
    const double quota = weft_machine_quota("");
    const int64_t wanted = weft_min_i64((int64_t)s->ranks * s->threads, s->cores);
    char mend[64];
    if (quota == 0) return;
    if (quota >= (double)wanted) {
        weft_doctor_add(d, WEFT_DOCTOR_OK, "cores", NULL, "the control group gives the time of %.4g processors", quota);
        return;
    }
    if (quota / s->ranks >= 1) snprintf(mend, sizeof mend, "--threads %d", (int)(quota / s->ranks));
    else snprintf(mend, sizeof mend, "docker update --cpus %lld CONTAINER", (long long)wanted);
    weft_doctor_add(d, WEFT_DOCTOR_LOOK, "cores", mend,
                    "the control group gives the time of %.4g processors to %lld threads: all stand still when it is "
                    "used up", quota, (long long)wanted);
}

static void tell_governor(weft_doctor *d)
{
    char governor[64];
    if (!weft_machine_line("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", governor, sizeof governor)) return;
    if (!strcmp(governor, "powersave"))
        weft_doctor_add(d, WEFT_DOCTOR_NOTE, "cores", "sudo cpupower frequency-set -g performance",
                        "the frequency governor is powersave: measurements differ from run to run");
    else weft_doctor_add(d, WEFT_DOCTOR_OK, "cores", NULL, "the frequency governor is %s", governor);
}

void weft_doctor_cores(weft_doctor *d)
{
    tell_allowed(d);
    tell_share(d);
    tell_threads_of_cores(d);
    tell_quota(d);
    tell_governor(d);
}

/* ---- memory nodes --------------------------------------------------------------------------------------- */

static bool node_cpus(int node, cpu_set_t *out)
{
    char path[PATH_BYTES], list[512];
    snprintf(path, sizeof path, "/sys/devices/system/node/node%d/cpulist", node);
    bool there = weft_machine_line(path, list, sizeof list) || access(path, F_OK) == 0;
    *out = parse_cpus(list);
    return there;
}

/* A rank whose processors lie on two nodes reads half of its memory from the other. */
static int first_across(const weft_doctor *d, int nodes)
{
    for (int r = 0; r < d->share.ranks && d->share.pinned; r++) {
        const cpu_set_t mine = weft_local_share_cpus(&d->share, r);
        int touched = 0;
        for (int n = 0; n < nodes; n++) {
            cpu_set_t node, both;
            node_cpus(n, &node);
            CPU_AND(&both, &mine, &node);
            touched += CPU_COUNT(&both) > 0;
        }
        if (touched > 1) return r;
    }
    return -1;
}

void weft_doctor_numa(weft_doctor *d)
{
    enum { NODES_MAX = 64 };
    cpu_set_t cpus;
    weft_text list = {0};
    int nodes = 0, across;
    char mend[64];
    for (; nodes < NODES_MAX && node_cpus(nodes, &cpus); nodes++) {
        char path[PATH_BYTES], distances[256];
        snprintf(path, sizeof path, "/sys/devices/system/node/node%d/distance", nodes);
        weft_machine_line(path, distances, sizeof distances);
        weft_text_add(&list, "%snode %d: processors ", nodes ? "; " : "", nodes);
        add_cpus(&list, &cpus);
        if (*distances) weft_text_add(&list, ", distances %s", distances);
    }
    const char *all = list.data ? list.data : "";
    if (nodes == 0)
        weft_doctor_add(d, WEFT_DOCTOR_NOTE, "numa", NULL, "the system does not say which memory nodes it has");
    else if ((across = first_across(d, nodes)) >= 0) {
        snprintf(mend, sizeof mend, "--cp %d (or another multiple of %d ranks)", nodes, nodes);
        weft_doctor_add(d, WEFT_DOCTOR_LOOK, "numa", mend, "the processors of rank %d lie on more than one node: %s",
                        across, all);
    } else weft_doctor_add(d, WEFT_DOCTOR_OK, "numa", NULL, "%s", all);
    weft_text_free(&list);
}

/* ---- the clock ------------------------------------------------------------------------------------------ */

/* The least of several times: others may run in between. */
static double look_seconds(void)
{
    enum { LOOKS = 1000, TIMES = 10 };
    struct timespec t;
    double least = 1;
    for (int k = 0; k < TIMES; k++) {
        const double start = weft_now(&weft_clock_real);
        for (int i = 0; i < LOOKS; i++) clock_gettime(CLOCK_MONOTONIC, &t);
        const double seconds = (weft_now(&weft_clock_real) - start) / LOOKS;
        if (seconds < least) least = seconds;
    }
    return least;
}

/* Waits look at the clock all the time; one that is read through the kernel takes a microsecond. */
void weft_doctor_clock(weft_doctor *d)
{
    static const char folder[] = "/sys/devices/system/clocksource/clocksource0/";
    char path[PATH_BYTES], now[64], all[128];
    const double ns = look_seconds() * 1e9;
    snprintf(path, sizeof path, "%scurrent_clocksource", folder);
    if (!weft_machine_line(path, now, sizeof now)) snprintf(now, sizeof now, "the system's clock");
    snprintf(path, sizeof path, "%savailable_clocksource", folder);
    weft_machine_line(path, all, sizeof all);
    if (ns <= 300)
        weft_doctor_add(d, WEFT_DOCTOR_OK, "clock", NULL, "%s, %.0f ns a look", now, ns);
    else if (strstr(all, "tsc") && strcmp(now, "tsc"))
        weft_doctor_add(d, WEFT_DOCTOR_LOOK, "clock",
                        "echo tsc | sudo tee /sys/devices/system/clocksource/clocksource0/current_clocksource",
                        "%s, %.0f ns a look: slow", now, ns);
    else weft_doctor_add(d, WEFT_DOCTOR_NOTE, "clock", NULL, "%s, %.0f ns a look: slow", now, ns);
}
