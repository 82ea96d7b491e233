/* print_memory.c — the memory of a run's ranks: what is planned, in a line; what was held, as a table. */
#include "cli/cli.h"

static const char *size_of(int64_t bytes, char buf[32]) { return weft_format_bytes((double)bytes, buf, 32); }

void weft_add_memory_plan(const weft_memory_report *r, weft_text *t)
{
    char buf[32];
    weft_text_add(t, "memory       %s planned", size_of(weft_memory_total(&r->needed), buf));
    if (r->ranks > 1) weft_text_add(t, " for rank %d, which needs most", r->needs);
    const char *before = ": ";
    for (int k = 0; k < WEFT_MEMORY_KINDS; k++) {
        if (r->needed.bytes[k] == 0) continue;
        weft_text_add(t, "%s%s %s", before, weft_memory_name((weft_memory_kind)k), size_of(r->needed.bytes[k], buf));
        before = ", ";
    }
    if (r->needed.file) weft_text_add(t, "; %s in a file", size_of(r->needed.file, buf));
    weft_text_add(t, "\n");
}

typedef struct line { const char *name; int64_t held, planned, least, most; } line;

static void add_line(weft_text *t, bool spread, const line *x)
{
    char a[32], b[32];
    weft_text_add(t, "%-13s%13s%13s", x->name, size_of(x->held, a), x->planned ? size_of(x->planned, b) : "-");
    if (spread) weft_text_add(t, "%13s%13s", size_of(x->least, a), size_of(x->most, b));
    weft_text_add(t, "\n");
}

/* On a narrow terminal without the spread over ranks. */
void weft_print_memory(const weft_memory_report *r)
{
    enum { WIDE = 65 };
    const bool spread = r->ranks > 1 && (!weft_on_terminal(stdout) || weft_columns(stdout) >= WIDE);
    line sum = {"sum", weft_memory_total(&r->counted), weft_memory_total(&r->planned), 0, 0};
    weft_text t = {0};
    if (r->ranks > 1) weft_text_add(&t, "\nmemory of rank %d, which held most\n", r->rank);
    else weft_text_add(&t, "\nmemory\n");
    weft_text_add(&t, "%-13s%13s%13s", "", "held", "planned");
    if (spread) weft_text_add(&t, "%13s%13s", "least", "most");
    weft_text_add(&t, "\n");
    for (int k = 0; k < WEFT_MEMORY_KINDS; k++) {
        if (r->most.bytes[k] == 0) continue;
        add_line(&t, spread, &(line){weft_memory_name((weft_memory_kind)k), r->counted.bytes[k], r->planned.bytes[k],
                                     r->least.bytes[k], r->most.bytes[k]});
        sum.least += r->least.bytes[k];
        sum.most += r->most.bytes[k];
    }
    add_line(&t, spread, &sum);
    if (r->most.file)
        add_line(&t, spread, &(line){"in a file", r->counted.file, r->planned.file, r->least.file, r->most.file});
    add_line(&t, spread, &(line){"resident", r->resident, 0, r->least_resident, r->resident});
    weft_print_lines(t.data ? t.data : "", 0);
    weft_text_free(&t);
}
