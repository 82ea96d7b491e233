/* machine.h — what the system says of memory and processor time, and what limits on this process's control groups leave
 * of them. `root` stands before every path: "" but in tests. LOCAL */
#ifndef WEFT_BASE_MACHINE_H
#define WEFT_BASE_MACHINE_H

#include <stdbool.h>
#include <stddef.h>

typedef struct weft_machine_memory { /* bytes; SIZE_MAX where the system does not say, or sets no limit */
    size_t total, available, swap_total, swap_free;
    size_t group_limit, group_room; /* of the control group that leaves least; cached files do not count as used */
} weft_machine_memory;
void weft_machine_memory_read(weft_machine_memory *out, const char *root);
/* Processors whose time control groups give to this process; 0: no limit. */
double weft_machine_quota(const char *root);

/* The first line of a small file, without its end; false, and an empty text, where there is none. */
bool weft_machine_line(const char *path, char *text, size_t n);
/* The number behind `name` in a file of lines "name value" or "name: value"; false where there is none. */
bool weft_machine_value(const char *path, const char *name, unsigned long long *out);

#endif
