/* The model behind "auto" (docs/maths/cost.md): its bytes are those of real plans and of the worked examples, and what
 * follows from the formulas, when which strategy wins, comes out of it. */
/* labels: small */
#include "harness/test.h"
#include "harness/cp_case.h"
#include "cp/cp_impl.h"

#include <math.h>

static const weft_mask full = {false, -1, -1, 0}, causal = {true, -1, -1, 0};
static const double MiB = 1 << 20;

static weft_cp_problem shape(int64_t T, int H, int Hkv, weft_mask mask)
{
    return (weft_cp_problem){.prec = WEFT_PREC_BF16, .B = 1, .Tq = T, .T = T, .max_docs = 1, .H = H, .Hkv = Hkv,
                             .D = 128, .Dv = 128, .scale = 0.1, .mask = mask, .layout = {WEFT_LAYOUT_ZIGZAG, 0},
                             .slots = 1};
}

/* 600 TFLOP/s, 50 GB/s to every rank. */
static weft_profile fast(void)
{
    weft_profile p = weft_profile_default();
    p.latency_seconds = p.node_latency_seconds = 5e-6;
    p.link_bytes_per_second = p.rank_bytes_per_second = p.node_bytes_per_second = 50e9;
    p.memory_bytes_per_second = 2e12;
    p.flops_per_second[WEFT_PREC_BF16] = 600e12;
    return p;
}

typedef struct asked {
    weft_cp_problem problem;
    weft_cp_options options;
    weft_profile profile;
    weft__cp_ask ask;
} asked;

static void ask_for(asked *a, weft_cp_problem p, int P)
{
    *a = (asked){.problem = p, .options = {.strategy = "auto", .overlap = true}, .profile = fast()};
    a->ask = (weft__cp_ask){&a->problem, &a->options, &a->profile, P, 1};
}

static weft__cp_cost ulysses(const weft__cp_ask *ask) { return weft__cp_cost_heads(ask, ask->P, &weft__cp_none); }

static void near(double a, double b, double relative)
{
    if (!(fabs(a - b) <= relative * fabs(b))) fail_msg("%.17g is not %.17g", a, b);
}

/* ---- the attention itself ----------------------------------------------------------------------------------- */

/* Striped rows end at an edge in each of the R blocks, others once; each block is a call, and each but the first takes
 * the running state through memory: unless it is said what a row takes in a block. A zigzag rank's chunks see r + 1 and
 * 4 of the blocks forward; backward a block's chunks are apart, but for the two that meet. */
static void cuts_have_edges_and_blocks(void **state)
{
    (void)state;
    asked a;
    weft_cp_cost zigzag, striped;
    ask_for(&a, shape(8192, 8, 8, causal), 4);
    a.options.strategy = "ring", a.options.profile = &a.profile, a.problem.need_backward = true;
    a.profile.attention_edge_keys = 64, a.profile.attention_seconds = 1e-5;
    assert_ok(weft_cp_cost_of(&zigzag, &a.problem, &a.options, 4));
    a.problem.layout = (weft_layout){WEFT_LAYOUT_STRIPED, 1};
    assert_ok(weft_cp_cost_of(&striped, &a.problem, &a.options, 4));
    const double of_rank = 8 * 4.0 * 128 / 600e12 / 4; /* of a pair of all heads, shared by four ranks */
    near(zigzag.attention_forward, of_rank * (8192.0 * 8193 / 2 + 64.0 * 8192), 1e-12);
    near(striped.attention_forward, zigzag.attention_forward, 1e-12);
    near(zigzag.attention_backward, 2.5 * zigzag.attention_forward, 1e-12);
    const double uneven = of_rank * 3 * 8192.0 / 2;
    near(striped.uneven_forward, uneven + of_rank * 3 * 64 * 8192, 1e-9);
    near(zigzag.calls, 4e-5 + 3 * (2048.0 * 8 * 128 * 4) / 2e12, 1e-12);
    a.profile.attention_row_keys = 100;
    weft_cp_cost rows;
    assert_ok(weft_cp_cost_of(&rows, &a.problem, &a.options, 4));
    near(rows.attention_forward, striped.attention_forward + of_rank * 4 * 100 * 8192, 1e-12);
    near(rows.attention_backward, 2.5 * rows.attention_forward, 1e-12);
    near(rows.calls, 4e-5, 1e-12);
    a.problem.layout = (weft_layout){WEFT_LAYOUT_ZIGZAG, 0};
    assert_ok(weft_cp_cost_of(&rows, &a.problem, &a.options, 4));
    near(rows.attention_forward, zigzag.attention_forward + of_rank * 3.25 * 100 * 8192, 1e-12);
    near(rows.uneven_forward, of_rank * (4 - 3.25) * 100 * 8192, 1e-9);
    near(rows.attention_backward, 2.5 * (zigzag.attention_forward + of_rank * 4 * 100 * 8192), 1e-12);
    near(rows.uneven_backward + 1, 1, 1e-15);
}

/* Ranks that read each other's memory take K,V where they lie, and what is left are the sums of dK,dV; where a part of
 * them is sent, or ranks are of several nodes, that part takes its time, and all does. */
static void blocks_that_are_read_in_place_do_not_move(void **state)
{
    (void)state;
    static const char *const names[] = {"pcp", "ring", "pairwise"};
    for (int i = 0; i < 3; i++) {
        asked a;
        weft_cp_cost sent, read, half;
        ask_for(&a, shape(8192, 8, 8, causal), 4);
        a.options.strategy = names[i], a.options.profile = &a.profile, a.problem.need_backward = true;
        a.options.overlap = false, a.profile.latency_seconds = a.profile.node_latency_seconds = 0;
        assert_ok(weft_cp_cost_of(&sent, &a.problem, &a.options, 4));
        a.profile.in_place_share = 1;
        assert_ok(weft_cp_cost_of(&read, &a.problem, &a.options, 4));
        a.profile.in_place_share = 0.5;
        assert_ok(weft_cp_cost_of(&half, &a.problem, &a.options, 4));
        assert_true(sent.moving_forward > 0 && read.moving_forward == 0 && read.exposed_forward == 0);
        near(read.moving_backward, read.context_backward * 2 / 3 / 50e9, 1e-12); /* fp32 sums, of bf16 and fp32 */
        near(2 * half.exposed_backward, sent.exposed_backward + read.exposed_backward, 1e-12);
        assert_true(read.context_forward == sent.context_forward); /* read all the same */
        a.profile.in_place_share = 1, a.profile.node_ranks = 2;
        assert_ok(weft_cp_cost_of(&half, &a.problem, &a.options, 4));
        near(half.exposed_forward, sent.exposed_forward, 1e-12);
    }
}

/* ---- bytes ------------------------------------------------------------------------------------------------- */

/* One layer on P ranks: the model's bytes are the mean over ranks of what was sent. */
static void check_bytes(const cp_case *c, const char *name, weft_layout_kind layout, int P, weft_cp_options more)
{
    cp_data data = cp_data_make(c);
    cp_result *out = cp_result_make(c, P);
    cp_job job = {.c = c, .data = &data, .strategy = name, .layout = layout, .overlap = true, .out = out, .more = more};
    double forward = 0, backward = 0;
    assert_ok(cp_run(P, &job, 1));
    for (int r = 0; r < P; r++) {
        forward += (double)out->forward_bytes[r] / P;
        backward += (double)out->backward_bytes[r] / P;
    }
    asked a;
    weft_cp_problem p = shape(c->T, c->H, c->Hkv, c->mask);
    p.prec = c->prec, p.B = c->B, p.D = c->D, p.Dv = c->Dv, p.need_backward = true, p.layout.kind = layout;
    ask_for(&a, p, P);
    a.options = more, a.options.strategy = name, a.options.overlap = true;
    const weft_cp_strategy *s = NULL;
    for (int i = 0; i < weft__cp_strategy_count; i++)
        if (!strcmp(weft__cp_strategies[i]->name, name)) s = weft__cp_strategies[i];
    weft__cp_cost x = s->cost(&a.ask);
    if (fabs(x.forward_bytes - forward) > 1e-9 * forward || fabs(x.backward_bytes - backward) > 1e-9 * backward)
        fail_msg("%s, layout %d, H %d/%d, %s, U %d, wire %d, sums %d, fp8 %d, keep %d: the model says %.1f and %.1f "
                 "bytes, %.1f and %.1f were sent", name, (int)layout, c->H, c->Hkv, weft_prec_name(c->prec),
                 more.head_size, (int)more.comm_dtype, (int)more.grad_dtype, more.fp8, more.keep_heads,
                 x.forward_bytes, x.backward_bytes, forward, backward);
    cp_result_free(out);
    cp_data_free(&data);
}

static void bytes_follow_the_mask(void **state)
{
    (void)state;
    static const char *const names[] = {"pcp", "ring", "pairwise"};
    static const weft_mask masks[] = {{false, -1, -1, 0}, {true, -1, -1, 0},  {true, 5, -1, 0},
                                      {false, 3, 2, 0},   {true, -1, -1, 20}, {false, -1, 3, 0}};
    enum { P = 4, T = 2 * P * 8 };
    for (size_t m = 0; m < sizeof masks / sizeof *masks; m++)
        for (int l = 0; l < 2; l++)
            for (int s = 0; s < 3; s++) {
                cp_case c = {.name = "cost", .prec = WEFT_PREC_BF16, .B = 2, .Tq = T, .T = T, .H = 2, .Hkv = 1, .D = 2,
                             .Dv = 4, .mask = masks[m], .seed = 3};
                check_bytes(&c, names[s], (weft_layout_kind)l, P, (weft_cp_options){0});
            }
}

/* Every strategy with every way to send and to keep. Chunks are whole groups of rows with a scale, and all members of a
 * head group have as many heads: then the model's means are what every message is. */
static void bytes_are_those_of_plans(void **state)
{
    (void)state;
    static const char *const names[] = {"pcp", "ring", "pairwise", "dcp", "dcp-ring", "dcp-pairwise", "ulysses"};
    static const struct { int H, Hkv, U; } heads[] = {{4, 4, 0}, {4, 4, 2}, {8, 2, 0}, {8, 2, 4}}; /* 4 of 8/2 share */
    static const weft_cp_options ways[] = {
        {0}, {.comm_dtype = WEFT_CP_WIRE_BF16}, {.comm_dtype = WEFT_CP_WIRE_FP8}, {.grad_dtype = WEFT_CP_WIRE_BF16},
        {.fp8 = true}, {.fp8 = true, .grad_dtype = WEFT_CP_WIRE_BF16}, {.keep_heads = true},
        {.keep_heads = true, .fp8 = true}};
    enum { P = 4, T = 2 * P * WEFT_F8_ROWS };
    for (size_t s = 0; s < sizeof names / sizeof *names; s++)
        for (size_t h = 0; h < sizeof heads / sizeof *heads; h++)
            for (size_t w = 0; w < sizeof ways / sizeof *ways; w++) {
                bool grid = s >= 3, ulysses = s == 6;
                if ((!grid || ulysses) && heads[h].U) continue;
                if (!grid && ways[w].keep_heads) continue;
                weft_cp_options more = ways[w];
                more.head_size = heads[h].U;
                cp_case c = {.name = "cost", .prec = w % 3 ? WEFT_PREC_F32 : WEFT_PREC_BF16, .B = 1, .Tq = T, .T = T,
                             .H = heads[h].H, .Hkv = heads[h].Hkv, .D = 2, .Dv = 4, .mask = h % 2 ? full : causal,
                             .seed = 3};
                check_bytes(&c, names[s], WEFT_LAYOUT_ZIGZAG, P, more);
            }
}

static double forward_MiB(int H, int Hkv, int P, int U)
{
    asked a;
    ask_for(&a, shape(131072, H, Hkv, full), P);
    double state =
        131072.0 / P * (U - 1) / U * H * 8; /* maximum and sum come home with o: two floats per row and head */
    return (weft__cp_cost_heads(&a.ask, U, U == P ? &weft__cp_none : &weft__cp_ring).forward_bytes - state) / MiB;
}

/* 131072 tokens, D 128, bf16: MiB per rank and layer, forward. */
static void worked_numbers(void **state)
{
    (void)state;
    near(forward_MiB(32, 32, 8, 1), 1792, 1e-9);
    near(forward_MiB(32, 32, 8, 8), 448, 1e-9);
    static const double gather[] = {256, 384, 448, 480, 496}, heads[] = {640, 480, 280, 180, 124};
    for (int i = 0; i < 5; i++) {
        near(forward_MiB(32, 8, 2 << i, 1), gather[i], 1e-9);
        near(forward_MiB(32, 8, 2 << i, 2 << i), heads[i], 1e-9);
    }
    static const double grid[] = {480, 304, 216, 172, 180};
    for (int i = 0; i < 5; i++) near(forward_MiB(32, 8, 16, 1 << i), grid[i], 1e-9);
    near(forward_MiB(32, 8, 32, 8), 118, 1e-9);
    near(forward_MiB(32, 8, 64, 8), 91, 1e-9);
}

/* What no query sees need not travel. */
static void pairwise_bytes_follow_the_mask(void **state)
{
    (void)state;
    enum { P = 8 };
    const int64_t T = 1 << 16;
    asked a;
    ask_for(&a, shape(T, 8, 8, causal), P);
    double ring = weft__cp_cost_ring(&a.ask).forward_bytes, row = 8 * 256 * 2;
    near(weft__cp_cost_pairwise(&a.ask).forward_bytes, 0.75 * ring, 1e-9);
    a.problem.layout.kind = WEFT_LAYOUT_CONTIGUOUS;
    near(weft__cp_cost_pairwise(&a.ask).forward_bytes, 0.5 * ring, 1e-9);
    a.problem.mask.left = 100;
    near(weft__cp_cost_pairwise(&a.ask).forward_bytes, 100 * row * (P - 1) / P,
         1e-9); /* the first rank has nothing before it */
    a.problem.layout.kind = WEFT_LAYOUT_ZIGZAG;
    near(weft__cp_cost_pairwise(&a.ask).forward_bytes, 100 * row * (2 * P - 2) / P, 1e-9);
    a.problem.mask = full;
    near(weft__cp_cost_pairwise(&a.ask).forward_bytes, ring, 1e-9);
}

/* ---- who wins ----------------------------------------------------------------------------------------------- */

/* g = H / Hkv query heads share a key head: rows of keys are 1/g of rows of queries. */
static void gather_moves_less_than_heads_up_to_g(void **state)
{
    (void)state;
    for (int g = 1; g <= 8; g *= 2)
        for (int P = 2; P <= 8; P++) {
            asked a;
            ask_for(&a, shape(1 << 16, 8 * g, 8, full), P);
            if (8 % P != 0) continue; /* even groups: the formula is for those */
            bool less = weft__cp_cost_gather(&a.ask).forward_bytes < ulysses(&a.ask).forward_bytes;
            if (P != g + 1) assert_int_equal(less, P < g + 1);
            near(weft__cp_cost_ring(&a.ask).forward_bytes, weft__cp_cost_gather(&a.ask).forward_bytes, 1e-12);
        }
}

/* A step's computation, 4 c^2 H D, hides its transfer, 4 c Hkv D, from c = F / (g B) tokens per rank on; causal zigzag
 * computes half of it. */
static void the_ring_hides_from_a_length_on(void **state)
{
    (void)state;
    for (int half = 0; half < 2; half++)
        for (int longer = 0; longer < 2; longer++) {
            asked a;
            double tokens = (half ? 2 : 1) * 600e12 / (4 * 50e9) * (longer ? 1.05 : 0.95);
            ask_for(&a, shape((int64_t)(8 * tokens), 32, 8, half ? causal : full), 8);
            a.profile.node_latency_seconds = 1e-12;
            a.profile.memory_bytes_per_second = 1e30; /* the exchange alone */
            double seconds = weft__cp_cost_ring(&a.ask).seconds, all = 7 * tokens * 8 * 256 * 2 / 50e9;
            if (longer) assert_true(seconds < 1e-12);
            else near(seconds, 0.05 * all, 0.01);
            a.options.overlap = false; /* waits for everything */
            near(weft__cp_cost_ring(&a.ask).seconds, all, 0.01);
        }
}

/* It needs whole inputs: longer sequences do not help. */
static void the_head_stage_never_hides(void **state)
{
    (void)state;
    for (int64_t T = 1 << 14; T <= 1 << 24; T *= 4) {
        asked a;
        ask_for(&a, shape(T, 32, 8, causal), 8);
        assert_true(ulysses(&a.ask).seconds >= ulysses(&a.ask).forward_bytes / 50e9);
    }
}

static void uneven_shares_cost_computing(void **state)
{
    (void)state;
    asked a;
    ask_for(&a, shape(1 << 20, 30, 30, causal), 8);
    a.problem.layout.kind = WEFT_LAYOUT_CONTIGUOUS;
    double compute = 4.0 * (1 << 20) * (double)(1 << 20) / 2 * 30 * 128 / 8 / 600e12;
    double zigzag = 0, contiguous = weft__cp_cost_ring(&a.ask).seconds;
    a.problem.layout.kind = WEFT_LAYOUT_ZIGZAG;
    zigzag = weft__cp_cost_ring(&a.ask).seconds;
    near(contiguous - zigzag, compute * (1 - 1.0 / 8), 1e-3); /* the last rank has 2 - 1/P of the mean */
    double even, uneven = ulysses(&a.ask).seconds;
    a.problem.H = a.problem.Hkv = 32;
    even = ulysses(&a.ask).seconds;
    /* groups of 4 on 8 ranks: 30 heads take as long as 32, a fifteenth more than their mean */
    assert_true(uneven > compute / 15);
    assert_true(even < compute / 15);
}

static const char *chosen(int64_t T, int H, int Hkv, int P, weft_mask mask)
{
    asked a;
    const weft_cp_strategy *s;
    ask_for(&a, shape(T, H, Hkv, mask), P);
    a.problem.need_backward = true;
    assert_ok(weft__cp_choose(&a.ask, &s));
    return s->name;
}

static void short_long_and_windowed(void **state)
{
    (void)state;
    assert_string_equal(chosen(16, 8, 8, 8, full), "pcp");   /* one latency each way; Ulysses has two, the ring seven */
    assert_string_equal(chosen(512, 16, 1, 8, full), "pcp"); /* and with one key head for all, the fewest bytes */
    const char *name = chosen(1 << 20, 32, 8, 8, causal); /* hidden: only the last part of dK,dV sticks out */
    assert_true(!strcmp(name, "ring") || !strcmp(name, "pairwise"));
    name = chosen(1 << 20, 32, 32, 8, (weft_mask){true, 255, -1, 0});
    assert_string_equal(name, "pairwise"); /* most blocks are of no use to most ranks */
}

/* Where nothing hides, the best grid deals heads over the largest divisor of P up to Hkv. */
static void grouped_heads_want_a_grid(void **state)
{
    (void)state;
    for (int P = 16; P <= 64; P *= 2) {
        asked a;
        int best = 0;
        double least = INFINITY;
        ask_for(&a, shape(1 << 17, 32, 8, full), P);
        a.problem.need_backward = true;
        a.options.overlap = false;
        for (int U = 1; U <= P && U <= 32; U *= 2) {
            double x = weft__cp_cost_heads(&a.ask, U, &weft__cp_ring).seconds;
            if (x < least) least = x, best = U;
        }
        assert_int_equal(best, 8);
    }
}

/* ---- explanation -------------------------------------------------------------------------------------------- */

static weft_status explain(const asked *a, int P, weft_text *text)
{
    weft_ctx ctx;
    weft_kern kern;
    weft_world *world;
    weft_comm *self;
    weft_ctx_init(&ctx);
    assert_ok(weft_kern_init(&kern, WEFT_ISA_REF));
    assert_ok(weft_world_self(&world, &ctx));
    assert_ok(weft_comm_create(&self, world, (int[]){0}, 1, "plan"));
    weft_status st = weft_cp_explain(&kern, self, &a->problem, &a->options, P, text);
    weft_comm_destroy(self);
    weft_world_close(world);
    return st;
}

static void the_explanation_begins_with_the_choice(void **state)
{
    (void)state;
    asked a;
    weft_text text = {0};
    ask_for(&a, shape(1 << 20, 32, 32, (weft_mask){true, 255, -1, 0}), 8);
    a.options.profile = &a.profile;
    assert_ok(explain(&a, 8, &text));
    assert_non_null(strstr(text.data, "\n* pairwise "));
    assert_true(strstr(text.data, "* pairwise") < strstr(text.data, "  ring"));
    assert_true(strstr(text.data, "  ring") < strstr(text.data, "  none "));
    assert_non_null(strstr(text.data, "needs one rank")); /* why it cannot be */
    for (const char *line = text.data; *line; line += strcspn(line, "\n"), line += *line == '\n')
        assert_true(strcspn(line, "\n") <= 80);
    int n, lines = 0;
    weft_cp_names(&n);
    for (const char *c = text.data; *c; c++) lines += *c == '\n' && c[1] != '\0' && strncmp(c + 1, "      ", 6) != 0;
    assert_int_equal(lines, n); /* one per strategy, under the headings */
    weft_text_free(&text);

    a.options.strategy = "ring"; /* what was asked for comes first, whatever it costs */
    assert_ok(explain(&a, 8, &text));
    assert_non_null(strstr(text.data, "\n* ring "));
    assert_true(strstr(text.data, "* ring") < strstr(text.data, "  pairwise"));
    weft_text_free(&text);
    a.options.strategy = "none";
    assert_refused(explain(&a, 8, &text), "needs one rank");
    weft_text_free(&text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cuts_have_edges_and_blocks),
        cmocka_unit_test(blocks_that_are_read_in_place_do_not_move),
        cmocka_unit_test(bytes_follow_the_mask),
        cmocka_unit_test(bytes_are_those_of_plans),
        cmocka_unit_test(worked_numbers),
        cmocka_unit_test(pairwise_bytes_follow_the_mask),
        cmocka_unit_test(gather_moves_less_than_heads_up_to_g),
        cmocka_unit_test(the_ring_hides_from_a_length_on),
        cmocka_unit_test(the_head_stage_never_hides),
        cmocka_unit_test(uneven_shares_cost_computing),
        cmocka_unit_test(short_long_and_windowed),
        cmocka_unit_test(grouped_heads_want_a_grid),
        cmocka_unit_test(the_explanation_begins_with_the_choice),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
