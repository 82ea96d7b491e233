/* cp_preview.c — a plan for any rank of P made by one process without memory: the code that plans a run says how the
 * plan prints itself, what it allocates and what it does, so that none of these can drift from the run. */
#include "cp/cp_impl.h"

typedef struct preview {
    weft_nowhere space;
    weft_mem_provider provider; /* buffers are not touched while a plan is made and bound */
    weft_mem account;
    weft_arena *arena, *buffers;
    weft_cp_plan *plan;
} preview;

static void close_preview(preview *x)
{
    weft_arena_destroy(x->buffers);
    weft_arena_destroy(x->arena);
}

static weft_status make(preview *x, const weft_kern *kern, const weft_cp_plan *draft)
{
    x->provider = weft_mem_nowhere(&x->space);
    WEFT_TRY(weft_arena_create(&x->arena, &x->account, "preview", NULL));
    WEFT_TRY(weft_arena_create(&x->buffers, &x->account, "preview buffers", &x->provider));
    return weft__cp_build(&x->plan, x->arena, x->buffers, kern, draft);
}

/* To be closed when it could be opened; *x must not move meanwhile. */
static weft_status open_preview(preview *x, const weft_kern *kern, weft_comm *any, const weft_cp_problem *problem,
                                const weft_cp_options *options, int P, int rank)
{
    weft_profile plain = weft_profile_default();
    weft_cp_plan draft = {.problem = *problem, .options = *options, .group = 1,
                          .team = {.comm = any, .first = 0, .step = 1, .size = P, .rank = rank}};
    weft__cp_ask ask = {&draft.problem, &draft.options, options->profile ? options->profile : &plain, P, 1};
    *x = (preview){0};
    WEFT_TRY(weft__cp_check(problem, options, &draft.desc));
    WEFT_TRY(weft__cp_choose(&ask, &draft.strategy));
    weft_status st = make(x, kern, &draft);
    if (st < 0) close_preview(x);
    return st;
}

static weft_cp_sizes sizes_of(const preview *x)
{
    const weft_cp_plan *plan = x->plan;
    return (weft_cp_sizes){.pool = weft_cp_pool_bytes(plan), .kv_buffers = weft_cp_kv_buffer_bytes(plan),
                           .kept = weft_cp_kept_bytes(plan),
                           .held = weft_arena_used(x->arena) + weft_arena_used(x->buffers),
                           .head_ranks = plan->strategy->context ? plan->options.head_size : 1,
                           .strategy = plan->strategy->name};
}

weft_status weft_cp_preview(const weft_kern *kern, weft_comm *any, const weft_cp_problem *problem,
                            const weft_cp_options *options, int P, weft_text *text, weft_cp_sizes *sizes)
{
    preview x;
    WEFT_TRY(open_preview(&x, kern, any, problem, options, P, 0));
    weft_cp_describe(x.plan, text);
    *sizes = sizes_of(&x);
    close_preview(&x);
    return WEFT_OK;
}

static weft_status size_rank(const weft_kern *kern, weft_comm *any, const weft_cp_problem *problem,
                             const weft_cp_options *options, int P, int rank, weft_cp_sizes *sizes)
{
    preview x;
    WEFT_TRY(open_preview(&x, kern, any, problem, options, P, rank));
    *sizes = sizes_of(&x);
    close_preview(&x);
    return WEFT_OK;
}

/* The first ranks are the members of the first head group, and all groups are alike. More heads of both kinds never
 * take less, so members with no more of either are passed over. */
weft_status weft_cp_preview_sizes(const weft_kern *kern, weft_comm *any, const weft_cp_problem *problem,
                                  const weft_cp_options *options, int P, int rank, weft_cp_sizes *sizes)
{
    weft_cp_sizes x;
    if (rank != WEFT_CP_FULLEST) return size_rank(kern, any, problem, options, P, rank, sizes);
    WEFT_TRY(size_rank(kern, any, problem, options, P, 0, sizes));
    weft__cp_heads most = weft__cp_heads_of(problem, sizes->head_ranks, 0);
    for (int u = 1, U = sizes->head_ranks; u < U; u++) {
        const weft__cp_heads h = weft__cp_heads_of(problem, U, u);
        if (h.heads <= most.heads && h.kv_heads <= most.kv_heads) continue;
        WEFT_TRY(size_rank(kern, any, problem, options, P, u, &x));
        if (x.held > sizes->held) *sizes = x, most = h;
    }
    return WEFT_OK;
}

weft_status weft_cp_preview_steps(const weft_kern *kern, weft_comm *any, const weft_cp_problem *problem,
                                  const weft_cp_options *options, const weft_cp_seat *seat, bool backward,
                                  const weft_cp_view *view)
{
    preview x;
    if (seat->rank < 0 || seat->rank >= seat->P)
        return weft_fail(WEFT_ERR_REFUSED, "attention: rank %d; there are ranks 0 to %d", seat->rank, seat->P - 1);
    WEFT_TRY(open_preview(&x, kern, any, problem, options, seat->P, seat->rank));
    weft_status st = weft_cp_bind(x.plan, 0, seat->q, seat->kv);
    if (st == WEFT_OK) st = weft_cp_steps(x.plan, 0, backward, view);
    close_preview(&x);
    return st;
}
