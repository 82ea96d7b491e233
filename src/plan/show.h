/* show.h — who computes what when, and what travels: the picture of one attention layer over its ranks, for drawing.
 * A part of the door of the room `plan`.
 *
 * Everything is asked of the plans that the ranks would make (weft_cp_preview_steps): nothing here knows a strategy.
 * The plane of queries x keys is cut into cells. Their bounds lie, where there is room, at all bounds of shares and
 * documents, so that a cell has one fate; else cells are equal, and say when they are mixed. Of more members than cells
 * can tell apart, neighbours are taken together. */
#ifndef WEFT_SHOW_H
#define WEFT_SHOW_H

#include "cp/cp.h"

typedef struct weft_show_ask {
    weft_cp_problem problem;  /* of one sequence, B = 1; slots are ignored */
    weft_cp_options options;
    const weft_docs *docs;    /* of the keys; NULL: one document. With Tq < T there can be no other */
    int cp;                   /* ranks */
    int cells;                /* of an axis at most, >= 1 */
    int only_rank, only_step; /* cells show what this one computes; -1: all. The context group of only_rank is shown,
                                 or that of rank 0 */
    int all_work;             /* without only_rank and only_step, `work` is there for so many context ranks at most */
    bool backward;            /* messages of backward, K,V and dK,dV; else of forward */
} weft_show_ask;

typedef struct weft_show_axis { /* tokens, of queries or of keys: cell i has [cut[i], cut[i + 1]) */
    int n;
    int64_t *cut;             /* tokens of the sequence of keys: of queries they end where the keys end */
    int *owner;               /* [n] set of members that holds most of them */
    int64_t *most;            /* [n] so many */
} weft_show_axis;

typedef struct weft_show_cell { /* pairs of tokens, whatever the number of heads */
    int64_t all, visible;
    int64_t later, far, other; /* not visible: masked as later (causal), outside the window, of other documents */
    int64_t shown;            /* of the visible ones, what only_rank and only_step leave */
    int64_t most;             /* of these, computed by the set and at the steps below: the largest part */
    int set, step;            /* of members, of steps; -1: nothing is shown */
} weft_show_cell;

typedef struct weft_show_travel { /* messages of one kind, sent or received at one step */
    int count;
    int peer, owner;          /* ranks: the other end of the first, and whose rows it carries */
    int64_t rows, bytes;      /* of all */
} weft_show_travel;

enum { WEFT_SHOW_SENT, WEFT_SHOW_RECEIVED };
typedef struct weft_show_work { /* a member at a step */
    int member, step, owner;  /* owner: a member, whose keys and values are computed */
    int64_t queries, keys, visible;
    weft_show_travel kv[2], dkv[2]; /* [sent, received] */
} weft_show_work;

enum { WEFT_SHOW_RANGES = 4 };
typedef struct weft_show_members { /* some members: their number, and the first ranges of neighbours */
    int count, newest, ranges; /* ranges may be more than are here */
    int first[WEFT_SHOW_RANGES], last[WEFT_SHOW_RANGES];
} weft_show_members;

typedef struct weft_show_step { /* over the members */
    int64_t most, sum;        /* visible pairs */
    int busiest;
    weft_show_members idle;   /* that compute nothing */
    int64_t kv_bytes, dkv_bytes; /* sent by all */
    int64_t kv_most, dkv_most;   /* by one */
} weft_show_step;

typedef struct weft_show_member { /* a rank of the context group that is shown */
    int rank;
    int64_t queries, keys, visible; /* rows (of its head group), pairs of all steps */
    int64_t heads_bytes, kv_bytes, dkv_bytes; /* sent */
} weft_show_member;

typedef struct weft_show_heads { int head0, heads, kv_head0, kv_heads; } weft_show_heads;

typedef struct weft_show {
    weft_text plan;           /* as it describes itself */
    int P, U, R;              /* ranks, head ranks, context ranks: rank = u + U r */
    int u;                    /* of the context group that is shown */
    int unit, sets;           /* cells tell neighbours apart by sets of so many: member m is of set m / unit, step i of
                                 the set whose number times unit is nearest, mod R. 1 where there are cells for all */
    weft_shard groups;        /* keys of the R head groups after the head stage; with U = 1 of the ranks */
    weft_show_axis q, k;
    weft_show_cell *cell;     /* [q.n][k.n] */
    weft_show_cell sum;       /* of all cells */
    weft_show_step *step;     /* [R] */
    weft_show_member *member; /* [R] */
    weft_show_heads *head;    /* [U] */
    weft_show_work *work;     /* [works] of only_rank and of only_step, or of all: by step, then by member */
    int64_t works;
} weft_show;

/* Everything is of `arena`, but plan, which the caller frees. Refuses what planning refuses. `any` is any communicator
 * of this process. LOCAL */
weft_status weft_show_make(weft_show *out, weft_arena *arena, const weft_kern *kern, weft_comm *any,
                           const weft_show_ask *ask);

#endif
