/* resume_case.h — runs that are saved under one layout and go on under another, with all three kinds of dropout: what
 * is loaded, saved again at once, is the same bits; the next loss is the one of the run that was not interrupted, the
 * next sequence too; under the same layout all that follows is the same bits. */
#ifndef WEFT_TEST_RESUME_CASE_H
#define WEFT_TEST_RESUME_CASE_H

#include "harness/run.h"
#include "harness/tempdir.h"
#include "harness/test.h"
#include "train/trainer_impl.h"

enum { SAVED_AT = 3, STEPS = 5 };

typedef struct run_case { /* of a layout; what the run that was not interrupted did */
    const char *words;
    double loss[STEPS], lr[STEPS];
    int64_t sequence[STEPS]; /* the next, after a step */
    weft_numerics numerics;  /* as they were saved */
} run_case;

typedef struct play {
    const weft_run *run;
    const char *from, *loaded, *end; /* folders: to go on from, saved at once, saved at the end; or NULL */
    int first, steps;
    double loss[STEPS], lr[STEPS];
    int64_t sequence[STEPS];
    weft_train_state state; /* as it was loaded */
    weft_numerics numerics; /* as they were saved or loaded */
} play;

static test_dir resume_dir;

static inline void resume_open(void)
{
    char text[200 * 40];
    size_t n = 0;
    test_dir_make(&resume_dir);
    for (int i = 0; i < 200; i++) n += (size_t)sprintf(text + n, "line %d of a text: %d\n", i, i * i % 97);
    test_write_raw(test_dir_file(&resume_dir, "data.txt"), text, n);
}

static inline weft_status play_steps(play *p, weft_trainer *t, bool root)
{
    for (int s = p->first; s < p->steps; s++) {
        weft_record r;
        WEFT_TRY(weft_trainer_step(t, &r));
        if (root) p->loss[s] = r.loss, p->lr[s] = r.lr, p->sequence[s] = t->state.sequence;
        if (s + 1 != SAVED_AT || p->from) continue;
        if (root) p->numerics = t->numerics;
        WEFT_TRY(weft_trainer_save(t, p->loaded));
    }
    return p->end ? weft_trainer_save(t, p->end) : WEFT_OK;
}

static inline weft_status play_body(weft_ctx *ctx, weft_world *world, void *ud)
{
    play *p = ud;
    weft_trainer *t = NULL;
    weft_text differs = {0};
    weft_world_set_timeout(world, 60);
    WEFT_TRY(weft_trainer_create(&t, world, p->run));
    weft_status st = p->from ? weft_trainer_resume(t, p->from, &differs) : WEFT_OK;
    if (st >= 0 && ctx->rank == 0) p->state = t->state, p->numerics = t->numerics;
    if (st >= 0 && p->from && p->loaded) st = weft_trainer_save(t, p->loaded);
    if (st >= 0) st = play_steps(p, t, ctx->rank == 0);
    weft_text_free(&differs);
    weft_trainer_destroy(t);
    return st;
}

/* words: those of the layout, separated by spaces. */
static inline void play_run(play *p, const char *words)
{
    static char data[600];
    char copy[400];
    const char *extra[40];
    int n = 0;
    snprintf(data, sizeof data, "%s", test_dir_file(&resume_dir, "data.txt"));
    const char *common[] = {
        "--data", data, "--hidden-size", "24", "--num-layers", "3", "--num-attention-heads", "6",
        "--num-query-groups", "2", "--ffn-hidden-size", "20", "--seq-length", "33", "--steps", "6", "--lr", "3e-3",
        "--warmup-steps", "2", "--global-batch-size", "12", "--attention-dropout", "0.1", "--embedding-dropout", "0.1",
        "--residual-dropout", "0.1", "--separator", "\n", "--document-mask", "--valid-fraction", "0"};
    snprintf(copy, sizeof copy, "%s", words);
    for (char *at = copy, *word; (word = strtok_r(at, " ", &at));) extra[n++] = word;
    extra[n] = NULL;
    test_run t;
    test_run_open_more(&t, WEFT_CMD_TRAIN, common, sizeof common / sizeof *common, extra);
    p->run = &t.run;
    const weft_mesh_shape *m = &t.run.mesh;
    if (weft_run_threads(m->tp * m->pp * m->dp * m->cp, play_body, p) < 0) fail_msg("%s: %s", words, weft_last_error());
    test_run_close(&t);
}

/* ---- what is in a folder ---------------------------------------------------------------------------------- */

typedef struct opened { weft_st *file[64]; int n; } opened;

static inline opened open_tensors(const char *dir)
{
    static char path[TEST_FILES_MAX][512];
    opened o = {.n = test_files(dir, ".safetensors", path)};
    assert_true(o.n > 0);
    for (int i = 0; i < o.n; i++) assert_ok(weft_st_open(&o.file[i], path[i]));
    return o;
}

static inline const weft_view *tensor_of(const opened *o, const char *name)
{
    for (int i = 0; i < o->n; i++)
        if (weft_st_find(o->file[i], name)) return weft_st_find(o->file[i], name);
    return NULL;
}

/* Values of two types, one by one or (limit above 0) by their relative distance. */
static inline void check_values(const weft_view *x, const weft_view *want, double limit, const char *what,
                                const char *name)
{
    int64_t n = weft_view_count(want);
    if (weft_view_count(x) != n) fail_msg("%s: %s has another size", what, name);
    for (int64_t k = 0; k < n && limit == 0; k++)
        if (weft_load(x->data, x->dtype, k) != weft_load(want->data, want->dtype, k))
            fail_msg("%s: %s[%lld] is %.17g, was %.17g", what, name, (long long)k, weft_load(x->data, x->dtype, k),
                     weft_load(want->data, want->dtype, k));
    double d = weft_rel_l2(x->data, x->dtype, want->data, want->dtype, n, 1e-30);
    if (!(d <= limit)) fail_msg("%s: %s is off by %.2e", what, name, d);
}

/* Every tensor of `a` is in `b` with the same values: the same bits, or, in a wider type, the same numbers; or within a
 * limit. */
static inline void check_tensors(const char *a, const char *b, double limit, const char *what)
{
    opened x = open_tensors(a), y = open_tensors(b);
    int64_t tensors = 0;
    for (int f = 0; f < x.n; f++)
        for (int i = 0; i < weft_st_count(x.file[f]); i++, tensors++) {
            const weft_st_entry *e = weft_st_at(x.file[f], i);
            const weft_view *v = tensor_of(&y, e->name);
            if (!v) fail_msg("%s: no %s", what, e->name);
            check_values(v, &e->view, limit, what, e->name);
        }
    assert_true(tensors > 3 * 20); /* weights and two moments */
    for (int f = 0; f < x.n; f++) weft_st_close(x.file[f]);
    for (int f = 0; f < y.n; f++) weft_st_close(y.file[f]);
}

/* ---- runs ------------------------------------------------------------------------------------------------- */

/* The run of a layout, with checkpoints `name`-saved after SAVED_AT steps and `name`-end. */
static inline void whole_run(run_case *c, const char *words, const char *name)
{
    char saved[600], end[600];
    snprintf(saved, sizeof saved, "%s/%s-saved", resume_dir.path, name);
    snprintf(end, sizeof end, "%s/%s-end", resume_dir.path, name);
    play p = {.loaded = saved, .end = end, .steps = STEPS};
    play_run(&p, words);
    c->words = words;
    memcpy(c->loss, p.loss, sizeof c->loss);
    memcpy(c->lr, p.lr, sizeof c->lr);
    c->numerics = p.numerics;
    assert_true(p.lr[0] < p.lr[1] && p.lr[3] > p.lr[4]); /* it has a place in the schedule that could be lost */
    memcpy(c->sequence, p.sequence, sizeof c->sequence);
}

static inline bool same_numerics(const weft_numerics *a, const weft_numerics *b, bool scale)
{
    const weft_scaler *x = &a->scaler, *y = &b->scaler;
    return a->updates == b->updates && a->skips == b->skips && x->skipped == y->skipped &&
           a->spike.seen == b->spike.seen && a->spike.mean == b->spike.mean && a->spike.variance == b->spike.variance &&
           (!scale || (x->scale == y->scale && x->good == y->good));
}

/* From the checkpoint `name`-saved of `c` under the layout `words`. limit: of the next loss; at_end: of weights and
 * moments in the end, where it says anything (0: training has amplified rounding by then). */
static inline void goes_on(const run_case *c, const char *name, const char *words, double limit, double at_end)
{
    static int turn;
    char saved[600], end[600], loaded[600], again[600], what[500];
    bool same = !strcmp(words, c->words);
    snprintf(what, sizeof what, "\"%s\" goes on as \"%s\"", c->words, words);
    snprintf(saved, sizeof saved, "%s/%s-saved", resume_dir.path, name);
    snprintf(end, sizeof end, "%s/%s-end", resume_dir.path, name);
    snprintf(loaded, sizeof loaded, "%s/loaded-%d", resume_dir.path, turn);
    snprintf(again, sizeof again, "%s/again-%d", resume_dir.path, turn++);
    play p = {.from = saved, .loaded = loaded, .end = again, .first = SAVED_AT, .steps = STEPS};
    play_run(&p, words);
    if (!same_numerics(&p.numerics, &c->numerics, same)) fail_msg("%s: with another loss scale or mean loss", what);
    if (p.state.step != SAVED_AT || p.numerics.updates + p.numerics.skips != SAVED_AT ||
        p.state.sequence != c->sequence[SAVED_AT - 1] ||
        p.state.tokens != 33 * c->sequence[SAVED_AT - 1])
        fail_msg("%s: step %lld, sequence %lld, %lld tokens", what, (long long)p.state.step,
                 (long long)p.state.sequence, (long long)p.state.tokens);
    check_tensors(saved, loaded, 0, what);
    for (int s = SAVED_AT; s < STEPS; s++) assert_true(p.sequence[s] == c->sequence[s] && p.lr[s] == c->lr[s]);
    double d = fabs(p.loss[SAVED_AT] - c->loss[SAVED_AT]);
    if (!(d <= (same ? 0 : limit))) fail_msg("%s: the next loss is off by %.2e", what, d);
    if (same) assert_true(p.loss[STEPS - 1] == c->loss[STEPS - 1]);
    if (same || at_end > 0) check_tensors(end, again, same ? 0 : at_end, what);
}

#endif
