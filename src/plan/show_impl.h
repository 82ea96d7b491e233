/* show_impl.h — between the files of the picture. */
#ifndef WEFT_SHOW_IMPL_H
#define WEFT_SHOW_IMPL_H

#include "plan/plan.h"

/* n tokens, in runs of `run` every `step`. */
typedef struct weft__line { int64_t n, first, run, step; } weft__line;

static inline int64_t weft__line_end(const weft__line *l)
{
    return l->first + (l->n - 1) / l->run * l->step + (l->n - 1) % l->run + 1;
}

/* show_axis.c: cuts the tokens of `groups`, which begin `ahead` tokens behind the first key, into at most `cells`
 * cells. sets: what sets of groups hold together, or NULL, when cells end anywhere; docs: NULL, or whose bounds should
 * be bounds of cells, too. */
typedef struct weft__axis_ask {
    const weft_shard *groups, *sets;
    const weft_docs *docs;
    int64_t ahead;
    int cells, unit;
} weft__axis_ask;
weft_status weft__show_axis(weft_show_axis *out, weft_arena *arena, const weft__axis_ask *ask);
/* The cell that holds a token of the axis. */
int weft__show_cell_of(const weft_show_axis *a, int64_t token);
/* The tokens of a line in [begin, end), as up to two lines that begin with a whole run; how many. */
int weft__line_cut(const weft__line *l, int64_t begin, int64_t end, weft__line out[2]);
int64_t weft__line_below(const weft__line *l, int64_t token);

/* show_cells.c */
typedef struct weft__cells { /* being filled, by one set of members after the other */
    weft_show *show;
    const weft_mask *mask;
    const weft_docs *docs;
    int set, step;            /* of the block that is coming in: sets */
    bool shown;               /* by only_rank and only_step */
    int64_t *count;           /* [cells][sets] visible pairs of this set of members, by set of steps */
} weft__cells;
weft_status weft__show_cells_open(weft__cells *c, weft_arena *arena);
/* A range of a block's work; returns its visible pairs. */
int64_t weft__show_cells_add(weft__cells *c, const weft_attn_pair *pair);
/* After the last block of a set of members. */
void weft__show_cells_settle(weft__cells *c);
/* After the last set: what is not visible, and why. */
void weft__show_cells_close(weft__cells *c);

#endif
