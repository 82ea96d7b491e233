/* print_memory.c — the memory of a run's ranks: what is planned, in a line; what was held, as a table. */
#include "cli/cli.h"

#include <inttypes.h>

static const char *size_of(int64_t bytes, char buf[32]) { return weft_format_bytes((double)bytes, buf, 32); }

void weft_add_memory_plan(const weft_memory_report *r, weft_text *t)
{
    char buf[32];
    weft_text_add(t, "memory       %s planned", size_of(weft_memory_total(&r->planned), buf));
    if (r->ranks > 1) weft_text_add(t, " for rank %d, which needs most", r->rank);
    const char *before = ": ";
    for (int k = 0; k < WEFT_MEMORY_KINDS; k++) {
        if (r->planned.bytes[k] == 0) continue;
        weft_text_add(t, "%s%s %s", before, weft_memory_name((weft_memory_kind)k), size_of(r->planned.bytes[k], buf));
        before = ", ";
    }
    weft_text_add(t, "\n");
}

static void row(const char *name, int64_t counted, int64_t planned, int64_t least, int64_t most)
{
    char a[32], b[32], c[32], d[32];
    printf("%-20s %12s %12s %12s %12s\n", name, size_of(counted, a), planned ? size_of(planned, b) : "-",
           size_of(least, c), size_of(most, d));
}

void weft_print_memory(const weft_memory_report *r)
{
    int64_t least = 0, most = 0;
    printf("\nmemory of rank %-5d %12s %12s %12s %12s\n", r->rank, "held", "planned", "least", "most");
    for (int k = 0; k < WEFT_MEMORY_KINDS; k++) {
        if (r->most.bytes[k] == 0) continue;
        row(weft_memory_name((weft_memory_kind)k), r->counted.bytes[k], r->planned.bytes[k], r->least.bytes[k],
            r->most.bytes[k]);
        least += r->least.bytes[k];
        most += r->most.bytes[k];
    }
    row("sum", weft_memory_total(&r->counted), weft_memory_total(&r->planned), least, most);
    row("resident", r->resident, 0, r->least_resident, r->resident);
}
