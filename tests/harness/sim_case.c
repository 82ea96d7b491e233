#include "harness/test.h"
#include "harness/sim_case.h"

weft_layout sim_layout(weft_layout_kind kind) { return (weft_layout){kind, kind == WEFT_LAYOUT_STRIPED ? 1 : 0}; }

sim_case sim_case_make(const char *strategy, weft_layout_kind layout, int P, int64_t T)
{
    return (sim_case){.strategy = strategy, .layout = sim_layout(layout), .P = P, .groups = 1, .B = 1, .T = T, .H = 4,
                      .Hkv = 2, .D = 8, .Dv = 6, .prec = WEFT_PREC_BF16, .mask = {false, -1, -1, 0}, .layers = 1};
}

const char *sim_case_text(const sim_case *c, char *buf, size_t n)
{
    char layout[48];
    snprintf(buf, n, "%s %s P=%d x %d%s B=%lld T=%lld H=%d/%d%s%s window %lld/%lld pieces %zu%s", c->strategy,
             weft_layout_text(c->layout, layout, sizeof layout), c->P, c->groups, c->interleaved ? " interleaved" : "",
             (long long)c->B, (long long)c->T, c->H, c->Hkv, c->no_overlap ? " no overlap" : "",
             c->mask.causal ? " causal" : "", (long long)c->mask.left, (long long)c->mask.right, c->pieces,
             c->docs ? " documents" : "");
    return buf;
}

static bool may_be_refused(const sim_case *c)
{
    return (!strcmp(c->strategy, "ulysses") && c->P > c->H) || (!strcmp(c->strategy, "none") && c->P > 1);
}

static void check_counters(const sim_case *c, const weft_sim_result *out, const char *text)
{
    for (int r = 0; r < out->ranks; r++) {
        const weft_sim_rank_result *x = &out->rank[r];
        const weft_cp_traffic *p = &x->planned;
        if (x->forward_bytes != c->layers * p->forward_bytes || x->backward_bytes != c->layers * p->backward_bytes ||
            x->forward_messages != c->layers * p->forward_messages ||
            x->backward_messages != c->layers * p->backward_messages)
            fail_msg("%s: rank %d sent %lld + %lld bytes in %lld + %lld messages, planned per layer %lld + %lld in "
                     "%lld + %lld",
                     text, r, (long long)x->forward_bytes, (long long)x->backward_bytes, (long long)x->forward_messages,
                     (long long)x->backward_messages, (long long)p->forward_bytes, (long long)p->backward_bytes,
                     (long long)p->forward_messages, (long long)p->backward_messages);
    }
}

bool sim_case_run(const sim_case *c, weft_sim_result *out)
{
    char text[300];
    weft_sim_ask ask = {
        .problem = {.prec = c->prec, .B = c->B, .Tq = c->T, .T = c->T,
                    .max_docs = c->docs ? c->docs->first[c->B] - c->B : c->B,
                    .H = c->H, .Hkv = c->Hkv, .D = c->D, .Dv = c->Dv, .group = c->group, .head0 = c->head0, .scale = 1,
                    .mask = c->mask, .layout = c->layout, .need_backward = true, .slots = 1},
        .options = {.strategy = c->strategy, .overlap = !c->no_overlap, .head_size = c->head_size,
                    .buffer_bytes = c->pieces,
                    .profile = c->profile},
        .docs = c->docs, .cp = c->P, .groups = c->groups, .interleaved = c->interleaved, .needs_poll = c->needs_poll,
        .layers = c->layers, .disturb = c->disturb};
    sim_case_text(c, text, sizeof text);
    weft_status st = weft_simulate(out, &ask);
    if (st == WEFT_ERR_REFUSED && may_be_refused(c)) return false;
    if (st != WEFT_OK) fail_msg("%s: %s", text, weft_last_error());
    if (may_be_refused(c)) fail_msg("%s: not refused", text);
    check_counters(c, out, text);
    return true;
}

bool sim_case_check(const sim_case *c)
{
    weft_sim_result out;
    if (!sim_case_run(c, &out)) return false;
    weft_sim_result_free(&out);
    return true;
}

/* ---- formulas --------------------------------------------------------------------------------------------- */

traffic_case sim_case_traffic(const sim_case *c)
{
    return (traffic_case){.strategy = c->strategy, .layout = c->layout, .P = c->P, .U = c->head_size, .B = c->B,
                          .Tq = c->T, .T = c->T, .H = c->H, .Hkv = c->Hkv, .D = c->D, .Dv = c->Dv, .group = c->group,
                          .head0 = c->head0, .prec = c->prec, .piece = c->pieces};
}

void sim_case_expect(const sim_case *c, const weft_sim_result *out, int rank, const traffic *want)
{
    char text[300];
    const weft_sim_rank_result *x = &out->rank[rank];
    if (x->forward_bytes != want->forward_bytes || x->backward_bytes != want->backward_bytes ||
        x->forward_messages != want->forward_messages || x->backward_messages != want->backward_messages)
        fail_msg("%s: rank %d sent %lld and %lld bytes in %lld and %lld messages, the formulas say %lld and %lld in "
                 "%lld and %lld",
                 sim_case_text(c, text, sizeof text), rank, (long long)x->forward_bytes, (long long)x->backward_bytes,
                 (long long)x->forward_messages, (long long)x->backward_messages, (long long)want->forward_bytes,
                 (long long)want->backward_bytes, (long long)want->forward_messages,
                 (long long)want->backward_messages);
}

bool sim_case_check_formula(const sim_case *c)
{
    weft_sim_result out;
    const traffic_case formula = sim_case_traffic(c);
    if (!sim_case_run(c, &out)) return false;
    for (int r = 0; r < c->P; r++) {
        traffic want = traffic_of(&formula, r);
        sim_case_expect(c, &out, r, &want);
    }
    weft_sim_result_free(&out);
    return true;
}
