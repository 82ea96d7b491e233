/* cp_preview.c — a plan for P ranks made by one process without memory: the code that plans a run says how the plan
 * prints itself and what it allocates, so that neither can drift from the run. */
#include "cp/cp_impl.h"

static weft_status build(weft_arena *arena, weft_arena *buffers, const weft_kern *kern, const weft_cp_plan *draft,
                         weft_text *text, weft_cp_sizes *sizes)
{
    weft_cp_plan *plan;
    WEFT_TRY(weft__cp_build(&plan, arena, buffers, kern, draft));
    weft_cp_describe(plan, text);
    *sizes = (weft_cp_sizes){.pool = weft_cp_pool_bytes(plan), .kv_buffers = weft_cp_kv_buffer_bytes(plan),
                             .kept = weft_cp_kept_bytes(plan),
                             .held = weft_arena_used(arena) + weft_arena_used(buffers),
                             .head_ranks = plan->strategy->context ? plan->options.head_size : 1};
    return WEFT_OK;
}

weft_status weft_cp_preview(const weft_kern *kern, weft_comm *any, const weft_cp_problem *problem,
                            const weft_cp_options *options, int P, weft_text *text, weft_cp_sizes *sizes)
{
    weft_nowhere space;
    const weft_mem_provider provider = weft_mem_nowhere(&space); /* buffers are not touched while a plan is made */
    weft_profile plain = weft_profile_default();
    weft_mem account = {0};
    weft_arena *arena, *buffers;
    weft_status st;
    weft_cp_plan draft = {.problem = *problem, .options = *options, .group = 1,
                          .team = {.comm = any, .first = 0, .step = 1, .size = P, .rank = 0}};
    weft__cp_ask ask = {&draft.problem, &draft.options, options->profile ? options->profile : &plain, P, 1};
    WEFT_TRY(weft__cp_check(problem, options, &draft.desc));
    WEFT_TRY(weft__cp_choose(&ask, &draft.strategy));
    WEFT_TRY(weft_arena_create(&arena, &account, "preview", NULL));
    WEFT_TRY_OR(st, weft_arena_create(&buffers, &account, "preview buffers", &provider), free_arena);
    st = build(arena, buffers, kern, &draft, text, sizes);
    weft_arena_destroy(buffers);
free_arena:
    weft_arena_destroy(arena);
    return st;
}
