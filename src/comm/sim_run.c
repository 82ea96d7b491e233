/* sim_run.c — opens a simulated world, runs its ranks in the order of their times, and closes it. */
#include "comm/sim_impl.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- what a rank sees of the machine -------------------------------------------------------------------- */

static double rank_now(void *ud)
{
    const weft_sim_rank *r = ud;
    return r->sim->event_time ? *r->sim->event_time : r->time;
}

static void rank_charge(void *ud, double seconds)
{
    weft_sim_rank *r = ud;
    if (seconds > 0) r->time += seconds;
}

/* ---- running ------------------------------------------------------------------------------------------ */

static void rank_main(void *ud)
{
    weft_sim_rank *r = ud;
    weft_sim *s = r->sim;
    weft_status st = weft_world_open(&r->world, &r->ctx, &weft_sim_transport, r, r->rank, s->ranks);
    if (st == WEFT_OK) st = s->fn(&r->ctx, r->world, s->ud);
    if (st < 0 && r->world) weft_world_abort(r->world, st, weft_last_error());
    else if (st < 0) weft_sim_fail(s, st, weft_last_error());
    r->left = true;
    weft_world_close(r->world);
    r->world = NULL;
    s->running--;
}

/* The record of the last error belongs to the thread, and so to all ranks: each gets its own back. */
static void resume(weft_sim_rank *r)
{
    if (r->error) {
        weft_fail(WEFT_OK, "%s", r->error);
        free(r->error);
        r->error = NULL;
    } else weft_clear_error();
    weft_fiber_enter(&r->fiber, &r->sim->home);
    if (!r->fiber.ended && *weft_last_error()) r->error = strdup(weft_last_error());
}

static void run_all(weft_sim *s)
{
    while (s->running > 0) {
        if (s->heap.n == 0) {
            char text[WEFT_SIM_ERROR];
            weft_sim_deadlock_text(s, text, sizeof text);
            weft_sim_fail(s, WEFT_ERR_TIMEOUT, text);
            if (s->heap.n == 0) break;
        }
        weft_sim_entry e = weft_sim_heap_pop(&s->heap);
        if (e.order & WEFT_SIM_RANK) resume(e.what);
        else weft_sim_event(s, e);
    }
}

/* ---- opening and closing ------------------------------------------------------------------------------ */

static bool is_rate(double x) { return x > 0; }
static bool is_time(double x) { return x >= 0 && x < 1e18; }

static weft_status check_slow_links(int ranks, const weft_sim_model *m)
{
    for (int i = 0; i < m->slow_links; i++) {
        const weft_sim_slow_link *l = &m->slow[i];
        if (l->a < 0 || l->a >= ranks || l->b < -1 || l->b >= ranks || l->a == l->b || !(l->factor >= 1))
            return weft_fail(WEFT_ERR_REFUSED,
                             "simulated slow link of ranks %d and %d, %g times: give two of ranks 0 to %d, and 1 or "
                             "more",
                             l->a, l->b, l->factor, ranks - 1);
    }
    return WEFT_OK;
}

static weft_status check(int ranks, const weft_sim_model *m)
{
    if (ranks < 1 || ranks > 1 << 16)
        return weft_fail(WEFT_ERR_REFUSED, "%d simulated ranks; give 1 to %d", ranks, 1 << 16);
    if (m->node_ranks < 0)
        return weft_fail(WEFT_ERR_REFUSED, "simulated nodes of %d ranks; give at least 1, or 0 for one node",
                         m->node_ranks);
    if (!is_rate(m->link_bytes_per_second) || !is_rate(m->port_bytes_per_second) || !is_rate(m->node_bytes_per_second))
        return weft_fail(WEFT_ERR_REFUSED,
                         "simulated links of %g, ports of %g and nodes of %g bytes per second; each must be above 0",
                         m->link_bytes_per_second, m->port_bytes_per_second, m->node_bytes_per_second);
    if (!is_time(m->post_seconds) || !is_time(m->latency_seconds) || !is_time(m->node_latency_seconds))
        return weft_fail(WEFT_ERR_REFUSED,
                         "simulated posting takes %g s, latencies %g and %g s; each must be at least 0 and below 1e18",
                         m->post_seconds, m->latency_seconds, m->node_latency_seconds);
    return check_slow_links(ranks, m);
}

/* Slow links of two ranks get a place, and those of one slow its ports. */
static weft_status open_slow_links(weft_sim *s)
{
    const weft_sim_model *m = &s->model;
    if (m->slow_links == 0) return WEFT_OK;
    s->lane = calloc((size_t)m->slow_links, sizeof *s->lane);
    if (!s->lane) return weft_fail(WEFT_ERR_MEMORY, "no memory for %d slow links", m->slow_links);
    for (int i = 0; i < m->slow_links; i++) {
        const weft_sim_slow_link *l = &m->slow[i];
        if (l->b < 0) s->rank[l->a].slow = l->factor;
        else s->lane[s->lanes++] = (weft_sim_lane){.a = l->a, .b = l->b, .factor = l->factor};
    }
    return WEFT_OK;
}

static weft_status open_rank(weft_sim *s, int i)
{
    weft_sim_rank *r = &s->rank[i];
    r->sim = s;
    r->slow = 1;
    r->rank = i;
    weft_ctx_init(&r->ctx);
    r->ctx.rank = i;
    r->ctx.world = s->ranks;
    r->ctx.clock = (weft_clock){rank_now, rank_charge, r};
    r->buffers = weft_sim_addresses(r);
    WEFT_TRY(weft_fiber_init(&r->fiber, &s->stacks, i, rank_main, r));
    if (!weft_sim_heap_push(&s->heap, (weft_sim_entry){0, WEFT_SIM_RANK | (uint64_t)i, r}))
        return weft_fail(WEFT_ERR_MEMORY, "no memory for %d simulated ranks", s->ranks);
    return WEFT_OK;
}

static weft_status open_job(weft_sim *s)
{
    s->rank = calloc((size_t)s->ranks, sizeof *s->rank);
    if (!s->rank || !weft_sim_table_init(&s->waiting))
        return weft_fail(WEFT_ERR_MEMORY, "no memory for %d simulated ranks", s->ranks);
    WEFT_TRY(weft_stacks_map(&s->stacks, s->ranks));
    for (int i = 0; i < s->ranks; i++) WEFT_TRY(open_rank(s, i));
    return open_slow_links(s);
}

static void close_job(weft_sim *s)
{
    for (int i = 0; s->rank && i < s->ranks; i++) free(s->rank[i].error);
    weft_sim_free_addresses(s);
    weft_stacks_unmap(&s->stacks);
    weft_sim_free_transfers(s);
    weft_sim_table_free(&s->waiting);
    free(s->heap.entry);
    free(s->lane);
    free(s->rank);
}

weft_status weft_run_sim(int ranks, const weft_sim_model *model, weft_rank_fn fn, void *ud)
{
    WEFT_TRY(check(ranks, model));
    weft_sim s = {.model = *model, .ranks = ranks, .running = ranks, .fn = fn, .ud = ud};
    weft_status st = open_job(&s);
    if (st == WEFT_OK) {
        run_all(&s);
        st = s.running > 0 ? WEFT_ERR_INTERNAL : s.failed;
        weft_clear_error();
        if (st != WEFT_OK) weft_fail(st, "%s", s.message);
    }
    close_job(&s);
    return st;
}
