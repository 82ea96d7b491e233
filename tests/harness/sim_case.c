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
             (long long)c->B, (long long)c->T, c->H, c->Hkv, c->no_overlap ? " no overlap" : "", c->mask.causal ? " causal" : "",
             (long long)c->mask.left, (long long)c->mask.right, c->pieces, c->docs ? " documents" : "");
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
            fail_msg("%s: rank %d sent %lld + %lld bytes in %lld + %lld messages, planned per layer %lld + %lld in %lld + %lld",
                     text, r, (long long)x->forward_bytes, (long long)x->backward_bytes, (long long)x->forward_messages,
                     (long long)x->backward_messages, (long long)p->forward_bytes, (long long)p->backward_bytes,
                     (long long)p->forward_messages, (long long)p->backward_messages);
    }
}

bool sim_case_run(const sim_case *c, weft_sim_result *out)
{
    char text[300];
    weft_sim_ask ask = {
        .problem = {.prec = c->prec, .B = c->B, .Tq = c->T, .T = c->T, .max_docs = c->docs ? c->docs->first[c->B] - c->B : c->B,
                    .H = c->H, .Hkv = c->Hkv, .D = c->D, .Dv = c->Dv, .scale = 1, .mask = c->mask, .layout = c->layout,
                    .need_backward = true, .slots = 1},
        .options = {.strategy = c->strategy, .overlap = !c->no_overlap, .head_size = c->head_size, .buffer_bytes = c->pieces,
                    .profile = c->profile},
        .docs = c->docs, .cp = c->P, .groups = c->groups, .interleaved = c->interleaved, .needs_poll = c->needs_poll,
        .layers = c->layers};
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

/* U: all ranks for ulysses; for dcp and its kin what is asked for, else the largest divisor of P that is at most Hkv. */
static int head_ranks(const sim_case *c)
{
    if (!strcmp(c->strategy, "ulysses")) return c->P;
    if (strncmp(c->strategy, "dcp", 3)) return 1;
    if (c->head_size) return c->head_size;
    int U = c->P < c->Hkv ? c->P : c->Hkv;
    while (c->P % U) U--;
    return U;
}

/* Query heads of member u of U: as even as can be, the larger shares first. */
static int heads_before(int H, int U, int u) { return u * (H / U) + (u < H % U ? u : H % U); }

/* Values of a K,V row that member u holds: of the K,V heads that its query heads read. */
static int64_t kv_width(const sim_case *c, int U, int u)
{
    int g = c->H / c->Hkv, first = heads_before(c->H, U, u), end = heads_before(c->H, U, u + 1);
    return end > first ? (int64_t)((end - 1) / g - first / g + 1) * (c->D + c->Dv) : 0;
}

static int64_t rows_of(const sim_case *c, int rank) { return weft_shard_rows(c->layout, c->B, c->T, c->P, rank); }

static int64_t rows_of_group(const sim_case *c, int U, int r)
{
    int64_t sum = 0;
    for (int j = 0; j < U; j++) sum += rows_of(c, r * U + j);
    return sum;
}

/* The context stage among R = P / U ranks with rows of W values: K,V, and dK,dV in R. Pairwise sends nothing to, and wants
 * nothing from, ranks without queries; where every rank has some its formulas are those of the gather. */
static sim_bytes context_formula(const sim_case *c, int U, int r, int64_t W, int64_t e, int64_t eR)
{
    int R = c->P / U;
    int64_t total = c->B * c->T, mine = rows_of_group(c, U, r), kv;
    if (R == 1) return (sim_bytes){0, 0};
    bool pairwise = strstr(c->strategy, "pairwise") != NULL;
    int readers = 0;
    for (int i = 0; i < R; i++) readers += i != r && (!pairwise || rows_of_group(c, U, i) > 0);
    if (strstr(c->strategy, "ring")) kv = total - rows_of_group(c, U, (r + 1) % R);
    else kv = readers * mine;
    if (pairwise && mine == 0) return (sim_bytes){0, 0};
    return (sim_bytes){kv * W * e, kv * W * e + (total - mine) * W * eR};
}

sim_bytes sim_case_formula(const sim_case *c, int rank)
{
    int64_t e = (int64_t)weft_dtype_size(weft_prec_compute(c->prec)), eR = (int64_t)weft_dtype_size(weft_prec_real(c->prec));
    int U = head_ranks(c), u = rank % U, r = rank / U;
    int64_t Wu = kv_width(c, U, u), n = rows_of(c, rank), W = 0;
    sim_bytes x = context_formula(c, U, r, Wu, e, eR);
    for (int j = 0; j < U; j++) W += kv_width(c, U, j);
    int64_t e_home = W > (int64_t)c->Hkv * (c->D + c->Dv) ? eR : e; /* K,V heads of several members come home as sums */
    int64_t Hu = heads_before(c->H, U, u + 1) - heads_before(c->H, U, u);
    for (int j = 0; j < U; j++) {
        if (j == u) continue;
        int64_t Hj = heads_before(c->H, U, j + 1) - heads_before(c->H, U, j), Wj = kv_width(c, U, j), nj = rows_of(c, r * U + j);
        x.forward += n * Hj * c->D * e + n * Wj * e + nj * Hu * (c->Dv * e + 2 * eR);
        x.backward += n * Hj * (c->Dv * e + eR) + n * Hj * (c->D * e + 2 * eR) + n * Wj * e + nj * Hu * c->D * e + nj * Wu * e_home;
    }
    return x;
}

bool sim_case_check_formula(const sim_case *c)
{
    weft_sim_result out;
    char text[300];
    if (!sim_case_run(c, &out)) return false;
    for (int r = 0; r < c->P; r++) {
        sim_bytes want = sim_case_formula(c, r);
        const weft_sim_rank_result *x = &out.rank[r];
        if (x->forward_bytes != want.forward || x->backward_bytes != want.backward)
            fail_msg("%s: rank %d sent %lld and %lld bytes, the formulas say %lld and %lld", sim_case_text(c, text, sizeof text), r,
                     (long long)x->forward_bytes, (long long)x->backward_bytes, (long long)want.forward, (long long)want.backward);
    }
    weft_sim_result_free(&out);
    return true;
}
