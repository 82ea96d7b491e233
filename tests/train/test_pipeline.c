/* labels: small tsan */ /* timeout: 200 */
/* Pipelines on thread ranks: one rank's loss and gradients whatever the stages and micro-batches are, activations of as
 * many micro-batches as the schedule has alive, the same bits twice. test_pipeline_grid.c has every layout. */
#include "pipeline_case.h"
#include "harness/text_case.h"

#include "sched/sched.h"
#include "train/trainer_impl.h"

/* ---- against one rank ------------------------------------------------------------------------------- */

static void one_ranks_loss_and_gradients(void **state)
{
    (void)state;
    static const struct {
        weft_family family;
        int64_t L, B;
        bool docs;
        layout x;
    } cases[] = {
        {WEFT_LLAMA, 2, 1, false, {2, 1, 1, "1", 1, false}}, /* fewer micro-batches than stages */
        {WEFT_GPT2, 3, 4, false, {3, 1, 1, "1", 1, false}},
        {WEFT_QWEN2, 3, 5, true, {2, 2, 1, "1", 1, false}},
        {WEFT_QWEN3, 4, 6, false, {4, 1, 1, "1", 1, false}},
        {WEFT_MISTRAL, 2, 5, true, {2, 1, 2, "1", 1, false}}, /* two and three micro-batches */
        {WEFT_GPT2, 2, 5, false, {2, 1, 1, "2", 1, false}},   /* the last micro-batch is smaller */
        {WEFT_LLAMA, 7, 3, false, {5, 1, 1, "1", 1, false}},
        {WEFT_QWEN2, 2, 1, false, {2, 1, 2, "1", 1, false}}, /* a data-parallel rank without a row */
        {WEFT_GPT2, 3, 3, true, {2, 2, 1, "1", 2, false}},
        {WEFT_QWEN3, 3, 3, false, {3, 1, 1, "1", 2, true}},
        {WEFT_QWEN2, 2, 4, true, {2, 1, 2, "2", 3, true}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        weft_model_config c = case_config(cases[i].family, cases[i].L);
        case_write_model(test_dir_file(&dir, "model"), &c);
        case_write(test_dir_file(&dir, "case.safetensors"), cases[i].B, cases[i].docs);
        case_check(test_dir_file(&dir, "model"), test_dir_file(&dir, "case.safetensors"), cases[i].x);
    }
}

/* ---- training ---------------------------------------------------------------------------------------- */

enum { STEPS = 3, RANKS_MAX = 12 };

typedef struct result {
    const weft_run *run;
    double loss[RANKS_MAX][STEPS], norm[RANKS_MAX][STEPS], evaluation[RANKS_MAX];
    uint64_t hash[RANKS_MAX];              /* of the weights after the last step */
    int64_t allocations[RANKS_MAX][STEPS];
    size_t qkv[RANKS_MAX], stream[RANKS_MAX], offloaded[RANKS_MAX], kept[RANKS_MAX]; /* bytes of labels; all */
    int64_t reads[RANKS_MAX];              /* of offloaded inputs, in all steps */
    int64_t sent[RANKS_MAX];               /* bytes over the group pp in all steps */
    double imbalance;
} result;

static size_t bytes_of(const weft_mem *mem, const char *arena, const char *label)
{
    size_t sum = 0;
    for (int i = 0; i < mem->rows; i++)
        if (!strcmp(mem->row[i].arena, arena) && !strcmp(mem->row[i].label, label)) sum += mem->row[i].peak;
    return sum;
}

static weft_status body(weft_ctx *ctx, weft_world *world, void *ud)
{
    result *r = ud;
    weft_trainer *t = NULL;
    weft_status st = WEFT_OK;
    int me = ctx->rank;
    weft_world_set_timeout(world, 60);
    WEFT_TRY(weft_fault_parse(&ctx->fault, "fail:site=spill.get:hit=1000000")); /* counts, and never acts */
    WEFT_TRY(weft_trainer_create(&t, world, r->run));
    const weft_engine *e = weft_trainer_engine(t);
    for (int s = 0; s < STEPS && st >= 0; s++) {
        weft_record record;
        st = weft_trainer_step(t, &record);
        r->loss[me][s] = record.loss, r->norm[me][s] = record.grad_norm;
        r->allocations[me][s] = ctx->mem.allocations;
        if (me == 0) r->imbalance = record.imbalance;
    }
    weft_counters counters;
    weft_comm_counters(e->mesh.pp, &counters);
    r->sent[me] = counters.bytes_logical;
    if (st >= 0) st = weft_trainer_eval(t, 5, &r->evaluation[me]);
    r->hash[me] = test_hash(weft_model_weights(e->model), (size_t)weft_model_weight_count(e->model) *
                                                              weft_dtype_size(weft_prec_real(r->run->prec)));
    r->qkv[me] = bytes_of(&ctx->mem, "model", "qkv");
    r->stream[me] = bytes_of(&ctx->mem, "model", "residual");
    r->offloaded[me] = bytes_of(&ctx->mem, "offload", "offloaded inputs");
    static const char *const labels[] = {"residual", "normed", "qkv", "attention out", "attention state", "mlp",
                                         "norm statistics", "scratch", "logits", "loss"};
    for (size_t i = 0; i < sizeof labels / sizeof *labels; i++) r->kept[me] += bytes_of(&ctx->mem, "model", labels[i]);
    weft_trainer_destroy(t);
    r->reads[me] = ctx->fault.passed;
    return st;
}

static result run(int ranks, const char *const *extra)
{
    const char *common[] = {"--data", data_path, "--hidden-size", "12", "--num-attention-heads", "3",
                            "--num-query-groups", "1", "--ffn-hidden-size", "20", "--seq-length", "17", "--steps", "3",
                            "--lr", "1e-3", "--warmup-steps", "0", "--valid-fraction", "0.2", "--separator", "7",
                            "--document-mask"};
    test_run t;
    result r = {0};
    test_run_open_more(&t, WEFT_CMD_TRAIN, common, sizeof common / sizeof *common, extra);
    r.run = &t.run;
    if (weft_run_threads(ranks, body, &r) < 0) fail_msg("%s %s: %s", extra[0], extra[1], weft_last_error());
    test_run_close(&t);
    return r;
}

#define W(...) ((const char *const[]){__VA_ARGS__, NULL})

/* Documents differ from one micro-batch to the next, and so do positions: each slot has its own. Sums of a few hundred
 * terms in fp64; AdamW amplifies what they round within three steps. */
static void training_steps_are_one_ranks(void **state)
{
    (void)state;
    result one = run(1, W("--precision", "fp64", "--num-layers", "3", "--global-batch-size", "6"));
    result many = run(12, W("--precision", "fp64", "--num-layers", "3", "--global-batch-size", "6", "--pp", "3", "--cp",
                            "2", "--dp", "2", "--attention-dropout", "0"));
    for (int rank = 0; rank < 12; rank++) {
        for (int s = 0; s < STEPS; s++) {
            assert_at_most(fabs(many.loss[rank][s] - one.loss[0][s]), 1e-10);
            assert_at_most(fabs(many.norm[rank][s] / one.norm[0][s] - 1), 1e-9);
            assert_memory_equal(&many.loss[rank][s], &many.loss[0][s], sizeof many.loss[0][s]);
            assert_memory_equal(&many.norm[rank][s], &many.norm[0][s], sizeof many.norm[0][s]);
        }
        assert_at_most(fabs(many.evaluation[rank] - one.evaluation[0]), 1e-10);
    }
    /* ranks of dp x cp hold the same weights */
    for (int rank = 0; rank < 12; rank++) assert_true(many.hash[rank] == many.hash[rank / 4 * 4]);
}

static void the_same_run_twice_is_the_same_bits(void **state)
{
    (void)state;
    const char *const words[] = {"--num-layers", "3", "--pp", "3", "--cp", "2", "--global-batch-size", "5", NULL};
    result a = run(6, words), b = run(6, words);
    assert_memory_equal(a.loss, b.loss, sizeof a.loss);
    assert_memory_equal(a.norm, b.norm, sizeof a.norm);
    assert_memory_equal(a.hash, b.hash, sizeof a.hash);
    for (int rank = 0; rank < 6; rank++)
        for (int s = 1; s < STEPS; s++) assert_int_equal(a.allocations[rank][s], a.allocations[rank][0]);
}

/* Layers made again in backward, with slots that come between: the bits of layers that were kept, and activations of
 * inputs only; and of a few of these, when inputs lie elsewhere. */
static void stages_make_layers_again(void **state)
{
    (void)state;
    static const struct {
        int ranks;
        const char *words[18];
    } cases[] = {
        {3, {"--pp", "3", "--num-layers", "7", "--global-batch-size", "5", "--precision", "bf16"}},
        {4, {"--pp", "2", "--cp", "2", "--num-layers", "5", "--global-batch-size", "4", "--attention-dropout", "0.1",
             "--residual-dropout", "0.2", "--embedding-dropout", "0.1"}},
        {4, {"--pp", "2", "--tp", "2", "--sequence-parallel", "--num-layers", "5", "--global-batch-size", "3"}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *words[28] = {NULL};
        char offload[300];
        int n = 0;
        for (; cases[i].words[n]; n++) words[n] = cases[i].words[n];
        snprintf(offload, sizeof offload, "file:%s", dir.path);
        result kept = run(cases[i].ranks, words);
        words[n] = "--recompute", words[n + 1] = "full";
        result again = run(cases[i].ranks, words);
        assert_memory_equal(again.loss, kept.loss, sizeof kept.loss);
        assert_memory_equal(again.norm, kept.norm, sizeof kept.norm);
        assert_memory_equal(again.hash, kept.hash, sizeof kept.hash);
        assert_memory_equal(again.evaluation, kept.evaluation, sizeof kept.evaluation);
        assert_true(again.qkv[0] < kept.qkv[0]);
        for (int file = 0; file < 2; file++) {
            if ((i + (size_t)file) % (size_t)test_every(2)) continue;
            words[n + 2] = "--offload", words[n + 3] = file ? offload : "host";
            result away = run(cases[i].ranks, words);
            assert_memory_equal(away.loss, kept.loss, sizeof kept.loss);
            assert_memory_equal(away.norm, kept.norm, sizeof kept.norm);
            assert_memory_equal(away.hash, kept.hash, sizeof kept.hash);
            assert_memory_equal(away.evaluation, kept.evaluation, sizeof kept.evaluation);
            for (int rank = 0; rank < cases[i].ranks; rank++)
                assert_int_equal(away.allocations[rank][STEPS - 1], away.allocations[rank][0]);
        }
    }
}

/* Stages do what one rank does, in the same order: where nothing is added over ranks but zeros (no tied embedding, no
 * norm that clips), steps have one rank's bits, in every precision. */
static void stages_have_one_ranks_bits(void **state)
{
    (void)state;
    static const char *const precisions[] = {"fp64", "fp32", "bf16", "fp16"};
    for (int p = 0; p < 4; p++) {
        const char *const words[] = {"--precision", precisions[p], "--num-layers", "3", "--global-batch-size", "4",
                                     "--no-tied", "--clip-grad", "0", NULL, NULL, NULL};
        const char *pipe[12];
        memcpy(pipe, words, sizeof words);
        pipe[9] = "--pp", pipe[10] = "3";
        result one = run(1, words), many = run(3, pipe);
        assert_memory_equal(many.loss[2], one.loss[0], sizeof one.loss[0]);
        assert_true(one.loss[0][2] != one.loss[0][0]); /* the weights moved */
        assert_memory_equal(&many.evaluation[0], &one.evaluation[0], sizeof one.evaluation[0]);
    }
}

/* q, k, v of a layer and micro-batch: rows x (H + 2 Hkv) D elements of four bytes, each rounded up to 64. */
static void activations_of_slots_times_layers(void **state)
{
    (void)state;
    enum { QKV = (17 * (3 + 2) * 4 * 4 + 63) / 64 * 64 };
    static const char *const micros[] = {"1", "2", "4", "8"};
    for (int m = 0; m < 4; m++) {
        result r = run(3, W("--num-layers", "5", "--pp", "3", "--global-batch-size", micros[m]));
        for (int stage = 0; stage < 3; stage++) {
            weft_span layers = weft_model_cut(5, 3, stage);
            int alive = (int)weft_min_i64(1 << m, 3 - stage);
            assert_int_equal(r.qkv[stage], QKV * alive * (layers.end - layers.begin));
        }
    }
}

/* Rows of 12 elements of four bytes, to each neighbour; the rest of what the group moves knows no micro-batch. With
 * zigzag on two ranks, 17 tokens are 4 + 5 and 4 + 4. */
static void a_micro_batch_sends_its_rows_to_each_neighbour(void **state)
{
    (void)state;
    result four = run(6, W("--num-layers", "3", "--pp", "3", "--cp", "2", "--global-batch-size", "4"));
    result six = run(6, W("--num-layers", "3", "--pp", "3", "--cp", "2", "--global-batch-size", "6"));
    for (int rank = 0; rank < 6; rank++) {
        int64_t rows = rank % 2 ? 8 : 9, neighbours = rank / 2 == 1 ? 2 : 1;
        assert_int_equal(six.sent[rank] - four.sent[rank], STEPS * 2 * neighbours * rows * 12 * 4);
    }
}

/* Three layers are one and two: the busier stage has 4/3 of the mean, whatever the documents are. */
static void uneven_stages_are_an_imbalance(void **state)
{
    (void)state;
    result r = run(2, W("--num-layers", "3", "--pp", "2", "--global-batch-size", "4"));
    assert_at_most(fabs(r.imbalance - 4.0 / 3), 1e-15);
}

/* More micro-batches to a step are more time and no more activations. */
static void accumulation_takes_no_memory(void **state)
{
    (void)state;
    static const char *const micros[] = {"1", "2", "4", "8"};
    size_t first = 0;
    for (int m = 0; m < 4; m++) {
        result r = run(1, W("--num-layers", "2", "--global-batch-size", micros[m]));
        if (m == 0) first = r.kept[0];
        assert_true(first > 0);
        assert_int_equal(r.kept[0], first);
    }
}

/* Three stages of two, two and three layers, with 3, 2 and 1 micro-batches alive: what a stage holds of the stream does
 * not depend on that. Rows of 17 x 12 numbers of four bytes. */
static void offloaded_inputs_leave_a_few_buffers(void **state)
{
    (void)state;
    enum { ROWS = (17 * 12 * 4 + 63) / 64 * 64 };
    result r = run(3, W("--num-layers", "7", "--pp", "3", "--global-batch-size", "8", "--recompute", "full",
                        "--offload", "host"));
    for (int stage = 0; stage < 3; stage++) {
        weft_span layers = weft_model_cut(7, 3, stage);
        int64_t inputs = (layers.end - layers.begin) * (3 - stage);
        assert_int_equal(r.stream[stage], ROWS * (weft_min_i64(3, inputs - 1) + 1));
        assert_int_equal(r.offloaded[stage], ROWS * inputs);
        /* eight backward passes a step; some inputs are still here, and none is read twice */
        assert_in_range(r.reads[stage], 1, STEPS * 8 * (layers.end - layers.begin) - 1);
    }
}

/* ---- refusals ---------------------------------------------------------------------------------------- */

static weft_status refused_body(weft_ctx *ctx, weft_world *world, void *ud)
{
    weft_trainer *t = NULL;
    (void)ctx;
    weft_status st = weft_trainer_create(&t, world, ud);
    weft_trainer_destroy(t);
    return st;
}

static void more_stages_than_layers(void **state)
{
    (void)state;
    const char *words[] = {"--data", data_path, "--hidden-size", "12", "--num-attention-heads",
                           "3", "--num-layers", "2", "--seq-length", "17", "--pp", "3", NULL};
    test_run t;
    test_run_open(&t, WEFT_CMD_TRAIN, words);
    assert_refused(weft_run_threads(3, refused_body, &t.run), "at most --pp 2");
    test_run_close(&t);
}

/* Alike on all ranks, whatever their stage. */
static void offload_without_use(void **state)
{
    (void)state;
    const char *words[] = {"--data", data_path, "--hidden-size", "12", "--num-attention-heads",
                           "3", "--num-layers", "2", "--seq-length", "17", "--pp", "2", "--global-batch-size", "4",
                           "--offload", "host", NULL};
    test_run t;
    test_run_open(&t, WEFT_CMD_TRAIN, words);
    assert_refused(weft_run_threads(2, refused_body, &t.run), "--offload host could not act");
    test_run_close(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_ranks_loss_and_gradients), cmocka_unit_test(training_steps_are_one_ranks),
        cmocka_unit_test(the_same_run_twice_is_the_same_bits), cmocka_unit_test(activations_of_slots_times_layers),
        cmocka_unit_test(stages_make_layers_again), cmocka_unit_test(offloaded_inputs_leave_a_few_buffers),
        cmocka_unit_test(stages_have_one_ranks_bits), cmocka_unit_test(a_micro_batch_sends_its_rows_to_each_neighbour),
        cmocka_unit_test(uneven_stages_are_an_imbalance), cmocka_unit_test(accumulation_takes_no_memory),
        cmocka_unit_test(more_stages_than_layers), cmocka_unit_test(offload_without_use),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
