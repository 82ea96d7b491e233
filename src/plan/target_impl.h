/* target_impl.h — what the files of the targets share; seen by src/plan/target*.c only. */
#ifndef WEFT_PLAN_TARGET_IMPL_H
#define WEFT_PLAN_TARGET_IMPL_H

#include "plan/target.h"

typedef struct weft__target_case {
    weft_plan_ask ask;
    weft_layout_choice choice;
} weft__target_case;

/* What a refusal shows of a case: bits of `shows`, in this order. */
enum {
    WEFT__SHOW_CP = 1 << 0, WEFT__SHOW_STRATEGY = 1 << 1, WEFT__SHOW_LAYOUT = 1 << 2, WEFT__SHOW_WINDOW = 1 << 3,
    WEFT__SHOW_DOCS = 1 << 4, WEFT__SHOW_SINKS = 1 << 5, WEFT__SHOW_PADDING = 1 << 6, WEFT__SHOW_DROPOUT = 1 << 7,
    WEFT__SHOW_PREC = 1 << 8, WEFT__SHOW_ZERO = 1 << 9, WEFT__SHOW_TP = 1 << 10, WEFT__SHOW_PP = 1 << 11,
    WEFT__SHOW_DP = 1 << 12, WEFT__SHOW_RECOMPUTE = 1 << 13, WEFT__SHOW_OFFLOAD = 1 << 14, WEFT__SHOW_ORDER = 1 << 15,
    WEFT__SHOW_HEAD = 1 << 16, WEFT__SHOW_FP8 = 1 << 17,
    WEFT__SHOW_HIDDEN = 1 << 18
};

/* The number that a user would change to keep a rule. */
typedef enum { WEFT__KNOB_NONE, WEFT__KNOB_T, WEFT__KNOB_CP, WEFT__KNOB_TP, WEFT__KNOB_PP, WEFT__KNOB_DP,
               WEFT__KNOB_HEADS /* U */, WEFT__KNOBS } weft__target_knob;

/* Of two forms: `number` must be a multiple of `divisor`; or, without these, `breaks` must not be true. */
typedef struct weft__target_rule {
    const char *name, *text, *source;
    bool (*applies)(const weft__target_case *c); /* NULL: always */
    int64_t (*number)(const weft__target_case *c), (*divisor)(const weft__target_case *c);
    const char *number_name, *divisor_name;
    bool (*breaks)(const weft__target_case *c);
    unsigned shows;
    weft__target_knob knob;
    const char *instead;  /* without a knob: what works */
} weft__target_rule;

typedef struct weft__target_rules { const weft__target_rule *rule; int n; } weft__target_rules;
extern const weft__target_rules weft__megatron_rules, weft__torchtitan_rules, weft__deepspeed_rules;
/* The first rule that the choice breaks; `n` of them: none. */
int weft__target_broken(const weft__target_rules *rules, const weft_plan_ask *ask, const weft_layout_choice *choice);
/* The `allowed` of a target with these rules: the first that the choice breaks is told, with what there is and a value
 * that works. */
bool weft__target_allows(const weft__target_rules *rules, const weft_plan_ask *ask, const weft_layout_choice *choice,
                         const char **rule, weft_text *why);
/* The `memory` of a trainer on bf16 copies of fp32 weights, as GPUs have it. */
weft_status weft__target_memory(const weft_plan_ask *ask, const weft_layout_choice *choice, weft_memory *out);

/* Flags end without a newline. */
void weft__target_end(weft_text *out);

/* ---- of a case, for the rules of more than one target (target_case.c) --------------------------------------- */

bool weft__target_cut(const weft__target_case *c);        /* cp > 1 */
bool weft__target_split(const weft__target_case *c);      /* tp > 1 */
bool weft__target_window(const weft__target_case *c);     /* some layer's window is shorter than a sequence */
bool weft__target_docs(const weft__target_case *c);       /* a sequence holds more than one document */
bool weft__target_is(const weft__target_case *c, const char *strategy);
bool weft__target_sixteen_bits(const weft__target_case *c); /* bf16 or fp16 */
bool weft__target_batch_said(const weft__target_case *c);
bool weft__target_order_is(const weft__target_case *c, int order);
bool weft__target_order_differs(const weft__target_case *c); /* from tp-cp-dp-pp, for these sizes */
int64_t weft__target_T(const weft__target_case *c);
int64_t weft__target_H(const weft__target_case *c);
int64_t weft__target_Hkv(const weft__target_case *c);
int64_t weft__target_layers(const weft__target_case *c);
int64_t weft__target_width(const weft__target_case *c);   /* F */
int64_t weft__target_batch(const weft__target_case *c);   /* sequences of a step */
int64_t weft__target_cp(const weft__target_case *c);
int64_t weft__target_two_cp(const weft__target_case *c);
int64_t weft__target_tp(const weft__target_case *c);
int64_t weft__target_pp(const weft__target_case *c);
int64_t weft__target_micro_dp(const weft__target_case *c); /* sequences that all groups take at once */
int64_t weft__target_bad_doc(const weft__target_case *c, int64_t divisor); /* a length that it does not divide; 0 */
int64_t weft__target_accumulation(const weft__target_case *c); /* micro-batches of a step; 0: not said */

#endif
