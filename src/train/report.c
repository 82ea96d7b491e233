/* report.c — findings of a verification. */
#include "train/train.h"

#include <string.h>

weft_status weft_report_add(weft_report *r, const char *name, double error, double limit)
{
    if (r->n == r->capacity) {
        int capacity = r->capacity ? 2 * r->capacity : 64;
        weft_finding *rows = NULL;
        WEFT_TRY(WEFT_NEW(r->arena, capacity, "findings", &rows));
        if (r->n) memcpy(rows, r->row, (size_t)r->n * sizeof *rows);
        r->row = rows;
        r->capacity = capacity;
    }
    const char *kept = NULL;
    WEFT_TRY(weft_arena_strdup(r->arena, name, &kept));
    r->row[r->n++] = (weft_finding){kept, weft_unsigned_nan(error), limit};
    r->failed += !(error <= limit); /* NaN fails */
    return WEFT_OK;
}

void weft_report_stage(const weft_report *r, const char *text)
{
    if (r->stage) r->stage(text);
}

weft_status weft_report_share(weft_comm *comm, weft_report *r)
{
    int64_t failed = r->failed;
    WEFT_TRY(weft_broadcast(comm, &failed, sizeof failed, 0));
    r->failed = (int)failed;
    return WEFT_OK;
}
