/* verify_matrix.h — `weft verify`, the command, on a covering set of layouts: every two values of two options meet in
 * some row, where they may. Each row is run three times: fp32 and one 16-bit type against the golden numbers (with
 * AdamW steps where the model has a trajectory), and fp64 against one rank, on a case of five rows in micro-batches.
 * The limits are this test's own; the command's must not be wider. */
#ifndef WEFT_TEST_VERIFY_MATRIX_H
#define WEFT_TEST_VERIFY_MATRIX_H

#include "harness/cover.h"
#include "harness/run.h"
#include "harness/tempdir.h"
#include "harness/test.h"
#include "train/verify_impl.h"

#include <sys/stat.h>
#include <sys/wait.h>

/* ---- options and their values ----------------------------------------------------------------------------- */

enum { MODEL, TP, PP, DP, CP, STRATEGY, LAYOUT, SEQUENCE, MICRO, RECOMPUTE, KEEP, TILES, ZERO, REDUCE, ASYNC, PEERS,
       HEADS, ORDER, NARROW, DOCS, WORLD, PARAMS };
enum { WORLD_MAX = 16 };

/* A value is what stands on the command line, up to the rank order. */
static cover_param params[PARAMS] = {
    [MODEL] = {"model", {NULL}, 0}, /* found in the folder */
    [TP] = {"tp", {"--tp 1", "--tp 2", "--tp 3", "--tp 4", "--tp 7", "--tp 8", "--tp 16"}, 7},
    [PP] = {"pp", {"--pp 1", "--pp 2", "--pp 3", "--pp 5"}, 4},
    [DP] = {"dp", {"--dp 1", "--dp 2", "--dp 3", "--dp 5"}, 4},
    [CP] = {"cp", {"--cp 1", "--cp 2", "--cp 3", "--cp 4", "--cp 5", "--cp 7", "--cp 8", "--cp 11", "--cp 13",
                   "--cp 16"}, 10},
    [STRATEGY] = {"strategy", {"--cp-strategy none", "--cp-strategy auto", "--cp-strategy pcp", "--cp-strategy ring",
                               "--cp-strategy pairwise", "--cp-strategy dcp", "--cp-strategy ulysses",
                               "--cp-strategy dcp-ring", "--cp-strategy dcp-pairwise"}, 9},
    [LAYOUT] = {"layout", {"--cp-layout contiguous", "--cp-layout zigzag", "--cp-layout striped",
                           "--cp-layout striped:16", "--cp-layout balanced"}, 5},
    [SEQUENCE] = {"sequence-parallel", {"", "--sequence-parallel"}, 2},
    [MICRO] = {"micro-batches", {"", "--micro-batch-size 1", "--micro-batch-size 2"}, 3},
    [RECOMPUTE] = {"recompute", {"--recompute none", "--recompute attention", "--recompute block", "--recompute full"},
                   4},
    [KEEP] = {"keep attention", {"", "--recompute-keep-attention"}, 2},
    [TILES] = {"mlp rows", {"", "--mlp-rows 7"}, 2},
    [ZERO] = {"zero", {"--zero-stage 0", "--zero-stage 1"}, 2},
    [REDUCE] = {"reduction", {"--overlap-grad-reduce", "--no-overlap-grad-reduce"}, 2},
    [ASYNC] = {"exchange", {"--async-cp-comm", "--no-async-cp-comm"}, 2},
    [PEERS] = {"memory of peers", {"--peer-memory", "--no-peer-memory"}, 2},
    [HEADS] = {"head layout", {"", "--cp-keep-heads"}, 2},
    [ORDER] = {"rank order", {"", "--rank-order pp-dp-cp-tp", "--rank-order cp-tp-pp-dp", "--rank-order dp-pp-tp-cp",
                              "--rank-order tp-pp-cp-dp"}, 5},
    [NARROW] = {"16 bits", {"bf16", "fp16"}, 2},
    [DOCS] = {"documents", {"", "documents"}, 2},
    [WORLD] = {"ranks", {"= 1", "= 2", "= 3", "= 4", "= 5", "= 6", "= 7", "= 8", "= 9", "= 10", "= 11", "= 12", "= 13",
                         "= 14", "= 15", "= 16"}, WORLD_MAX},
};

typedef struct tested_model { char dir[512], name[64]; weft_model_config config; } tested_model;

typedef struct matrix {
    tested_model model[COVER_VALUES];
    int models;
    cover cover;
    test_dir files;
} matrix;

static inline int size_of(const int *row, int p)
{
    return row[p] == COVER_NONE ? 1 : atoi(strchr(params[p].value[row[p]], ' '));
}

/* Query heads of the rank of tp that has fewest, but any: those without take no part in attention. */
static inline int fewest_heads(const matrix *m, const int *row)
{
    int most = 0;
    for (int i = 0; i < m->models; i++)
        if (row[MODEL] == COVER_NONE || row[MODEL] == i)
            most = (int)weft_max_i64(most, weft_max_i64(1, m->model[i].config.H / size_of(row, TP)));
    return most;
}

static inline int64_t layers(const matrix *m, const int *row)
{
    int64_t most = 0;
    for (int i = 0; i < m->models; i++)
        if (row[MODEL] == COVER_NONE || row[MODEL] == i) most = weft_max_i64(most, m->model[i].config.L);
    return most;
}

static inline bool is(const int *row, int p, const char *part)
{
    return row[p] != COVER_NONE && strstr(params[p].value[row[p]], part);
}

static inline int world_of(const int *row)
{
    return size_of(row, TP) * size_of(row, PP) * size_of(row, DP) * size_of(row, CP);
}

/* Can the sizes from parameter p on that are open make `left` ranks of one? */
static inline bool makes(const int *row, int p, int left)
{
    if (p > CP) return left == 1;
    if (row[p] != COVER_NONE) return makes(row, p + 1, left);
    for (int i = 0; i < params[p].n; i++) {
        int size = atoi(strchr(params[p].value[i], ' '));
        if (left % size == 0 && makes(row, p + 1, left / size)) return true;
    }
    return false;
}

/* What the command refuses, and worlds that are too large for this test. */
static inline bool may_meet(const int *row, const void *ud)
{
    const matrix *m = ud;
    int ranks = size_of(row, WORLD);
    if (row[WORLD] != COVER_NONE && (ranks % world_of(row) || !makes(row, TP, ranks / world_of(row)))) return false;
    bool heads = row[STRATEGY] == COVER_NONE || is(row, STRATEGY, "dcp") || is(row, STRATEGY, "ulysses") ||
                 is(row, STRATEGY, "auto");
    if (world_of(row) > WORLD_MAX || size_of(row, PP) > layers(m, row)) return false;
    if (is(row, SEQUENCE, "sequence") && row[TP] != COVER_NONE && size_of(row, TP) == 1) return false;
    if (is(row, STRATEGY, "none") && size_of(row, CP) > 1) return false;
    if (is(row, STRATEGY, "ulysses") && size_of(row, CP) > fewest_heads(m, row)) return false;
    if (is(row, KEEP, "keep") && is(row, RECOMPUTE, "none")) return false;
    return !is(row, HEADS, "keep") || heads;
}

/* ---- models and cases ------------------------------------------------------------------------------------- */

enum { MADE_ROWS = 5, MADE_T = 37 };

static inline void add_model(matrix *m, const char *dir)
{
    char path[640];
    struct stat there;
    tested_model *x = &m->model[m->models];
    snprintf(path, sizeof path, "%.500s/case.safetensors", dir);
    if (stat(path, &there)) return;
    if (m->models == COVER_VALUES) fail_msg("more than %d models", COVER_VALUES);
    snprintf(x->dir, sizeof x->dir, "%.500s", dir);
    snprintf(x->name, sizeof x->name, "%.60s", strrchr(dir, '/') + 1);
    snprintf(path, sizeof path, "%.500s/config.json", dir);
    assert_ok(weft_model_config_read(&x->config, path));
    params[MODEL].value[m->models++] = x->name;
}

/* The golden models, or those of the folder, or the one folder, that WEFT_TEST_MODELS names. */
static inline void find_models(matrix *m)
{
    static char dir[TEST_FILES_MAX][512];
    const char *other = getenv("WEFT_TEST_MODELS");
    if (other) add_model(m, other);
    int n = m->models ? 0 : other ? test_files(other, "", dir) : test_golden_files("models", "", dir);
    for (int i = 0; i < n; i++) add_model(m, dir[i]);
    params[MODEL].n = m->models;
    if (!m->models) fail_msg("%s: no folder with config.json and case.safetensors", other);
}

/* Five sequences, a fifth of the labels missing; with a document of no token where there are documents. */
static inline void write_made(const matrix *m, int model, bool docs, const char *path)
{
    static int32_t token[MADE_ROWS * MADE_T], target[MADE_ROWS * MADE_T];
    const weft_model_config *c = &m->model[model].config;
    int64_t T = c->max_position > 0 ? weft_min_i64(MADE_T, c->max_position) : MADE_T, cu[] = {0, 2, 2, 9, T};
    for (int64_t i = 0; i < MADE_ROWS * T; i++) {
        token[i] = (int32_t)((i * i * 7 + i * 3 + 2) % c->V);
        target[i] = i % 5 == 3 ? -100 : (int32_t)((i * 5 + 1) % c->V);
    }
    weft_st_entry e[3] = {
        {"tokens", {.data = token, .dtype = WEFT_I32, .nd = 2, .shape = {MADE_ROWS, T}}},
        {"targets", {.data = target, .dtype = WEFT_I32, .nd = 2, .shape = {MADE_ROWS, T}}},
        {"cu_seqlens", {.data = cu, .dtype = WEFT_I64, .nd = 1, .shape = {5}}},
    };
    assert_ok(weft_st_write(path, e, docs ? 3 : 2, NULL));
}

static inline void matrix_open(matrix *m)
{
    memset(m, 0, sizeof *m);
    test_dir_make(&m->files);
    find_models(m);
    cover_make(&m->cover, params, PARAMS, may_meet, m);
}

static inline void matrix_close(matrix *m) { test_dir_remove(&m->files); }

/* ---- limits ----------------------------------------------------------------------------------------------- */

typedef enum mode { WIDE, EXACT, NARROWED, MODES } mode;
typedef enum kind { NLL, GRADIENT, LOSS, NORM, KINDS } kind;

enum { PRECISIONS = 4 };
static const char *const precisions[PRECISIONS] = {"fp32", "fp64", "bf16", "fp16"};

static inline int precision_of(const int *row, mode x) { return x < NARROWED ? (int)x : 2 + row[NARROW]; }

typedef struct verdict {
    bool good;
    int found[KINDS];
    double worst[KINDS];
    char said[600];      /* the first complaint */
} verdict;

static const double limits[PRECISIONS][KINDS] = {
    {1e-5, 2e-5, 1e-4, 1e-4}, /* the project's */
    {1e-12, 1e-12, 0, 0},     /* the project's: sums in another order */
    {5e-2, 1e-1, 3e-2, 1e-1}, /* operands round at 2^-9, tens of times in a row */
    {1e-2, 2e-2, 5e-3, 2e-2}, /* at 2^-12 */
};

static inline kind kind_of(const char *name)
{
    if (!strncmp(name, "token_nll", 9)) return NLL;
    if (!strncmp(name, "grad.", 5)) return GRADIENT;
    return strstr(name, "norm") ? NORM : LOSS;
}

/* One line of the command's table; others are not of that form. */
static inline void judge_line(const int *row, mode x, const char *line, verdict *v)
{
    char name[256], word[16];
    double error, limit;
    const char *gap = strstr(line, "  ");
    if (!gap || gap == line || gap - line >= (long)sizeof name) return;
    if (sscanf(gap, "%lf %lf %15s", &error, &limit, word) != 3) return;
    snprintf(name, sizeof name, "%.*s", (int)(gap - line), line);
    kind k = kind_of(name);
    double mine = limits[precision_of(row, x)][k];
    v->found[k]++;
    v->worst[k] = fmax(v->worst[k], error);
    if (error <= mine && limit <= mine) return;
    v->good = false;
    if (v->said[0]) return;
    snprintf(v->said, sizeof v->said, "%s: %.2e, limit %.2e, it must be %.0e", name, error, limit, mine);
}

/* ---- runs ------------------------------------------------------------------------------------------------- */

static inline void words_of(const int *row, char *words, size_t n)
{
    size_t at = 0;
    for (int p = TP; p < NARROW; p++)
        if (params[p].value[row[p]][0]) at += (size_t)snprintf(words + at, n - at, " %s", params[p].value[row[p]]);
    assert_true(at < n);
}

static inline void case_of(matrix *m, const int *row, mode x, char *path, size_t n)
{
    const tested_model *model = &m->model[row[MODEL]];
    if (x != EXACT) {
        snprintf(path, n, "%.500s/case.safetensors", model->dir);
        return;
    }
    char name[96];
    snprintf(name, sizeof name, "%s-%d.safetensors", model->name, row[DOCS]);
    snprintf(path, n, "%s", test_dir_file(&m->files, name));
    write_made(m, row[MODEL], row[DOCS], path);
}

/* Everything in the file, and its trajectory; or every tensor of the model. */
static inline void expect(const matrix *m, const int *row, mode x, const char *path, int want[KINDS])
{
    weft_ctx ctx;
    weft_arena *arena;
    weft_st *f = NULL;
    weft_spec *spec;
    weft_trajectory t;
    weft_ctx_init(&ctx);
    memset(want, 0, KINDS * sizeof *want);
    assert_ok(weft_arena_create(&arena, &ctx.mem, "test", NULL));
    if (x == EXACT) {
        assert_ok(weft_model_whole_spec(&m->model[row[MODEL]].config, arena, &spec, &want[GRADIENT]));
        want[NLL] = 1;
    } else {
        assert_ok(weft_st_open(&f, path));
        for (int i = 0; i < weft_st_count(f); i++) {
            const char *name = weft_st_at(f, i)->name;
            want[NLL] += !strcmp(name, "token_nll");
            want[GRADIENT] += !strncmp(name, "grad.", 5);
        }
        weft_st_close(f);
        assert_ok(weft_trajectory_read(&t, arena, path));
        want[LOSS] = want[NORM] = (int)t.steps;
    }
    weft_arena_destroy(arena);
}

/* Runs the command; what it printed goes line by line to the verdict. Returns its exit status. */
static inline int run_command(const int *row, mode x, const char *dir, const char *path, verdict *v)
{
    char words[900], command[3000], line[1000];
    words_of(row, words, sizeof words);
    snprintf(command, sizeof command, "timeout 300 '%s' verify '%s' '%s' --threads 1 --precision %s%s 2>&1",
             getenv("WEFT"), dir, path, precisions[precision_of(row, x)], words);
    FILE *out = popen(command, "r");
    assert_non_null(out);
    while (fgets(line, sizeof line, out)) {
        line[strcspn(line, "\n")] = 0;
        judge_line(row, x, line, v);
        if (!strncmp(line, "weft: ", 6) && !v->said[0]) snprintf(v->said, sizeof v->said, "%.590s", line);
    }
    int status = pclose(out);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128;
}

/* One row in one mode. */
static inline verdict run_row(matrix *m, const int *row, mode x)
{
    char path[700];
    int want[KINDS];
    verdict v = {.good = true};
    case_of(m, row, x, path, sizeof path);
    expect(m, row, x, path, want);
    int code = run_command(row, x, m->model[row[MODEL]].dir, path, &v);
    if (code != 0) v.good = false;
    if (memcmp(want, v.found, sizeof want) != 0) v.good = false;
    if (!v.good) {
        char words[900];
        words_of(row, words, sizeof words);
        print_error("%s %s%s: exit %d, %d nll, %d gradients, %d losses, %d norms; %s\n", m->model[row[MODEL]].name,
                    precisions[precision_of(row, x)], words, code, v.found[NLL], v.found[GRADIENT],
                    v.found[LOSS], v.found[NORM], v.said);
    }
    return v;
}

#endif
