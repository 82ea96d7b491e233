/* sim_heap.c — the order in which things happen in simulated time: a heap whose keys are all different, so
 * that the order is the same in every run. */
#include "comm/sim_impl.h"

#include <stdlib.h>

enum { CHILDREN = 4 }; /* two lines of a cache: half as many misses on the way down as with 2 */

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
    for (; i > 0 && weft_sim_before(&e, &h->entry[(i - 1) / CHILDREN]); i = (i - 1) / CHILDREN)
        h->entry[i] = h->entry[(i - 1) / CHILDREN];
    h->entry[i] = e;
    return true;
}

/* The first of the children of i. */
static size_t first_child(const weft_sim_heap *h, size_t i)
{
    const size_t begin = CHILDREN * i + 1, end = begin + CHILDREN < h->n ? begin + CHILDREN : h->n;
    size_t first = begin;
    for (size_t c = begin + 1; c < end; c++)
        if (weft_sim_before(&h->entry[c], &h->entry[first])) first = c;
    return first;
}

weft_sim_entry weft_sim_heap_pop(weft_sim_heap *h)
{
    const weft_sim_entry top = h->entry[0], last = h->entry[--h->n];
    size_t i = 0;
    while (CHILDREN * i + 1 < h->n) {
        const size_t next = first_child(h, i);
        if (!weft_sim_before(&h->entry[next], &last)) break;
        h->entry[i] = h->entry[next];
        i = next;
    }
    h->entry[i] = last;
    return top;
}
