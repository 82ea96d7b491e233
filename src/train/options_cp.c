/* options_cp.c — from the options of context parallelism to weft_cp_options: one strategy and one size, whichever
 * of the four ways they were given in; what contradicts is refused. */
#include "train/options_impl.h"

#include <string.h>

/* The options that name a strategy, each with its own word for it. */
typedef struct naming {
    const char *flag;      /* as it was given */
    const char *strategy;  /* what it asks for; NULL: it was not given */
    int64_t size;          /* the size that comes with it; 0: none */
} naming;

static const char *strategy_of_comm_type(const char *type)
{
    static const struct { const char *type, *strategy; } alias[] = {
        {"p2p", "ring"}, {"all_gather", "pcp"}, {"allgather", "pcp"}, {"a2a", "ulysses"}, {"a2a+p2p", "dcp-ring"}};
    for (size_t i = 0; type && i < sizeof alias / sizeof *alias; i++)
        if (!strcmp(type, alias[i].type)) return alias[i].strategy;
    return NULL;
}

/* --pcp-size and --dcp-size set strategy and size in one: beside them nothing else may name either. */
static weft_status refuse_second(const naming *a, const naming *b)
{
    if (a->size && b->size)
        return weft_fail(WEFT_ERR_REFUSED, "%s and %s both set strategy and size; give one of them", a->flag, b->flag);
    if (!strcmp(a->strategy, b->strategy)) return WEFT_OK;
    return weft_fail(WEFT_ERR_REFUSED, "%s asks for strategy %s, %s for %s; give one of them", a->flag, a->strategy,
                     b->flag, b->strategy);
}

static weft_status settle_names(weft_run *run, const weft_opts *opts, const weft_run_options *o, int64_t *cp)
{
    const naming given[] = {
        {"--cp-strategy", weft_opts_given(opts, "parallel.cp_strategy") ? o->cp_strategy : NULL, 0},
        {"--cp-comm-type", strategy_of_comm_type(o->cp_comm_type), 0},
        {"--pcp-size", o->pcp_size ? "pcp" : NULL, o->pcp_size},
        {"--dcp-size", o->dcp_size ? "dcp" : NULL, o->dcp_size},
    };
    const naming *first = NULL;
    run->cp.strategy = o->cp_strategy ? o->cp_strategy : "none";
    for (size_t i = 0; i < sizeof given / sizeof *given; i++) {
        const naming *x = &given[i];
        if (!x->strategy) continue;
        if (first) WEFT_TRY(refuse_second(first, x));
        if (x->size && weft_opts_given(opts, "parallel.cp") && o->cp != x->size)
            return weft_fail(WEFT_ERR_REFUSED, "%s %lld and --context-parallel-size %lld disagree; give one of them", x->flag,
                             (long long)x->size, (long long)o->cp);
        if (x->size) *cp = x->size;
        run->cp.strategy = x->strategy;
        first = x;
    }
    return WEFT_OK;
}

static weft_cp_wire wire_of(const char *name)
{
    static const char *const names[] = {"same", "fp32", "bf16", "fp16", "fp8"};
    for (int i = 0; i < 5; i++)
        if (name && !strcmp(name, names[i])) return (weft_cp_wire)i;
    return WEFT_CP_WIRE_SAME;
}

weft_status weft_run_resolve_cp(weft_run *run, const weft_opts *opts, const weft_run_options *o, int64_t *cp)
{
    run->cp = (weft_cp_options){.overlap = o->async_cp_comm, .head_size = (int)o->cp_head_size, .keep_heads = o->cp_keep_heads,
                                .comm_dtype = wire_of(o->cp_comm_dtype), .grad_dtype = wire_of(o->cp_grad_dtype),
                                .fp8 = o->fp8, .buffer_bytes = (size_t)o->cp_buffer};
    WEFT_TRY(settle_names(run, opts, o, cp));
    if (!strcmp(run->cp.strategy, "none") && *cp > 1)
        return weft_fail(WEFT_ERR_REFUSED, "--cp %lld with --cp-strategy none could not act; use ring, pcp or auto",
                         (long long)*cp);
    if (o->profile) {
        weft_status st = weft_profile_read(&run->profile, o->profile);
        if (st < 0) return weft_fail_at(st, "--profile ");
        run->cp.profile = &run->profile;
    }
    if (o->cp_buffer && o->cp_buffer < 64 << 10)
        return weft_fail(WEFT_ERR_REFUSED, "--cp-aggregation-buffer-size %lld: pieces that small only add messages; give at "
                                           "least 64K, or 0 for whole blocks", (long long)o->cp_buffer);
    return WEFT_OK;
}
