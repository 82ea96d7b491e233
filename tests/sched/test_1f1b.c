/* labels: small */
/* 1F1B by its properties, for every small number of stages and micro-batches: the lists of all stages are run against
 * a model of the strictest transport, in which a send completes only against a posted receive, and in which every use
 * of a buffer is checked. */
#include "harness/test.h"
#include "sched/sched.h"

enum { STAGES = 8, MICROS = 20, OPS = 10 * MICROS, RING = STAGES + 1 };

/* What a buffer holds: nothing, a micro-batch that is coming, is here, is used, or is going. */
typedef enum { EMPTY, COMING, HERE, USED, GOING } held;
typedef struct buffer { held held; int64_t micro; } buffer;

typedef struct wire { /* one direction between two stages: when both ends of message m were begun */
    bool posted[MICROS], sent[MICROS];
    double posted_at[MICROS], sent_at[MICROS];
    int64_t posts, sends;
} wire;

typedef struct stage {
    weft_sched_op op[OPS];
    int64_t n, at, forwards, backwards, alive, most;
    int slots;
    double clock;
    buffer slot[STAGES], input[RING], output[WEFT_SCHED_OUTPUTS], gradient[WEFT_SCHED_GRADIENTS];
    wire down, up; /* to the stage after; to the stage before */
} stage;

typedef struct line {
    stage s[STAGES];
    int stages;
    int64_t micros;
    double forward, backward, travel;
    bool train, copied; /* copied: a forward pass copies its input */
} line;

static void take(buffer *b, held from, held to, int64_t micro)
{
    assert_int_equal(b->held, from);
    if (from != EMPTY) assert_int_equal(b->micro, micro);
    *b = (buffer){to, micro};
}

/* Messages of a direction have one tag: they meet in order. */
static void post(wire *w, int64_t micro, double now)
{
    assert_int_equal(micro, w->posts++);
    w->posted[micro] = true, w->posted_at[micro] = now;
}

static void send(wire *w, int64_t micro, double now)
{
    assert_int_equal(micro, w->sends++);
    w->sent[micro] = true, w->sent_at[micro] = now;
}

/* Is the transfer over, and when? */
static bool arrived(const wire *w, int64_t micro, double travel, double *when)
{
    if (!w->posted[micro] || !w->sent[micro]) return false;
    *when = fmax(w->posted_at[micro], w->sent_at[micro]) + travel;
    return true;
}

static void run_forward(line *l, int i, int64_t m)
{
    stage *s = &l->s[i];
    assert_int_equal(m, s->forwards++);
    take(&s->slot[m % s->slots], EMPTY, l->train ? HERE : EMPTY, m);
    if (i > 0) take(&s->input[m % weft_sched_inputs(s->slots, l->copied)], HERE,
                    l->train && !l->copied ? USED : EMPTY, m);
    if (i + 1 < l->stages) take(&s->output[m % WEFT_SCHED_OUTPUTS], EMPTY, HERE, m);
    if (l->train && ++s->alive > s->most) s->most = s->alive;
    s->clock += l->forward;
}

static void run_backward(line *l, int i, int64_t m)
{
    stage *s = &l->s[i];
    assert_int_equal(m, s->backwards++);
    take(&s->slot[m % s->slots], HERE, EMPTY, m);
    if (i > 0 && !l->copied) take(&s->input[m % weft_sched_inputs(s->slots, false)], USED, EMPTY, m);
    if (l->stages > 1)
        take(&s->gradient[m % WEFT_SCHED_GRADIENTS], i + 1 < l->stages ? HERE : EMPTY, i > 0 ? USED : EMPTY, m);
    s->alive--;
    s->clock += l->backward;
}

/* One operation; false when it has to wait for another stage. */
static bool step(line *l, int i)
{
    stage *s = &l->s[i];
    const weft_sched_op *o = &s->op[s->at];
    int64_t m = o->micro;
    buffer *input = &s->input[m % weft_sched_inputs(s->slots, l->copied)], *output = &s->output[m % WEFT_SCHED_OUTPUTS];
    buffer *gradient = &s->gradient[m % WEFT_SCHED_GRADIENTS];
    double when = s->clock;
    assert_int_equal(o->slot, m % s->slots);
    switch (o->kind) {
    case WEFT_OP_FORWARD: run_forward(l, i, m); break;
    case WEFT_OP_BACKWARD: run_backward(l, i, m); break;
    case WEFT_OP_POST_INPUT:
        take(input, EMPTY, COMING, m);
        post(&l->s[i - 1].down, m, s->clock);
        break;
    case WEFT_OP_WAIT_INPUT:
        if (!arrived(&l->s[i - 1].down, m, l->travel, &when)) return false;
        take(input, COMING, HERE, m);
        break;
    case WEFT_OP_SEND_OUTPUT:
        take(output, HERE, GOING, m);
        send(&s->down, m, s->clock);
        break;
    case WEFT_OP_WAIT_OUTPUT_SENT:
        if (!arrived(&s->down, m, l->travel, &when)) return false;
        take(output, GOING, EMPTY, m);
        break;
    case WEFT_OP_POST_GRADIENT:
        take(gradient, EMPTY, COMING, m);
        post(&l->s[i + 1].up, m, s->clock);
        break;
    case WEFT_OP_WAIT_GRADIENT:
        if (!arrived(&l->s[i + 1].up, m, l->travel, &when)) return false;
        take(gradient, COMING, HERE, m);
        break;
    case WEFT_OP_SEND_GRADIENT:
        take(gradient, USED, GOING, m);
        send(&s->up, m, s->clock);
        break;
    case WEFT_OP_WAIT_GRADIENT_SENT:
        if (!arrived(&s->up, m, l->travel, &when)) return false;
        take(gradient, GOING, EMPTY, m);
        break;
    case WEFT_OP_KINDS: fail_msg("no kind of operation");
    }
    s->clock = fmax(s->clock, when);
    s->at++;
    return true;
}

static void make_lists(line *l)
{
    for (int i = 0; i < l->stages; i++) {
        stage *s = &l->s[i];
        s->slots = l->train ? weft_sched_slots(l->stages, i, l->micros) : 1;
        s->n = l->train ? weft_sched_1f1b_ops(l->stages, i, l->micros)
                        : weft_sched_forward_ops(l->stages, i, l->micros);
        assert_in_range(s->n, 0, OPS);
        memset(s->op, 0xff, sizeof s->op); /* an operation that is not written is found */
        assert_ok(l->train ? weft_sched_1f1b(l->stages, i, l->micros, s->op)
                           : weft_sched_forward(l->stages, i, l->micros, s->op));
    }
}

static void check_end(const line *l, const stage *s)
{
    assert_int_equal(s->forwards, l->micros);
    assert_int_equal(s->backwards, l->train ? l->micros : 0);
    assert_true(s->most <= s->slots);
    for (int i = 0; i < RING; i++) assert_int_equal(s->input[i].held, EMPTY);
    for (int i = 0; i < WEFT_SCHED_OUTPUTS; i++) assert_int_equal(s->output[i].held, EMPTY);
    for (int i = 0; i < WEFT_SCHED_GRADIENTS; i++) assert_int_equal(s->gradient[i].held, EMPTY);
    assert_int_equal(s->down.posts, s->down.sends);
    assert_int_equal(s->up.posts, s->up.sends);
}

/* Runs the lists of all stages to their end; returns when the last of them is done. */
static double run(line *l)
{
    make_lists(l);
    bool moved = true;
    double last = 0;
    while (moved) {
        moved = false;
        for (int i = 0; i < l->stages; i++)
            while (l->s[i].at < l->s[i].n && step(l, i)) moved = true;
    }
    for (int i = 0; i < l->stages; i++) {
        stage *s = &l->s[i];
        if (s->at < s->n)
            fail_msg("%d stages, %lld micro-batches: stage %d waits for ever to %s of micro-batch %lld", l->stages,
                     (long long)l->micros, i, weft_op_name(s->op[s->at].kind), (long long)s->op[s->at].micro);
        check_end(l, s);
        last = fmax(last, s->clock);
    }
    return last;
}

/* Without time on the way, the whole takes as long as the best that an unlooped pipeline can do: (micros + stages - 1)
 * passes in each direction. */
static void every_list_ends_in_the_shortest_time(void **state)
{
    (void)state;
    for (int stages = 1; stages <= STAGES; stages++)
        for (int64_t micros = 0; micros <= MICROS; micros++)
            for (int k = 0; k < 4; k++) {
                const int backward = 1 + k % 2;
                line l = {.stages = stages, .micros = micros, .forward = 1, .backward = backward, .train = true,
                          .copied = k > 1};
                double best = micros ? (double)(micros + stages - 1) * (1 + backward) : 0;
                assert_true(run(&l) == best);
            }
}

/* A transfer that takes less than a pass is hidden behind one, but for filling and draining and for the turn of each
 * round trip between neighbours: the last stage gives a gradient back when it has taken an input. */
static void transfers_are_hidden_behind_passes(void **state)
{
    (void)state;
    const double t = 0.25;
    for (int stages = 2; stages <= STAGES; stages++)
        for (int64_t micros = 1; micros <= MICROS; micros++) {
            double best = (double)(micros + stages - 1) * 3;
            /* each hop once in filling and draining, and twice for every later micro-batch of the last two stages */
            double more = 2 * t * (double)(stages - 1) + 2 * t * (double)(micros - 1);
            for (int copied = 0; copied < 2; copied++) {
                line l = {.stages = stages, .micros = micros, .forward = 1, .backward = 2, .travel = t, .train = true,
                          .copied = copied};
                assert_at_most(run(&l), best + more);
            }
        }
}

static void forward_lists_end_in_the_shortest_time(void **state)
{
    (void)state;
    for (int stages = 1; stages <= STAGES; stages++)
        for (int64_t micros = 0; micros <= MICROS; micros++) {
            line l = {.stages = stages, .micros = micros, .forward = 1};
            assert_true(run(&l) == (micros ? (double)(micros + stages - 1) : 0));
        }
}

/* As many slots as are ever alive, and no more. */
static void slots_are_all_used(void **state)
{
    (void)state;
    for (int stages = 1; stages <= STAGES; stages++)
        for (int64_t micros = 1; micros <= MICROS; micros++) {
            line l = {.stages = stages, .micros = micros, .forward = 1, .backward = 1, .train = true};
            run(&l);
            for (int i = 0; i < stages; i++) {
                assert_int_equal(l.s[i].most, l.s[i].slots);
                assert_int_equal(l.s[i].slots, weft_min_i64(micros, stages - i));
            }
        }
}

static void names(void **state)
{
    (void)state;
    for (int a = 0; a < WEFT_OP_KINDS; a++)
        for (int b = 0; b < a; b++)
            assert_string_not_equal(weft_op_name((weft_op_kind)a), weft_op_name((weft_op_kind)b));
    assert_string_equal(weft_op_name(WEFT_OP_FORWARD), "forward");
    assert_string_equal(weft_op_name(WEFT_OP_KINDS), "?");
}

static void bad_input(void **state)
{
    (void)state;
    weft_sched_op op[2];
    assert_refused(weft_sched_1f1b(2, 2, 1, op), "stage 2 of 2");
    assert_refused(weft_sched_1f1b(0, 0, 1, op), "stage 0 of 0");
    assert_refused(weft_sched_1f1b(1, 0, -1, op), "-1");
    assert_refused(weft_sched_forward(3, -1, 1, op), "stage -1 of 3");
    assert_int_equal(weft_sched_1f1b_ops(1, 0, -1), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_list_ends_in_the_shortest_time), cmocka_unit_test(transfers_are_hidden_behind_passes),
        cmocka_unit_test(forward_lists_end_in_the_shortest_time), cmocka_unit_test(slots_are_all_used),
        cmocka_unit_test(names), cmocka_unit_test(bad_input),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
