/* cp_pairs.c — from the segments of two ranks to the kernel's pairs of row ranges.
 *
 * Block by block, in the order of the plan, weft_join yields the groups of segments with the same row and
 * document. The pairs of a group are listed query segment by query segment: those of one are a run of pairs, which
 * the kernel's forward takes with one loading of the queries and of their state. Within one call of its backward pairs
 * must share no query row and no key row, so there a group of a x b segments is spread over n = max(a, b) calls
 * ("waves"): pair (x, y) goes to wave (x + y) mod n, the Latin square, in which neither x nor y comes twice. Groups
 * share no rows, so wave w of a block is the union of wave w of all its groups.
 *
 * How many pairs can there be? With c_d segments of document d on all ranks together, of which at most
 * min(a, c_d) on this one (a = weft_layout_pieces of the group), it makes at most min(a, c_d) c_d pairs over all
 * blocks. The sum of all c_d is the number of key segments, at most N = weft__cp_segments (which bind checks; a group
 * has no more segments than its ranks). So there are at most a N pairs. Where most documents lie in one segment, less:
 * those with c_d = 1 make one pair each, the others at most a c_d <= 2 a (c_d - 1), and the sum of c_d - 1 over
 * documents is at most N - documents: together  documents + 2 a (N - documents). */
#include "cp/cp_impl.h"

int64_t weft__cp_pair_capacity(const weft_cp_plan *plan)
{
    int64_t docs = plan->problem.max_docs, most = weft__cp_segments(plan);
    int64_t pieces = weft_layout_pieces(plan->problem.layout, plan->group);
    return weft_min_i64(pieces * most, docs + 2 * pieces * (most - docs));
}

static bool visible(const weft_mask *mask, const weft_segment *q, const weft_segment *k)
{
    return weft_classify(mask, q->start, q->start + weft_segment_step(q, q->len - 1), k->start,
                         k->start + weft_segment_step(k, k->len - 1)) != WEFT_TILE_EMPTY;
}

static int wave_of(const weft_join *j, int64_t x, int64_t y)
{
    int64_t n = weft_max_i64(j->q1 - j->q0, j->k1 - j->k0);
    return (int)((x - j->q0 + y - j->k0) % n);
}

/* Pairs of one block, in the order of the segments. */
static weft_status bind_block(const weft_cp_plan *plan, weft__cp_slot *slot, const weft_shard *q, const weft_shard *kv,
                              int owner, int64_t *n)
{
    weft_join j = weft_join_start(q, plan->rank, kv, owner);
    while (weft_join_next(&j)) {
        if (j.q1 - j.q0 > plan->waves || j.k1 - j.k0 > plan->waves)
            return weft_fail(WEFT_ERR_REFUSED,
                             "bind: a rank holds %lld segments of one document; strategies take at most %d",
                             (long long)weft_max_i64(j.q1 - j.q0, j.k1 - j.k0), plan->waves);
        int64_t q_row = j.q_row;
        for (int64_t x = j.q0; x < j.q1; q_row += j.q[x++].len) {
            int64_t k_row = j.k_row;
            for (int64_t y = j.k0; y < j.k1; k_row += j.k[y++].len) {
                const weft_segment *sq = &j.q[x], *sk = &j.k[y];
                if (WEFT_PLANTED(pair_dropped) && owner != plan->rank && x == 0 && y == 0) continue;
                if (!visible(&plan->desc.mask, sq, sk)) continue;
                if (*n == plan->pair_capacity)
                    return weft_fail(
                        WEFT_ERR_REFUSED,
                        "bind: more than %lld pairs of segments; the plan was made for %lld documents per micro-batch",
                        (long long)plan->pair_capacity, (long long)plan->problem.max_docs);
                slot->wave[*n] = wave_of(&j, x, y);
                slot->pairs[(*n)++] = (weft_attn_pair){
                    .q_row = q_row, .nq = sq->len, .q_pos = sq->start, .q_run = sq->run, .q_step = sq->stride,
                    .k_row = k_row, .nk = sk->len, .k_pos = sk->start, .k_run = sk->run, .k_step = sk->stride,
                    .base = sk->token - sk->start, .sample = (uint32_t)(q->sample0 + sq->row)};
            }
        }
    }
    return WEFT_OK;
}

weft_status weft__cp_bind_pairs(const weft_cp_plan *plan, weft__cp_slot *slot, const weft_shard *q,
                                const weft_shard *kv)
{
    int64_t n = 0;
    for (int i = 0; i < plan->P; i++) {
        slot->first[i] = n;
        WEFT_TRY(bind_block(plan, slot, q, kv, weft__cp_owner(plan, i), &n));
    }
    slot->first[plan->P] = n;
    return WEFT_OK;
}
