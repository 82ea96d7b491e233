/* machine.c — reads /proc and the files of control groups, whose two versions differ in names and places. */
#include "base/base.h"

#include <stdio.h>
#include <string.h>

enum { PATH_BYTES = 512 };

bool weft_machine_line(const char *path, char *text, size_t n)
{
    FILE *f = fopen(path, "re");
    text[0] = 0;
    if (!f) return false;
    bool read = fgets(text, (int)n, f) != NULL;
    fclose(f);
    text[strcspn(text, "\n")] = 0;
    return read;
}

bool weft_machine_value(const char *path, const char *name, unsigned long long *out)
{
    char line[256];
    size_t n = strlen(name);
    bool found = false;
    FILE *f = fopen(path, "re");
    if (!f) return false;
    while (!found && fgets(line, sizeof line, f))
        found = strncmp(line, name, n) == 0 && sscanf(line + n + (line[n] == ':'), " %llu", out) == 1;
    fclose(f);
    return found;
}

/* The number that is the whole file; SIZE_MAX for "max" and for no file. */
static size_t number_in(const char *path)
{
    unsigned long long value;
    char line[64];
    return weft_machine_line(path, line, sizeof line) && sscanf(line, "%llu", &value) == 1 ? (size_t)value : SIZE_MAX;
}

/* ---- control groups ------------------------------------------------------------------------------------- */

/* Whether a line of /proc/self/cgroup, "N:CONTROLLER,...:GROUP", is that of the controller (of version 2: ""); *group:
 * what it names. */
static bool names_group(char *line, const char *controller, char **group)
{
    line[strcspn(line, "\n")] = 0;
    char *list = strchr(line, ':'), *path = list ? strchr(list + 1, ':') : NULL;
    if (!path) return false;
    *list++ = *path++ = 0;
    *group = path;
    if (!*controller) return !*list;
    for (char *rest = NULL, *word = strtok_r(list, ",", &rest); word; word = strtok_r(NULL, ",", &rest))
        if (strcmp(word, controller) == 0) return true;
    return false;
}

typedef void (*group_fn)(void *ud, const char *folder);

/* Tells the folders of this process's control group and of all above it. In a container the group may be seen as the
 * root. */
static void each_group(const char *root, const char *controller, const char *below, group_fn call, void *ud)
{
    char path[3 * PATH_BYTES], line[PATH_BYTES], *group = NULL;
    snprintf(path, sizeof path, "%s/proc/self/cgroup", root);
    FILE *f = fopen(path, "re");
    if (!f) return;
    bool found = false;
    while (!found && fgets(line, sizeof line, f)) found = names_group(line, controller, &group);
    fclose(f);
    if (!found) return;
    if (strcmp(group, "/") == 0) *group = 0;
    for (;;) {
        snprintf(path, sizeof path, "%s%s%s", root, below, group);
        call(ud, path);
        char *up = strrchr(group, '/');
        if (!up) return;
        *up = 0;
    }
}

/* ---- memory --------------------------------------------------------------------------------------------- */

typedef struct group_files { const char *controller, *folder, *limit, *used, *files[2]; } group_files;
static const group_files versions[] = {
    {"", "/sys/fs/cgroup", "memory.max", "memory.current", {"inactive_file", "active_file"}},
    {"memory", "/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes",
     {"total_inactive_file", "total_active_file"}},
};

typedef struct memory_walk { const group_files *v; weft_machine_memory *out; } memory_walk;

/* Cached files can be dropped, so they do not count as used. */
static void look_at_memory(void *ud, const char *folder)
{
    const memory_walk *w = ud;
    char path[4 * PATH_BYTES];
    snprintf(path, sizeof path, "%s/%s", folder, w->v->limit);
    size_t limit = number_in(path);
    if (limit == SIZE_MAX) return;
    snprintf(path, sizeof path, "%s/%s", folder, w->v->used);
    size_t used = number_in(path), files = 0;
    snprintf(path, sizeof path, "%s/memory.stat", folder);
    for (int i = 0; i < 2; i++) {
        unsigned long long bytes = 0;
        if (weft_machine_value(path, w->v->files[i], &bytes)) files += (size_t)bytes;
    }
    used = used > files ? used - files : 0;
    size_t room = limit > used ? limit - used : 0;
    if (room >= w->out->group_room) return;
    w->out->group_room = room;
    w->out->group_limit = limit;
}

/* In one look: what stands there changes. */
static void read_meminfo(weft_machine_memory *out, const char *path)
{
    const struct { const char *form; size_t *to; } rows[] = {{"MemTotal: %llu", &out->total},
                                                             {"MemAvailable: %llu", &out->available},
                                                             {"SwapTotal: %llu", &out->swap_total},
                                                             {"SwapFree: %llu", &out->swap_free}};
    char line[256];
    unsigned long long kib;
    FILE *f = fopen(path, "re");
    while (f && fgets(line, sizeof line, f))
        for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
            if (sscanf(line, rows[i].form, &kib) == 1) *rows[i].to = (size_t)kib * 1024;
    if (f) fclose(f);
}

void weft_machine_memory_read(weft_machine_memory *out, const char *root)
{
    char path[2 * PATH_BYTES];
    const size_t none = SIZE_MAX;
    *out = (weft_machine_memory){none, none, none, none, none, none};
    snprintf(path, sizeof path, "%s/proc/meminfo", root);
    read_meminfo(out, path);
    for (size_t i = 0; i < sizeof versions / sizeof *versions; i++)
        each_group(root, versions[i].controller, versions[i].folder, look_at_memory,
                   &(memory_walk){&versions[i], out});
}

/* ---- processor time --------------------------------------------------------------------------------------- */

/* -1, and "max", are no limit. */
static void keep_least(double *least, long long quota, long long period)
{
    if (quota <= 0 || period <= 0) return;
    const double share = (double)quota / (double)period;
    if (*least == 0 || share < *least) *least = share;
}

static void look_at_cpu_max(void *least, const char *folder)
{
    char path[4 * PATH_BYTES], line[96];
    long long quota, period;
    snprintf(path, sizeof path, "%s/cpu.max", folder);
    if (weft_machine_line(path, line, sizeof line) && sscanf(line, "%lld %lld", &quota, &period) == 2)
        keep_least(least, quota, period);
}

static void look_at_cfs(void *least, const char *folder)
{
    char path[4 * PATH_BYTES], quota[64], period[64];
    long long q, p;
    snprintf(path, sizeof path, "%s/cpu.cfs_quota_us", folder);
    if (!weft_machine_line(path, quota, sizeof quota)) return;
    snprintf(path, sizeof path, "%s/cpu.cfs_period_us", folder);
    if (!weft_machine_line(path, period, sizeof period)) return;
    if (sscanf(quota, "%lld", &q) == 1 && sscanf(period, "%lld", &p) == 1) keep_least(least, q, p);
}

double weft_machine_quota(const char *root)
{
    double least = 0;
    each_group(root, "", "/sys/fs/cgroup", look_at_cpu_max, &least);
    each_group(root, "cpu", "/sys/fs/cgroup/cpu", look_at_cfs, &least);
    return least;
}
