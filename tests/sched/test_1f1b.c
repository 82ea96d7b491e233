/* labels: small */
/* 1F1B by its properties, for every small number of stages and micro-batches. */
#include "harness/test.h"
#include "sched/sched.h"

enum { MICROS = 20 };

static void check(int stages, int stage, int64_t micros)
{
    weft_sched_op ops[2 * MICROS];
    int64_t owner[MICROS], forwards = 0, backwards = 0, alive = 0, most = 0;
    int slots = weft_sched_slots(stages, stage, micros);
    for (int i = 0; i < MICROS; i++) owner[i] = -1;
    assert_ok(weft_sched_1f1b(stages, stage, micros, ops));
    for (int64_t i = 0; i < 2 * micros; i++) {
        assert_in_range(ops[i].slot, 0, slots - 1);
        if (ops[i].kind == WEFT_OP_FORWARD) {
            assert_int_equal(ops[i].micro, forwards++);  /* in order */
            assert_int_equal(owner[ops[i].slot], -1);    /* the slot is free */
            owner[ops[i].slot] = ops[i].micro;
            if (++alive > most) most = alive;
        } else {
            assert_int_equal(ops[i].micro, backwards++);
            assert_int_equal(owner[ops[i].slot], ops[i].micro); /* its activations are there */
            owner[ops[i].slot] = -1;
            alive--;
        }
    }
    assert_int_equal(forwards, micros);
    assert_int_equal(backwards, micros);
    assert_true(most <= slots && slots <= stages - stage);
}

static void properties(void **state)
{
    (void)state;
    for (int stages = 1; stages <= 8; stages++)
        for (int stage = 0; stage < stages; stage++)
            for (int64_t micros = 0; micros <= MICROS; micros++) check(stages, stage, micros);
}

/* Stages wait for each other only along the pipeline: simulated with unit passes, the last backward of stage 0 ends
 * after (micros + stages - 1) forwards and as many backwards, the known optimum. */
static void length(void **state)
{
    (void)state;
    enum { STAGES = 5, N = 7 };
    weft_sched_op ops[STAGES][2 * N];
    int at[STAGES] = {0}, fdone[STAGES][N], bdone[STAGES][N], clock[STAGES] = {0};
    memset(fdone, 0x7f, sizeof fdone);
    memset(bdone, 0x7f, sizeof bdone);
    for (int s = 0; s < STAGES; s++) assert_ok(weft_sched_1f1b(STAGES, s, N, ops[s]));
    for (int round = 0; round < STAGES * 2 * N; round++)
        for (int s = 0; s < STAGES; s++) {
            if (at[s] == 2 * N) continue;
            const weft_sched_op *o = &ops[s][at[s]];
            bool forward = o->kind == WEFT_OP_FORWARD;
            int ready = forward          ? (s ? fdone[s - 1][o->micro] : 0)
                        : s + 1 < STAGES ? bdone[s + 1][o->micro]
                                         : fdone[s][o->micro];
            if (ready == 0x7f7f7f7f) continue; /* not done yet */
            clock[s] = (ready > clock[s] ? ready : clock[s]) + 1;
            (forward ? fdone : bdone)[s][o->micro] = clock[s];
            at[s]++;
        }
    assert_int_equal(at[0], 2 * N);
    assert_int_equal(bdone[0][N - 1], 2 * (N + STAGES - 1));
}

static void bad_input(void **state)
{
    (void)state;
    weft_sched_op op[2];
    assert_refused(weft_sched_1f1b(2, 2, 1, op), "stage 2 of 2");
    assert_refused(weft_sched_1f1b(0, 0, 1, op), "stage 0 of 0");
    assert_refused(weft_sched_1f1b(1, 0, -1, op), "-1");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(properties), cmocka_unit_test(length),
                                       cmocka_unit_test(bad_input)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
