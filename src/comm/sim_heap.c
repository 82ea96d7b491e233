/* sim_heap.c — the order in which things happen in simulated time: a binary heap whose keys are all different, so
 * that the order is the same in every run. */
#include "comm/sim_impl.h"

#include <stdlib.h>

static void swap(weft_sim_entry *a, weft_sim_entry *b)
{
    weft_sim_entry t = *a;
    *a = *b;
    *b = t;
}

bool weft_sim_heap_push(weft_sim_heap *h, weft_sim_entry e)
{
    if (h->n == h->capacity) {
        size_t more = h->capacity ? 2 * h->capacity : 1024;
        weft_sim_entry *p = realloc(h->entry, more * sizeof *p);
        if (!p) return false;
        h->entry = p;
        h->capacity = more;
    }
    size_t i = h->n++;
    h->entry[i] = e;
    for (; i > 0 && weft_sim_before(&h->entry[i], &h->entry[(i - 1) / 2]); i = (i - 1) / 2)
        swap(&h->entry[i], &h->entry[(i - 1) / 2]);
    return true;
}

weft_sim_entry weft_sim_heap_pop(weft_sim_heap *h)
{
    weft_sim_entry top = h->entry[0];
    h->entry[0] = h->entry[--h->n];
    for (size_t i = 0;;) {
        size_t least = i, left = 2 * i + 1, right = left + 1;
        if (left < h->n && weft_sim_before(&h->entry[left], &h->entry[least])) least = left;
        if (right < h->n && weft_sim_before(&h->entry[right], &h->entry[least])) least = right;
        if (least == i) return top;
        swap(&h->entry[i], &h->entry[least]);
        i = least;
    }
}
