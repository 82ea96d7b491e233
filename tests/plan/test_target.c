/* labels: small */
/* Targets: layouts that other systems take are taken, by the arithmetic of their documentation written out here; every
 * rule refuses a layout of its own, by name, and the way out that it names is one. */
#include "harness/test.h"
#include "plan/target_impl.h"

enum { SEQUENCE = 32768 };

/* Llama-3-8B's shape */
static const weft_model_config llama8b = {.family = WEFT_LLAMA, .V = 128256, .C = 4096, .F = 14336, .L = 32,
                                          .H = 32, .Hkv = 8, .D = 128, .max_position = 1 << 20};

typedef struct problem {
    weft_model_config config;
    int64_t cu[4], first[2];
    weft_docs docs;
    weft_plan_ask ask;
    weft_layout_choice choice;
} problem;

static void start(problem *p, const char *strategy, weft_layout_kind layout, int tp, int cp, int dp, int pp)
{
    *p = (problem){.config = llama8b, .first = {0, 2}};
    p->ask = (weft_plan_ask){.options = {.prec = WEFT_PREC_BF16, .T = SEQUENCE}, .global_batch = 64, .threads = 1};
    p->choice = (weft_layout_choice){.tp = tp, .cp = cp, .dp = dp, .pp = pp, .sequence_parallel = tp > 1, .zero = 1,
                                     .strategy = strategy, .cp_layout = {.kind = layout}, .micro_batch = 1};
}

static void two_documents(problem *p, int64_t length)
{
    p->cu[1] = length;
    p->cu[2] = p->ask.options.T;
    p->first[1] = 3;
    p->docs = (weft_docs){.B = 1, .T = p->ask.options.T, .cu = p->cu, .first = p->first};
    p->ask.docs = &p->docs;
}

static void settle(problem *p) { p->ask.config = &p->config; }

static const weft_target *target(const char *name)
{
    const weft_target *t = NULL;
    assert_ok(weft_target_find(&t, name));
    return t;
}

/* ---- what each system's documentation asks, as arithmetic ---------------------------------------------------- */

static bool divides(int64_t n, int64_t d) { return n % d == 0; }

static void takes(const char *name, problem *p, const char *const *words)
{
    weft_text flags = {0}, why = {0};
    const char *rule = NULL;
    settle(p);
    if (!target(name)->allowed(&p->ask, &p->choice, &rule, &why)) fail_msg("%s: %s: %s", name, rule, why.data);
    target(name)->flags(&p->ask, &p->choice, &flags);
    for (; *words; words++)
        if (!strstr(flags.data, *words)) fail_msg("%s: no \"%s\" in\n%s", name, *words, flags.data);
    assert_int_not_equal(flags.data[flags.len - 1], '\n');
    weft_text_free(&flags);
}
#define TAKES(name, p, ...) takes(name, p, (const char *const[]){__VA_ARGS__, NULL})

static void megatron_takes(void **state)
{
    (void)state;
    problem p;
    start(&p, "ring", WEFT_LAYOUT_ZIGZAG, 2, 8, 4, 1);
    assert_true(divides(SEQUENCE, 2 * 8) && divides(SEQUENCE, 2 * 8 * 2) && divides(32, 2) && divides(8, 2));
    TAKES("megatron", &p, "--tensor-model-parallel-size 2 --sequence-parallel", "--context-parallel-size 8",
          "--cp-comm-type p2p", "--use-distributed-optimizer", "--seq-length 32768", "--bf16",
          "--calculate-per-token-loss", "--global-batch-size 64", "--attention-dropout 0 --hidden-dropout 0\n");
    p.ask.options.dropout = 0.2, p.ask.options.embedding_dropout = p.ask.options.residual_dropout = 0.3;
    TAKES("megatron", &p, "--attention-dropout 0.2 --hidden-dropout 0.3\n"); /* not its defaults, which are 0.1 */

    start(&p, "ulysses", WEFT_LAYOUT_ZIGZAG, 2, 4, 8, 1);
    assert_true(divides(32 / 2, 4) && divides(8 / 2, 4));
    p.config.window = 4096;
    p.ask.sinks = true;
    TAKES("megatron", &p, "--cp-comm-type a2a\n", "--window-size 4095,0");

    start(&p, "dcp-ring", WEFT_LAYOUT_ZIGZAG, 1, 16, 4, 2);
    p.choice.head_size = 4;
    assert_true(divides(16, 4) && divides(32, 4) && divides(8, 4) && divides(32, 2));
    TAKES("megatron", &p, "--cp-comm-type a2a+p2p", "--hierarchical-context-parallel-sizes 4 4",
          "--pipeline-model-parallel-size 2");

    start(&p, "pcp", WEFT_LAYOUT_ZIGZAG, 1, 8, 8, 1);
    p.config.window = 1024;
    two_documents(&p, 16 * 125);
    p.choice.recompute = WEFT_RECOMPUTE_BLOCK;
    p.choice.keep_attention = true;
    p.choice.fp8 = true;
    assert_true(divides(16 * 125, 16) && divides(SEQUENCE - 16 * 125, 16) && divides(SEQUENCE / 8, 8));
    TAKES("megatron", &p, "--cp-comm-type all_gather", "--recompute-modules layernorm mlp\n", "--fp8-format hybrid",
          "every document a multiple of 16");

    start(&p, "none", WEFT_LAYOUT_CONTIGUOUS, 8, 1, 1, 1); /* one rank per sequence: neither strategy nor layout acts */
    p.ask.options.T = 4096;
    p.ask.padding = p.ask.sinks = true;
    p.choice.zero = 3;
    p.choice.recompute = WEFT_RECOMPUTE_FULL;
    TAKES("megatron", &p, "--data-parallel-sharding-strategy optim_grads_params", "--recompute-granularity full");
}

static void torchtitan_takes(void **state)
{
    (void)state;
    problem p;
    start(&p, "pcp", WEFT_LAYOUT_ZIGZAG, 1, 8, 1, 1);
    p.choice.zero = 3;
    p.choice.recompute = WEFT_RECOMPUTE_FULL;
    assert_true(divides(SEQUENCE, 1 * 2 * 8));
    TAKES("torchtitan", &p, "context_parallel_degree = 8\n", "context_parallel_rotate_method = \"allgather\"",
          "context_parallel_load_balancer = \"headtail\"", "mode = \"full\"", "seq_len = 32768",
          "fsdp_reshard_after_forward = \"always\"", "mixed_precision_param = \"bfloat16\"");

    start(&p, "ring", WEFT_LAYOUT_CONTIGUOUS, 4, 2, 2, 1);
    p.choice.zero = 2;
    assert_true(divides(SEQUENCE, 4 * 2 * 2) && divides(32, 4) && divides(8, 4));
    TAKES("torchtitan", &p, "context_parallel_rotate_method = \"alltoall\"", "tensor_parallel_degree = 4",
          "fsdp_reshard_after_forward = \"never\"", "load_balancer None");

    start(&p, "pcp", WEFT_LAYOUT_ZIGZAG, 1, 4, 2, 1); /* FlexAttention's masks */
    p.choice.zero = 3;
    p.config.window = 500;
    two_documents(&p, 1001);
    TAKES("torchtitan", &p, "FlexAttention");

    start(&p, "none", WEFT_LAYOUT_ZIGZAG, 1, 1, 8, 1);
    p.choice.zero = 0;
    p.ask.options.prec = WEFT_PREC_F32;
    TAKES("torchtitan", &p, "data_parallel_replicate_degree = 8\ndata_parallel_shard_degree = 1",
          "mixed_precision_param = \"float32\"");

    start(&p, "pcp", WEFT_LAYOUT_ZIGZAG, 2, 2, 2, 4);
    p.choice.zero = 3;
    p.choice.fp8 = true;
    p.choice.recompute = WEFT_RECOMPUTE_BLOCK;
    p.choice.keep_attention = true;
    TAKES("torchtitan", &p, "pipeline_parallel_degree = 4", "local_batch_size = 32", "mode = \"selective\"",
          "pipeline_parallel_microbatch_size = 1", "quantize.linear.float8");
}

static void deepspeed_takes(void **state)
{
    (void)state;
    problem p;
    start(&p, "ulysses", WEFT_LAYOUT_CONTIGUOUS, 1, 8, 2, 1);
    p.choice.zero = 3;
    p.choice.recompute = WEFT_RECOMPUTE_FULL;
    p.choice.offload = true;
    assert_true(divides(SEQUENCE, 8) && divides(32, 8) && divides(8, 8));
    TAKES("deepspeed", &p, "\"stage\": 3", "\"sequence_parallel_size\": 8", "sequence_parallel_size=8",
          "\"bf16\": {\"enabled\": true}", "\"gradient_accumulation_steps\": 32", "activation_checkpoint_cpu_offload");

    start(&p, "ulysses", WEFT_LAYOUT_CONTIGUOUS, 1, 16, 1, 1); /* two ranks share a key/value head */
    assert_true(divides(32, 16) && divides(16, 8));
    TAKES("deepspeed", &p, "sequence_parallel_size=16", "\"stage\": 1");

    start(&p, "ulysses", WEFT_LAYOUT_CONTIGUOUS, 1, 4, 2, 1);
    two_documents(&p, 777);
    p.config.window = 512;
    TAKES("deepspeed", &p, "flash_attention_2", "position_ids restart");

    start(&p, "ulysses", WEFT_LAYOUT_CONTIGUOUS, 1, 2, 2, 1);
    p.ask.options.prec = WEFT_PREC_F32;
    TAKES("deepspeed", &p, "core_attn_implementation=\"sdpa\"");

    start(&p, "none", WEFT_LAYOUT_ZIGZAG, 1, 1, 8, 1);
    p.ask.options.T = 1001;
    p.ask.sinks = true;
    TAKES("deepspeed", &p, "\"stage\": 1");
}

/* ---- every rule refuses something ---------------------------------------------------------------------------- */

enum { RULES_MAX = 64 };
typedef struct seen { const weft_target *t; const weft__target_rules *rules; bool rule[RULES_MAX]; } seen;

/* Refused by the rule of this name; its text is told, and its source, and `part`. */
static void refused(seen *s, const char *name, problem *p, const char *part)
{
    settle(p);
    weft_text why = {0};
    const char *rule = NULL;
    int broken = weft__target_broken(s->rules, &p->ask, &p->choice);
    if (broken == s->rules->n) fail_msg("%s takes what the rule \"%s\" should refuse", s->t->name, name);
    const weft__target_rule *r = &s->rules->rule[broken];
    assert_string_equal(r->name, name);
    s->rule[broken] = true;
    assert_false(s->t->allowed(&p->ask, &p->choice, &rule, &why));
    assert_ptr_equal(rule, r->text);
    if (!strstr(why.data, part)) fail_msg("%s: no \"%s\" in: %s", name, part, why.data);
    if (!strstr(why.data, r->source)) fail_msg("%s: no source in: %s", name, why.data);
    weft_text_free(&why);
}

static void all_seen(const seen *s)
{
    for (int i = 0; i < s->rules->n; i++)
        if (!s->rule[i]) fail_msg("%s: the rule \"%s\" refused nothing", s->t->name, s->rules->rule[i].name);
}

#define REFUSED(rule_name, part, ...) \
    do { \
        start(&p, "ring", WEFT_LAYOUT_ZIGZAG, 2, 8, 4, 1); \
        __VA_ARGS__; \
        refused(&s, rule_name, &p, part); \
    } while (0)

static void megatron_refuses(void **state)
{
    (void)state;
    seen s = {.t = target("megatron"), .rules = &weft__megatron_rules};
    problem p;
    weft_layout_choice *c = &p.choice;
    REFUSED("exchange", "strategy pairwise", c->strategy = "pairwise");
    REFUSED("exchange", "strategy dcp", c->strategy = "dcp");
    REFUSED("layout", "layout striped", c->cp_layout.kind = WEFT_LAYOUT_STRIPED);
    REFUSED("order", "tp-cp-dp-pp", assert_ok(weft_mesh_order_parse("cp-tp-dp-pp", &c->order)));
    REFUSED("length", "T 32777, 2 cp 16; T 32768 or 32800 works", p.ask.options.T = 32777);
    REFUSED("rows", "T 32784, its divisor 32; T 32768 or 32800 works", p.ask.options.T = 32784);
    REFUSED("heads", "heads 30, tp 4; tp 2 works", p.config.H = 30; p.config.Hkv = 30; c->tp = 4);
    REFUSED("key heads", "key/value heads 2, tp 4; tp 2 works", p.config.Hkv = 2; c->tp = 4);
    REFUSED("width", "F 14339, tp 2; tp 1 works", p.config.F = 14339);
    REFUSED("layers", "layers 32, pp 5; pp 4 works", c->pp = 5);
    REFUSED("batch", "sequences 64, micro-batch x dp 12; dp 4 works", c->micro_batch = 2; c->dp = 6);
    REFUSED("a2a heads", "heads / tp 18, cp 4; cp 2 works", c->strategy = "ulysses"; p.config.H = 36;
            p.config.Hkv = 36; c->cp = 4);
    REFUSED("a2a key heads", "key/value heads / tp 4, cp 8; cp 4 works", c->strategy = "ulysses");
    REFUSED("levels", "cp 8, head group 3; a head group of 2 works", c->strategy = "dcp-ring"; c->head_size = 3);
    REFUSED("level heads", "heads / tp 18, head group 4; a head group of 2 works", c->strategy = "dcp-ring";
            p.config.H = 36; p.config.Hkv = 36; c->head_size = 4);
    REFUSED("level key heads", "key/value heads / tp 4, head group 8; a head group of 4", c->strategy = "dcp-ring";
            c->head_size = 8);
    REFUSED("window", "strategy ring, a window of 4096 tokens; pcp", p.config.window = 4096);
    REFUSED("window", "strategy dcp-ring", p.config.window = 4096; c->strategy = "dcp-ring"; c->head_size = 2);
    REFUSED("window and dropout", "--attention-dropout 0", p.config.window = 4096; c->strategy = "pcp";
            p.ask.options.dropout = 0.1; two_documents(&p, 1600));
    REFUSED("hidden dropout", "dropout 0 of the embedding, 0.1 of the residual stream; the same",
            p.ask.options.residual_dropout = 0.1);
    REFUSED("padding", "padded sequences", p.ask.padding = true);
    REFUSED("sinks", "ulysses (a2a) has them", p.ask.sinks = true);
    REFUSED("documents", "a document of 1000 tokens; cp 4 works", two_documents(&p, 1000));
    REFUSED("precision", "precision fp32", p.ask.options.prec = WEFT_PREC_F32);
    REFUSED("fp64", "precision fp64", p.ask.options.prec = WEFT_PREC_F64; c->cp = 1);
    REFUSED("head size", "head size 100", p.config.D = 100);
    REFUSED("keep", "recompute full that keeps attention", c->recompute = WEFT_RECOMPUTE_FULL;
            c->keep_attention = true);
    REFUSED("offload", "recompute full, offload", c->recompute = WEFT_RECOMPUTE_FULL; c->offload = true);
    REFUSED("fp8 rows", "T 64, its divisor 128; T 128 works", p.ask.options.T = 64; c->fp8 = true);
    all_seen(&s);
}

static void torchtitan_refuses(void **state)
{
    (void)state;
    seen s = {.t = target("torchtitan"), .rules = &weft__torchtitan_rules};
    problem p;
    weft_layout_choice *c = &p.choice;
#define TITAN(rule, part, ...) REFUSED(rule, part, c->zero = 3; __VA_ARGS__)
    TITAN("exchange", "strategy ulysses", c->strategy = "ulysses");
    TITAN("layout", "layout balanced", c->cp_layout.kind = WEFT_LAYOUT_BALANCED);
    TITAN("order", "rank order cp-tp-dp-pp", assert_ok(weft_mesh_order_parse("cp-tp-dp-pp", &c->order)));
    TITAN("length", "T 32784, 2 cp tp 32; T 32768 or 32800 works", p.ask.options.T = 32784);
    TITAN("heads", "heads 30, tp 4", p.config.H = 30; c->tp = 4);
    TITAN("key heads", "key/value heads 2, tp 4", p.config.Hkv = 2; c->tp = 4);
    TITAN("batch", "dp 2 works", c->dp = 3);
    TITAN("documents", "pcp works", two_documents(&p, 4096));
    TITAN("window", "a window of 4096", p.config.window = 4096);
    TITAN("padding", "padded", p.ask.padding = true);
    TITAN("sinks", "attention sinks", p.ask.sinks = true);
    TITAN("dropout", "attention dropout", p.ask.options.dropout = 0.1);
    TITAN("hidden dropout", "--residual-dropout 0", p.ask.options.residual_dropout = 0.1);
    TITAN("precision", "precision fp16", p.ask.options.prec = WEFT_PREC_F16);
    TITAN("sharding", "ZeRO 1", c->zero = 1);
    TITAN("sharding", "ZeRO 0", c->zero = 0);
    TITAN("copies", "ZeRO 0, tp 2, pp 1, dp 4", c->zero = 0; c->cp = 1);
    TITAN("recompute", "recompute block", c->recompute = WEFT_RECOMPUTE_BLOCK);
    TITAN("offload", "offload", c->offload = true);
#undef TITAN
    all_seen(&s);
}

static void deepspeed_refuses(void **state)
{
    (void)state;
    seen s = {.t = target("deepspeed"), .rules = &weft__deepspeed_rules};
    problem p;
    weft_layout_choice *c = &p.choice;
#define DEEP(rule, part, ...) \
    REFUSED(rule, part, c->strategy = "ulysses"; c->cp_layout.kind = WEFT_LAYOUT_CONTIGUOUS; c->tp = 1; \
            c->sequence_parallel = false; __VA_ARGS__)
    DEEP("exchange", "strategy ring; ulysses works", c->strategy = "ring");
    DEEP("layout", "layout zigzag; contiguous works", c->cp_layout.kind = WEFT_LAYOUT_ZIGZAG);
    DEEP("tensor", "tp 2; tp 1 works", c->tp = 2);
    DEEP("stages", "pp 2; pp 1 works", c->pp = 2);
    DEEP("order", "rank order tp-dp-cp-pp", assert_ok(weft_mesh_order_parse("tp-dp-cp-pp", &c->order)));
    DEEP("length", "T 32777, cp 8; T 32776 or 32784", p.ask.options.T = 32777);
    DEEP("heads", "heads 30, cp 8; cp 2 works", p.config.H = 30; p.config.Hkv = 30);
    DEEP("key heads", "cp 8; cp 6 works", p.ask.options.T = 49152; p.config.H = 24; p.config.Hkv = 3);
    DEEP("batch", "dp 2 works", c->dp = 3);
    DEEP("padding", "padded", p.ask.padding = true);
    DEEP("sinks", "attention sinks", p.ask.sinks = true);
    DEEP("flash", "precision fp32", p.ask.options.prec = WEFT_PREC_F32; p.config.window = 4096);
    DEEP("precision", "precision fp64", p.ask.options.prec = WEFT_PREC_F64);
    DEEP("fp8", "bf16 works", c->fp8 = true);
    DEEP("recompute", "recompute attention", c->recompute = WEFT_RECOMPUTE_ATTENTION);
    DEEP("recompute", "that keeps attention", c->recompute = WEFT_RECOMPUTE_FULL; c->keep_attention = true);
    DEEP("offload", "recompute none, offload", c->offload = true);
#undef DEEP
    all_seen(&s);
}

/* ---- the list ------------------------------------------------------------------------------------------------ */

static void names(void **state)
{
    (void)state;
    int n;
    const weft_target *const *t = weft_targets(&n), *found = NULL;
    for (int i = 0; i < n; i++) assert_ptr_equal(target(t[i]->name), t[i]);
    assert_refused(weft_target_find(&found, "megatrn"), "megatron");
    assert_refused(weft_target_find(&found, ""), "torchtitan, deepspeed");
}

/* A window as long as the sequence is none; an order of ranks that changes nothing is no other order. */
static void what_does_not_act(void **state)
{
    (void)state;
    problem p;
    start(&p, "ring", WEFT_LAYOUT_ZIGZAG, 2, 8, 4, 1);
    p.config.window = SEQUENCE;
    TAKES("megatron", &p, "p2p");
    assert_ok(weft_mesh_order_parse("tp-pp-cp-dp", &p.choice.order)); /* pp is 1 */
    TAKES("megatron", &p, "p2p");
    p.choice.tp = 1, p.choice.pp = 2;
    assert_ok(weft_mesh_order_parse("cp-pp-tp-dp", &p.choice.order)); /* tp is 1 */
    TAKES("megatron", &p, "--use-tp-pp-dp-mapping");
}

/* ---- memory -------------------------------------------------------------------------------------------------- */

static weft_memory memory_of(problem *p)
{
    weft_memory m;
    settle(p);
    assert_ok(weft__target_memory(&p->ask, &p->choice, &m));
    return m;
}

/* Against figures worked out by hand for Llama-3-8B: 8.03e9 parameters; ZeRO, recomputation, cp and tp divide what they
 * should. */
static void memory(void **state)
{
    (void)state;
    problem p;
    start(&p, "none", WEFT_LAYOUT_ZIGZAG, 1, 1, 1, 1);
    p.ask.global_batch = 1;
    const double n = 8030261248.0;
    weft_memory one = memory_of(&p);
    assert_float_equal((double)one.bytes[WEFT_MEMORY_WEIGHTS], 2 * n, 1);
    assert_float_equal((double)one.bytes[WEFT_MEMORY_GRADIENTS], 4 * n, 1);
    assert_float_equal((double)one.bytes[WEFT_MEMORY_MOMENTS], 12 * n, 1);
    /* per token and layer, in 16 bits: 2 inputs and 2 norms of 4096, qkv of 6144, o of 4096, gate, up and their product
     * of 14336; 32 numbers in fp32 */
    const double token = 2 * (4 * 4096 + 6144 + 4096 + 3 * 14336) + 4 * 32;
    assert_float_equal((double)one.bytes[WEFT_MEMORY_ACTIVATIONS], token * SEQUENCE * 32, 1);

    p.choice.cp = 8, p.choice.strategy = "ring";
    weft_memory cut = memory_of(&p);
    assert_float_equal((double)cut.bytes[WEFT_MEMORY_ACTIVATIONS], token * SEQUENCE * 32 / 8, 1);
    assert_float_equal((double)cut.bytes[WEFT_MEMORY_MOMENTS], 12 * n / 8, 1);
    p.choice.zero = 3;
    weft_memory sharded = memory_of(&p);
    assert_true(sharded.bytes[WEFT_MEMORY_WEIGHTS] < cut.bytes[WEFT_MEMORY_WEIGHTS] / 4);
    assert_true(sharded.bytes[WEFT_MEMORY_GRADIENTS] < cut.bytes[WEFT_MEMORY_GRADIENTS] / 4);
    p.choice.recompute = WEFT_RECOMPUTE_FULL;
    weft_memory again = memory_of(&p);
    assert_float_equal((double)again.bytes[WEFT_MEMORY_ACTIVATIONS], 2.0 * 4096 * SEQUENCE * 32 / 8, 1);
    p.choice.offload = true;
    weft_memory away = memory_of(&p);
    assert_int_equal(away.bytes[WEFT_MEMORY_ACTIVATIONS], 0);
    assert_int_equal(away.bytes[WEFT_MEMORY_OFFLOADED], again.bytes[WEFT_MEMORY_ACTIVATIONS]);
}

/* torchtitan's benchmark of 2024-12: Llama-3-8B, 8 H100, 256K tokens, cp 8, full recomputation: 84 GiB on a GPU. */
static void memory_of_torchtitan(void **state)
{
    (void)state;
    problem p;
    start(&p, "pcp", WEFT_LAYOUT_ZIGZAG, 1, 8, 1, 1);
    p.ask.options.T = 262144;
    p.choice.zero = 3;
    p.choice.recompute = WEFT_RECOMPUTE_FULL;
    weft_memory m = memory_of(&p);
    const double GiB = (double)weft_memory_total(&m) / (1 << 30);
    assert_true(GiB > 0.95 * 84 && GiB < 1.05 * 84);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(megatron_takes), cmocka_unit_test(torchtitan_takes), cmocka_unit_test(deepspeed_takes),
        cmocka_unit_test(megatron_refuses), cmocka_unit_test(torchtitan_refuses), cmocka_unit_test(deepspeed_refuses),
        cmocka_unit_test(names), cmocka_unit_test(what_does_not_act), cmocka_unit_test(memory),
        cmocka_unit_test(memory_of_torchtitan),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
