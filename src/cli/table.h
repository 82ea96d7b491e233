/* table.h — one table as people or programs want it (--format text|md|csv|jsonl): the columns are described once, and
 * each form takes those that are for it. Printed line by line, so that what takes minutes is seen while it is made. */
#ifndef WEFT_CLI_TABLE_H
#define WEFT_CLI_TABLE_H

#include "base/base.h"

enum { /* for which forms a column is */
    WEFT_IN_TEXT = 1, WEFT_IN_MD = 2, WEFT_IN_CSV = 4, WEFT_IN_JSONL = 8,
    WEFT_FOR_PEOPLE = WEFT_IN_TEXT | WEFT_IN_MD, WEFT_FOR_PROGRAMS = WEFT_IN_CSV | WEFT_IN_JSONL,
    WEFT_FOR_ALL = WEFT_FOR_PEOPLE | WEFT_FOR_PROGRAMS
};

typedef enum { WEFT_CELL_TEXT, WEFT_CELL_CODE /* text that somebody could type */, WEFT_CELL_COUNT, WEFT_CELL_REAL }
    weft_cell_kind;

typedef struct weft_column {
    const char *head;    /* for people */
    const char *unit;    /* stands behind a text's numbers and md's head, as " %"; NULL: none */
    const char *key;     /* for programs: csv's head, jsonl's key */
    weft_cell_kind kind;
    unsigned in;         /* WEFT_IN_* */
    int width;           /* in text, of the cell without its unit; negative: to the left */
    double scale;        /* people see REALs times it (0: as they are) ... */
    int decimals;        /* ... with so many decimals; */
    int digits;          /* programs see them as they are, with so many digits */
    bool or_none;        /* 0 says that there is none: people see "-" */
} weft_column;

typedef union weft_cell { const char *text; int64_t count; double real; } weft_cell;

typedef struct weft_table {
    const weft_column *column;
    int n;
    unsigned form; /* one of WEFT_IN_* */
    int left;      /* spaces before a line of text; 0 at first */
} weft_table;

/* format: of --format; "text" where it is another word. */
weft_table weft_table_of(const char *format, const weft_column *columns, int n);
bool weft_table_is_text(const weft_table *t);
/* Names of the columns, where the form has such a line. */
void weft_table_head(const weft_table *t);
/* cells[n], in the order of the columns. NaN is "-" for people, nothing in csv, null in jsonl. */
void weft_table_row(const weft_table *t, const weft_cell *cells);

#endif
