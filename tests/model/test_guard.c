/* labels: small tsan */
/* The numerics guard: a NaN, an infinity or a large number planted at a chosen row of q, k, v, dO or the gradients of
 * one rank is named exactly, before a byte moves, by every policy, on 1, 2 and 4 ranks; the other ranks end with the
 * same words, or go on with numbers that are finite. */
#include "toy.h"

enum { T = 33, B = 2, RANKS_MAX = 4, HIT_ROW = 4, HIT_COLUMN = 1, STEP = 12, TENSOR = 7 };

typedef struct scene {
    toy t;
    weft_guard_policy policy;
    const char *site, *kind; /* NULL: nothing is planted */
    double scale;
    bool scaler_acts;
    int64_t hit;
    struct outcome {
        weft_status st;
        bool found, finite, moved; /* moved: this rank sent something after the plant's call began */
        char error[600], want[600];
        weft_text log;
    } rank[RANKS_MAX];
} scene;

static void collect(void *ud, weft_log_level level, const char *line)
{
    assert_int_equal(level, WEFT_LOG_WARN);
    weft_text_add(ud, "%s;", line);
}

static const char *value_text(const scene *s, double limit, char buf[80])
{
    if (strcmp(s->kind, "large") != 0) return s->kind;
    snprintf(buf, 80, "100000, beyond the limit %g", limit);
    return buf;
}

/* What the guard has to say about the planted number; documents [0, 9) and [9, T) in every row. */
static void expect(const scene *s, const toy_rank *r, int rank, char want[600])
{
    char value[80];
    bool gradient = !strcmp(s->site, "gradient"), output = !strcmp(s->site, "dO");
    double limit = 1e4 * (gradient || output ? s->scale : 1);
    if (gradient) {
        const weft_spec *spec = weft_model_spec(r->model, &(int){0}) + TENSOR;
        snprintf(want, 600, "numerics guard: rank %d, step %d: the gradient of %s is %s at [0, %d]", rank, STEP,
                 spec->name, value_text(s, limit, value), HIT_COLUMN);
        return;
    }
    int64_t token = r->index[HIT_ROW] % T, layers = s->t.config.L;
    int64_t layer = output ? layers - s->hit : s->hit - 1;
    snprintf(want, 600,
             "numerics guard: rank %d, step %d: %s of layer %d is %s at position %d of document %d, sample %d of the "
             "step (head 0, element %d)",
             rank, STEP, s->site, (int)layer, value_text(s, limit, value), (int)r->pos[HIT_ROW], token >= 9,
             (int)(r->index[HIT_ROW] / T), HIT_COLUMN);
}

static bool all_finite(const toy_rank *r, weft_dtype type)
{
    return isfinite(weft_norm2(weft_model_gradients(r->model), type, weft_model_weight_count(r->model)));
}

static int64_t sent(weft_world *world)
{
    weft_counters c;
    weft_world_counters(world, &c);
    return c.bytes_logical;
}

/* Forward and backward; *before: what had been sent when the call began in which the number was planted. */
static weft_status step(toy_rank *r, const scene *s, weft_world *world, int64_t *before)
{
    double sum;
    weft_micro u = {.slot = 0, .shard = &r->shard, .token = r->token, .target = r->target};
    *before = sent(world);
    WEFT_TRY(weft_model_forward(r->model, &u, true, s->scale, &sum, NULL));
    *before = sent(world);
    WEFT_TRY(weft_model_backward(r->model, &u, NULL, NULL, NULL));
    return weft_model_guard_gradients(r->model, 0, weft_model_weight_count(r->model));
}

static weft_status body(weft_ctx *ctx, weft_world *world, void *ud)
{
    scene *s = ud;
    struct outcome *o = &s->rank[ctx->rank];
    int culprit = s->t.P - 1;
    char fault[120] = "";
    toy_rank r;
    int64_t before = 0;
    WEFT_TRY(toy_open(&r, ctx, world, &s->t));
    if (s->site)
        snprintf(fault, sizeof fault, "%s:rank=%d:site=guard.%s:row=%d:column=%d:hit=%d", s->kind, culprit, s->site,
                 strcmp(s->site, "gradient") ? HIT_ROW : TENSOR, HIT_COLUMN, (int)s->hit);
    WEFT_TRY(weft_fault_parse(&ctx->fault, fault));
    ctx->log = (weft_log){collect, &o->log, WEFT_LOG_WARN};
    ctx->guard = (weft_guard){.policy = s->policy, .limit = 1e4};
    weft_guard_begin(&ctx->guard, STEP, s->scale, s->scaler_acts);
    if (s->site && ctx->rank == culprit) expect(s, &r, culprit, o->want);
    o->st = step(&r, s, world, &before);
    if (o->st < 0) snprintf(o->error, sizeof o->error, "%s", weft_last_error());
    if (o->st < 0) weft_world_abort(world, o->st, weft_last_error());
    o->moved = sent(world) != before;
    o->found = ctx->guard.found;
    o->finite = all_finite(&r, weft_prec_real(s->t.prec));
    toy_close(&r);
    return WEFT_OK;
}

static int32_t token[B * T], target[B * T];
static int64_t cu[3 * B], first[B + 1];

static scene scene_of(weft_prec prec, int P, const char *strategy, weft_guard_policy policy, const char *kind,
                      const char *site)
{
    toy_tokens(token, target, B * T, 11);
    for (int b = 0; b <= B; b++) first[b] = 3 * b;
    for (int b = 0; b < B; b++) cu[3 * b] = 0, cu[3 * b + 1] = 9, cu[3 * b + 2] = T;
    return (scene){.t = {.config = toy_config(WEFT_LLAMA, 2),
                         .prec = prec,
                         .P = P,
                         .strategy = strategy,
                         .B = B,
                         .T = T,
                         .cu = cu,
                         .first = first,
                         .token = token,
                         .target = target,
                         .layout = {.kind = WEFT_LAYOUT_ZIGZAG}},
                   .policy = policy,
                   .site = site,
                   .kind = kind,
                   .hit = 1,
                   .scale = 1};
}

static void play(scene *s)
{
    for (int r = 0; r < s->t.P; r++) s->rank[r].log = (weft_text){0};
    weft_status st = weft_run_threads(s->t.P, body, s);
    if (s->policy != WEFT_GUARD_STOP) assert_ok(st);
}

static void clear(scene *s)
{
    for (int r = 0; r < s->t.P; r++) weft_text_free(&s->rank[r].log);
}

static const char *logged(const scene *s, int rank) { return s->rank[rank].log.data ? s->rank[rank].log.data : ""; }

/* The rank that found something says so, once, in these words; the others have nothing to say, unless it is let through
 * to them. */
static void check_words(const scene *s)
{
    int culprit = s->t.P - 1;
    char line[602];
    snprintf(line, sizeof line, "%s;", s->rank[culprit].want);
    for (int r = s->policy == WEFT_GUARD_WARN ? culprit : 0; r < s->t.P; r++) {
        assert_int_equal(s->rank[r].found, r == culprit);
        assert_string_equal(logged(s, r), r == culprit && s->policy != WEFT_GUARD_STOP ? line : "");
    }
}

static void check_stop(scene *s)
{
    int culprit = s->t.P - 1;
    play(s);
    check_words(s);
    assert_int_equal(s->rank[culprit].st, WEFT_ERR_NUMERIC);
    assert_string_equal(s->rank[culprit].error, s->rank[culprit].want);
    bool after_exchange = !strcmp(s->site, "gradient");
    if (!after_exchange) assert_false(s->rank[culprit].moved);
    for (int r = 0; r < culprit && !after_exchange; r++) {
        assert_true(s->rank[r].st < 0);
        if (!strstr(s->rank[r].error, s->rank[culprit].want))
            fail_msg("rank %d ends with \"%s\"", r, s->rank[r].error);
    }
    clear(s);
}

/* Everybody goes on, and what a NaN or an infinity would have spoilt is finite everywhere. */
static void check_skip(scene *s)
{
    play(s);
    check_words(s);
    for (int r = 0; r < s->t.P; r++) {
        assert_int_equal(s->rank[r].st, WEFT_OK);
        assert_true(s->rank[r].finite);
    }
    clear(s);
}

/* Everybody goes on with what was found. */
static void check_warn(scene *s)
{
    play(s);
    check_words(s);
    for (int r = 0; r < s->t.P; r++) assert_int_equal(s->rank[r].st, WEFT_OK);
    if (strcmp(s->kind, "large") != 0) assert_false(s->rank[s->t.P - 1].finite);
    clear(s);
}

static void check_off(scene *s)
{
    s->site = NULL;
    play(s);
    for (int r = 0; r < s->t.P; r++) assert_true(s->rank[r].st == WEFT_OK && !s->rank[r].found && s->rank[r].finite);
    clear(s);
}

static const char *const sites[] = {"q", "k", "v", "dO", "gradient"}, *const kinds[] = {"nan", "inf", "large"};

static void every_site_and_policy(void **state)
{
    (void)state;
    static const char *const strategy[] = {"none", "ring", "", "dcp"};
    static const weft_prec prec[] = {WEFT_PREC_F32, WEFT_PREC_BF16, WEFT_PREC_F64};
    static void (*const check[WEFT_GUARD_POLICIES])(scene *) = {check_off, check_warn, check_skip, check_stop};
    int turn = 0;
    for (int P = 1; P <= RANKS_MAX; P *= 2)
        for (int site = 0; site < 5; site++)
            for (int kind = 0; kind < 3; kind++)
                for (int policy = 0; policy < WEFT_GUARD_POLICIES; policy++) {
                    if (turn++ % test_every(7)) continue;
                    weft_prec p = prec[(site + kind + policy) % 3];
                    if (p == WEFT_PREC_BF16 && kind == 2) p = WEFT_PREC_F32; /* bf16 has no 100000 */
                    scene s = scene_of(p, P, strategy[P - 1], (weft_guard_policy)policy, kinds[kind], sites[site]);
                    check[policy](&s);
                }
}

/* The second layer's tensors; a loss scale raises the limit of gradients. */
static void layers_and_scales(void **state)
{
    (void)state;
    for (int site = 0; site < 4; site++) {
        scene s = scene_of(WEFT_PREC_F32, 2, "pcp", WEFT_GUARD_WARN, "nan", sites[site]);
        s.hit = 2;
        check_warn(&s);
    }
    scene s = scene_of(WEFT_PREC_F32, 2, "pcp", WEFT_GUARD_WARN, "large", "dO");
    s.scale = 4; /* 1e5 is above 4e4 */
    check_warn(&s);
    s.scale = 0x1p14; /* and far below 1.6e8 */
    play(&s);
    assert_false(s.rank[1].found);
    clear(&s);
}

/* Gradients in fp16 overflow when the scale is too high: that is the scaler's to see, in the norm. A NaN in q is
 * not. */
static void the_scaler_sees_overflow(void **state)
{
    (void)state;
    for (int site = 0; site < 5; site++) {
        scene s = scene_of(WEFT_PREC_F16, 2, "ring", WEFT_GUARD_STOP, "inf", sites[site]);
        s.scaler_acts = true;
        s.scale = 8;
        play(&s);
        bool gradient = site >= 3;
        assert_int_equal(s.rank[1].found, !gradient);
        assert_int_equal(s.rank[1].st, gradient ? WEFT_OK : WEFT_ERR_NUMERIC);
        if (gradient) assert_false(s.rank[1].finite);
        clear(&s);
    }
}

/* Steps 1, 2, 4, 8, ... are said, all are counted. */
static void a_log_is_not_filled(void **state)
{
    (void)state;
    weft_text t = {0};
    weft_log log = {collect, &t, WEFT_LOG_WARN};
    weft_guard g = {.policy = WEFT_GUARD_WARN, .limit = 1};
    for (int64_t step = 1; step <= 9; step++) {
        char what[8];
        snprintf(what, sizeof what, "%d", (int)step);
        weft_guard_begin(&g, step, 1, false);
        assert_false(g.found);
        assert_ok(weft_guard_found(&g, &log, what));
        assert_ok(weft_guard_found(&g, &log, "again"));
        assert_true(g.found);
    }
    assert_int_equal(g.steps_found, 9);
    assert_string_equal(t.data, "numerics guard: 1;numerics guard: 2;numerics guard: 4;numerics guard: 8;");
    weft_text_free(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_site_and_policy),
        cmocka_unit_test(layers_and_scales),
        cmocka_unit_test(the_scaler_sees_overflow),
        cmocka_unit_test(a_log_is_not_filled),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
