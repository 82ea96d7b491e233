/* labels: small tsan */ /* timeout: 200 */
/* Steps that are left out, on all ranks alike: gradients that overflow, what the numerics guard finds, spikes of the
 * loss. Weights and moments stay the same bits, later steps go on, and everything is counted. */
#include "harness/text_case.h"
#include "harness/run.h"
#include "train/trainer_impl.h"

enum { STEPS = 5, RANKS_MAX = 4 };

typedef struct scene {
    const weft_run *run;
    const char *fault; /* of ranks that it names, or NULL */
    weft_status st[RANKS_MAX];
    int steps;         /* that every rank made */
    char error[RANKS_MAX][600];
    weft_text log[RANKS_MAX];
    weft_record record[RANKS_MAX][STEPS];
    uint64_t before[RANKS_MAX][STEPS], after[RANKS_MAX][STEPS]; /* weights around a step */
    weft_numerics end[RANKS_MAX];
} scene;

static void collect(void *ud, weft_log_level level, const char *line)
{
    (void)level;
    weft_text_add(ud, "%s;", line);
}

static uint64_t weights(const weft_trainer *t)
{
    const weft_engine *e = weft_trainer_engine(t);
    size_t size = weft_dtype_size(weft_prec_real(t->run->prec));
    return test_hash(weft_model_weights(e->model), (size_t)weft_model_weight_count(e->model) * size);
}

static weft_status steps(weft_trainer *t, scene *s, int rank)
{
    for (int i = 0; i < STEPS; i++) {
        s->before[rank][i] = weights(t);
        WEFT_TRY(weft_trainer_step(t, &s->record[rank][i]));
        s->after[rank][i] = weights(t);
        if (rank == 0) s->steps = i + 1;
    }
    return WEFT_OK;
}

static weft_status body(weft_ctx *ctx, weft_world *world, void *ud)
{
    scene *s = ud;
    weft_trainer *t = NULL;
    int rank = ctx->rank;
    weft_world_set_timeout(world, 30);
    WEFT_TRY(weft_fault_parse(&ctx->fault, s->fault));
    ctx->log = (weft_log){collect, &s->log[rank], WEFT_LOG_WARN};
    WEFT_TRY(weft_trainer_create(&t, world, s->run));
    weft_status st = s->st[rank] = steps(t, s, rank);
    if (st < 0) snprintf(s->error[rank], sizeof s->error[rank], "%s", weft_last_error());
    s->end[rank] = t->numerics;
    weft_trainer_destroy(t);
    if (st < 0) return weft_fail(st, "%s", s->error[rank]);
    return WEFT_OK;
}

#define W(...) ((const char *const[]){__VA_ARGS__, NULL})

/* The ranks' status is in the scene; log texts are freed by `done`. */
static scene *play(int ranks, const char *fault, const char *const *extra)
{
    static const char *const common[] = {
        "--data", data_path, "--hidden-size", "12", "--num-layers", "2", "--num-attention-heads", "3",
        "--num-query-groups", "1", "--ffn-hidden-size", "20", "--seq-length", "33", "--steps", "5", "--lr", "1e-2",
        "--warmup-steps", "0", "--global-batch-size", "4", "--valid-fraction", "0"};
    test_run t;
    scene *s = calloc(1, sizeof *s);
    test_run_open_more(&t, WEFT_CMD_TRAIN, common, sizeof common / sizeof *common, extra);
    s->run = &t.run;
    s->fault = fault;
    (void)weft_run_threads(ranks, body, s);
    for (int i = 0; i < s->steps; i++) /* of one mind */
        for (int r = 1; r < ranks; r++) {
            const weft_record *a = &s->record[0][i], *b = &s->record[r][i];
            bool changed = s->after[r][i] != s->before[r][i];
            assert_true(changed == (s->after[0][i] != s->before[0][i]));
            if (t.run.mesh.pp * t.run.mesh.tp == 1) assert_true(s->after[0][i] == s->after[r][i]);
            assert_true(a->skip == b->skip && a->skips == b->skips && a->loss_scale == b->loss_scale &&
                        a->guard_ranks == b->guard_ranks && a->spike == b->spike);
        }
    test_run_close(&t);
    return s;
}

static void done(scene *s)
{
    for (int r = 0; r < RANKS_MAX; r++) weft_text_free(&s->log[r]);
    free(s);
}

static const char *logged(const scene *s, int rank) { return s->log[rank].data ? s->log[rank].data : ""; }

/* Step `left_out` (0: none) changed nothing, all others did, and the loss stayed finite. */
static void check_steps(const scene *s, int left_out, weft_skip why)
{
    assert_int_equal(s->steps, STEPS);
    for (int i = 0; i < STEPS; i++) {
        const weft_record *r = &s->record[0][i];
        bool out = i + 1 == left_out;
        if (out != (s->before[0][i] == s->after[0][i])) fail_msg("step %d: weights", i + 1);
        assert_int_equal(r->skip, out ? why : WEFT_SKIP_NOT);
        assert_int_equal(r->skips, left_out && i + 1 >= left_out);
        if (!out) assert_true(isfinite(r->loss) && isfinite(r->grad_norm));
    }
    assert_int_equal(s->end[0].updates, STEPS - (left_out != 0));
}

/* ---- overflow ------------------------------------------------------------------------------------------ */

/* An infinity in the gradients of one rank, in the third step. */
static void all_ranks_skip_an_overflow(void **state)
{
    (void)state;
    static const struct { int ranks; const char *precision, *fault, *words[5]; } run[] = {
        {1, "fp16", "inf:site=guard.gradient:hit=3:row=4:column=3", {"--cp", "1"}},
        {2, "fp16", "nan:rank=1:site=guard.gradient:hit=3:row=0:column=9", {"--cp", "2"}},
        {2, "fp32", "inf:rank=1:site=guard.dO:hit=11:row=5", {"--cp", "2"}}, /* 2 layers x 2 micro-batches a step */
        {4, "fp16", "inf:rank=2:site=guard.gradient:hit=3:row=6:column=5", {"--cp", "2", "--dp", "2"}},
    };
    for (size_t i = 0; i < sizeof run / sizeof *run; i++) {
        const char *words[14] = {"--precision", run[i].precision, "--loss-scale", "dynamic", "--loss-scale-interval",
                                 "2", "--micro-batch-size", run[i].ranks == 4 ? "1" : "2"};
        memcpy(words + 8, run[i].words, sizeof run[i].words);
        scene *s = play(run[i].ranks, run[i].fault, words);
        static const double scale[STEPS] = {65536, 65536, 131072, 65536, 65536}; /* doubled by 2, halved by 3 */
        check_steps(s, 3, WEFT_SKIP_OVERFLOW);
        for (int k = 0; k < STEPS; k++) assert_true(s->record[0][k].loss_scale == scale[k]);
        assert_true(s->end[0].scaler.scale == 131072 && s->end[0].scaler.skipped == 1);
        for (int r = 0; r < run[i].ranks; r++) assert_null(s->log[r].data); /* the scaler's business is no warning */
        done(s);
    }
}

/* A scale cancels: a power of two changes no bit in fp32, and fp16 trains as fp32 does. */
static void scales_cancel(void **state)
{
    (void)state;
    scene *one = play(2, NULL, W("--cp", "2", "--precision", "fp32"));
    scene *scaled = play(2, NULL, W("--cp", "2", "--precision", "fp32", "--loss-scale", "1024"));
    scene *narrow = play(2, NULL, W("--cp", "2", "--precision", "fp16"));
    check_steps(one, 0, WEFT_SKIP_NOT);
    check_steps(scaled, 0, WEFT_SKIP_NOT);
    check_steps(narrow, 0, WEFT_SKIP_NOT);
    for (int i = 0; i < STEPS; i++) {
        assert_true(one->after[0][i] == scaled->after[0][i]);
        assert_memory_equal(&one->record[0][i].grad_norm, &scaled->record[0][i].grad_norm, sizeof(double));
        /* 5e-2 is weft_compare_limit of 16 bits */
        assert_at_most(fabs(one->record[0][i].loss - narrow->record[0][i].loss), 5e-2);
        assert_true(narrow->record[0][i].loss_scale == 65536 && one->record[0][i].loss_scale == 1);
    }
    done(one), done(scaled), done(narrow);
}

/* A scale that was given is kept; what overflows then is the run's end, with the tensor. */
static void a_fixed_scale_does_not_skip(void **state)
{
    (void)state;
    scene *s = play(2, "inf:rank=1:site=guard.gradient:hit=2:row=4:column=3",
                    W("--cp", "2", "--precision", "fp16", "--loss-scale", "256", "--guard", "warn"));
    assert_int_equal(s->steps, 1);
    for (int r = 0; r < 2; r++) assert_true(s->st[r] == WEFT_ERR_NUMERIC);
    done(s);
}

/* ---- guard --------------------------------------------------------------------------------------------- */

static void the_guard_leaves_a_step_out(void **state)
{
    (void)state;
    static const char *const fault[] = {
        "nan:rank=%d:site=guard.k:hit=5:row=3:column=2", "large:rank=%d:site=guard.v:hit=6:row=1",
        "inf:rank=%d:site=guard.dO:hit=5:row=2", "nan:rank=%d:site=guard.gradient:hit=3:row=0:column=9"};
    for (int P = 1; P <= 4; P *= 2)
        for (int i = 0; i < 4; i++) {
            char text[100], cp[4];
            snprintf(text, sizeof text, i == 0 ? fault[0] : i == 1 ? fault[1] : i == 2 ? fault[2] : fault[3], P - 1);
            snprintf(cp, sizeof cp, "%d", P);
            scene *s =
                play(P, text, W("--cp", cp, "--guard", "skip", "--micro-batch-size", "4", "--precision", "fp32"));
            check_steps(s, 3, WEFT_SKIP_GUARD); /* 2 layers, one micro-batch: passes 5 and 6 are of step 3 */
            assert_int_equal(s->record[0][2].guard_ranks, 1);
            for (int r = 0; r < P; r++) assert_int_equal(s->log[r].data != NULL, r == P - 1);
            assert_non_null(strstr(s->log[P - 1].data, "step 3: "));
            done(s);
        }
}

/* Left out by the guard or by the scaler: what comes after is the same bits. */
static void it_does_not_matter_why(void **state)
{
    (void)state;
    static const char fault[] = "inf:rank=1:site=guard.gradient:hit=3:row=4:column=3";
    scene *guard = play(2, fault, W("--cp", "2", "--guard", "skip", "--precision", "fp32"));
    scene *scaler = play(2, fault, W("--cp", "2", "--loss-scale", "dynamic", "--precision", "fp32"));
    check_steps(guard, 3, WEFT_SKIP_GUARD);
    check_steps(scaler, 3, WEFT_SKIP_OVERFLOW);
    for (int i = 0; i < STEPS; i++) assert_true(guard->after[1][i] == scaler->after[1][i]);
    done(guard), done(scaler);
}

static void the_guard_warns_or_stops(void **state)
{
    (void)state;
    static const char fault[] = "large:rank=1:site=guard.v:hit=5:row=3:column=2";
    static const char words[] = "numerics guard: rank 1, step 3: v of layer 0 is 100000, beyond the limit 10000 at ";
    scene *warn = play(2, fault, W("--cp", "2", "--micro-batch-size", "4"));
    check_steps(warn, 0, WEFT_SKIP_NOT);
    assert_true(warn->record[0][2].guard_ranks >= 1 && warn->record[0][1].guard_ranks == 0);
    assert_non_null(strstr(warn->log[1].data, words));
    scene *stop = play(2, fault, W("--cp", "2", "--micro-batch-size", "4", "--guard", "stop"));
    assert_int_equal(stop->steps, 2);
    for (int r = 0; r < 2; r++) assert_true(stop->st[r] < 0 && strstr(stop->error[r], words));
    scene *high = play(2, fault, W("--cp", "2", "--micro-batch-size", "4", "--guard", "stop", "--guard-limit", "1e5"));
    check_steps(high, 0, WEFT_SKIP_NOT);
    scene *off = play(2, fault, W("--cp", "2", "--micro-batch-size", "4", "--guard", "off"));
    check_steps(off, 0, WEFT_SKIP_NOT);
    assert_null(off->log[1].data);
    done(warn), done(stop), done(high), done(off);
}

/* Rows between the stages of a pipeline, inside tensor parallelism, and their gradients on the way back. A step has, of
 * its 2 layers, 5 sums over tp forward and 5 backward; as many gatherings forward with sequence parallelism. */
static void what_travels_inside_a_pass_is_watched(void **state)
{
    (void)state;
    static const struct { int rank; const char *flag, *fault, *words; } plant[] = {
        {0, "--pp", "nan:rank=0:site=guard.stage_output:hit=3:row=7:column=5",
         "rank 0, step 3: the stage's output of layer 0 is nan at position 7 of document 0, sample 0"},
        {1, "--pp", "inf:rank=1:site=guard.stage_gradient:hit=3:row=2:column=11",
         "rank 1, step 3: the stage's gradient of layer 1 is inf at position 2 of document 0, sample 0"},
        {1, "--tp", "nan:rank=1:site=guard.partial_sum:hit=12:row=40:column=3",
         "rank 1, step 3: a partial sum of the stream of layer 0 is nan at position 7 of document 0, sample 1"},
        {0, "--tp", "large:rank=0:site=guard.partial_gradient:hit=12:row=1:column=0",
         "rank 0, step 3: a partial sum of the gradient of layer 1 is 100000, beyond the limit 10000 at position 1"},
        {1, "--tp", "nan:rank=1:site=guard.q:hit=5:row=3:column=1",
         "rank 1, step 3: q of layer 0 is nan at position 3 of document 0, sample 0 of the step (head 1, element 1)"},
        {1, "--sp", "inf:rank=1:site=guard.share:hit=11:row=0:column=7",
         "rank 1, step 3: the share of rows of layer 0 is inf at position 0 of document 0, sample 2"},
    };
    for (size_t i = 0; i < sizeof plant / sizeof *plant; i++) {
        bool sp = !strcmp(plant[i].flag, "--sp");
        const char *words[] = {sp ? "--tp" : plant[i].flag, "2", "--micro-batch-size", "4", "--guard", "skip",
                               sp ? "--sequence-parallel" : NULL, NULL};
        scene *skip = play(2, plant[i].fault, words);
        check_steps(skip, 3, WEFT_SKIP_GUARD);
        if (!strstr(logged(skip, plant[i].rank), plant[i].words)) fail_msg("log: %s", logged(skip, plant[i].rank));
        words[5] = "stop";
        scene *stop = play(2, plant[i].fault, words);
        assert_int_equal(stop->steps, 2);
        for (int r = 0; r < 2; r++) assert_true(stop->st[r] < 0 && strstr(stop->error[r], plant[i].words));
        done(skip), done(stop);
    }
}

/* ---- spikes -------------------------------------------------------------------------------------------- */

/* With a threshold that any rise passes, by each policy. */
static void spikes_by_policy(void **state)
{
    (void)state;
    const char *words[] = {"--cp", "2", "--lr", "3", "--min-lr", "3", "--spike-zscore", "1e-9", "--spike-warmup", "2",
                           "--spike-policy", "warn", NULL};
    scene *a = play(2, NULL, words);
    words[11] = "skip";
    scene *b = play(2, NULL, words);
    words[11] = "stop";
    scene *c = play(2, NULL, words);
    int first = 0;
    while (first < STEPS && !a->record[0][first].spike) first++;
    assert_true(first >= 2 && first < STEPS); /* a learning rate like this makes the loss rise */
    check_steps(a, 0, WEFT_SKIP_NOT);
    assert_true(a->record[0][first].loss_zscore > 0 && strstr(a->log[0].data, "is a spike"));
    assert_null(a->log[1].data); /* all ranks see the same loss; one says so */
    assert_int_equal(b->record[0][first].skip, WEFT_SKIP_SPIKE);
    assert_true(b->before[0][first] == b->after[0][first]);
    assert_int_equal(c->steps, first);
    for (int r = 0; r < 2; r++) assert_true(c->st[r] == WEFT_ERR_NUMERIC && strstr(c->error[r], "standard deviations"));
    done(a), done(b), done(c);
}

/* ---- options ------------------------------------------------------------------------------------------- */

static void refuse(const char *const *words, const char *part)
{
    test_run t;
    weft_run run;
    test_run_open(&t, WEFT_CMD_TRAIN, W("--data", data_path));
    for (int i = 0; words[i]; i += 2) assert_ok(weft_opts_set(&t.opts, words[i], words[i + 1], 2));
    assert_refused(weft_run_resolve(&run, &t.opts, &t.options), part);
    test_run_close(&t);
}

static void options_that_cannot_act_are_refused(void **state)
{
    (void)state;
    refuse(W("loss-scale", "1000"), "1000 is no power of two; 512");
    refuse(W("loss-scale", "-2"), "power of two");
    refuse(W("loss-scale", "lots"), "auto, dynamic");
    refuse(W("loss-scale-interval", "5"), "--loss-scale dynamic");
    refuse(W("guard", "off", "guard-limit", "5"), "--guard warn");
    refuse(W("spike-zscore", "0", "spike-policy", "stop"), "--spike-zscore above 0");
    refuse(W("spike-zscore", "0", "spike-window", "5"), "--spike-zscore above 0");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_ranks_skip_an_overflow),
        cmocka_unit_test(scales_cancel),
        cmocka_unit_test(a_fixed_scale_does_not_skip),
        cmocka_unit_test(the_guard_leaves_a_step_out),
        cmocka_unit_test(it_does_not_matter_why),
        cmocka_unit_test(the_guard_warns_or_stops),
        cmocka_unit_test(what_travels_inside_a_pass_is_watched),
        cmocka_unit_test(spikes_by_policy),
        cmocka_unit_test(options_that_cannot_act_are_refused),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
