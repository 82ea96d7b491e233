/* draw_tables.c — under the picture: what each rank computes and sends at each step, who is idle, and the sums. */
#include "cli/draw.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- tables whose columns are as wide as they must be -------------------------------------------------------- */

enum { COLUMNS_MAX = 8, GAP = 2 };

/* Lines of words divided by tabs; `left`: bits of the columns that begin at the left. */
static void add_table(weft_text *out, const char *lines, unsigned left)
{
    int width[COLUMNS_MAX] = {0}, column = 0;
    for (const char *s = lines; *s; s++) {
        int n = (int)strcspn(s, "\t\n");
        if (n > width[column]) width[column] = n;
        s += n;
        column = *s == '\t' ? column + 1 : 0;
    }
    for (const char *s = lines; *s; s++) {
        int n = (int)strcspn(s, "\t\n"), pad = width[column] - n;
        bool last = s[n] == '\n', at_left = left >> column & 1;
        weft_text_add(out, "%*s%.*s%*s", column ? GAP : 0, "", 0, "", at_left ? 0 : pad, "");
        weft_text_add(out, "%.*s%*s%s", n, s, at_left && !last ? pad : 0, "", last ? "\n" : "");
        s += n;
        column = last ? 0 : column + 1;
    }
}

static void print(weft_text *t)
{
    weft_print_lines(t->data ? t->data : "", 4);
    weft_text_free(t);
}

/* ---- one step, rank by rank ---------------------------------------------------------------------------------- */

static double share(int64_t part, int64_t all) { return all ? 100.0 * (double)part / (double)all : 0; }

/* Rows of a whole block of an owner. */
static int64_t block_rows(const weft_show *s, int owner) { return s->groups.rows[owner / s->U]; }

/* "0 to 1, 32.0K": the rows of an owner, in whole or in part, and the other end. */
static void add_travel(const weft_show *s, weft_text *t, const weft_show_travel *x, bool received)
{
    char bytes[16];
    if (x->count == 0) {
        weft_text_add(t, "-");
        return;
    }
    if (x->count == 1) weft_text_add(t, "%d %s %d", x->owner, received ? "from" : "to", x->peer);
    else if (received) weft_text_add(t, "%d owners", x->count);
    else weft_text_add(t, "%d to %d ranks", x->owner, x->count);
    if (x->count == 1 && x->rows != block_rows(s, x->owner)) weft_text_add(t, ", %lld rows", (long long)x->rows);
    else weft_text_add(t, ",");
    weft_text_add(t, " %s", weft_short_bytes((double)x->bytes, bytes));
}

static void add_work(const weft_drawing *d, weft_text *t, const weft_show_work *w)
{
    const weft_show *s = d->show;
    weft_text_add(t, "%d\t%lld x %lld\t%lld\t%.0f %%\t", s->member[w->owner].rank, (long long)w->queries,
                  (long long)w->keys, (long long)w->visible, share(w->visible, s->step[w->step].most));
    add_travel(s, t, &w->kv[WEFT_SHOW_SENT], false);
    weft_text_add(t, "\t");
    add_travel(s, t, &w->kv[WEFT_SHOW_RECEIVED], true);
    weft_text_add(t, "\n");
}

static const char travel_heads[] = "sends K,V of\treceives K,V of\n";

/* Step by step, a line for each rank. */
static void print_steps(const weft_drawing *d)
{
    const weft_show *s = d->show;
    for (int64_t i = 0; i < s->works; i += s->R) {
        weft_text t = {0}, lines = {0};
        weft_text_add(&t, "\nstep %d: ", s->work[i].step);
        weft_draw_idle(s, s->work[i].step, &t);
        weft_text_add(&t, "\n");
        weft_text_add(&lines, "rank\tkeys of\tq x k\tpairs\tshare\t%s", travel_heads);
        for (int64_t k = i; k < i + s->R; k++) {
            weft_text_add(&lines, "%d\t", s->member[s->work[k].member].rank);
            add_work(d, &lines, &s->work[k]);
        }
        add_table(&t, lines.data ? lines.data : "", 3u << 5);
        weft_text_free(&lines);
        print(&t);
    }
}

/* A line for each step of one rank. */
static void print_rank(const weft_drawing *d)
{
    const weft_show *s = d->show;
    weft_text t = {0}, lines = {0};
    weft_text_add(&t, "\nrank %d\n", d->ask->only_rank);
    weft_text_add(&lines, "step\tkeys of\tq x k\tpairs\tshare\t%s", travel_heads);
    for (int64_t i = 0; i < s->works; i++) {
        weft_text_add(&lines, "%d\t", s->work[i].step);
        add_work(d, &lines, &s->work[i]);
    }
    add_table(&t, lines.data ? lines.data : "", 3u << 5);
    weft_text_free(&lines);
    print(&t);
}

static void print_works(const weft_drawing *d)
{
    weft_say("\nshare: a rank's pairs over those of the busiest rank of the step\n");
    if (d->ask->only_rank < 0) print_steps(d);
    else print_rank(d);
}

/* Backward does the same steps, with K,V on their way again; these are on it besides. */
static void print_gradients(const weft_drawing *d)
{
    const weft_show *s = d->show;
    weft_text t = {0}, lines = {0};
    bool some = false;
    if (!d->ask->backward || s->works == 0) return;
    weft_text_add(&t, "\nbackward: the same steps, K,V sent again; and after each step gradients of K,V\n");
    weft_text_add(&lines, "step\trank\tsends dK,dV of\treceives dK,dV of\n");
    for (int64_t i = 0; i < s->works; i++) {
        const weft_show_work *w = &s->work[i];
        if (!w->dkv[0].count && !w->dkv[1].count) continue;
        some = true;
        weft_text_add(&lines, "%d\t%d\t", w->step, s->member[w->member].rank);
        add_travel(s, &lines, &w->dkv[WEFT_SHOW_SENT], false);
        weft_text_add(&lines, "\t");
        add_travel(s, &lines, &w->dkv[WEFT_SHOW_RECEIVED], true);
        weft_text_add(&lines, "\n");
    }
    if (some) add_table(&t, lines.data ? lines.data : "", 3u << 2);
    weft_text_free(&lines);
    if (some) print(&t);
    else weft_text_free(&t);
}

/* ---- all steps, one a line ------------------------------------------------------------------------------------- */

enum { STEP_LINES = 32 };

typedef struct sum {
    double most, mean, bytes;
    int idle_least, idle_most, busiest;
} sum;

static sum sum_of(const weft_show *s, int begin, int end)
{
    sum x = {.idle_least = s->R, .busiest = s->step[begin].busiest};
    for (int i = begin; i < end; i++) {
        const weft_show_step *p = &s->step[i];
        x.most += (double)p->most, x.mean += (double)p->sum / s->R;
        x.bytes += (double)(p->kv_bytes + p->dkv_bytes);
        if (p->idle.count < x.idle_least) x.idle_least = p->idle.count;
        if (p->idle.count > x.idle_most) x.idle_most = p->idle.count;
    }
    return x;
}

static void add_step_line(const weft_show *s, weft_text *t, int begin, int end)
{
    sum x = sum_of(s, begin, end);
    char bytes[16];
    if (end - begin == 1) weft_text_add(t, "%d\t%d\t", begin, s->member[x.busiest].rank);
    else weft_text_add(t, "%d-%d\t-\t", begin, end - 1);
    weft_text_add(t, "%.0f\t%.1f %%\t", x.most, x.most > 0 ? 100 * x.mean / x.most : 0);
    if (x.idle_least == x.idle_most) weft_text_add(t, "%d\t", x.idle_most);
    else weft_text_add(t, "%d to %d\t", x.idle_least, x.idle_most);
    weft_text_add(t, "%s\t", weft_short_bytes(x.bytes, bytes));
    if (end - begin == 1 && s->step[begin].idle.count) weft_draw_members(s, &s->step[begin].idle, t);
    weft_text_add(t, "\n");
}

static void print_summary(const weft_drawing *d)
{
    const weft_show *s = d->show;
    weft_text t = {0}, lines = {0};
    int each = (s->R + STEP_LINES - 1) / STEP_LINES;
    weft_text_add(&lines, "step%s\tbusiest\tits pairs\tmean of it\tidle\tsent by all\twho is idle\n",
                  each > 1 ? "s" : "");
    for (int i = 0; i < s->R; i += each) add_step_line(s, &lines, i, i + each < s->R ? i + each : s->R);
    weft_text_add(&t, "\n");
    add_table(&t, lines.data ? lines.data : "", 1u << 6);
    weft_text_free(&lines);
    print(&t);
}

/* ---- heads ------------------------------------------------------------------------------------------------------- */

enum { RANK_LINES = 16, RUNS_SHOWN = 4, IDLE_SHOWN = 16 };

static void add_span(weft_text *t, int first, int n)
{
    if (n == 0) weft_text_add(t, "none");
    else if (n == 1) weft_text_add(t, "%d", first);
    else weft_text_add(t, "%d-%d", first, first + n - 1);
}

typedef struct runs { /* of neighbouring tokens: the one being gathered, and how many there were */
    weft_text *out;
    int64_t begin, end;
    int n;
} runs;

static void end_run(runs *r)
{
    if (r->begin == r->end) return;
    if (r->n < RUNS_SHOWN) {
        weft_text_add(r->out, "%s%lld", r->n ? ", " : "", (long long)r->begin);
        if (r->end - r->begin > 1) weft_text_add(r->out, "-%lld", (long long)r->end - 1);
    }
    r->n++;
}

static void add_run(runs *r, int64_t token, int64_t n)
{
    if (token != r->end) {
        end_run(r);
        r->begin = token;
    }
    r->end = token + n;
}

/* "0-7, 24-31": the tokens of a share, whatever their documents. */
static void add_tokens(weft_text *t, const weft_shard *s, int r)
{
    runs x = {.out = t};
    for (int64_t g = s->first[r]; g < s->first[r + 1] && x.n <= RUNS_SHOWN; g++) {
        const weft_segment *seg = &s->seg[g];
        int64_t run = seg->run == seg->stride ? seg->len : seg->run;
        for (int64_t i = 0; i < seg->len && x.n <= RUNS_SHOWN; i += run)
            add_run(&x, seg->token + weft_segment_step(seg, i), weft_min_i64(run, seg->len - i));
    }
    end_run(&x);
    if (x.n == 0) weft_text_add(t, "none");
    else if (x.n > RUNS_SHOWN) weft_text_add(t, ", ...");
}

static void print_heads(const weft_drawing *d)
{
    const weft_show *s = d->show;
    weft_text t = {0}, lines = {0};
    if (s->U == 1) return;
    weft_text_add(&t, "\nheads first: %d head ranks x %d context rank%s; %d neighbours trade rows for heads\n", s->U,
                  s->R, s->R > 1 ? "s" : "", s->U);
    weft_text_add(&lines, "rank\tquery heads\tK,V heads\tof rows\ttokens\n");
    for (int r = 0; r < s->P && r < RANK_LINES; r++) {
        const weft_show_heads *h = &s->head[r % s->U];
        weft_text_add(&lines, "%d\t", r);
        add_span(&lines, h->head0, h->heads);
        weft_text_add(&lines, "\t");
        add_span(&lines, h->kv_head0, h->kv_heads);
        weft_text_add(&lines, "\t%lld\t", (long long)s->groups.rows[r / s->U]);
        add_tokens(&lines, &s->groups, r / s->U);
        weft_text_add(&lines, "\n");
    }
    add_table(&t, lines.data ? lines.data : "", 1u << 4);
    if (s->P > RANK_LINES)
        weft_text_add(&t, "  ... to rank %d; rank r has the heads of rank r mod %d\n", s->P - 1, s->U);
    weft_text_add(&t, "picture: the heads of rank %d, on rank%s %d", s->u, s->R > 1 ? "s" : "", s->u);
    if (s->R > 1)
        weft_text_add(&t, "%s%d: all rows between them\n", s->R > 2 ? ", ..., " : " and ", s->u + (s->R - 1) * s->U);
    else weft_text_add(&t, ", which has all rows\n");
    weft_text_free(&lines);
    print(&t);
}

/* ---- sums ------------------------------------------------------------------------------------------------------ */

static void print_ranks(const weft_drawing *d)
{
    const weft_show *s = d->show;
    weft_text t = {0}, lines = {0};
    double mean = (double)s->sum.visible / s->R;
    const char *call = d->ask->backward ? "backward" : "forward";
    weft_text_add(&lines, "rank\town rows\tpairs\tof mean\t");
    if (s->U > 1) weft_text_add(&lines, "for heads\t");
    weft_text_add(&lines, "K,V bytes%s\n", d->ask->backward ? "\tdK,dV bytes" : "");
    for (int r = 0; r < s->R && r < RANK_LINES; r++) {
        const weft_show_member *m = &s->member[r];
        weft_text_add(&lines, "%d\t%lld\t%lld\t%.3f\t", m->rank, (long long)m->queries, (long long)m->visible,
                      mean > 0 ? (double)m->visible / mean : 1);
        if (s->U > 1) weft_text_add(&lines, "%lld\t", (long long)m->heads_bytes);
        weft_text_add(&lines, "%lld", (long long)m->kv_bytes);
        if (d->ask->backward) weft_text_add(&lines, "\t%lld", (long long)m->dkv_bytes);
        weft_text_add(&lines, "\n");
    }
    weft_text_add(&t, "\nall steps, one layer, bytes that a rank sends %s\n", call);
    add_table(&t, lines.data ? lines.data : "", 0);
    if (s->R > RANK_LINES) weft_text_add(&t, "  ... to rank %d\n", s->member[s->R - 1].rank);
    weft_text_free(&lines);
    print(&t);
}

static bool same_members(const weft_show_members *a, const weft_show_members *b)
{
    return a->count == b->count && a->ranges == b->ranges && !memcmp(a->first, b->first, sizeof a->first) &&
           !memcmp(a->last, b->last, sizeof a->last);
}

/* "step 1: rank 0 idle", "steps 2-3: all idle", a line each */
static void add_all_idle(const weft_show *s, weft_text *t)
{
    int shown = 0;
    for (int i = 0, end; i < s->R; i = end) {
        for (end = i + 1; end < s->R && same_members(&s->step[end].idle, &s->step[i].idle);) end++;
        if (s->step[i].idle.count == 0) continue;
        if (shown++ == IDLE_SHOWN) {
            weft_text_add(t, "         ...\n");
            return;
        }
        if (end - i == 1) weft_text_add(t, "         step %d: ", i);
        else weft_text_add(t, "         steps %d-%d: ", i, end - 1);
        weft_draw_idle(s, i, t);
        weft_text_add(t, "\n");
    }
}

static void print_balance(const weft_drawing *d)
{
    const weft_show *s = d->show;
    int64_t idle = 0;
    weft_text t = {0};
    for (int i = 0; i < s->R; i++) idle += s->step[i].idle.count;
    weft_text_add(&t, "\nbalance  the busiest of all ranks has %.3f times the mean work\n", weft_draw_imbalance(s));
    if (s->R > 1)
        weft_text_add(&t, "         with a wait at each step, ranks would compute %.1f %% of the time\n",
                      100 * weft_draw_busy(s));
    if (idle == 0) weft_text_add(&t, "idle     nobody, at no step\n");
    else weft_text_add(&t, "idle     %lld of %lld turns of a rank\n", (long long)idle, (long long)s->R * s->R);
    add_all_idle(s, &t);
    weft_print_lines(t.data ? t.data : "", (int)strlen("balance  "));
    weft_text_free(&t);
}

void weft_draw_tables(const weft_drawing *d)
{
    print_heads(d);
    if (d->show->works) print_works(d);
    else print_summary(d);
    print_gradients(d);
    print_ranks(d);
    print_balance(d);
}
