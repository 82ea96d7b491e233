/* area.c — how much of the score matrix a pair of segments, or a pair of ranks, has to compute. */
#include "shard/shard_impl.h"

int64_t weft_visible_area(const weft_mask *mask, const weft_segment *q, const weft_segment *k)
{
    if (q->row != k->row || q->doc != k->doc) return 0;
    weft_attn_pair pair = {.nq = q->len, .q_pos = q->start, .q_run = q->run, .q_step = q->stride,
                           .nk = k->len, .k_pos = k->start, .k_run = k->run, .k_step = k->stride};
    return weft_attn_area(mask, &pair);
}

/* ---- pairs of segments with the same row and document ---------------------------------------------- */

weft_join weft_join_start(const weft_shard *q, int rank, const weft_shard *k, int owner)
{
    return (weft_join){.q = q->seg + q->first[rank], .nq = q->first[rank + 1] - q->first[rank],
                       .k = k->seg + k->first[owner], .nk = k->first[owner + 1] - k->first[owner]};
}

static int compare(const weft_segment *a, const weft_segment *b)
{
    if (a->row != b->row) return a->row < b->row ? -1 : 1;
    if (a->doc != b->doc) return a->doc < b->doc ? -1 : 1;
    return 0;
}

/* End of the run of segments from `i` that have the row and document of list[i]; adds their rows. */
static int64_t same_document(const weft_segment *list, int64_t n, int64_t i, int64_t *rows)
{
    const weft_segment *head = &list[i];
    for (; i < n && compare(&list[i], head) == 0; i++) *rows += list[i].len;
    return i;
}

bool weft_join_next(weft_join *j)
{
    int64_t qi = j->q1, ki = j->k1, q_row = j->q_row_next, k_row = j->k_row_next;
    while (qi < j->nq && ki < j->nk) {
        int order = compare(&j->q[qi], &j->k[ki]);
        if (order < 0) q_row += j->q[qi++].len;
        else if (order > 0) k_row += j->k[ki++].len;
        else {
            j->q0 = qi, j->k0 = ki, j->q_row = q_row, j->k_row = k_row;
            j->q1 = same_document(j->q, j->nq, qi, &q_row);
            j->k1 = same_document(j->k, j->nk, ki, &k_row);
            j->q_row_next = q_row, j->k_row_next = k_row;
            return true;
        }
    }
    return false;
}

int64_t weft_shard_area(const weft_mask *mask, const weft_shard *q, int rank, const weft_shard *k, int owner)
{
    int64_t area = 0;
    int begin = owner < 0 ? 0 : owner, end = owner < 0 ? k->P : owner + 1;
    for (int r = begin; r < end; r++) {
        weft_join j = weft_join_start(q, rank, k, r);
        while (weft_join_next(&j))
            for (int64_t a = j.q0; a < j.q1; a++)
                for (int64_t b = j.k0; b < j.k1; b++) area += weft_visible_area(mask, &j.q[a], &j.k[b]);
    }
    return area;
}

int64_t weft_shard_area_in_docs(const weft_mask *mask, const weft_shard *q, int rank, const weft_docs *keys)
{
    int64_t area = 0;
    for (int64_t i = q->first[rank]; i < q->first[rank + 1]; i++) {
        const int64_t *cu = keys->cu + keys->first[q->seg[i].row] + q->seg[i].doc;
        weft_segment whole = q->seg[i]; /* the keys of its document */
        whole.start = 0, whole.len = cu[1] - cu[0], whole.run = whole.stride = 1;
        area += weft_visible_area(mask, &q->seg[i], &whole);
    }
    return area;
}
