/* sort.c — sorting segments in place, and a heap of ranks or documents. Nothing here may allocate. */
#include "shard/shard_impl.h"

bool weft__by_token(const weft_segment *a, const weft_segment *b)
{
    return a->row != b->row ? a->row < b->row : a->token < b->token;
}

static void sift_segment(weft_segment *seg, int64_t i, int64_t n, weft__before *before)
{
    weft_segment x = seg[i];
    for (int64_t child; (child = 2 * i + 1) < n; i = child) {
        if (child + 1 < n && before(&seg[child], &seg[child + 1])) child++;
        if (!before(&x, &seg[child])) break;
        seg[i] = seg[child];
    }
    seg[i] = x;
}

/* Heap sort: in place and n log n always. */
void weft__sort(weft_segment *seg, int64_t n, weft__before *before)
{
    bool sorted = true;
    for (int64_t i = 0; i + 1 < n; i++) sorted = sorted && before(&seg[i], &seg[i + 1]);
    if (sorted) return;
    for (int64_t i = n / 2 - 1; i >= 0; i--) sift_segment(seg, i, n, before);
    for (int64_t i = n - 1; i > 0; i--) {
        weft_segment top = seg[0];
        seg[0] = seg[i];
        seg[i] = top;
        sift_segment(seg, 0, i, before);
    }
}

static bool item_before(weft__item a, weft__item b) { return a.key != b.key ? a.key < b.key : a.id < b.id; }

void weft__heap_sink(weft__heap *h)
{
    weft__item x = h->item[0];
    int64_t i = 0;
    for (int64_t child; (child = 2 * i + 1) < h->n; i = child) {
        if (child + 1 < h->n && item_before(h->item[child + 1], h->item[child])) child++;
        if (!item_before(h->item[child], x)) break;
        h->item[i] = h->item[child];
    }
    h->item[i] = x;
}

void weft__heap_push(weft__heap *h, weft__item x)
{
    int64_t i = h->n++;
    for (; i > 0 && item_before(x, h->item[(i - 1) / 2]); i = (i - 1) / 2) h->item[i] = h->item[(i - 1) / 2];
    h->item[i] = x;
}

void weft__heap_pop(weft__heap *h)
{
    h->item[0] = h->item[--h->n];
    if (h->n > 1) weft__heap_sink(h);
}
