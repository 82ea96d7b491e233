/* sim_case.h — one simulated attention, for tests that prove that plans end and that they send what they plan to. */
#ifndef WEFT_TEST_SIM_CASE_H
#define WEFT_TEST_SIM_CASE_H

#include "harness/traffic.h"
#include "plan/plan.h"

typedef struct sim_case {
    const char *strategy;
    weft_layout layout;
    int P, groups;
    bool interleaved, no_overlap;
    int64_t B, T;
    int H, Hkv, D, Dv;
    int group, head0;            /* a part of a model's heads; group 0: all */
    weft_prec prec;
    weft_mask mask;
    const weft_docs *docs;
    size_t pieces;               /* buffer_bytes */
    int head_size, layers;
    const weft_profile *profile;
    bool needs_poll;
    weft_sim_disturb disturb;
} sim_case;

/* Small heads, full visibility, one layer, one group. */
sim_case sim_case_make(const char *strategy, weft_layout_kind layout, int P, int64_t T);
/* "ring zigzag P=7 x 2 T=257 ..." */
const char *sim_case_text(const sim_case *c, char *buf, size_t n);
weft_layout sim_layout(weft_layout_kind kind);

/* Runs it; fails the test when it does, or when a rank did not send exactly what it had planned. false: it is refused
 * for the one reason that is allowed (ulysses on more ranks than heads, none on more than one rank). Free the
 * result. */
bool sim_case_run(const sim_case *c, weft_sim_result *out);
/* For a full mask and one layer: runs it and compares bytes and messages of every rank with the formulas
 * (harness/traffic.h). false: refused, as above. */
bool sim_case_check_formula(const sim_case *c);
/* The case of those formulas; and whether a rank sent this. */
traffic_case sim_case_traffic(const sim_case *c);
void sim_case_expect(const sim_case *c, const weft_sim_result *out, int rank, const traffic *want);
/* Runs it and drops the result. */
bool sim_case_check(const sim_case *c);

#endif
