/* cp_list.c — the table of strategies: the only place where they are listed. "auto" takes the cheapest that
 * is applicable; ties go to the earlier entry, so that the choice never depends on rounding noise. */
#include "cp/cp_impl.h"

#define STRATEGIES(X) X(none, "none") X(pcp, "pcp") X(ring, "ring") X(pairwise, "pairwise") X(dcp, "dcp") \
    X(ulysses, "ulysses") X(dcp_ring, "dcp-ring") X(dcp_pairwise, "dcp-pairwise")

const weft_cp_strategy *const weft__cp_strategies[] = {
#define X(id, name) &weft__cp_##id,
    STRATEGIES(X)
#undef X
};

static const char *const names[] = {
#define X(id, name) name,
    STRATEGIES(X)
#undef X
};

_Static_assert(sizeof names / sizeof *names <= WEFT__CP_MAX_STRATEGIES, "raise WEFT__CP_MAX_STRATEGIES");
const int weft__cp_strategy_count = (int)(sizeof names / sizeof *names);

const char *const *weft_cp_names(int *n)
{
    *n = weft__cp_strategy_count;
    return names;
}
