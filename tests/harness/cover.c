/* cover.c — see cover.h. Greedy: each row begins with the first pair that has not met; then parameter by parameter the
 * value that brings most new pairs, stepping back where the rule leaves none. Of several such rows the best is kept. */
#include "harness/cover.h"

#include <stdlib.h>
#include <string.h>

#include "harness/test.h"

enum { TRIES = 24, STEPS_MAX = 1 << 22 };

typedef struct maker {
    cover *c;
    bool (*met)[COVER_VALUES][COVER_PARAMS][COVER_VALUES]; /* [p][i][q][j], p < q */
    int turn;   /* which of equally good values comes first */
    long steps; /* spent on one row */
} maker;

static bool *met(const maker *m, int p, int i, int q, int j)
{
    return p < q ? &m->met[p][i][q][j] : &m->met[q][j][p][i];
}

/* New pairs of value i of parameter p with what the row has. */
static int gain(const maker *m, const int *row, int p, int i)
{
    int n = 0;
    for (int q = 0; q < m->c->params; q++)
        if (q != p && row[q] != COVER_NONE) n += !*met(m, p, i, q, row[q]);
    return n;
}

static int gain_of_row(const maker *m, const int *row)
{
    int n = 0;
    for (int p = 1; p < m->c->params; p++)
        for (int q = 0; q < p; q++) n += !*met(m, p, row[p], q, row[q]);
    return n;
}

/* The open parameter with most values: it has most to gain, and later ones fit themselves to it. */
static int next_open(const cover *c, const int *row)
{
    int best = -1;
    for (int p = 0; p < c->params; p++)
        if (row[p] == COVER_NONE && (best < 0 || c->param[p].n > c->param[best].n)) best = p;
    return best;
}

static bool complete(maker *m, int *row)
{
    const cover *c = m->c;
    int p = next_open(c, row), worth[COVER_VALUES];
    if (p < 0) return true;
    if (++m->steps > STEPS_MAX) fail_msg("no row in %d steps: the rule finds out too late what cannot meet", STEPS_MAX);
    int n = c->param[p].n;
    for (int i = 0; i < n; i++) worth[i] = gain(m, row, p, i);
    for (int done = 0; done < n; done++) {
        int best = -1;
        for (int k = 0; k < n; k++) {
            int i = (k + m->turn * (p + 1)) % n;
            if (worth[i] >= 0 && (best < 0 || worth[i] > worth[best])) best = i;
        }
        worth[best] = -1;
        row[p] = best;
        if (c->rule(row, c->ud) && complete(m, row)) return true;
    }
    row[p] = COVER_NONE;
    return false;
}

/* The best of some rows with this pair; false when there is none. */
static bool row_with(maker *m, int p, int i, int q, int j, int *out)
{
    int most = -1;
    for (int t = 0; t < TRIES; t++) {
        int row[COVER_PARAMS];
        for (int x = 0; x < m->c->params; x++) row[x] = x == p ? i : x == q ? j : COVER_NONE;
        m->turn = m->c->rows + t;
        m->steps = 0;
        if (!m->c->rule(row, m->c->ud) || !complete(m, row)) return false;
        int worth = gain_of_row(m, row);
        if (worth > most) memcpy(out, row, sizeof row), most = worth;
    }
    return true;
}

static void take(maker *m, const int *row)
{
    cover *c = m->c;
    if (c->rows == COVER_ROWS) fail_msg("more than %d rows", COVER_ROWS);
    c->pairs += gain_of_row(m, row);
    for (int p = 1; p < c->params; p++)
        for (int q = 0; q < p; q++) *met(m, p, row[p], q, row[q]) = true;
    memcpy(c->row[c->rows++], row, (size_t)c->params * sizeof *row);
}

static void meet(maker *m, int p, int i, int q, int j)
{
    cover *c = m->c;
    int row[COVER_PARAMS];
    if (*met(m, p, i, q, j)) return;
    if (row_with(m, p, i, q, j, row)) {
        take(m, row);
        return;
    }
    assert_true(c->refusals < (int)(sizeof c->refused / sizeof *c->refused));
    c->refused[c->refusals].p = p, c->refused[c->refusals].i = i;
    c->refused[c->refusals].q = q, c->refused[c->refusals++].j = j;
}

void cover_make(cover *c, const cover_param *param, int params, cover_rule rule, const void *ud)
{
    assert_true(params <= COVER_PARAMS);
    *c = (cover){.param = param, .params = params, .rule = rule, .ud = ud};
    maker m = {.c = c, .met = calloc(COVER_PARAMS, sizeof *m.met)};
    assert_non_null(m.met);
    for (int p = 0; p < params; p++) assert_true(param[p].n > 0 && param[p].n <= COVER_VALUES);
    for (int p = 0; p < params; p++)
        for (int q = p + 1; q < params; q++)
            for (int i = 0; i < param[p].n; i++)
                for (int j = 0; j < param[q].n; j++) meet(&m, p, i, q, j);
    free(m.met);
}

/* A number below n, of stream `seed`. */
static int below(int n, uint64_t seed, int64_t i) { return (int)((test_uniform(seed, i) + 1) / 2 * n); }

/* The parameters in a random order, a value of each that the rule allows beside those before; the rule may find out
 * late that there is none, and all begins anew. */
static bool draw_once(const cover *c, uint64_t seed, int64_t *at, int *row)
{
    enum { PATIENCE = 200 };
    for (int p = 0; p < c->params; p++) row[p] = COVER_NONE;
    for (int left = c->params; left > 0; left--) {
        int p = below(c->params, seed, (*at)++), tries = 0;
        while (row[p] != COVER_NONE) p = (p + 1) % c->params;
        do row[p] = below(c->param[p].n, seed, (*at)++);
        while (!c->rule(row, c->ud) && ++tries < PATIENCE);
        if (tries == PATIENCE) return false;
    }
    return true;
}

void cover_draw(const cover *c, uint64_t seed, int64_t i, int *row)
{
    for (int64_t at = i << 20, end = at + (1 << 20) - 4096; !draw_once(c, seed, &at, row);)
        if (at > end) fail_msg("no row in a million draws");
}

static int rows_with(const cover *c, int p, int i, int q, int j)
{
    int n = 0;
    for (int r = 0; r < c->rows; r++) n += c->row[r][p] == i && c->row[r][q] == j;
    return n;
}

static bool is_refused(const cover *c, int p, int i, int q, int j)
{
    for (int x = 0; x < c->refusals; x++)
        if (c->refused[x].p == p && c->refused[x].i == i && c->refused[x].q == q && c->refused[x].j == j) return true;
    return false;
}

void cover_check(const cover *c)
{
    int pairs = 0;
    for (int r = 0; r < c->rows; r++) {
        for (int p = 0; p < c->params; p++) assert_in_range(c->row[r][p], 0, c->param[p].n - 1);
        assert_true(c->rule(c->row[r], c->ud));
    }
    for (int p = 0; p < c->params; p++)
        for (int q = p + 1; q < c->params; q++)
            for (int i = 0; i < c->param[p].n; i++)
                for (int j = 0; j < c->param[q].n; j++) {
                    bool there = rows_with(c, p, i, q, j) > 0;
                    if (there == is_refused(c, p, i, q, j))
                        fail_msg("%s %s with %s %s: %s", c->param[p].name, c->param[p].value[i], c->param[q].name,
                                 c->param[q].value[j], there ? "in a row, and impossible" : "in no row");
                    pairs += there;
                }
    assert_int_equal(pairs, c->pairs);
}
