/* attention_alone.c — what a layer on P ranks is compared with: the same kernels on one rank that has every key and
 * value at hand and exchanges nothing. With the queries that this rank holds among P: what the layer takes more is
 * the price of the exchange and of cutting the work into steps. With all queries: a P-th of it is what a rank would
 * take if nothing were lost and all had the same share. */
#include "train/attention_alone.h"

/* This rank's segments, as a shard of one rank. */
static weft_status own_queries(weft__alone *a, const weft_attention_case *c)
{
    const weft_shard *all = weft__case_queries(c);
    int rank = weft_comm_rank(c->comm);
    int64_t *first, *rows, n = all->first[rank + 1] - all->first[rank];
    WEFT_TRY(WEFT_NEW0(c->arena, 2, "own queries", &first));
    WEFT_TRY(WEFT_NEW(c->arena, 1, "own queries", &rows));
    first[1] = n;
    rows[0] = all->rows[rank];
    a->queries = *all;
    a->queries.P = 1;
    a->queries.capacity = n;
    a->queries.seg = all->seg + all->first[rank];
    a->queries.first = first;
    a->queries.rows = rows;
    /* A rank of many can hold more pieces of few documents than the only one of one can: room for each as if it were a
     * document of its own. */
    a->c.problem.max_docs = weft_max_i64(a->c.problem.max_docs, n);
    return WEFT_OK;
}

static weft_status open_own(weft__alone *a, const weft_attention_case *c)
{
    weft_attention_case *all = &a->c;
    WEFT_TRY(weft__case_cut(all));
    for (int i = 0; i < WEFT_CASE_TENSORS; i++)
        if (weft__case_of_keys(i)) WEFT_TRY(weft__case_take(all, i, 0));
    a->io = weft__case_io(c);
    weft_cp_io keys = weft__case_io(all);
    a->io.k = keys.k, a->io.v = keys.v, a->io.dk = keys.dk, a->io.dv = keys.dv;
    return own_queries(a, c);
}

static weft_status open_whole(weft__alone *a)
{
    WEFT_TRY(weft__case_prepare(&a->c));
    a->io = weft__case_io(&a->c);
    a->queries = *weft__case_queries(&a->c);
    return WEFT_OK;
}

weft_status weft__alone_open(weft__alone *a, const weft_attention_case *c, const weft_kern *kern, bool whole)
{
    const weft_cp_options options = {.strategy = "none", .overlap = true};
    *a = (weft__alone){.c = *c};
    WEFT_TRY(weft_world_self(&a->world, c->ctx));
    a->c.comm = weft_world_all(a->world);
    WEFT_TRY(whole ? open_whole(a) : open_own(a, c));
    WEFT_TRY(weft_cp_plan_create(&a->plan, c->arena, kern, a->c.comm, &a->c.problem, &options));
    return weft_cp_bind(a->plan, 0, &a->queries, &a->c.shard_kv);
}

weft_status weft__alone_run(const weft__alone *a)
{
    WEFT_TRY(weft_cp_forward(a->plan, 0, &a->io));
    return weft_cp_backward(a->plan, 0, &a->io);
}

void weft__alone_close(weft__alone *a)
{
    weft_cp_plan_destroy(a->plan);
    if (a->world) weft_world_close(a->world);
    *a = (weft__alone){0};
}
