/* sim_deadlock.c — names the ranks that wait for each other. When no rank can run and no transfer is under way, every
 * rank that is not done waits for a request whose other end was never posted; following "waits for" from rank to rank
 * ends in a cycle or at a rank that has left. */
#include "comm/sim_impl.h"

static const weft_req *request_of(const weft_sim_rank *r) { return r->world && !r->left ? r->world->waits_on : NULL; }

/* The rank that r waits for; -1: it waits for none. */
static int next_of(const weft_sim *s, int r)
{
    const weft_req *req = s->rank[r].blocked ? request_of(&s->rank[r]) : NULL;
    return req ? (int)req->priv[WEFT_REQ_PEER] : -1;
}

/* A rank of a cycle that `start` leads into, or -1. */
static int find_cycle(const weft_sim *s, int start)
{
    for (int i = 0; i < s->ranks && start >= 0; i++) start = next_of(s, start);
    return start;
}

static int smallest_of_cycle(const weft_sim *s, int in)
{
    int least = in;
    for (int r = next_of(s, in); r != in; r = next_of(s, r))
        if (r < least) least = r;
    return least;
}

static void add_rank(weft_line *l, const weft_sim *s, int r)
{
    const weft_world *w = s->rank[r].world;
    const weft_req *req = w->waits_on;
    char tag[32], place[96];
    weft_line_add(l, "rank %d waits in %s for a %s rank %d (group %s, %s)", r,
                  weft__place_text(place, sizeof place, w->op, w->layer, w->step),
                  req->send ? "send to" : "receive from", (int)req->priv[WEFT_REQ_PEER], req->comm->name,
                  weft_tag_name(req->tag, tag, sizeof tag));
}

/* From `first` along "waits for", until `last` comes again or a rank waits for none. The first few in words. */
static void add_chain(weft_line *l, const weft_sim *s, int first)
{
    enum { IN_WORDS = 3 };
    int r = first, n = 0;
    do {
        if (n > 0) weft_line_add(l, " -> ");
        if (n < IN_WORDS) add_rank(l, s, r);
        else weft_line_add(l, "%d", r);
        r = next_of(s, r);
        n++;
    } while (r != first && next_of(s, r) >= 0);
    if (r == first) weft_line_add(l, " -> rank %d", r);
    else weft_line_add(l, " -> rank %d has left", r);
}

void weft_sim_deadlock_text(const weft_sim *s, char *text, size_t n)
{
    weft_line l = {text, n, 0};
    int waiting = 0, first = -1, cycle = -1;
    for (int r = 0; r < s->ranks; r++) {
        if (next_of(s, r) < 0) continue;
        waiting++;
        if (first < 0) first = r;
        if (cycle < 0) cycle = find_cycle(s, r);
    }
    weft_line_add(&l, "dead-lock: %d of %d ranks wait: ", waiting, s->ranks);
    if (cycle >= 0) add_chain(&l, s, smallest_of_cycle(s, cycle));
    else if (first >= 0) add_chain(&l, s, first);
    else weft_line_add(&l, "none of them for a message");
}
