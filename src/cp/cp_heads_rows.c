/* cp_heads_rows.c — where the rows of each member of a head group lie in the memory of the group.
 *
 * Both are in token order: a member's rows, and the rows of the group, which are the union. A run of neighbouring
 * tokens of a member is therefore a run of neighbouring rows of the group, and one walk over the group's segments
 * beside the member's finds where each begins. Runs that touch become one range: a document's bound is none. */
#include "cp/cp_heads.h"

/* A range needs a row, and begins with a segment or with a run inside one. */
static int64_t most_ranges(const weft_cp_plan *plan, int64_t group_rows)
{
    const weft_cp_problem *p = &plan->problem;
    int64_t runs = weft__cp_segments(plan);
    if (p->layout.kind == WEFT_LAYOUT_STRIPED) runs += group_rows / weft_max_i64(1, p->layout.block);
    return weft_min_i64(group_rows, runs);
}

weft_status weft__heads_rows_alloc(const weft_cp_plan *plan, weft_arena *arena, int64_t group_rows,
                                   weft__heads_rows *out)
{
    const weft__heads *s = plan->state;
    out->capacity = most_ranges(plan, group_rows);
    WEFT_TRY(WEFT_NEW0(arena, s->U, "cp head rows", &out->rows));
    WEFT_TRY(WEFT_NEW0(arena, s->U + 1, "cp head rows", &out->first));
    return WEFT_NEW(arena, out->capacity, "cp head rows", &out->range);
}

typedef struct walk { /* over the segments of one group */
    const weft_segment *seg;
    int64_t n, at;
    int64_t row; /* of seg[at] in the group's memory */
} walk;

static bool lies_before(const weft_segment *g, int64_t batch_row, int64_t token)
{
    return g->row < batch_row || (g->row == batch_row && g->token + weft_segment_step(g, g->len - 1) < token);
}

/* The row of the group that holds a token which it does hold. Tokens come in ascending order. */
static int64_t row_of(walk *w, int64_t batch_row, int64_t token)
{
    while (w->at < w->n && lies_before(&w->seg[w->at], batch_row, token)) w->row += w->seg[w->at++].len;
    int64_t ahead = token - w->seg[w->at].token, stride = w->seg[w->at].stride;
    return w->row + ahead / stride * w->seg[w->at].run + ahead % stride;
}

/* Neighbouring tokens from the i-th of a segment on. */
static int64_t run_length(const weft_segment *g, int64_t i)
{
    return g->run == g->stride ? g->len - i : weft_min_i64(g->run - i % g->run, g->len - i);
}

static weft_status append(weft__heads_rows *out, int64_t first, int64_t *n, weft_range range)
{
    weft_range *last = *n > first ? &out->range[*n - 1] : NULL;
    if (last && last->begin + last->len == range.begin) {
        last->len += range.len;
        return WEFT_OK;
    }
    if (*n == out->capacity)
        return weft_fail(WEFT_ERR_REFUSED,
                         "bind: rows of a head group lie in more than %lld ranges; plan for more documents "
                         "per micro-batch",
                         (long long)out->capacity);
    out->range[(*n)++] = range;
    return WEFT_OK;
}

weft_status weft__heads_rows_bind(const weft_cp_plan *plan, const weft_shard *in, const weft_shard *groups,
                                  weft__heads_rows *out)
{
    const weft__heads *s = plan->state;
    int r = plan->rank / s->U;
    int64_t n = 0;
    for (int j = 0; j < s->U; j++) {
        int member = s->U * r + j;
        walk w = {groups->seg + groups->first[r], groups->first[r + 1] - groups->first[r], 0, 0};
        out->first[j] = n;
        out->rows[j] = in->rows[member];
        for (int64_t k = in->first[member]; k < in->first[member + 1]; k++) {
            const weft_segment *g = &in->seg[k];
            for (int64_t i = 0, len; i < g->len; i += len) {
                len = run_length(g, i);
                int64_t begin = row_of(&w, g->row, g->token + weft_segment_step(g, i));
                WEFT_TRY(append(out, out->first[j], &n, (weft_range){begin, len}));
            }
        }
    }
    out->first[s->U] = n;
    return WEFT_OK;
}
