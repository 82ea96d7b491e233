/* labels: small tsan */
/* Inputs of layers that lie in a pool or in a file give the bits of those that stay in memory, in every mode of
 * recomputation, on every layout, with several micro-batches alive and in any order of their backward passes; memory
 * does not grow with layers; a step after the first allocates nothing; what fails is told. */
#include "toy.h"
#include "harness/tempdir.h"

static test_dir dir;
static int setup(void **state) { (void)state; test_dir_make(&dir); return 0; }
static int teardown(void **state) { (void)state; test_dir_remove(&dir); return 0; }

typedef struct layout { int cp, tp; bool sequence_parallel; const char *strategy; } layout;

static const layout alone = {1, 1, false, "none"};

static toy run_on(toy t, layout on)
{
    t.P = on.cp;
    t.tp = on.tp;
    t.sequence_parallel = on.sequence_parallel;
    t.strategy = on.strategy;
    t.layout = (weft_layout){on.cp == 1 ? WEFT_LAYOUT_CONTIGUOUS : WEFT_LAYOUT_ZIGZAG, 0};
    t.offload_folder = dir.path;
    assert_ok(toy_run(&t));
    return t;
}

/* Two documents in one row, one of them longer than a rank's part. */
enum { T = 17 };
static const int64_t cu[] = {0, 5, T}, first[] = {0, 3};
static int32_t token[T], target[T];

static toy problem(weft_family family, int64_t layers, weft_prec prec, double dropout)
{
    weft_model_config c = toy_config(family, layers);
    toy_tokens(token, target, T, c.V);
    return (toy){.config = c, .prec = prec, .B = 1, .T = T, .cu = cu, .first = first, .token = token, .target = target,
                 .dropout = dropout, .embedding_dropout = dropout, .residual_dropout = dropout, .grad_scale = 0.125};
}

static void check_places(toy t, layout on)
{
    static int turn;
    toy kept = run_on(t, on);
    for (int where = WEFT_OFFLOAD_HOST; where < WEFT_OFFLOADS; where++) {
        if (turn++ % test_every(3)) continue;
        t.offload = (weft_offload)where;
        toy away = run_on(t, on);
        assert_true(away.nll_sum == kept.nll_sum);
        assert_memory_equal(away.token_nll, kept.token_nll, T * sizeof(double));
        assert_memory_equal(away.grads, kept.grads, (size_t)kept.count * sizeof(double));
        for (int r = 0; r < on.cp * on.tp; r++) {
            assert_int_equal(away.messages[r], kept.messages[r]);
            /* a page at least for each input */
            assert_int_equal(away.file[r], where == WEFT_OFFLOAD_FILE ? 4096 * t.config.L : 0);
        }
        toy_free(&away);
    }
    toy_free(&kept);
    assert_int_equal(test_dir_count(&dir), 0);
}

static void check_modes(toy t, layout on)
{
    for (int mode = WEFT_RECOMPUTE_NONE; mode < WEFT_RECOMPUTE_MODES; mode++) {
        t.recompute = (weft_recompute)mode;
        t.keep_attention = mode % 2;
        check_places(t, on);
    }
}

/* Three layers have two buffers, and nothing can be read ahead; with 7 most inputs are read. */
static void one_rank(void **state)
{
    (void)state;
    check_modes(problem(WEFT_LLAMA, 3, WEFT_PREC_F32, 0.2), alone);
    check_modes(problem(WEFT_GPT2, 4, WEFT_PREC_F64, 0), alone);
    check_modes(problem(WEFT_QWEN3, 7, WEFT_PREC_BF16, 0.2), alone);
    check_modes(problem(WEFT_MISTRAL, 5, WEFT_PREC_F16, 0), alone);
}

/* Five ranks for 17 tokens, and 20 for as many: some have none. */
static void many_ranks(void **state)
{
    (void)state;
    check_modes(problem(WEFT_LLAMA, 5, WEFT_PREC_F32, 0.2), (layout){2, 1, false, "ring"});
    check_places(problem(WEFT_GPT2, 4, WEFT_PREC_F32, 0), (layout){5, 1, false, "pairwise"});
    toy full = problem(WEFT_LLAMA, 5, WEFT_PREC_BF16, 0.2);
    full.recompute = WEFT_RECOMPUTE_FULL;
    check_places(full, (layout){1, 3, false, "none"});
    check_places(full, (layout){2, 2, true, "pcp"});
    full.prec = WEFT_PREC_F32;
    check_places(full, (layout){20, 1, false, "pcp"});
}

/* ---- several micro-batches alive --------------------------------------------------------------------- */

typedef struct single { /* one rank on the test's own thread */
    weft_ctx ctx;
    weft_world *world;
    toy t;
    toy_rank r;
} single;

static weft_status open_single(single *a, const toy *t, const char *fault)
{
    a->t = *t;
    a->t.P = 1;
    a->t.strategy = "none";
    a->t.offload_folder = dir.path;
    weft_ctx_init(&a->ctx);
    assert_ok(weft_fault_parse(&a->ctx.fault, fault));
    assert_ok(weft_world_self(&a->world, &a->ctx));
    return toy_open(&a->r, &a->ctx, a->world, &a->t);
}

static void close_single(single *a)
{
    toy_close(&a->r);
    weft_world_close(a->world);
}

/* One stage has room for one gradient of the head, so a pass that shall have a backward pass comes last; others run
 * before it, and their slots stay alive until their turn, when they run again. What a slot holds must not be taken for
 * another's. */
static double passes(single *a, int pattern)
{
    weft_micro u = {.shard = &a->r.shard, .token = a->r.token, .target = a->r.target};
    double sum = 0, nll;
    for (int i = 0; i < 6; i++) {
        u.slot = (pattern + i * i) % 3;
        u.step = (uint32_t)i;
        const bool backward = (pattern >> i % 3) & 1;
        assert_ok(weft_model_forward(a->r.model, &u, i != 4, 0.125, &nll, NULL)); /* one of evaluation */
        sum += nll;
        if (backward && i != 4) assert_ok(weft_model_backward(a->r.model, &u, NULL, NULL, NULL));
    }
    return sum;
}

static void slots_do_not_mix(void **state)
{
    (void)state;
    for (int pattern = 1; pattern < 8; pattern++) {
        single kept, away;
        toy t = problem(WEFT_LLAMA, 5, WEFT_PREC_F32, 0.2);
        t.recompute = pattern % 2 ? WEFT_RECOMPUTE_FULL : WEFT_RECOMPUTE_BLOCK;
        t.slots = 3;
        assert_ok(open_single(&kept, &t, NULL));
        t.offload = pattern % 3 ? WEFT_OFFLOAD_FILE : WEFT_OFFLOAD_HOST;
        assert_ok(open_single(&away, &t, NULL));
        double a = passes(&kept, pattern), b = passes(&away, pattern);
        assert_true(a == b);
        assert_memory_equal(weft_model_gradients(kept.r.model), weft_model_gradients(away.r.model),
                            (size_t)weft_model_weight_count(kept.r.model) * sizeof(float));
        close_single(&kept);
        close_single(&away);
    }
}

/* ---- memory ------------------------------------------------------------------------------------------ */

static size_t bytes_of(const weft_mem *mem, const char *label)
{
    size_t sum = 0;
    for (int i = 0; i < mem->rows; i++) sum += strcmp(mem->row[i].label, label) ? 0 : mem->row[i].bytes;
    return sum;
}

/* Inputs in memory: three buffers, and the stream after the last layer; of 17 rows of 10 numbers. */
static void memory_does_not_grow_with_layers(void **state)
{
    (void)state;
    enum { ROWS = (T * 10 * 4 + 63) / 64 * 64 };
    for (int where = WEFT_OFFLOAD_NONE; where < WEFT_OFFLOADS; where++)
        for (int64_t layers = 4; layers < 9; layers += 2) {
            single a;
            double sum;
            toy t = problem(WEFT_LLAMA, layers, WEFT_PREC_F32, 0);
            t.recompute = WEFT_RECOMPUTE_FULL;
            t.offload = (weft_offload)where;
            assert_ok(open_single(&a, &t, NULL));
            assert_int_equal(bytes_of(&a.ctx.mem, "residual"), ROWS * (where ? 4 : layers + 1));
            assert_int_equal(bytes_of(&a.ctx.mem, "offloaded inputs"), where == WEFT_OFFLOAD_HOST ? ROWS * layers : 0);
            assert_ok(toy_step(&a.r, &a.t, true, &sum, NULL));
            int64_t calls = a.ctx.mem.allocations;
            for (int k = 0; k < 3; k++) assert_ok(toy_step(&a.r, &a.t, true, &sum, NULL));
            assert_int_equal(a.ctx.mem.allocations, calls);
            close_single(&a);
            assert_int_equal(a.ctx.mem.bytes, 0);
        }
}

/* With two layers both inputs are in use at once: they stay where they are. */
static void what_has_no_use_stays_in_memory(void **state)
{
    (void)state;
    single a;
    double sum;
    toy t = problem(WEFT_LLAMA, 2, WEFT_PREC_F32, 0);
    t.offload = WEFT_OFFLOAD_FILE;
    assert_ok(open_single(&a, &t, "fail:site=spill.put"));
    assert_int_equal(weft_model_file_bytes(a.r.model), 0);
    assert_ok(toy_step(&a.r, &a.t, true, &sum, NULL));
    close_single(&a);
}

/* ---- failures ------------------------------------------------------------------------------------------ */

static void a_failure_of_the_thread_ends_the_pass(void **state)
{
    (void)state;
    static const char *const sites[] = {"fail:site=spill.put:hit=2", "fail:site=spill.get:hit=1"};
    for (int i = 0; i < 2; i++) {
        single a;
        double sum;
        toy t = problem(WEFT_LLAMA, 7, WEFT_PREC_F32, 0);
        t.offload = WEFT_OFFLOAD_FILE;
        assert_ok(open_single(&a, &t, sites[i]));
        assert_int_equal(toy_step(&a.r, &a.t, true, &sum, NULL), WEFT_ERR_INTERNAL);
        assert_non_null(strstr(weft_last_error(), "offloaded inputs of layers, at layer "));
        assert_non_null(strstr(weft_last_error(), "injected fault at spill."));
        close_single(&a);
    }
}

/* Of seven inputs the last three are still here when the backward pass begins; each of the others is read once. */
static void what_is_still_here_is_not_read(void **state)
{
    (void)state;
    for (int hit = 4; hit <= 5; hit++)
        for (int mode = 0; mode < WEFT_RECOMPUTE_MODES; mode++) {
            single a;
            double sum;
            char fault[60];
            toy t = problem(WEFT_LLAMA, 7, WEFT_PREC_F32, 0);
            t.offload = WEFT_OFFLOAD_HOST;
            t.recompute = (weft_recompute)mode;
            snprintf(fault, sizeof fault, "fail:site=spill.get:hit=%d", hit);
            assert_ok(open_single(&a, &t, fault));
            assert_int_equal(toy_step(&a.r, &a.t, true, &sum, NULL), hit == 5 ? WEFT_OK : WEFT_ERR_INTERNAL);
            close_single(&a);
        }
}

static void a_stuck_disk_is_named(void **state)
{
    (void)state;
    single a;
    double sum;
    toy t = problem(WEFT_LLAMA, 7, WEFT_PREC_F32, 0);
    t.offload = WEFT_OFFLOAD_FILE;
    assert_ok(open_single(&a, &t, "sleep:1:site=spill.get"));
    assert_ok(weft_world_set_timeout(a.world, 0.1));
    assert_int_equal(toy_step(&a.r, &a.t, true, &sum, NULL), WEFT_ERR_TIMEOUT);
    assert_non_null(strstr(weft_last_error(), "is the disk stuck?"));
    close_single(&a);
}

/* One rank alone has a folder that is missing: all refuse, with its message. */
static weft_status one_without_a_folder(weft_ctx *ctx, weft_world *world, void *ud)
{
    toy t = *(const toy *)ud;
    toy_rank r;
    (void)ctx;
    t.offload_folder = weft_world_rank(world) == 1 ? test_dir_file(&dir, "nowhere") : dir.path;
    weft_status st = toy_open(&r, ctx, world, &t);
    if (st != WEFT_ERR_REFUSED || !strstr(weft_last_error(), "nowhere: No such file"))
        return weft_fail(WEFT_ERR_COMPARE, "rank %d: %s: %s", weft_world_rank(world), weft_status_text(st),
                         weft_last_error());
    toy_close(&r);
    return WEFT_OK;
}

static void all_ranks_refuse(void **state)
{
    (void)state;
    toy t = problem(WEFT_LLAMA, 5, WEFT_PREC_F32, 0);
    t.offload = WEFT_OFFLOAD_FILE;
    t.P = 3;
    t.strategy = "ring";
    t.layout.kind = WEFT_LAYOUT_ZIGZAG;
    assert_ok(weft_run_threads(3, one_without_a_folder, &t));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_rank), cmocka_unit_test(many_ranks), cmocka_unit_test(slots_do_not_mix),
        cmocka_unit_test(memory_does_not_grow_with_layers), cmocka_unit_test(what_has_no_use_stays_in_memory),
        cmocka_unit_test(a_failure_of_the_thread_ends_the_pass), cmocka_unit_test(a_stuck_disk_is_named),
        cmocka_unit_test(what_is_still_here_is_not_read),
        cmocka_unit_test(all_ranks_refuse),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
