/* published.c — the predictor as a filter, for published.py: a line of words "name=value" in, a line of JSON out.
 *
 * A step by weft_plan_time_of, or with the word attention=1 one layer's attention by weft_simulate. It reaches what
 * `weft plan` has no option for, because Weft does not run it: products in fp8, ZeRO 2 and 3, the bytes that other
 * systems move. What cannot run gives {"refused": "why"}; a word that is not known ends it.
 *
 *   cmake --build build --target bench_published
 *   echo "profile=h100-ib T=131072 tp=4 cp=4 dp=8 batch=32 fp8=1" | build/bench_published */
#include "plan/target.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct request {
    weft_profile profile;
    weft_model_config model;
    weft_plan_system system;
    weft_layout_choice choice;
    int64_t T, batch;
    int64_t window;         /* 0: none */
    bool attention;         /* one layer's attention instead of a step */
    bool keep_heads;        /* q, k, v stay in head layout from forward to backward */
    bool narrow;            /* gradients of keys and values travel in bf16 */
    bool overlap;           /* gradients are summed under the backward pass, keys and values move under attention */
} request;

static request defaults(void)
{
    return (request){.model = {.family = WEFT_LLAMA, .V = 32000, .C = 4096, .F = 11008, .L = 32, .H = 32, .Hkv = 32,
                               .D = 128, .norm_eps = 1e-5, .rope = {.type = WEFT_ROPE_PLAIN, .theta = 1e4, .factor = 1},
                               .bos = -1, .eos = -1},
                     .system = weft_plan_system_weft(WEFT_PREC_BF16),
                     .choice = {.tp = 1, .cp = 1, .dp = 1, .pp = 1, .strategy = "ring", .micro_batch = 1,
                                .cp_layout = {.kind = WEFT_LAYOUT_ZIGZAG}},
                     .T = 4096, .batch = 1, .overlap = true};
}

/* ---- words --------------------------------------------------------------------------------------------------- */

typedef enum { INTEGER, COUNT, NUMBER, YES } type; /* int, int64_t, double, bool */
static const struct word { const char *name; type type; size_t at; } words[] = {
    {"V", COUNT, offsetof(request, model.V)}, {"C", COUNT, offsetof(request, model.C)},
    {"F", COUNT, offsetof(request, model.F)}, {"L", COUNT, offsetof(request, model.L)},
    {"H", INTEGER, offsetof(request, model.H)}, {"Hkv", INTEGER, offsetof(request, model.Hkv)},
    {"D", INTEGER, offsetof(request, model.D)}, {"T", COUNT, offsetof(request, T)},
    {"window", COUNT, offsetof(request, window)}, {"attention", YES, offsetof(request, attention)},
    {"batch", COUNT, offsetof(request, batch)}, {"micro", COUNT, offsetof(request, choice.micro_batch)},
    {"tp", INTEGER, offsetof(request, choice.tp)}, {"cp", INTEGER, offsetof(request, choice.cp)},
    {"dp", INTEGER, offsetof(request, choice.dp)}, {"pp", INTEGER, offsetof(request, choice.pp)},
    {"sp", YES, offsetof(request, choice.sequence_parallel)}, {"zero", INTEGER, offsetof(request, choice.zero)},
    {"U", INTEGER, offsetof(request, choice.head_size)}, {"fp8", YES, offsetof(request, choice.fp8)},
    {"keep", YES, offsetof(request, choice.keep_attention)}, {"offload", YES, offsetof(request, choice.offload)},
    {"overlap", YES, offsetof(request, overlap)}, {"stream", NUMBER, offsetof(request, system.stream)},
    {"tp_rows", NUMBER, offsetof(request, system.tp_rows)}, {"tp_sums", NUMBER, offsetof(request, system.tp_sums)},
    {"gradients", NUMBER, offsetof(request, system.gradients)}, {"weights", NUMBER, offsetof(request, system.weights)},
    {"elements", NUMBER, offsetof(request, system.elements)},
    {"keep_heads", YES, offsetof(request, keep_heads)}, {"narrow", YES, offsetof(request, narrow)},
    {"tp_piece", NUMBER, offsetof(request, system.tp_piece)},
};

static weft_status set_number(request *q, const struct word *w, const char *value)
{
    void *at = (char *)q + w->at;
    double x = 0;
    if (weft_parse_f64(value, &x) < 0 || (w->type != NUMBER && !(x >= 0 && x <= 1e12)))
        return weft_fail(WEFT_ERR_REFUSED, "%s=%s is no number that could be meant", w->name, value);
    if (w->type == NUMBER) *(double *)at = x;
    else if (w->type == COUNT) *(int64_t *)at = (int64_t)x;
    else if (w->type == YES) *(bool *)at = x > 0;
    else *(int *)at = (int)(x < 1e6 ? x : 1e6);
    return WEFT_OK;
}

/* The line's words stay where they are until it is answered, so the strategy points into it. */
static weft_status set(request *q, const char *name, const char *value)
{
    if (!strcmp(name, "profile")) return weft_profile_find(&q->profile, value);
    if (!strcmp(name, "layout")) return weft_layout_parse(value, &q->choice.cp_layout);
    if (!strcmp(name, "recompute"))
        return weft_recompute_parse(value, &q->choice.recompute)
                   ? WEFT_OK
                   : weft_fail(WEFT_ERR_REFUSED, "recompute=%s: none, attention, block or full", value);
    if (!strcmp(name, "strategy")) {
        q->choice.strategy = value;
        return WEFT_OK;
    }
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (!strcmp(name, words[i].name)) return set_number(q, &words[i], value);
    return weft_fail(WEFT_ERR_REFUSED, "%s is unknown", name);
}

static weft_status parse(request *q, char *line)
{
    for (char *word = strtok(line, " \n"); word; word = strtok(NULL, " \n")) {
        char *value = strchr(word, '=');
        if (!value) return weft_fail(WEFT_ERR_REFUSED, "%s: name=value is needed", word);
        *value++ = 0;
        WEFT_TRY(set(q, word, value));
    }
    return WEFT_OK;
}

/* ---- answers ------------------------------------------------------------------------------------------------- */

static weft_status answer_attention(const request *q)
{
    const weft_model_config *m = &q->model;
    const int64_t left = q->window > 0 ? q->window - 1 : -1;
    weft_sim_result r = {0};
    weft_sim_ask ask = {.problem = {.prec = WEFT_PREC_BF16, .B = q->choice.micro_batch, .Tq = q->T, .T = q->T,
                                    .max_docs = q->choice.micro_batch, .H = m->H, .Hkv = m->Hkv, .D = m->D, .Dv = m->D,
                                    .scale = 1, .mask = {.causal = true, .left = left, .right = -1},
                                    .layout = q->choice.cp_layout, .need_backward = true, .slots = 1},
                        .options = {.strategy = q->choice.strategy, .overlap = q->overlap,
                                    .head_size = q->choice.head_size, .profile = &q->profile,
                                    .keep_heads = q->keep_heads,
                                    .grad_dtype = q->narrow ? WEFT_CP_WIRE_BF16 : WEFT_CP_WIRE_SAME},
                        .cp = q->choice.cp, .groups = 1, .layers = 1};
    WEFT_TRY(weft_simulate(&r, &ask));
    printf("{\"forward\": %.9g, \"backward\": %.9g}\n", r.forward_seconds, r.backward_seconds);
    weft_sim_result_free(&r);
    return WEFT_OK;
}

static weft_status answer_step(request *q)
{
    weft_plan_time t;
    q->model.max_position = q->T;
    weft_plan_ask ask = {.config = &q->model, .global_batch = q->batch, .threads = 1, .system = &q->system,
                         .overlap_gradients = q->overlap,
                         .options = {.prec = WEFT_PREC_BF16, .T = q->T, .max_docs = q->choice.micro_batch,
                                     .cp = {.overlap = q->overlap}}};
    WEFT_TRY(weft_model_config_check(&q->model, "the line"));
    weft_memory memory;
    WEFT_TRY(weft_plan_time_of(&t, &q->profile, &ask, &q->choice));
    WEFT_TRY(weft_target_megatron.memory(&ask, &q->choice, &memory));
    printf("{\"step\": %.9g, \"flops\": %.9g, \"memory\": %lld", t.step, t.flops,
           (long long)weft_memory_total(&memory));
    for (int i = 0; i < WEFT_TIMES; i++) printf(", \"%s\": %.6g", weft_time_name((weft_time_part)i), t.seconds[i]);
    printf("}\n");
    return WEFT_OK;
}

int main(void)
{
    static char line[4096];
    while (fgets(line, sizeof line, stdin)) {
        request q = defaults();
        weft_status st = parse(&q, line);
        if (st < 0) {
            fprintf(stderr, "bench_published: %s\n", weft_last_error());
            return 2;
        }
        st = q.attention ? answer_attention(&q) : answer_step(&q);
        if (st < 0) printf("{\"refused\": \"%s\"}\n", weft_last_error());
        fflush(stdout);
    }
    return 0;
}
