/* draw.h — the parts of `weft show`: one picture (plan/show.h), drawn on a terminal, in tables and as SVG. */
#ifndef WEFT_DRAW_H
#define WEFT_DRAW_H

#include "cli/cli.h"

typedef struct weft_drawing {
    const weft_show *show;
    const weft_show_ask *ask;
    const weft_docs *docs;  /* NULL: one document */
    const char *title;      /* what is drawn, in lines */
    bool color;             /* on the terminal */
} weft_drawing;

/* One letter for a set of members of the context group, or of steps: 0-9, a-z, A-Z. */
char weft_draw_symbol(int set);
typedef struct weft_draw_shade {
    int terminal;           /* of 256 */
    bool light;             /* black letters can be read on it; else white ones */
    const char *web;        /* "#0072b2" */
} weft_draw_shade;
/* Of 8 colours that people tell apart who do not see red or green, and a darker shade of each; then they come again. */
enum { WEFT_DRAW_COLORS = 16 };
const weft_draw_shade *weft_draw_color(int set);
void weft_draw_set(const weft_show *s, int set, weft_text *out); /* "rank 3", "ranks 0-7" */

/* How much of a cell is its largest part: all, most, or not even half. */
typedef enum { WEFT_DRAW_PURE, WEFT_DRAW_MOSTLY, WEFT_DRAW_MANY } weft_draw_blend;
weft_draw_blend weft_draw_cell_blend(const weft_show_cell *c);
weft_draw_blend weft_draw_owner_blend(const weft_show_axis *a, int i);
/* Whether another owner's tokens begin at a cell. */
bool weft_draw_bound(const weft_show_axis *a, int i);

/* Why a cell is masked: what holds for most of its pairs. */
typedef enum { WEFT_DRAW_LATER, WEFT_DRAW_FAR, WEFT_DRAW_OTHER, WEFT_DRAW_REASONS } weft_draw_reason;
weft_draw_reason weft_draw_why(const weft_show_cell *c);
const char *weft_draw_reason_text(weft_draw_reason r);
int64_t weft_draw_masked(const weft_show_cell *c, weft_draw_reason r);

/* "Cells are of 1 to 32 tokens each way.\n"; nothing where each is one token. */
void weft_draw_cell_size(const weft_show *s, weft_text *out);
/* Whether there is room to name the documents; the number of that which begins at a token of the axis, or -1. */
bool weft_draw_documents(const weft_drawing *d);
int64_t weft_draw_document(const weft_drawing *d, int64_t token);
/* "rank 0", "ranks 0-3, 7 and 5 more" */
void weft_draw_members(const weft_show *s, const weft_show_members *m, weft_text *out);
/* "nobody idle", "ranks 0-1 idle", "all idle" */
void weft_draw_idle(const weft_show *s, int step, weft_text *out);
/* Largest over mean work of all ranks: pairs times heads. */
double weft_draw_imbalance(const weft_show *s);
/* The share of the time in which ranks compute when each step waits for its busiest rank. */
double weft_draw_busy(const weft_show *s);

/* Cells of a row that fit into so many columns. documents 0: they are not named */
int weft_draw_cells_fit(int columns, int64_t tokens, int64_t documents);
void weft_draw_grid(const weft_drawing *d);   /* on the standard output */
void weft_draw_tables(const weft_drawing *d); /* likewise */
/* step: pictures of n single steps, 0 for none. Works in `arena`. */
weft_status weft_draw_svg(const weft_drawing *d, const weft_show *step, int n, weft_arena *arena, const char *path);

#endif
