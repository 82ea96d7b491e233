/* local_room.c — how much memory can still be taken before the kernel begins to kill processes. */
#include "comm/local_heap.h"

#include <stdio.h>
#include <string.h>

enum { PATH_BYTES = 512 };

/* A line "name value" or "name: value kB" of a file of such lines; 0 when there is none. */
static uint64_t value_in(const char *path, const char *name)
{
    char line[256];
    unsigned long long value = 0;
    size_t n = strlen(name);
    FILE *f = fopen(path, "re");
    if (!f) return 0;
    while (fgets(line, sizeof line, f))
        if (strncmp(line, name, n) == 0 && sscanf(line + n, " %llu", &value) == 1) break;
    fclose(f);
    return value;
}

/* The number that is the whole file; SIZE_MAX for "max" and for no file. */
static uint64_t number_in(const char *path)
{
    unsigned long long value;
    FILE *f = fopen(path, "re");
    if (!f) return SIZE_MAX;
    bool ok = fscanf(f, "%llu", &value) == 1;
    fclose(f);
    return ok ? value : SIZE_MAX;
}

/* What a control group may still take; cached files can be dropped, so they do not count as used. */
static uint64_t group_room(const char *group)
{
    char path[PATH_BYTES + 64];
    snprintf(path, sizeof path, "/sys/fs/cgroup%s/memory.max", group);
    uint64_t limit = number_in(path);
    if (limit == SIZE_MAX) return SIZE_MAX;
    snprintf(path, sizeof path, "/sys/fs/cgroup%s/memory.current", group);
    uint64_t used = number_in(path);
    snprintf(path, sizeof path, "/sys/fs/cgroup%s/memory.stat", group);
    uint64_t files = value_in(path, "inactive_file ") + value_in(path, "active_file ");
    used = used > files ? used - files : 0;
    return limit > used ? limit - used : 0;
}

/* This process's control group (version 2) and all above it. */
static uint64_t groups_room(void)
{
    char group[PATH_BYTES] = "", line[PATH_BYTES];
    FILE *f = fopen("/proc/self/cgroup", "re");
    if (!f) return SIZE_MAX;
    while (fgets(line, sizeof line, f))
        if (strncmp(line, "0::", 3) == 0) snprintf(group, sizeof group, "%s", line + 3);
    fclose(f);
    group[strcspn(group, "\n")] = 0;
    if (strcmp(group, "/") == 0) group[0] = 0;
    uint64_t least = SIZE_MAX;
    for (;;) {
        uint64_t room = group_room(group);
        if (room < least) least = room;
        char *up = strrchr(group, '/');
        if (!up) return least;
        *up = 0;
    }
}

size_t weft_local_room(void)
{
    uint64_t room = value_in("/proc/meminfo", "MemAvailable:") * 1024, groups = groups_room();
    if (room == 0) room = SIZE_MAX; /* a machine that does not say */
    if (groups < room) room = groups;
    return (size_t)(room - room / 16); /* the ranks look at the same time, and other programs live here too */
}
