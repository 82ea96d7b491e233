/* labels: small */
/* The predicted time of a step: its parts add up; with all but one rate out of sight each part is the work, worked out
 * here from lengths and sizes, over that rate; bytes are those of the formulas; what hides costs nothing. */
#include "harness/test.h"
#include "harness/traffic.h"
#include "plan/plan_impl.h"

static const double never = 1e30; /* a rate that takes no time */

static weft_model_config model(void)
{
    return (weft_model_config){.family = WEFT_LLAMA, .V = 1024, .C = 256, .F = 768, .L = 8, .max_position = 1 << 20,
                               .H = 8, .Hkv = 4, .D = 32, .norm_eps = 1e-5,
                               .rope = {.type = WEFT_ROPE_PLAIN, .theta = 1e4, .factor = 1}, .bos = -1, .eos = -1};
}

static weft_profile nothing_takes_time(void)
{
    weft_profile p = {.link_bytes_per_second = never, .rank_bytes_per_second = never, .memory_bytes_per_second = never,
                      .backward_factor = 2.5, .node_bytes_per_second = never, .element_bytes_per_second = never,
                      .host_bytes_per_second = never, .fp8_flops_per_second = never, .collective_factor = 1};
    for (int i = 0; i < WEFT_PREC_COUNT; i++) p.flops_per_second[i] = p.product_flops_per_second[i] = never;
    return p;
}

/* Everything takes some. */
static weft_profile usual(void)
{
    weft_profile p = {.latency_seconds = 5e-6, .link_bytes_per_second = 25e9, .rank_bytes_per_second = 25e9,
                      .memory_bytes_per_second = 1e12, .backward_factor = 2.5, .node_ranks = 4,
                      .node_latency_seconds = 2e-6, .node_bytes_per_second = 200e9, .product_seconds = 4e-6,
                      .attention_seconds = 5e-6, .element_bytes_per_second = 2e12, .host_bytes_per_second = 20e9,
                      .collective_factor = 0.8};
    for (int i = 0; i < WEFT_PREC_COUNT; i++) p.flops_per_second[i] = 200e12, p.product_flops_per_second[i] = 400e12;
    return p;
}

static weft_plan_ask ask_of(const weft_model_config *c, int64_t T, int64_t batch)
{
    return (weft_plan_ask){.config = c, .global_batch = batch, .threads = 1, .overlap_gradients = true,
                           .options = {.prec = WEFT_PREC_BF16, .T = T, .cp = {.overlap = true}, .train = true}};
}

static const weft_layout_choice alone = {.tp = 1, .cp = 1, .dp = 1, .pp = 1, .strategy = "none", .micro_batch = 1,
                                         .cp_layout = {WEFT_LAYOUT_ZIGZAG, 0}};

static weft_plan_time time_of(const weft_profile *p, const weft_plan_ask *a, const weft_layout_choice *c)
{
    weft_plan_time t;
    assert_ok(weft_plan_time_of(&t, p, a, c));
    double sum = 0;
    for (int i = 0; i < WEFT_TIMES; i++) {
        if (!(t.seconds[i] >= 0)) fail_msg("%s takes %g s", weft_time_name((weft_time_part)i), t.seconds[i]);
        sum += t.seconds[i];
    }
    assert_true(t.step == sum);
    return t;
}

static void near(double a, double b, double relative, const char *what)
{
    if (!(fabs(a - b) <= relative * fabs(b))) fail_msg("%s: %.12g is not %.12g", what, a, b);
}

/* Elements of all matrices of a layer, and of the head. */
static double layer_matrices(const weft_model_config *c)
{
    return (double)(c->C * (c->H + 2 * c->Hkv) * c->D + c->H * c->D * c->C + 3 * c->C * c->F);
}

/* ---- computing ----------------------------------------------------------------------------------------------- */

/* Model FLOPs are those of products and attention, whose backward costs twice the forward by convention. */
static void products_and_attention_are_the_models_flops(void **state)
{
    (void)state;
    const weft_model_config c = model();
    const weft_plan_ask a = ask_of(&c, 4096, 6);
    weft_profile p = nothing_takes_time();
    weft_layout_choice x = alone;
    x.micro_batch = 2;
    p.backward_factor = 2;
    p.product_flops_per_second[WEFT_PREC_BF16] = p.flops_per_second[WEFT_PREC_BF16] = 1e12;
    const weft_plan_time t = time_of(&p, &a, &x);
    const double products = 6 * (8 * layer_matrices(&c) + 1024 * 256) * 4096 * 6, pairs = 4096.0 * 4097 / 2 * 6;
    near(t.seconds[WEFT_TIME_PRODUCTS] * 1e12, products, 1e-12, "products");
    near(t.seconds[WEFT_TIME_ATTENTION] * 1e12, 12 * pairs * 8 * 32 * 8, 1e-12, "attention");
    near(t.step * 1e12, t.flops, 1e-12, "flops");
}

/* Ranks of any kind share the work evenly where everything divides; a pipeline's end with the head is the busiest. */
static void ranks_share_the_work(void **state)
{
    (void)state;
    const weft_model_config c = model();
    const weft_plan_ask a = ask_of(&c, 4096, 8);
    weft_profile p = nothing_takes_time();
    p.product_flops_per_second[WEFT_PREC_BF16] = 1e12;
    const double whole = time_of(&p, &a, &alone).step, head = 6.0 * 1024 * 256 * 4096 * 8 / 1e12;
    weft_layout_choice x = alone;
    x.tp = 4, x.cp = 2, x.dp = 2, x.strategy = "ring";
    near(time_of(&p, &a, &x).step, whole / 16, 1e-12, "tp 4 x cp 2 x dp 2");
    x = alone, x.pp = 4;
    const weft_plan_time t = time_of(&p, &a, &x);
    const double stage = (whole - head) / 4;
    near(t.seconds[WEFT_TIME_PRODUCTS], stage + head, 1e-12, "the last stage");
    near(t.seconds[WEFT_TIME_BUBBLE], 3 * stage / 8, 1e-12, "the others, once");
}

static void recomputation_repeats_its_products(void **state)
{
    (void)state;
    const weft_model_config c = model();
    const weft_plan_ask a = ask_of(&c, 4096, 1);
    const double T = 4096, HD = 8 * 32, qkv = 256.0 * 16 * 32, o = 256 * HD, up = 256.0 * 2 * 768;
    const double attention = 4 * HD * T * (T + 1) / 2;
    const struct { weft_recompute mode; bool keep; double flops; } rows[] = {
        {WEFT_RECOMPUTE_NONE, false, 0},
        {WEFT_RECOMPUTE_ATTENTION, false, 2 * T * qkv + attention},
        {WEFT_RECOMPUTE_ATTENTION, true, 2 * T * qkv},
        {WEFT_RECOMPUTE_BLOCK, false, 2 * T * (qkv + up) + attention},
        {WEFT_RECOMPUTE_FULL, false, 2 * T * (qkv + up + o) + attention},
        {WEFT_RECOMPUTE_FULL, true, 2 * T * (qkv + up + o)},
    };
    weft_profile p = nothing_takes_time();
    p.product_flops_per_second[WEFT_PREC_BF16] = p.flops_per_second[WEFT_PREC_BF16] = 1e12;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        weft_layout_choice x = alone;
        x.recompute = rows[i].mode, x.keep_attention = rows[i].keep;
        near(time_of(&p, &a, &x).seconds[WEFT_TIME_RECOMPUTE] * 1e12, 8 * rows[i].flops, 1e-12,
             weft_recompute_name(rows[i].mode));
    }
}

/* A product whose operands take longer to read than its arithmetic takes waits for the memory. */
static void small_products_wait_for_memory(void **state)
{
    (void)state;
    const weft_model_config c = model();
    const weft_plan_ask a = ask_of(&c, 16, 1);
    weft_profile p = nothing_takes_time();
    p.element_bytes_per_second = 1e9;
    double slow = time_of(&p, &a, &alone).seconds[WEFT_TIME_PRODUCTS];
    /* each matrix is read twice in 16 bits, and its gradient in 32 bits read and written */
    assert_true(slow > (2 * 2 + 8) * 8 * layer_matrices(&c) / 1e9);
    p.product_seconds = 1e-3;
    near(time_of(&p, &a, &alone).seconds[WEFT_TIME_PRODUCTS] - slow, (8 * 12 + 3) * 1e-3, 1e-9, "calls");
}

/* ... or comes on top of it, where the profile says that the machine does one after the other. */
static void operands_may_move_besides_the_operations(void **state)
{
    (void)state;
    const weft_model_config c = model();
    const weft_plan_ask a = ask_of(&c, 1024, 1);
    weft_profile p = nothing_takes_time();
    p.product_flops_per_second[WEFT_PREC_BF16] = 1e12;
    const double operations = time_of(&p, &a, &alone).seconds[WEFT_TIME_PRODUCTS];
    p.product_bytes_per_second = 1e10;
    const double both = time_of(&p, &a, &alone).seconds[WEFT_TIME_PRODUCTS];
    p.product_flops_per_second[WEFT_PREC_BF16] = never;
    near(both, operations + time_of(&p, &a, &alone).seconds[WEFT_TIME_PRODUCTS], 1e-12, "operations and bytes");
    assert_true(both > 1.05 * operations);
}

/* What a pair takes besides its operations, and keys in vain where a row ends: once, twice with a window; a row. */
static void pairs_and_edges_take_time(void **state)
{
    (void)state;
    weft_model_config c = model();
    const weft_plan_ask a = ask_of(&c, 1000, 1);
    weft_profile p = nothing_takes_time();
    p.attention_pair_seconds[WEFT_PREC_BF16] = 1e-9;
    const double layers = 8 * 8 * (1 + 2.5), area = 1000.0 * 1001 / 2; /* L, H, both directions */
    near(time_of(&p, &a, &alone).seconds[WEFT_TIME_ATTENTION], layers * area * 1e-9, 1e-12, "pairs");
    p.attention_edge_keys = 60;
    near(time_of(&p, &a, &alone).seconds[WEFT_TIME_ATTENTION], layers * (area + 60 * 1000) * 1e-9, 1e-12, "edges");
    p.attention_row_keys = 30;
    near(time_of(&p, &a, &alone).seconds[WEFT_TIME_ATTENTION], layers * (area + 90 * 1000) * 1e-9, 1e-12, "rows");
    p.attention_row_keys = 0;
    c.window = 101; /* a query sees itself and 100 keys before it */
    near(time_of(&p, &a, &alone).seconds[WEFT_TIME_ATTENTION],
         layers * (100.0 * 101 / 2 + 900 * 101 + 2 * 60 * 1000) * 1e-9, 1e-3, "two edges"); /* the area by 32 samples */
}

/* A rank whose own core moves its messages hides nothing of them; one with half an adapter half of it. */
static void what_a_core_moves_hides_under_nothing(void **state)
{
    (void)state;
    const weft_model_config c = model();
    const weft_plan_ask a = ask_of(&c, 65536, 2);
    weft_layout_choice cp = alone, dp = alone;
    cp.cp = 2, cp.strategy = "ring", dp.dp = 2, dp.zero = 0;
    weft_profile p = usual();
    const weft_plan_time hidden[] = {time_of(&p, &a, &cp), time_of(&p, &a, &dp)};
    p.unhidden_share = 0.5;
    const weft_plan_time half[] = {time_of(&p, &a, &cp), time_of(&p, &a, &dp)};
    p.unhidden_share = 1;
    const weft_plan_time all[] = {time_of(&p, &a, &cp), time_of(&p, &a, &dp)};
    const weft_time_part part[] = {WEFT_TIME_CP, WEFT_TIME_DP};
    for (int i = 0; i < 2; i++) {
        const double h = hidden[i].seconds[part[i]], x = all[i].seconds[part[i]];
        near(half[i].seconds[part[i]], (h + x) / 2, 1e-9, weft_time_name(part[i]));
        assert_true(x > 1.5 * h);
    }
    near(all[0].seconds[WEFT_TIME_CP], all[0].moving[WEFT_LINK_CP], 1e-9, "cp shows whole");
}

/* ---- moving -------------------------------------------------------------------------------------------------- */

/* All shares are equal, so a rank's bytes are the mean: those of theory c1 in the harness's arithmetic. */
static void cp_bytes_are_those_of_the_formulas(void **state)
{
    (void)state;
    static const struct { const char *name; int U; } ways[] = {{"pcp", 0}, {"ring", 0}, {"ulysses", 0}, {"dcp", 2},
                                                               {"dcp-ring", 2}, {"dcp-ring", 4}};
    const weft_model_config c = model();
    const weft_plan_ask a = ask_of(&c, 4096, 4);
    const weft_profile p = usual();
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++)
        for (int again = 0; again < 2; again++) {
            weft_layout_choice x = alone;
            x.cp = 8, x.strategy = ways[i].name, x.head_size = ways[i].U;
            x.recompute = again ? WEFT_RECOMPUTE_ATTENTION : WEFT_RECOMPUTE_NONE;
            const traffic_case tc = {.strategy = x.strategy, .layout = x.cp_layout, .P = 8, .U = x.head_size, .B = 1,
                                     .Tq = 4096, .T = 4096, .H = 8, .Hkv = 4, .D = 32, .Dv = 32,
                                     .prec = WEFT_PREC_BF16};
            const traffic one = traffic_of(&tc, 0);
            const weft_plan_time t = time_of(&p, &a, &x);
            near(t.bytes_node[WEFT_LINK_CP] + t.bytes_link[WEFT_LINK_CP],
                 4 * 8.0 * (double)((1 + again) * one.forward_bytes + one.backward_bytes), 1e-12, x.strategy);
            assert_true(t.bytes_link[WEFT_LINK_CP] > 0); /* a node has 4 ranks */
        }
}

static void tp_bytes_are_those_of_the_formulas(void **state)
{
    (void)state;
    const weft_model_config c = model();
    const weft_plan_ask a = ask_of(&c, 4096, 1);
    const weft_profile p = usual();
    const double row = 4096.0 * 256, most = 3.0 / 4;
    weft_layout_choice x = alone;
    x.tp = 4;
    /* two sums each way in a layer, and those of embedding and head, in fp32, there and back */
    near(time_of(&p, &a, &x).bytes_node[WEFT_LINK_TP], (8 * 4 + 2) * 2 * most * row * 4, 1e-12, "all sums everywhere");
    x.sequence_parallel = true;
    /* sums go to shares; six gathers in a layer and one for the head in 16 bits, the embedding's gradient in fp32 */
    const weft_plan_time t = time_of(&p, &a, &x);
    near(t.bytes_node[WEFT_LINK_TP], most * row * ((8 * 4 + 2) * 4 + (8 * 6 + 1) * 2 + 4), 1e-12, "in shares");
    assert_true(t.bytes_link[WEFT_LINK_TP] == 0);
    x.order = 0, x.tp = 8;
    assert_true(time_of(&p, &a, &x).bytes_link[WEFT_LINK_TP] > 0);
}

static void dp_bytes_are_those_of_the_formulas(void **state)
{
    (void)state;
    const weft_model_config c = model();
    const weft_plan_ask a = ask_of(&c, 4096, 8);
    const weft_profile p = usual();
    const double params = (double)weft_model_params(&c), most = 7.0 / 8 * 4 * params;
    const double factor[4] = {2, 2, 1 + 1, 1 + 2}; /* reduce-scatter and all-gather; 3: gathered for both passes */
    for (int zero = 0; zero < 4; zero++) {
        weft_layout_choice x = alone;
        x.dp = 4, x.cp = 2, x.strategy = "ring", x.zero = zero, x.micro_batch = 2;
        const weft_plan_time t = time_of(&p, &a, &x);
        near(t.bytes_node[WEFT_LINK_DP] + t.bytes_link[WEFT_LINK_DP], factor[zero] * most, 1e-12, "gradients, weights");
        near(t.bytes_node[WEFT_LINK_DP] / t.bytes_link[WEFT_LINK_DP], 3.0 / 4, 1e-12, "of 7 others 3 are near");
    }
}

/* The order of ranks says which groups stay inside a node of 4. */
static void the_order_of_ranks_moves_bytes_between_links(void **state)
{
    (void)state;
    const weft_model_config c = model();
    const weft_plan_ask a = ask_of(&c, 4096, 4);
    const weft_profile p = usual();
    weft_layout_choice x = alone;
    x.tp = 4, x.cp = 4, x.strategy = "ring";
    weft_plan_time t = time_of(&p, &a, &x);
    assert_true(t.bytes_link[WEFT_LINK_TP] == 0 && t.bytes_node[WEFT_LINK_CP] == 0);
    assert_ok(weft_mesh_order_parse("cp-tp-dp-pp", &x.order));
    t = time_of(&p, &a, &x);
    assert_true(t.bytes_node[WEFT_LINK_TP] == 0 && t.bytes_link[WEFT_LINK_CP] == 0);
    x = alone, x.pp = 4;
    assert_true(time_of(&p, &a, &x).bytes_link[WEFT_LINK_PP] == 0);
    x.tp = 2;
    t = time_of(&p, &a, &x);
    /* the first stage gets gradients and sends outputs, or the last the other way round; both are ends */
    near(t.bytes_link[WEFT_LINK_PP], 4 * 4096.0 * 256 * 4, 1e-12, "rows of the stream in fp32");
}

/* ---- hiding -------------------------------------------------------------------------------------------------- */

static void what_hides_costs_nothing(void **state)
{
    (void)state;
    const weft_model_config c = model();
    const weft_plan_ask a = ask_of(&c, 1 << 16, 2);
    weft_profile p = usual();
    weft_layout_choice x = alone;
    x.cp = 4, x.dp = 2, x.strategy = "ring", x.zero = 1, x.offload = true, x.recompute = WEFT_RECOMPUTE_FULL;
    const weft_plan_time hidden = time_of(&p, &a, &x);
    assert_true(hidden.seconds[WEFT_TIME_OFFLOAD] == 0);
    assert_true(hidden.seconds[WEFT_TIME_CP] < 0.2 * hidden.moving[WEFT_LINK_CP]);
    weft_plan_ask waits = a;
    waits.options.cp.overlap = waits.overlap_gradients = false;
    const weft_plan_time shown = time_of(&p, &waits, &x);
    assert_true(shown.seconds[WEFT_TIME_CP] > 0.99 * shown.moving[WEFT_LINK_CP]);
    assert_true(shown.seconds[WEFT_TIME_DP] > hidden.seconds[WEFT_TIME_DP]);
    p.host_bytes_per_second = 1e6;
    assert_true(time_of(&p, &a, &x).seconds[WEFT_TIME_OFFLOAD] > 0);
}

/* A causal mask over contiguous shares: the last of 4 ranks has 2 - 1/4 of the mean. */
static void uneven_shares_cost(void **state)
{
    (void)state;
    const weft_model_config c = model();
    const weft_plan_ask a = ask_of(&c, 4096, 1);
    weft_profile p = nothing_takes_time();
    p.flops_per_second[WEFT_PREC_BF16] = 1e12;
    weft_layout_choice x = alone;
    x.cp = 4, x.strategy = "ring";
    assert_true(time_of(&p, &a, &x).seconds[WEFT_TIME_IMBALANCE] < 1e-9 * time_of(&p, &a, &x).step);
    x.cp_layout.kind = WEFT_LAYOUT_CONTIGUOUS;
    const weft_plan_time t = time_of(&p, &a, &x);
    near(t.seconds[WEFT_TIME_IMBALANCE], 0.75 * t.seconds[WEFT_TIME_ATTENTION], 1e-3, "3/4 of the mean");
}

static void what_cannot_run_is_refused(void **state)
{
    (void)state;
    const weft_model_config c = model();
    const weft_plan_ask a = ask_of(&c, 4096, 6);
    weft_profile p = usual();
    weft_plan_time t;
    weft_layout_choice x = alone;
    x.dp = 4;
    assert_refused(weft_plan_time_of(&t, &p, &a, &x), "no multiple");
    x = alone, x.pp = 9;
    assert_refused(weft_plan_time_of(&t, &p, &a, &x), "8 layers");
    x = alone, x.cp = 16, x.strategy = "ulysses";
    assert_refused(weft_plan_time_of(&t, &p, &a, &x), "ulysses");
    x = alone, x.sequence_parallel = true;
    assert_refused(weft_plan_time_of(&t, &p, &a, &x), "one");
    x = alone, x.fp8 = true;
    assert_refused(weft_plan_time_of(&t, &p, &a, &x), "fp8_flops_per_second");
    x = alone, x.keep_attention = true;
    assert_refused(weft_plan_time_of(&t, &p, &a, &x), "recomputation");
    x = alone, x.offload = true, p.host_bytes_per_second = 0;
    assert_refused(weft_plan_time_of(&t, &p, &a, &x), "host_bytes_per_second");
    x = alone, x.tp = 0;
    assert_refused(weft_plan_time_of(&t, &p, &a, &x), "at least 1");
}

/* A rank of tp without a head has nothing to attend to, and waits for nobody. */
static void more_ranks_than_heads(void **state)
{
    (void)state;
    const weft_model_config c = model();
    const weft_plan_ask a = ask_of(&c, 256, 1);
    const weft_profile p = usual();
    weft_layout_choice x = alone;
    x.tp = 16;
    assert_true(time_of(&p, &a, &x).step > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(products_and_attention_are_the_models_flops),
        cmocka_unit_test(ranks_share_the_work),
        cmocka_unit_test(recomputation_repeats_its_products),
        cmocka_unit_test(small_products_wait_for_memory),
        cmocka_unit_test(operands_may_move_besides_the_operations),
        cmocka_unit_test(pairs_and_edges_take_time),
        cmocka_unit_test(what_a_core_moves_hides_under_nothing),
        cmocka_unit_test(cp_bytes_are_those_of_the_formulas),
        cmocka_unit_test(tp_bytes_are_those_of_the_formulas),
        cmocka_unit_test(dp_bytes_are_those_of_the_formulas),
        cmocka_unit_test(the_order_of_ranks_moves_bytes_between_links),
        cmocka_unit_test(what_hides_costs_nothing),
        cmocka_unit_test(uneven_shares_cost),
        cmocka_unit_test(what_cannot_run_is_refused),
        cmocka_unit_test(more_ranks_than_heads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
