/* bytes.c — what a step of the optimizer sends from a rank, worked out from the table and the buckets as sums.c and
 * adamw.c walk through them. */
#include "optim/optim.h"

/* Sums over tp go through a pack of bounded size, bucket by bucket. */
static int64_t tp_bytes(const weft_optim_share *s, const weft_optim_room *room)
{
    int64_t sum = 0;
    if (s->tps == 1 || room->pack_count == 0) return 0;
    for (int b = 0, i = 0; b < s->buckets; b++) {
        int64_t left = 0;
        for (; i < s->n && s->spec[i].offset < s->bucket[b + 1]; i++) left += weft_spec_summed(&s->spec[i]);
        for (; left > 0; left -= room->pack_count)
            sum += weft_all_reduce_bytes(s->tps, s->tp, weft_min_i64(left, room->pack_count), s->size);
    }
    return sum;
}

static int64_t ends_bytes(const weft_optim_share *s)
{
    int64_t sum = 0;
    for (int i = 0; i < s->n && s->end >= 0; i++)
        if (s->spec[i].ends) sum += weft_all_reduce_bytes(2, s->end, s->spec[i].count, s->size);
    return sum;
}

/* A reduce-scatter of each bucket, and an all-gather of what the slices give: sums (stage 0) or weights (stage 1). */
static int64_t dp_bytes(const weft_optim_share *s)
{
    int64_t elements = 0;
    for (int b = 0; b < s->buckets; b++) {
        int64_t n = s->bucket[b + 1] - s->bucket[b];
        int64_t own = weft_share_begin(n, s->ranks, s->rank + 1) - weft_share_begin(n, s->ranks, s->rank);
        elements += n - own + own * (s->ranks - 1);
    }
    return s->ranks > 1 ? elements * (int64_t)s->size : 0;
}

weft_optim_bytes weft_optim_bytes_of(const weft_optim_share *s)
{
    int64_t summed = 0;
    for (int i = 0; i < s->n; i++) summed += weft_spec_summed(&s->spec[i]);
    const weft_optim_room room = weft_optim_room_of(0, summed, s->size);
    return (weft_optim_bytes){.tp = tp_bytes(s, &room), .ends = ends_bytes(s), .dp = dp_bytes(s)};
}
