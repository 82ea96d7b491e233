/* options_trace.c — of which ranks, and of which steps, a time line is asked. */
#include "train/options_impl.h"

enum { RANGES = 64 };

static bool is_in(const weft_numbers *r, int n, int64_t x)
{
    for (int i = 0; i < n; i++)
        if (x >= r[i].first && x <= r[i].last) return true;
    return false;
}

weft_status weft_run_traced_ranks(const weft_opts *opts, const weft_run_options *o, int ranks, weft_arena *arena,
                                  int **list, int *n)
{
    const char *text = o->trace_ranks;
    const bool given = weft_opts_given(opts, "trace.ranks");
    weft_numbers r[RANGES];
    int m, *out, found = 0;
    weft_status st = weft_parse_numbers(text, r, RANGES, &m);
    if (st < 0) return weft_fail_at(st, "--trace-ranks %s: ", text);
    for (int i = 0; i < m; i++)
        if (given && (r[i].first < 0 || r[i].last >= ranks))
            return weft_fail(WEFT_ERR_REFUSED, "--trace-ranks %s: there are ranks 0 to %d", text, ranks - 1);
    WEFT_TRY(WEFT_NEW(arena, ranks, "traced ranks", &out));
    for (int i = 0; i < ranks; i++)
        if (is_in(r, m, i)) out[found++] = i;
    *list = out;
    *n = found;
    return WEFT_OK;
}
