/* labels: small */
/* The table of parameters: names, shapes, adjacency, initial values; and the count of FLOPs. */
#include "toy.h"

#include "model/model_impl.h"

typedef struct table { weft_ctx ctx; weft_arena *arena; weft_spec spec[64]; weft__layer layer[4]; weft__params par;
                      } table;

static void walk(table *t, const weft_model_config *c)
{
    weft_ctx_init(&t->ctx);
    assert_ok(weft_arena_create(&t->arena, &t->ctx.mem, "test", NULL));
    assert_ok(weft__params_walk(c, &weft_model_all, t->arena, t->spec, t->layer, &t->par));
}

static void has(const table *t, const char *name, int64_t rows, int64_t cols)
{
    const weft_spec *s = weft_spec_find(t->spec, t->par.n, name);
    if (!s) fail_msg("no tensor %s", name);
    assert_int_equal(s->nd, cols ? 2 : 1);
    assert_int_equal(s->shape[0], rows);
    if (cols) assert_int_equal(s->shape[1], cols);
    assert_int_equal(s->count, rows * (cols ? cols : 1));
    assert_int_equal(s->decay, cols > 0); /* no decay on norms and biases */
}

static void names_and_shapes(void **state)
{
    (void)state;
    table t;
    weft_model_config c = toy_config(WEFT_QWEN3, 2);
    walk(&t, &c);
    has(&t, "model.embed_tokens.weight", 11, 10);
    has(&t, "model.layers.1.self_attn.q_proj.weight", 12, 10);
    has(&t, "model.layers.1.self_attn.k_proj.weight", 4, 10);
    has(&t, "model.layers.1.self_attn.q_norm.weight", 4, 0);
    has(&t, "model.layers.1.self_attn.o_proj.weight", 10, 12);
    has(&t, "model.layers.1.mlp.down_proj.weight", 10, 5);
    has(&t, "model.norm.weight", 10, 0);
    has(&t, "lm_head.weight", 11, 10);
    assert_int_equal(t.par.n, 2 * 11 + 3);
    weft_arena_destroy(t.arena);
    c = toy_config(WEFT_GPT2, 1);
    walk(&t, &c);
    has(&t, "transformer.wpe.weight", 64, 6);
    has(&t, "transformer.h.0.attn.c_attn.weight", 6, 18); /* [in, out] */
    has(&t, "transformer.h.0.mlp.c_proj.weight", 7, 6);
    has(&t, "transformer.ln_f.bias", 6, 0);
    assert_null(weft_spec_find(t.spec, t.par.n, "lm_head.weight")); /* tied */
    weft_arena_destroy(t.arena);
}

/* One product makes q, k, v, one bias call adds all three biases: they must lie one after the other. */
static void fused_tensors_are_adjacent_and_the_array_has_no_holes(void **state)
{
    (void)state;
    table t;
    weft_model_config c = toy_config(WEFT_LLAMA, 2);
    c.qkv_bias = c.o_bias = c.mlp_bias = true;
    walk(&t, &c);
    int64_t end = 0;
    for (int i = 0; i < t.par.n; i++) {
        assert_int_equal(t.spec[i].offset, end);
        end += t.spec[i].count;
    }
    assert_int_equal(end, t.par.count);
    static const char *const chains[][3] = {
        {"self_attn.q_proj.weight", "self_attn.k_proj.weight", "self_attn.v_proj.weight"},
        {"self_attn.q_proj.bias", "self_attn.k_proj.bias", "self_attn.v_proj.bias"},
        {"mlp.gate_proj.weight", "mlp.up_proj.weight", NULL},
        {"mlp.gate_proj.bias", "mlp.up_proj.bias", NULL},
    };
    for (int i = 0; i < 4; i++)
        for (int j = 0; j < 2 && chains[i][j + 1]; j++) {
            char a[96], b[96];
            snprintf(a, sizeof a, "model.layers.1.%s", chains[i][j]);
            snprintf(b, sizeof b, "model.layers.1.%s", chains[i][j + 1]);
            assert_ptr_equal(weft_spec_find(t.spec, t.par.n, a) + 1, weft_spec_find(t.spec, t.par.n, b));
        }
    weft_arena_destroy(t.arena);
}

/* Tiny-Llama-like sizes by hand: 2 V C + L (2 C + 2 C H D + 2 C Hkv D + 3 C F) + C. */
static void counts_and_flops(void **state)
{
    (void)state;
    weft_model_config c = toy_config(WEFT_LLAMA, 2);
    int64_t layer = 2 * 10 + 2 * 10 * 12 + 2 * 10 * 4 + 3 * 10 * 5;
    assert_int_equal(weft_model_params(&c), 2 * 110 + 2 * layer + 10);
    /* matrices that multiply: the head and the layers' */
    double products = 110 + 2.0 * (double)(layer - 20);
    assert_true(weft_model_step_flops(&c, 7, 0) == 6 * products * 7);
    assert_true(weft_model_step_flops(&c, 7, 28) == 6 * products * 7 + 12.0 * 28 * 3 * 4 * 2);
    c.tied = true; /* the head's product is still done */
    assert_true(weft_model_step_flops(&c, 7, 0) == 6 * products * 7);
}

/* Causal area of T tokens is T(T+1)/2; with a window of W it is W T - W(W-1)/2; layers are averaged. */
static void area_is_the_mean_over_layers(void **state)
{
    (void)state;
    weft_ctx ctx;
    weft_arena *arena;
    weft_shard shard;
    weft_ctx_init(&ctx);
    assert_ok(weft_arena_create(&arena, &ctx.mem, "test", NULL));
    assert_ok(weft_shard_alloc(&shard, arena, 3, weft_shard_capacity((weft_layout){WEFT_LAYOUT_ZIGZAG, 0}, 1, 10, 1,
                                                                     3)));
    int64_t cu[] = {0, 10}, first[] = {0, 2};
    weft_docs docs = {.B = 1, .T = 10, .cu = cu, .first = first, NULL};
    assert_ok(weft_shard_make(&shard, (weft_layout){WEFT_LAYOUT_ZIGZAG, 0}, &docs, 0));
    weft_model_config c = toy_config(WEFT_QWEN2, 4);
    assert_true(weft_model_area(&c, &shard) == 55);
    c.window = 3;
    assert_true(weft_model_area(&c, &shard) == 27);
    c.window_from_layer = 3;
    assert_true(weft_model_area(&c, &shard) == (3 * 55 + 27) / 4.0);
    weft_arena_destroy(arena);
}

/* What products run with is what the table of parameters holds: matrices of all layers and the head. */
static void widths_are_those_of_the_table(void **state)
{
    (void)state;
    static const weft_family families[] = {WEFT_LLAMA, WEFT_QWEN3, WEFT_GPT2};
    for (int f = 0; f < 3; f++)
        for (int tp = 0; tp < 3; tp++) {
            weft_model_config c = toy_config(families[f], 2);
            c.tied = false, c.qkv_bias = c.o_bias = c.mlp_bias = false;
            const weft_model_share share = {tp, 3, 0, 1, false};
            weft__params par;
            assert_ok(weft__params_walk(&c, &share, NULL, NULL, NULL, &par));
            const weft_model_widths w = weft_model_share_widths(&c, &share);
            const weft_model_matrix m[] = {w.qkv, w.o, w.up, w.down};
            int64_t layer = 0;
            for (int i = 0; i < 4; i++) layer += m[i].in * m[i].out;
            assert_int_equal(2 * layer + w.head.in * w.head.out, par.matrices - par.embedding_count);
            assert_int_equal(w.qkv.out, (w.H + 2 * w.Hkv) * c.D);
        }
}

/* What the mean over layers is made of. */
static void area_of_a_sequence(void **state)
{
    (void)state;
    weft_model_config c = toy_config(WEFT_QWEN2, 4);
    c.window = 3;
    assert_true(weft_model_sequence_area(&c, 10, false) == 55);
    assert_true(weft_model_sequence_area(&c, 10, true) == 27);
    assert_true(weft_model_sequence_area(&c, 2, true) == 3);
}

static weft_status init_twice(weft_ctx *ctx, weft_world *world, void *ud)
{
    toy *t = ud;
    toy_rank r;
    int n;
    WEFT_TRY(toy_open(&r, ctx, world, t));
    const weft_spec *spec = weft_model_spec(r.model, &n);
    weft_model_init_weights(r.model, 5);
    for (int i = 0; i < n; i++) {
        const double *w = (const double *)weft_model_weights(r.model) + spec[i].offset;
        double norm = weft_norm2(w, WEFT_F64, spec[i].count), sigma = norm / sqrt((double)spec[i].count);
        bool residual = strstr(spec[i].name, "o_proj") || strstr(spec[i].name, "down_proj");
        double want = residual ? 0.02 / sqrt(2.0 * 2) : 0.02;
        if (spec[i].nd == 1 && strstr(spec[i].name, "bias")) want = 0;
        else if (spec[i].nd == 1) want = 1;
        /* the deviation of a sample of n normals is off by 1/sqrt(2n): five of those */
        double slack = spec[i].nd == 2 ? 5 * want / sqrt(2.0 * (double)spec[i].count) : 0;
        if (!(fabs(sigma - want) <= slack + 1e-12))
            return weft_fail(WEFT_ERR_COMPARE, "%s: deviation %g, wanted %g", spec[i].name, sigma, want);
    }
    memcpy(t->grads, weft_model_weights(r.model), (size_t)weft_model_weight_count(r.model) * sizeof(double));
    toy_close(&r);
    return WEFT_OK;
}

static void initial_weights_are_a_function_of_the_seed(void **state)
{
    (void)state;
    int32_t token[1] = {0}, target[1] = {0};
    toy t = {.config = toy_config(WEFT_QWEN2, 2), .prec = WEFT_PREC_F64, .P = 1, .strategy = "none", .B = 1, .T = 1,
             .token = token, .target = target, .grad_scale = 1};
    int64_t n = weft_model_params(&t.config);
    double *a = malloc((size_t)n * sizeof *a), *b = malloc((size_t)n * sizeof *b);
    t.grads = a;
    assert_ok(weft_run_threads(1, init_twice, &t));
    t.grads = b;
    assert_ok(weft_run_threads(1, init_twice, &t));
    assert_memory_equal(a, b, (size_t)n * sizeof *a);
    free(a);
    free(b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_and_shapes),
        cmocka_unit_test(fused_tensors_are_adjacent_and_the_array_has_no_holes),
        cmocka_unit_test(counts_and_flops),
        cmocka_unit_test(area_is_the_mean_over_layers),
        cmocka_unit_test(widths_are_those_of_the_table),
        cmocka_unit_test(area_of_a_sequence),
        cmocka_unit_test(initial_weights_are_a_function_of_the_seed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
