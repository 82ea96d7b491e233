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

/* The names of the two versions of control groups. */
typedef struct group_files {
    const char *controller; /* its line in /proc/self/cgroup is "N:CONTROLLER:GROUP" */
    const char *folder, *limit, *used, *files[2];
} group_files;

static const group_files versions[] = {
    {"", "/sys/fs/cgroup", "memory.max", "memory.current", {"inactive_file ", "active_file "}},
    {"memory", "/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes",
     {"total_inactive_file ", "total_active_file "}},
};

/* What a control group may still take; cached files can be dropped, so they do not count as used. */
static uint64_t group_room(const char *root, const group_files *v, const char *group)
{
    char path[3 * PATH_BYTES];
    snprintf(path, sizeof path, "%s%s%s/%s", root, v->folder, group, v->limit);
    uint64_t limit = number_in(path);
    if (limit == SIZE_MAX) return SIZE_MAX;
    snprintf(path, sizeof path, "%s%s%s/%s", root, v->folder, group, v->used);
    uint64_t used = number_in(path);
    snprintf(path, sizeof path, "%s%s%s/memory.stat", root, v->folder, group);
    uint64_t files = value_in(path, v->files[0]) + value_in(path, v->files[1]);
    used = used > files ? used - files : 0;
    return limit > used ? limit - used : 0;
}

/* Whether a line of /proc/self/cgroup is that of the controller; *group: what it names. */
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

/* This process's control group of one version, and all above it. In a container the group may be seen as the root. */
static uint64_t groups_room(const char *root, const group_files *v)
{
    char path[2 * PATH_BYTES], line[PATH_BYTES], *group = NULL;
    snprintf(path, sizeof path, "%s/proc/self/cgroup", root);
    FILE *f = fopen(path, "re");
    if (!f) return SIZE_MAX;
    bool found = false;
    while (!found && fgets(line, sizeof line, f)) found = names_group(line, v->controller, &group);
    fclose(f);
    if (!found) return SIZE_MAX;
    if (strcmp(group, "/") == 0) *group = 0;
    uint64_t least = SIZE_MAX;
    for (;;) {
        uint64_t room = group_room(root, v, group);
        if (room < least) least = room;
        char *up = strrchr(group, '/');
        if (!up) return least;
        *up = 0;
    }
}

size_t weft_machine_room(void) { return weft_local_room(""); }

size_t weft_local_room(const char *root)
{
    char path[2 * PATH_BYTES];
    snprintf(path, sizeof path, "%s/proc/meminfo", root);
    uint64_t room = value_in(path, "MemAvailable:") * 1024;
    if (room == 0) room = SIZE_MAX; /* a machine that does not say */
    for (size_t i = 0; i < sizeof versions / sizeof *versions; i++) {
        uint64_t groups = groups_room(root, &versions[i]);
        if (groups < room) room = groups;
    }
    return (size_t)(room - room / 16); /* other programs live here too */
}
