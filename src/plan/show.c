/* show.c — asks the plan of every rank of a context group what it computes and sends, and adds it up for a picture.
 *
 * With head groups, the ranks of one context group have the same heads and all rows between them; the other context
 * groups do the same with other heads, so one is shown. A plan is made, bound, asked and thrown away rank by rank:
 * what is kept grows with the ranks, and with their square only where that was asked for. */
#include "plan/show_impl.h"

#include <math.h>

typedef struct collector { /* told by the plan of one rank after the other */
    const weft_show_ask *ask;
    weft_show *show;
    weft__cells cells;
    int member;           /* whose plan it is */
    int64_t *kv, *dkv;    /* [R] bytes that it sends at each step */
} collector;

/* ---- what is kept ---------------------------------------------------------------------------------------------- */

static int rank_of(const weft_show *s, int member) { return s->u + s->U * member; }
static int member_of(const weft_show *s, int rank) { return rank / s->U; }

static bool asked_for(const collector *c, int step)
{
    const weft_show_ask *a = c->ask;
    return (a->only_rank < 0 || a->only_rank == rank_of(c->show, c->member)) &&
           (a->only_step < 0 || a->only_step == step);
}

/* Where the work of a member at a step is kept, or NULL. */
static weft_show_work *work_of(const collector *c, int step)
{
    const weft_show_ask *a = c->ask;
    if (!c->show->works || !asked_for(c, step)) return NULL;
    int64_t by_step = a->only_step < 0 ? step : 0, by_member = a->only_rank < 0 ? c->member : 0;
    return &c->show->work[by_step * (a->only_rank < 0 ? c->show->R : 1) + by_member];
}

static weft_status alloc_work(collector *c, weft_arena *arena)
{
    const weft_show_ask *a = c->ask;
    weft_show *s = c->show;
    bool all = a->only_rank < 0 && a->only_step < 0;
    s->works = all && s->R > a->all_work
                   ? 0
                   : (int64_t)(a->only_rank < 0 ? s->R : 1) * (a->only_step < 0 ? s->R : 1);
    return WEFT_NEW0(arena, s->works, "picture", &s->work);
}

/* ---- what a plan tells ----------------------------------------------------------------------------------------- */

/* Members come in ascending order. */
static void add_member(weft_show_members *m, int member)
{
    bool room = m->ranges < WEFT_SHOW_RANGES, joins = m->count > 0 && m->newest == member - 1;
    m->count++;
    m->newest = member;
    if (!joins && room) m->first[m->ranges] = member;
    if (!joins) m->ranges++;
    if (m->ranges <= WEFT_SHOW_RANGES) m->last[m->ranges - 1] = member;
}

/* Sets of steps are round: after the last step come those around 0 again. */
static int step_set(const weft_show *s, int step) { return (step + s->unit / 2) / s->unit % s->sets; }

static void on_work(void *ud, const weft_cp_work *w)
{
    collector *c = ud;
    weft_show_step *step = &c->show->step[w->step];
    int64_t visible = 0;
    c->cells.step = step_set(c->show, w->step);
    c->cells.shown = asked_for(c, w->step);
    for (int64_t i = 0; i < w->n; i++) visible += weft__show_cells_add(&c->cells, &w->pairs[i]);
    c->show->member[c->member].visible += visible;
    step->sum += visible;
    if (visible > step->most) step->most = visible, step->busiest = c->member;
    if (visible == 0) add_member(&step->idle, c->member);
    weft_show_work *kept = work_of(c, w->step);
    if (!kept) return;
    kept->member = c->member, kept->step = w->step, kept->owner = member_of(c->show, w->owner);
    kept->queries = w->queries, kept->keys = w->keys, kept->visible = visible;
}

static void add_travel(weft_show_travel *t, const weft_cp_move *m)
{
    if (t->count++ == 0) t->peer = m->peer, t->owner = m->owner;
    t->rows += m->rows, t->bytes += m->bytes;
}

/* Of steps and members only what is sent is summed. */
static void on_move(void *ud, const weft_cp_move *m)
{
    collector *c = ud;
    weft_show_member *member = &c->show->member[c->member];
    bool dkv = m->kind == WEFT_CP_MOVE_DKV, context = dkv || m->kind == WEFT_CP_MOVE_KV;
    weft_show_work *kept = context ? work_of(c, m->step) : NULL;
    if (kept) add_travel(dkv ? &kept->dkv[m->received] : &kept->kv[m->received], m);
    if (m->received) return;
    if (!context) member->heads_bytes += m->bytes;
    else if (dkv) member->dkv_bytes += m->bytes, c->dkv[m->step] += m->bytes;
    else member->kv_bytes += m->bytes, c->kv[m->step] += m->bytes;
}

/* What the rank sent, step by step, joins the sums and the largest. */
static void add_sent(collector *c)
{
    for (int i = 0; i < c->show->R; i++) {
        weft_show_step *step = &c->show->step[i];
        step->kv_bytes += c->kv[i], step->dkv_bytes += c->dkv[i];
        step->kv_most = weft_max_i64(step->kv_most, c->kv[i]);
        step->dkv_most = weft_max_i64(step->dkv_most, c->dkv[i]);
        c->kv[i] = c->dkv[i] = 0;
    }
}

/* ---- the ranks ------------------------------------------------------------------------------------------------- */

typedef struct job {
    const weft_kern *kern;
    weft_comm *any;
    const weft_show_ask *ask;
    weft_cp_problem problem;
    weft_cp_options options; /* with the strategy that was chosen: choosing takes as long as the ranks are many */
    weft_docs docs;
    weft_shard q, kv;
} job;

static weft_status ask_rank(const job *j, int rank, const weft_cp_view *view)
{
    weft_cp_seat seat = {j->ask->cp, rank, j->problem.Tq == j->problem.T ? &j->kv : &j->q, &j->kv};
    return weft_cp_preview_steps(j->kern, j->any, &j->problem, &j->options, &seat, j->ask->backward, view);
}

static weft_status ask_group(const job *j, weft_arena *arena, collector *c)
{
    weft_show *s = c->show;
    WEFT_TRY(WEFT_NEW0(arena, s->R, "picture", &c->kv));
    WEFT_TRY(WEFT_NEW0(arena, s->R, "picture", &c->dkv));
    for (c->member = 0; c->member < s->R; c->member++) {
        weft_show_member *m = &s->member[c->member];
        int rank = rank_of(s, c->member);
        c->cells.set = c->member / s->unit;
        m->rank = rank;
        m->queries = j->problem.Tq == j->problem.T ? j->kv.rows[rank] : j->q.rows[rank];
        m->keys = j->kv.rows[rank];
        WEFT_TRY(ask_rank(j, rank, &(weft_cp_view){c, on_work, on_move}));
        add_sent(c);
        if ((c->member + 1) % s->unit == 0 || c->member + 1 == s->R) weft__show_cells_settle(&c->cells);
    }
    return WEFT_OK;
}

static void on_heads(void *ud, const weft_cp_work *w)
{
    *(weft_show_heads *)ud = (weft_show_heads){w->head0, w->heads, w->kv_head0, w->kv_heads};
}

static weft_status ask_heads(const job *j, weft_show *s)
{
    for (int u = 0; u < s->U; u++) WEFT_TRY(ask_rank(j, u, &(weft_cp_view){&s->head[u], on_heads, NULL}));
    return WEFT_OK;
}

/* ---- shards and axes ------------------------------------------------------------------------------------------- */

static weft_status check(const weft_show_ask *a)
{
    const weft_cp_problem *p = &a->problem;
    if (p->B != 1) return weft_fail(WEFT_ERR_REFUSED, "picture: of %lld sequences; of one at a time", (long long)p->B);
    if (a->docs && p->Tq != p->T)
        return weft_fail(WEFT_ERR_REFUSED, "picture: documents with %lld queries for %lld keys; give as many of both, "
                         "or one document", (long long)p->Tq, (long long)p->T);
    if (p->Tq > p->T)
        return weft_fail(WEFT_ERR_REFUSED, "picture: %lld queries for %lld keys; at most as many as keys",
                         (long long)p->Tq, (long long)p->T);
    if (a->cp < 1 || a->cells < 1)
        return weft_fail(WEFT_ERR_REFUSED, "picture: %d ranks, %d cells; at least 1 of each", a->cp, a->cells);
    if (a->only_rank >= a->cp)
        return weft_fail(WEFT_ERR_REFUSED, "picture: rank %d; there are ranks 0 to %d", a->only_rank, a->cp - 1);
    return WEFT_OK;
}

static weft_status make_shards(job *j, weft_arena *arena)
{
    const weft_cp_problem *p = &j->problem;
    weft_docs queries;
    if (j->ask->docs) j->docs = *j->ask->docs;
    else WEFT_TRY(weft_docs_whole(&j->docs, arena, 1, p->T));
    WEFT_TRY(weft_shard_create(&j->kv, arena, p->layout, j->ask->cp, &j->docs, 0));
    if (p->Tq == p->T) return WEFT_OK;
    WEFT_TRY(weft_docs_whole(&queries, arena, 1, p->Tq));
    return weft_shard_create(&j->q, arena, p->layout, j->ask->cp, &queries, p->T - p->Tq);
}

static weft_status group_of(weft_shard *out, weft_arena *arena, const weft_shard *in, int U)
{
    WEFT_TRY(weft_shard_alloc(out, arena, in->P / U, in->capacity));
    return weft_shard_group(out, in, U);
}

/* Neighbours that do not divide all members have no shard of their own: their cells end anywhere. */
static weft_status make_axis(weft_show_axis *out, weft_arena *arena, const weft_show *s, const weft__axis_ask *ask)
{
    weft__axis_ask a = *ask;
    weft_shard sets;
    a.unit = s->unit;
    if (s->R % s->unit == 0) {
        WEFT_TRY(group_of(&sets, arena, ask->groups, s->unit));
        a.sets = &sets;
    }
    return weft__show_axis(out, arena, &a);
}

static weft_status make_axes(job *j, weft_arena *arena, weft_show *s, weft_shard *q_groups)
{
    const weft_cp_problem *p = &j->problem;
    WEFT_TRY(group_of(&s->groups, arena, &j->kv, s->U));
    *q_groups = s->groups;
    if (p->Tq != p->T) WEFT_TRY(group_of(q_groups, arena, &j->q, s->U));
    WEFT_TRY(make_axis(&s->k, arena, s, &(weft__axis_ask){.groups = &s->groups, .docs = &j->docs,
                                                          .cells = j->ask->cells}));
    return make_axis(&s->q, arena, s, &(weft__axis_ask){.groups = q_groups, .docs = p->Tq == p->T ? &j->docs : NULL,
                                                        .ahead = p->T - p->Tq, .cells = j->ask->cells});
}

/* ---- what a picture may cost ------------------------------------------------------------------------------------ */

/* Every segment of queries meets every segment of keys of its document in each cell that both lie in; runs are added up
 * token by token where a mask ends among them. Some 40 ns each. */
enum { WORK_MOST = 300000000, RUN_WORK = 16 };

typedef struct touched { double queries, phases, keys, segments; } touched; /* of one document */

static bool in_runs(const weft_segment *g) { return g->run < g->stride; }

/* Cells from the first to the last token of a segment. */
static double cells_under(const weft_show_axis *axis, const weft_segment *g, int64_t ahead)
{
    const int64_t first = ahead + g->token, last = first + weft_segment_step(g, g->len - 1);
    return weft__show_cell_of(axis, last) - weft__show_cell_of(axis, first) + 1;
}

static void touch(const weft_show *s, const weft_shard *q, const weft_shard *kv, int64_t ahead, touched *of)
{
    for (int64_t i = 0; i < q->first[q->P]; i++) {
        const weft_segment *g = &q->seg[i];
        if (g->len == 0) continue;
        const double cells = cells_under(&s->q, g, ahead);
        of[g->doc].queries += cells * (in_runs(g) ? (double)weft_min_i64(g->run, RUN_WORK) : 1);
        of[g->doc].phases += cells * (in_runs(g) ? (double)g->run : 1);
    }
    for (int64_t i = 0; i < kv->first[kv->P]; i++) {
        const weft_segment *g = &kv->seg[i];
        if (g->len == 0) continue;
        of[g->doc].keys += cells_under(&s->k, g, 0);
        of[g->doc].segments++;
    }
}

/* Chunks lie in a cell or two; stripes of thousands of ranks lie in all of them. */
static weft_status check_work(const job *j, weft_arena *arena, const weft_show *s, const weft_shard *q_groups)
{
    const int64_t docs = j->docs.first[1];
    touched *of;
    double work = 0;
    WEFT_TRY(WEFT_NEW0(arena, docs, "documents", &of));
    touch(s, q_groups, &s->groups, j->problem.T - j->problem.Tq, of);
    for (int64_t d = 0; d < docs; d++) work += of[d].queries * of[d].keys + of[d].phases * of[d].segments;
    if (work <= WORK_MOST) return WEFT_OK;
    return weft_fail(WEFT_ERR_REFUSED, "picture: the parts of %d ranks meet %.3g times in %d x %d cells, which takes "
                     "minutes; at most %d times. Some %d ranks of this layout can be drawn, or all of them with layout "
                     "zigzag or contiguous", s->P, work, s->q.n, s->k.n, WORK_MOST,
                     (int)fmax(1, s->P * sqrt(WORK_MOST / work)));
}

/* ---- all of it ------------------------------------------------------------------------------------------------- */

static weft_status alloc_show(weft_show *s, weft_arena *arena)
{
    WEFT_TRY(WEFT_NEW0(arena, s->R, "picture", &s->step));
    WEFT_TRY(WEFT_NEW0(arena, s->R, "picture", &s->member));
    return WEFT_NEW0(arena, s->U, "picture", &s->head);
}

/* A picture that is not of the whole mask is worse than none. */
static weft_status check_sum(const job *j, const weft_show *s, const weft_shard *q_groups)
{
    int64_t all = 0;
    for (int r = 0; r < s->R; r++) all += weft_shard_area_in_docs(&j->problem.mask, q_groups, r, &j->docs);
    if (all == s->sum.visible) return WEFT_OK;
    return weft_fail(WEFT_ERR_INTERNAL, "picture: the plans compute %lld pairs, %lld are visible",
                     (long long)s->sum.visible, (long long)all);
}

enum { SETS_MAX = 62 }; /* letters and digits */

/* Two chunks of each set should have cells of their own, unless cells are tokens. A divisor, so that bounds of sets are
 * bounds of cells, if there is one that leaves a few sets. */
static void find_sets(weft_show *s, int cells, int64_t tokens)
{
    int most = tokens <= cells ? SETS_MAX : (int)weft_max_i64(1, weft_min_i64(SETS_MAX, (cells + 1) / 2));
    int least = (s->R + most - 1) / most;
    for (s->unit = least; s->R % s->unit != 0 && s->unit <= 4 * least;) s->unit++;
    if (s->R % s->unit != 0) s->unit = least;
    s->sets = (s->R + s->unit - 1) / s->unit;
}

static weft_status find_size(job *j, weft_show *s)
{
    const weft_show_ask *a = j->ask;
    weft_cp_sizes sizes;
    WEFT_TRY(weft_cp_preview(j->kern, j->any, &j->problem, &a->options, a->cp, &s->plan, &sizes));
    s->P = a->cp;
    s->U = sizes.head_ranks;
    j->options.strategy = sizes.strategy;
    s->R = s->P / s->U;
    s->u = a->only_rank < 0 ? 0 : a->only_rank % s->U;
    find_sets(s, a->cells, j->problem.T);
    if (a->only_step < s->R) return WEFT_OK;
    return weft_fail(WEFT_ERR_REFUSED, "picture: step %d; there are steps 0 to %d", a->only_step, s->R - 1);
}

static weft_status make(job *j, weft_arena *arena, weft_show *s)
{
    weft_shard q_groups;
    collector c = {.ask = j->ask, .show = s, .cells = {.show = s, .mask = &j->problem.mask, .docs = &j->docs}};
    WEFT_TRY(find_size(j, s));
    WEFT_TRY(make_shards(j, arena));
    WEFT_TRY(make_axes(j, arena, s, &q_groups));
    WEFT_TRY(check_work(j, arena, s, &q_groups));
    WEFT_TRY(alloc_show(s, arena));
    WEFT_TRY(alloc_work(&c, arena));
    WEFT_TRY(weft__show_cells_open(&c.cells, arena));
    WEFT_TRY(ask_heads(j, s));
    WEFT_TRY(ask_group(j, arena, &c));
    weft__show_cells_close(&c.cells);
    return check_sum(j, s, &q_groups);
}

weft_status weft_show_make(weft_show *out, weft_arena *arena, const weft_kern *kern, weft_comm *any,
                           const weft_show_ask *ask)
{
    job j = {.kern = kern, .any = any, .ask = ask, .problem = ask->problem, .options = ask->options};
    *out = (weft_show){0};
    WEFT_TRY(check(ask));
    j.problem.slots = 1;
    j.problem.need_backward = ask->problem.need_backward || ask->backward;
    j.problem.max_docs = ask->docs ? weft_max_i64(1, ask->docs->first[1] - 1) : 1;
    weft_status st = make(&j, arena, out);
    if (st < 0) weft_text_free(&out->plan);
    return st;
}
