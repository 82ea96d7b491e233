/* optim_impl.h — what the files of this room share. */
#ifndef WEFT_OPTIM_IMPL_H
#define WEFT_OPTIM_IMPL_H

#include "optim/optim.h"

typedef struct weft__bucket { /* a range of the array that the model announces at once */
    int64_t begin, count;
    int64_t slice, slice_count; /* this rank's share of it, from `slice` on in the array */
    int first_piece, pieces;    /* of weft_optim.piece */
    int first_spec, specs;      /* tensors that reach into it */
    bool ends;                  /* holds a tensor of both ends of the pipeline: its sum begins last */
    int64_t sum, back;          /* operations of the stream: reduce-scatter, all-gather */
} weft__bucket;

struct weft_optim {
    weft_ctx *ctx;
    weft_arena *arena;
    const weft_kern_ops *ops;
    weft_dtype real; /* R */
    size_t size;     /* of an element of R */
    weft_optim_options options;
    weft_optim_parts parts;
    int ranks, rank;        /* of dp x cp */
    weft_comm *tp;          /* NULL: nothing to add there */
    weft_stream *stream;    /* over dp x cp; NULL: one rank */
    weft__bucket *bucket;   /* [parts.buckets] */
    int next;               /* buckets below this one have not been announced in this step */
    weft_status st;         /* what failed in an announcement, whose caller hears nothing */
    int64_t bad_offset, bad_count;
    weft_piece *piece;      /* [pieces] what is updated here; `data`: first moment */
    weft_piece *second;     /* [pieces] the same with the second moment */
    weft_piece *counted;    /* [n_counted] what this rank adds to the norm; no data */
    weft_piece *copies;     /* [n_copies] what it holds of the same slices and another rank adds; no data */
    int pieces, n_counted, n_copies;
    void *pack;             /* [pack_count] (R) elements on their way through the sum over tp */
    int64_t pack_count;
};

/* Element i of an array of R. */
static inline void *weft__r_at(const weft_optim *o, const void *array, int64_t i)
{
    return (char *)(uintptr_t)array + (size_t)i * o->size;
}
static inline int64_t weft__piece_at(const weft_optim *o, const weft_piece *p)
{
    return o->parts.spec[p->spec].offset + p->first;
}

/* Adds the gradients of a bucket's tensors over tp. COLLECTIVE over tp */
weft_status weft__sum_over_tp(weft_optim *o, const weft__bucket *b);

#endif
