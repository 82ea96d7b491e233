/* doctor_memory.c — memory and the limits on it: the machine's, a container's, this process's; shared memory; pages. */
#include "cli/doctor.h"

#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <unistd.h>

#define GIB ((double)(1 << 30))

static const char *bytes_text(size_t bytes, char *buf, size_t n) { return weft_format_bytes((double)bytes, buf, n); }

/* ---- memory --------------------------------------------------------------------------------------------- */

static void tell_machine(weft_doctor *d, const weft_machine_memory *m)
{
    char total[32], left[32], swap[32], used[32];
    if (m->total == SIZE_MAX || m->available == SIZE_MAX) {
        weft_doctor_add(d, WEFT_DOCTOR_LOOK, "memory", "sudo mount -t proc proc /proc",
                        "the system does not say how much there is (/proc/meminfo): nothing stops a run that needs "
                        "more");
        return;
    }
    bytes_text(m->total, total, sizeof total), bytes_text(m->available, left, sizeof left);
    if ((double)m->available < GIB)
        weft_doctor_add(d, WEFT_DOCTOR_LOOK, "memory", "weft info CONFIG.yaml --memory (what a run needs)",
                        "%s, of which only %s can be had", total, left);
    else weft_doctor_add(d, WEFT_DOCTOR_OK, "memory", NULL, "%s, of which %s can be had", total, left);
    if (m->swap_total == SIZE_MAX || m->swap_total == 0 || m->swap_free == SIZE_MAX) return;
    const size_t in_use = m->swap_total > m->swap_free ? m->swap_total - m->swap_free : 0;
    bytes_text(m->swap_total, swap, sizeof swap), bytes_text(in_use, used, sizeof used);
    if (in_use > m->swap_total / 2)
        weft_doctor_add(d, WEFT_DOCTOR_LOOK, "memory", "sudo swapoff -a && sudo swapon -a",
                        "%s of %s swap are in use: steps that reach them take minutes", used, swap);
    else weft_doctor_add(d, WEFT_DOCTOR_OK, "memory", NULL, "%s swap, %s in use", swap, used);
}

static void tell_group(weft_doctor *d, const weft_machine_memory *m)
{
    char limit[32], room[32];
    if (m->group_limit == SIZE_MAX || (m->total != SIZE_MAX && m->group_limit >= m->total)) return;
    bytes_text(m->group_limit, limit, sizeof limit), bytes_text(m->group_room, room, sizeof room);
    if ((double)m->group_room < GIB)
        weft_doctor_add(d, WEFT_DOCTOR_LOOK, "memory", "docker update --memory 16g --memory-swap 16g CONTAINER",
                        "the control group may have %s, of which %s are left", limit, room);
    else
        weft_doctor_add(d, WEFT_DOCTOR_NOTE, "memory", NULL, "the control group may have %s, of which %s are left",
                        limit, room);
}

/* With mode 2 addresses count as memory, and ranks map many more than they use. */
static void tell_overcommit(weft_doctor *d)
{
    char mode[16], score[16];
    if (weft_machine_line("/proc/sys/vm/overcommit_memory", mode, sizeof mode) && !strcmp(mode, "2"))
        weft_doctor_add(d, WEFT_DOCTOR_LOOK, "memory", "sudo sysctl vm.overcommit_memory=0",
                        "vm.overcommit_memory is 2: ranks may not get the addresses through which they read each "
                        "other's memory, and copy instead");
    if (weft_machine_line("/proc/self/oom_score_adj", score, sizeof score) && atoi(score) > 0)
        weft_doctor_add(d, WEFT_DOCTOR_NOTE, "memory", "echo 0 | sudo tee /proc/$$/oom_score_adj",
                        "when memory runs out the system ends this process before others (oom_score_adj %s)", score);
}

void weft_doctor_memory(weft_doctor *d)
{
    weft_machine_memory m;
    weft_machine_memory_read(&m, "");
    tell_machine(d, &m);
    tell_group(d, &m);
    tell_overcommit(d);
}

/* ---- limits of this process ------------------------------------------------------------------------------ */

typedef struct limit {
    int resource;
    const char *what, *mend;
    double look, bad;       /* below these; 0: never */
    bool bytes;
    const char *why;
} limit;

static const limit limits[] = {
    {RLIMIT_AS, "addresses (ulimit -v)", "ulimit -v unlimited", 1e300, 0.75 * (1 << 30), true,
     "ranks read less of each other's memory in place, or find no room for threads and buffers"},
    {RLIMIT_DATA, "data (ulimit -d)", "ulimit -d unlimited", 1e300, 0.75 * (1 << 30), true,
     "weights and buffers may not fit"},
    {RLIMIT_FSIZE, "a file (ulimit -f)", "ulimit -f unlimited", 1e300, 64 << 20, true,
     "checkpoints and the memory that ranks share are files, too"},
    {RLIMIT_CPU, "processor time in seconds (ulimit -t)", "ulimit -t unlimited", 1e300, 60, false,
     "the system ends a run that passes it"},
    {RLIMIT_NOFILE, "open files (ulimit -n)", "ulimit -n 1024", 256, 24, false,
     "a checkpoint of many files may not open"},
};

static double soft_limit(int resource)
{
    struct rlimit r;
    if (getrlimit((__rlimit_resource_t)resource, &r) != 0 || r.rlim_cur == RLIM_INFINITY) return 1e301;
    return (double)r.rlim_cur;
}

/* Root's processes are not counted. Of others every thread counts, those of other programs of the user, too. */
static bool tell_processes(weft_doctor *d)
{
    enum { OTHERS = 64 };
    const double most = soft_limit(RLIMIT_NPROC), need = (double)d->ranks * (d->share.threads + 2) + OTHERS;
    if (geteuid() == 0 || most >= need) return true;
    weft_doctor_add(d, WEFT_DOCTOR_LOOK, "limits", "ulimit -u unlimited",
                    "%.0f processes and threads of this user (ulimit -u); %d rank%s with theirs are some %.0f", most,
                    d->ranks, d->ranks == 1 ? "" : "s", need);
    return false;
}

/* Of the processes that the ranks start, and of adapters that write to memory directly. */
static bool tell_locked(weft_doctor *d)
{
    char text[32];
    const double most = soft_limit(RLIMIT_MEMLOCK);
    if (most >= 1 << 30 || access("/dev/infiniband", F_OK) != 0) return true;
    weft_doctor_add(d, WEFT_DOCTOR_LOOK, "limits", "ulimit -l unlimited",
                    "%s of locked memory (ulimit -l): InfiniBand adapters need more",
                    weft_format_bytes(most, text, sizeof text));
    return false;
}

/* A run with large memory that crashes would write all of it to a file. */
static bool tell_core(weft_doctor *d)
{
    char pattern[256];
    if (soft_limit(RLIMIT_CORE) == 0 || !weft_machine_line("/proc/sys/kernel/core_pattern", pattern, sizeof pattern) ||
        !*pattern || *pattern == '|')
        return true;
    weft_doctor_add(d, WEFT_DOCTOR_NOTE, "limits", "ulimit -c 0",
                    "a rank that crashes writes its memory to a file (core_pattern %s)", pattern);
    return false;
}

void weft_doctor_limits(weft_doctor *d)
{
    bool fine = true;
    for (size_t i = 0; i < sizeof limits / sizeof *limits; i++) {
        const limit *l = &limits[i];
        const double value = soft_limit(l->resource);
        char text[32];
        if (value >= l->look) continue;
        fine = false;
        if (l->bytes) weft_format_bytes(value, text, sizeof text);
        else snprintf(text, sizeof text, "%.0f", value);
        weft_doctor_add(d, value < l->bad ? WEFT_DOCTOR_BAD : WEFT_DOCTOR_LOOK, "limits", l->mend,
                        "at most %s of %s: %s", text, l->what, l->why);
    }
    fine &= tell_processes(d);
    fine &= tell_locked(d);
    fine &= tell_core(d);
    if (fine) weft_doctor_add(d, WEFT_DOCTOR_OK, "limits", NULL, "none of this process is in the way");
}

/* ---- shared memory -------------------------------------------------------------------------------------- */

void weft_doctor_shared(weft_doctor *d)
{
    enum { OF_A_RANK = 4 << 20 }; /* btl_vader_segment_size of Open MPI 4 */
    static const char folder[] = "/dev/shm";
    char size[32], room[32], needed[32], mend[96];
    struct statvfs s;
    if (statvfs(folder, &s) != 0) {
        weft_doctor_add(d, WEFT_DOCTOR_NOTE, folder, "sudo mkdir -p /dev/shm && sudo mount -t tmpfs tmpfs /dev/shm",
                        "is not there: Weft's own ranks do without (memfd), MPI's shared memory does not");
        return;
    }
    const double block = (double)s.f_frsize, need = (double)OF_A_RANK * d->ranks;
    const double have = block * (double)s.f_bavail;
    weft_format_bytes(block * (double)s.f_blocks, size, sizeof size);
    weft_format_bytes(have, room, sizeof room);
    weft_format_bytes(need, needed, sizeof needed);
    if (have >= need) {
        weft_doctor_add(d, WEFT_DOCTOR_OK, folder, NULL,
                        "%s, %s free; Weft's own ranks use none (memfd), %d of Open MPI some %s", size, room,
                        d->ranks, needed);
        return;
    }
    snprintf(mend, sizeof mend, "sudo mount -o remount,size=1G /dev/shm (docker run --shm-size=1g)");
    weft_doctor_add(d, WEFT_DOCTOR_LOOK, folder, mend,
                    "%s, %s free: %d rank%s of Open MPI need%s some %s; Weft's own use none (memfd)", size, room,
                    d->ranks, d->ranks == 1 ? "" : "s", d->ranks == 1 ? "s" : "", needed);
}

/* ---- pages ---------------------------------------------------------------------------------------------- */

void weft_doctor_pages(weft_doctor *d)
{
    char line[128], *end, *chosen;
    unsigned long long reserved = 0, kib = 0;
    if (!weft_machine_line("/sys/kernel/mm/transparent_hugepage/enabled", line, sizeof line))
        weft_doctor_add(d, WEFT_DOCTOR_OK, "pages", NULL, "the system has no transparent huge pages, or does not say");
    else if ((chosen = strchr(line, '[')) && (end = strchr(chosen, ']'))) {
        *end = 0;
        const bool never = !strcmp(chosen + 1, "never");
        weft_doctor_add(d, never ? WEFT_DOCTOR_NOTE : WEFT_DOCTOR_OK, "pages",
                        never ? "echo madvise | sudo tee /sys/kernel/mm/transparent_hugepage/enabled" : NULL,
                        "transparent huge pages: %s", chosen + 1);
    }
    if (!weft_machine_value("/proc/meminfo", "HugePages_Free", &reserved) || reserved == 0 ||
        !weft_machine_value("/proc/meminfo", "Hugepagesize", &kib))
        return;
    char text[32];
    weft_doctor_add(d, WEFT_DOCTOR_LOOK, "pages", "sudo sysctl vm.nr_hugepages=0",
                    "%s are set aside for hugetlbfs, which Weft does not use",
                    weft_format_bytes((double)reserved * (double)kib * 1024, text, sizeof text));
}
