/* labels: small */
/* What is planned for a rank is what its account has counted when a step is done, kind by kind, on every rank of thirty
 * layouts, and what it has copied of a checkpoint; the table's kinds know every large label. */
#include "harness/test.h"
#include "harness/run.h"
#include "harness/text_case.h"
#include "train/trainer_impl.h"

enum { RANKS_MAX = 8, WORDS_MAX = 24 };

typedef struct job {
    const weft_run *run;
    const char *checkpoint;
    weft_memory own[RANKS_MAX], planned[RANKS_MAX];
    int64_t unknown[RANKS_MAX]; /* bytes of the largest label among the tables */
    const char *label[RANKS_MAX];
    weft_memory_report report;
} job;

static weft_status body(weft_ctx *ctx, weft_world *world, void *ud)
{
    job *j = ud;
    weft_trainer *t = NULL;
    weft_record record;
    weft_memory_report r;
    weft_world_set_timeout(world, 60);
    WEFT_TRY(weft_trainer_create(&t, world, j->run));
    WEFT_TRY(weft_trainer_step(t, &record));
    if (j->run->o->save_interval) WEFT_TRY(weft_trainer_save(t, j->checkpoint));
    WEFT_TRY(weft_trainer_memory(t, &r));
    j->own[ctx->rank] = r.own;
    j->planned[ctx->rank] = r.own_planned;
    for (int i = 0; i < ctx->mem.rows; i++) {
        const weft_mem_row *row = &ctx->mem.row[i];
        if (weft_memory_kind_of(row->label) != WEFT_MEMORY_TABLES) continue;
        if ((int64_t)row->peak <= j->unknown[ctx->rank]) continue;
        j->unknown[ctx->rank] = (int64_t)row->peak;
        j->label[ctx->rank] = row->label;
    }
    if (ctx->rank == 0) j->report = r;
    weft_trainer_destroy(t);
    return WEFT_OK;
}

static void check_rank(const job *j, int rank, const char *what)
{
    for (int k = 0; k < WEFT_MEMORY_KINDS; k++) {
        int64_t own = j->own[rank].bytes[k], planned = j->planned[rank].bytes[k];
        if (k >= WEFT_MEMORY_PRODUCTS) continue; /* nothing is planned of these */
        /* tensors and their order in a file are known exactly */
        if (k == WEFT_MEMORY_CHECKPOINT && !j->run->o->save_interval) continue;
        if (k == WEFT_MEMORY_CHECKPOINT && own != planned)
            fail_msg("%s, rank %d: checkpoint: %lld bytes counted, %lld planned", what, rank, (long long)own,
                     (long long)planned);
        if (fabs((double)(own - planned)) > 0.03 * (double)own)
            fail_msg("%s, rank %d: %s: %lld bytes counted, %lld planned", what, rank,
                     weft_memory_name((weft_memory_kind)k), (long long)own, (long long)planned);
    }
    if (j->own[rank].file != j->planned[rank].file)
        fail_msg("%s, rank %d: a file of %lld bytes, %lld planned", what, rank, (long long)j->own[rank].file,
                 (long long)j->planned[rank].file);
    /* the largest thing that no kind names; the tables of a run of this size */
    if (j->unknown[rank] > 96 << 10)
        fail_msg("%s, rank %d: \"%s\" holds %lld bytes and is of no kind", what, rank, j->label[rank],
                 (long long)j->unknown[rank]);
}

static void check_report(const job *j, int ranks)
{
    const weft_memory_report *r = &j->report;
    assert_int_equal(r->ranks, ranks);
    for (int i = 0; i < ranks; i++) {
        assert_true(weft_memory_total(&j->own[i]) <= weft_memory_total(&r->counted));
        for (int k = 0; k < WEFT_MEMORY_KINDS; k++)
            assert_in_range(j->own[i].bytes[k], r->least.bytes[k], r->most.bytes[k]);
    }
    assert_memory_equal(&r->counted, &j->own[r->rank], sizeof r->counted);
    assert_memory_equal(&r->planned, &j->planned[r->rank], sizeof r->planned);
    for (int i = 0; i < ranks; i++)
        assert_true(weft_memory_total(&j->planned[i]) <= weft_memory_total(&r->needed));
    assert_memory_equal(&r->needed, &j->planned[r->needs], sizeof r->needed);
    assert_true(r->resident >= r->least_resident && r->least_resident > 0);
    int64_t together = 0, free_now = (int64_t)weft_min_size(weft_machine_room(), INT64_MAX / 4);
    for (int i = 0; i < ranks; i++) together += weft_memory_total(&j->planned[i]);
    assert_int_equal(r->tightest.ranks, ranks);
    assert_true(r->tightest.planned == together);
    /* Ranks that are threads hold their memory once. */
    assert_in_range(r->tightest.room, r->resident, r->resident + free_now + (1 << 30));
}

static const char *const layouts[][WORDS_MAX] = {
    {NULL},
    {"--precision", "bf16"},
    {"--precision", "fp64", "--global-batch-size", "4"},
    {"--family", "gpt2", "--precision", "fp16"},
    {"--family", "qwen3", "--recompute", "attention"},
    {"--recompute", "block"},
    {"--recompute", "full"},
    {"--recompute", "full", "--recompute-keep-attention", "--precision", "bf16"},
    {"--mlp-rows", "37"},
    {"--recompute", "full", "--mlp-rows", "64", "--residual-dropout", "0.1", "--embedding-dropout", "0.1"},
    {"--micro-batch-size", "2", "--global-batch-size", "4", "--sliding-window", "40", "--family", "mistral"},
    {"--dp", "2", "--precision", "bf16"},
    {"--cp", "2"},
    {"--cp", "2", "--cp-strategy", "ring", "--precision", "bf16", "--recompute", "full"},
    {"--cp", "4", "--cp-strategy", "pcp"},
    {"--cp", "2", "--cp-strategy", "ulysses", "--cp-keep-heads"},
    {"--cp", "2", "--cp-strategy", "ulysses", "--cp-keep-heads", "--recompute", "block"},
    {"--cp", "3", "--cp-strategy", "pairwise", "--cp-layout", "striped"},
    {"--tp", "2"},
    {"--tp", "2", "--sequence-parallel", "--precision", "bf16", "--recompute", "full"},
    {"--tp", "2", "--cp", "2", "--mlp-rows", "16"},
    {"--tp", "3", "--family", "gpt2", "--residual-dropout", "0.1"},
    {"--pp", "2", "--global-batch-size", "4"},
    {"--pp", "3", "--global-batch-size", "5", "--recompute", "full"},
    {"--pp", "2", "--tp", "2", "--sequence-parallel", "--cp", "2", "--global-batch-size", "3",
     "--save-interval", "1"},
    {"--dp", "3", "--save-dtype", "bf16", "--save-shard-size", "40K", "--save-interval", "1"},
    {"--tp", "2", "--save-writers", "one", "--save-interval", "1"},
    {"--dp", "2", "--save-writers", "node", "--save-buffer", "100001", "--precision", "fp64", "--save-interval", "1"},
    {"--offload", "host"},
    {"--offload", "file", "--recompute", "full", "--precision", "bf16"},
    {"--offload", "host", "--recompute", "full", "--cp", "2", "--micro-batch-size", "2"},
    {"--offload", "host", "--recompute", "block", "--tp", "2", "--sequence-parallel"},
    {"--offload", "file", "--recompute", "full", "--pp", "3", "--global-batch-size", "5"},
    {"--offload", "host", "--pp", "2", "--cp", "2", "--global-batch-size", "3", "--num-layers", "5"},
    /* members of a head group with other numbers of heads; sums that need no room; stages with other numbers of rows */
    {"--cp", "4", "--cp-strategy", "ulysses", "--num-query-groups", "2", "--threads", "1"},
    {"--cp", "4", "--tp", "2", "--hidden-size", "24", "--threads", "1"},
    {"--cp", "3", "--cp-layout", "striped:16", "--pp", "2", "--hidden-size", "24", "--no-tied", "--threads", "1"},
};

static void check(const char *const *more)
{
    const char *common[] = {"--data", data_path, "--hidden-size", "48", "--num-attention-heads",
                            "6", "--num-layers", "4", "--seq-length", "257", "--steps", "1", "--seed", "3",
                            "--vocab-size", "300"};
    char what[300];
    test_words(more, what, sizeof what);
    test_run r;
    test_run_open_more(&r, WEFT_CMD_TRAIN, common, sizeof common / sizeof *common, more);
    const weft_mesh_shape *s = &r.run.mesh;
    int ranks = s->tp * s->cp * s->dp * s->pp;
    job j = {.run = &r.run, .checkpoint = test_dir_file(&dir, "checkpoint")};
    if (weft_run_threads(ranks, body, &j) < 0) fail_msg("%s: %s", what, weft_last_error());
    for (int i = 0; i < ranks; i++) check_rank(&j, i, what);
    check_report(&j, ranks);
    if (r.run.o->save_interval && weft_ckpt_remove(j.checkpoint) < 0) fail_msg("%s", weft_last_error());
    test_run_close(&r);
}

static void planned_is_counted_on_every_layout(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i += (size_t)test_every(4)) check(layouts[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(planned_is_counted_on_every_layout)};
    return cmocka_run_group_tests(tests, setup, teardown);
}
