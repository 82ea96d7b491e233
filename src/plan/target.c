/* target.c — the table of targets, and Weft itself as one of them: its rules are those that a run is refused by. */
#include "plan/target.h"
#include "plan/plan_impl.h"

#include <string.h>

static bool refuse(const char **rule, const char *text)
{
    *rule = text;
    return false;
}

/* Of no stage has more inputs than are in use at once. */
static bool offload_acts(const weft_plan_ask *ask, const weft_layout_choice *c)
{
    int64_t micros = 1;
    if (weft_plan_micros(ask, c, &micros) < 0) return true;
    for (int stage = 0; stage < c->pp; stage++)
        if (weft__offloads(ask, c, stage, micros)) return true;
    return false;
}

static bool weft_allows(const weft_plan_ask *ask, const weft_layout_choice *c, const char **rule, weft_text *why)
{
    const int64_t unit = c->micro_batch * c->dp, L = ask->config->L;
    if (c->pp > L) {
        weft_text_add(why, "pp %d, and the model has %lld layers; at most pp %lld works", c->pp, (long long)L,
                      (long long)L);
        return refuse(rule, "a stage of the pipeline needs a layer");
    }
    if (ask->global_batch % unit) {
        weft_text_add(why, "sequences of a step %lld, micro-batch %lld x dp %d; a multiple of %lld works",
                      (long long)ask->global_batch, (long long)c->micro_batch, c->dp, (long long)unit);
        return refuse(rule, "sequences of a step are a multiple of micro-batch x dp");
    }
    if (c->sequence_parallel && c->tp == 1) {
        weft_text_add(why, "tp 1; at least 2 works");
        return refuse(rule, "sequence parallelism needs tp");
    }
    if (c->zero > 1) {
        weft_text_add(why, "ZeRO %d; 0 and 1 work", c->zero);
        return refuse(rule, "ZeRO 0 and 1 are what Weft runs");
    }
    if (c->fp8) {
        weft_text_add(why, "products in fp8; the precision of the run works");
        return refuse(rule, "products run in fp64, fp32, bf16 or fp16");
    }
    if (c->offload && !offload_acts(ask, c)) {
        weft_text_add(why, "no stage of %d has more than two inputs of layers; fewer stages work", c->pp);
        return refuse(rule, "offloading needs more inputs of layers than are in use");
    }
    return true;
}

/* Where defaults are written, those of what one rank of cp has no use for, too. */
static void add_attention(const weft_layout_choice *c, bool all, weft_text *out)
{
    char layout[48];
    if (c->cp > 1) weft_text_add(out, " --cp %d --cp-strategy %s", c->cp, c->strategy);
    else if (all) weft_text_add(out, " --cp 1 --cp-strategy none");
    if (c->head_size > 0 || all) weft_text_add(out, " --cp-head-size %d", c->head_size);
    if ((c->cp > 1 && c->cp_layout.kind != WEFT_LAYOUT_ZIGZAG) || all)
        weft_text_add(out, " --cp-layout %s", weft_layout_text(c->cp_layout, layout, sizeof layout));
}

static void add_memory(const weft_plan_ask *ask, const weft_layout_choice *c, weft_text *out)
{
    const bool all = ask->all_options;
    const char *place = ask->options.offload == WEFT_OFFLOAD_FILE ? "file" : "host";
    if (c->recompute != WEFT_RECOMPUTE_NONE || all)
        weft_text_add(out, " --recompute %s", weft_recompute_name(c->recompute));
    if (c->keep_attention) weft_text_add(out, " --recompute-keep-attention");
    else if (all) weft_text_add(out, " --no-recompute-keep-attention");
    if (c->offload || all) weft_text_add(out, " --offload %s", c->offload ? place : "none");
}

/* Defaults are left out, but for what the search has chosen. */
static void weft_flags(const weft_plan_ask *ask, const weft_layout_choice *c, weft_text *out)
{
    char order[12];
    const bool all = ask->all_options;
    weft_text_add(out, "--tp %d", c->tp);
    if (c->sequence_parallel) weft_text_add(out, " --sequence-parallel");
    else if (all) weft_text_add(out, " --no-sequence-parallel");
    add_attention(c, all, out);
    if (c->dp > 1 || all) weft_text_add(out, " --dp %d", c->dp);
    if (c->pp > 1 || all) weft_text_add(out, " --pp %d", c->pp);
    if (c->order || all) weft_text_add(out, " --rank-order %s", weft_mesh_order_text(c->order, order));
    if (c->dp * c->cp > 1 || all) weft_text_add(out, " --zero-stage %d", c->zero);
    add_memory(ask, c, out);
    weft_text_add(out, " --micro-batch-size %lld", (long long)c->micro_batch);
}

const weft_target weft_target_weft = {
    .name = "weft", .doc = "this program", .zero_most = 1,
    .strategies = "none|pcp|dcp|ring|pairwise|ulysses|dcp-ring|dcp-pairwise",
    .layouts = "contiguous|zigzag|striped", .system = weft_plan_system_weft, .allowed = weft_allows,
    .flags = weft_flags,
};

static const weft_target *const targets[] = {&weft_target_weft, &weft_target_megatron, &weft_target_torchtitan,
                                             &weft_target_deepspeed};
enum { TARGETS = sizeof targets / sizeof *targets };

const weft_target *const *weft_targets(int *n)
{
    *n = TARGETS;
    return targets;
}

weft_status weft_target_find(const weft_target **out, const char *name)
{
    const char *names[TARGETS], *between = "";
    weft_text list = {0};
    for (int i = 0; i < TARGETS; i++) {
        names[i] = targets[i]->name;
        if (!strcmp(name, names[i])) {
            *out = targets[i];
            weft_text_free(&list);
            return WEFT_OK;
        }
        weft_text_add(&list, "%s%s", between, names[i]);
        between = ", ";
    }
    const char *near = weft_suggest(name, names, TARGETS);
    weft_status st = weft_fail(WEFT_ERR_REFUSED, "target %s is unknown%s%s%s; there are %s", name,
                               near ? "; did you mean \"" : "", near ? near : "", near ? "\"?" : "",
                               list.data ? list.data : "weft");
    weft_text_free(&list);
    return st;
}
