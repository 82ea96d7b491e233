/* options_cp.c — from the options of context parallelism to weft_cp_options: one strategy and one size, whichever
 * of the four ways they were given in; what contradicts is refused. */
#include "train/options_impl.h"

#include <string.h>

/* The options that name a strategy, each with its own word for it. */
typedef struct naming {
    const char *flag;      /* as it was given */
    const char *strategy;  /* what it asks for; NULL: it was not given */
    int64_t size;          /* the size that comes with it; 0: none */
    int source;            /* a flag is stronger than a file (weft_opts_source) */
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

/* The size of the strongest source; of one source all sizes must agree. */
static weft_status settle_size(const naming *given, int n, const weft_opts *opts, int64_t *cp)
{
    int strongest = weft_opts_source(opts, "parallel.cp");
    const char *flag = strongest ? "--context-parallel-size" : NULL;
    for (int i = 0; i < n; i++) {
        const naming *x = &given[i];
        if (!x->size || x->source < strongest) continue;
        if (flag && x->source == strongest && *cp != x->size)
            return weft_fail(WEFT_ERR_REFUSED, "%s %lld and %s %lld disagree; give one of them", x->flag,
                             (long long)x->size, flag, (long long)*cp);
        *cp = x->size;
        strongest = x->source;
        flag = x->flag;
    }
    return WEFT_OK;
}

static weft_status settle_names(weft_run *run, const weft_opts *opts, const weft_run_options *o, int64_t *cp)
{
    const naming given[] = {
        {"--cp-strategy", o->cp_strategy, 0, weft_opts_source(opts, "parallel.cp_strategy")},
        {"--cp-comm-type", strategy_of_comm_type(o->cp_comm_type), 0, weft_opts_source(opts, "parallel.cp_comm_type")},
        {"--pcp-size", o->pcp_size ? "pcp" : NULL, o->pcp_size, weft_opts_source(opts, "parallel.pcp_size")},
        {"--dcp-size", o->dcp_size ? "dcp" : NULL, o->dcp_size, weft_opts_source(opts, "parallel.dcp_size")},
    };
    enum { N = sizeof given / sizeof *given };
    const naming *first = NULL;
    int strongest = 1;
    run->cp.strategy = o->cp_strategy ? o->cp_strategy : "none";
    for (int i = 0; i < N; i++)
        if (given[i].strategy && given[i].source > strongest) strongest = given[i].source;
    for (int i = 0; i < N; i++) {
        const naming *x = &given[i];
        if (!x->strategy || x->source < strongest) continue;
        if (first) WEFT_TRY(refuse_second(first, x));
        run->cp.strategy = x->strategy;
        first = x;
    }
    return settle_size(given, N, opts, cp);
}

int weft_run_names_strategy(const weft_opts *opts)
{
    static const char *const keys[] = {"parallel.cp_strategy", "parallel.cp_comm_type", "parallel.pcp_size",
                                       "parallel.dcp_size"};
    int source = 0;
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (weft_opts_source(opts, keys[i]) > source) source = weft_opts_source(opts, keys[i]);
    return source;
}

static weft_cp_wire wire_of(const char *name)
{
    static const char *const names[] = {"same", "fp32", "bf16", "fp16", "fp8"};
    for (int i = 0; i < 5; i++)
        if (name && !strcmp(name, names[i])) return (weft_cp_wire)i;
    return WEFT_CP_WIRE_SAME;
}

size_t weft_run_buffer_bytes(const weft_opts *opts, const weft_run_options *o, const weft_profile *machine)
{
    if (weft_opts_given(opts, "parallel.cp_aggregation_buffer_size")) return (size_t)o->cp_buffer;
    return machine->buffer_bytes;
}

weft_status weft_run_resolve_cp(weft_run *run, const weft_opts *opts, const weft_run_options *o, int64_t *cp)
{
    run->cp = (weft_cp_options){.overlap = o->async_cp_comm, .head_size = (int)o->cp_head_size,
                                .keep_heads = o->cp_keep_heads,
                                .comm_dtype = wire_of(o->cp_comm_dtype), .grad_dtype = wire_of(o->cp_grad_dtype),
                                .fp8 = o->fp8, .buffer_bytes = (size_t)o->cp_buffer};
    WEFT_TRY(settle_names(run, opts, o, cp));
    if (!strcmp(run->cp.strategy, "none") && *cp > 1)
        return weft_fail(WEFT_ERR_REFUSED, "--cp %lld with --cp-strategy none could not act; use ring, pcp or auto",
                         (long long)*cp);
    if (o->profile) {
        weft_status st = weft_profile_find(&run->profile, o->profile);
        if (st < 0) return weft_fail_at(st, "--profile ");
        if (!o->peer_memory) run->profile.in_place_share = 0;
        run->cp.profile = &run->profile;
        run->cp.buffer_bytes = weft_run_buffer_bytes(opts, o, &run->profile);
    }
    if (o->cp_buffer && o->cp_buffer < 64 << 10)
        return weft_fail(WEFT_ERR_REFUSED,
                         "--cp-aggregation-buffer-size %lld: pieces that small only add messages; give at "
                         "least 64K, or 0 for whole blocks",
                         (long long)o->cp_buffer);
    return WEFT_OK;
}

void weft_run_one_rank(weft_run *run)
{
    run->mesh = (weft_mesh_shape){.tp = 1, .cp = 1, .dp = 1, .pp = 1};
    run->sequence_parallel = false;
    run->cp.strategy = "none";
    run->cp.head_size = 0;
    run->cp.keep_heads = false;
}
