/* test_attention_random.c — attention problems drawn at random, through every kernel of this machine: against the
 * float64 answer, against a count of who sees whom, and against themselves with other numbers of threads.
 * labels: long */
/* timeout: 1800 */
/* WEFT_TEST_SEED=S draws others, WEFT_TEST_CASES=N so many; WEFT_TEST_CASE=I runs one of them, as the message of a
 * failure names it. */
#include "attention_kernels.h"

typedef struct dice { uint64_t state; } dice;

/* 0 .. n-1 (splitmix64). */
static int64_t pick(dice *d, int64_t n)
{
    uint64_t z = d->state += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return (int64_t)((z ^ z >> 31) % (uint64_t)n);
}
static bool one_in(dice *d, int n) { return pick(d, n) == 0; }
/* 1 .. n, each magnitude as often as any other. */
static int64_t size(dice *d, int64_t n)
{
    return weft_min_i64(n, (int64_t)exp(log((double)n + 1) * (double)pick(d, 1 << 20) * 0x1p-20));
}

/* ---- drawing ------------------------------------------------------------------------------------------- */

static int head_size(dice *d)
{
    static const int usual[] = {16, 32, 64, 80, 96, 128, 192, 256};
    return one_in(d, 2) ? usual[pick(d, 8)] : (int)(1 + pick(d, 256));
}

/* Groups that divide, or heads of a model whose first and last group are only partly here. */
static void draw_heads(dice *d, attention_case *c)
{
    int Hkv = (int)size(d, 3), group = (int)size(d, 8);
    int D = head_size(d), Dv = one_in(d, 3) ? head_size(d) : D;
    case_init(c, Hkv * group, Hkv, D, Dv);
    if (one_in(d, 4) && group > 1) {
        int skip = (int)pick(d, group), drop = Hkv > 1 ? (int)pick(d, group) : (int)pick(d, group - skip);
        c->d.H -= skip + drop;
        c->d.kv_head0 = (int)pick(d, 3);
        c->d.head0 = c->d.kv_head0 * group + skip;
    }
}

static weft_attn_pair draw_runs(dice *d, int64_t nq, int64_t nk)
{
    weft_attn_pair p = {.nq = nq, .q_pos = pick(d, 50), .q_run = size(d, 130), .nk = nk, .k_pos = pick(d, 50),
                        .k_run = size(d, 130), .q_row = pick(d, 3), .k_row = pick(d, 3)};
    p.q_step = p.q_run + (one_in(d, 2) ? size(d, 200) - 1 : 0);
    p.k_step = p.k_run + (one_in(d, 2) ? size(d, 200) - 1 : 0);
    return p;
}

/* Keys in several calls, as parts of a ring come. */
static void draw_parts(dice *d, attention_case *c, int64_t nq, int64_t nk)
{
    int64_t at = 0, q_pos = pick(d, nk + 1);
    for (int parts = 1 + (int)pick(d, 4); parts > 0; parts--) {
        int64_t n = parts == 1 ? nk - at : pick(d, nk - at + 1);
        case_add_pair(c, 0, nq, q_pos, 1, at, n, at, 1);
        case_end_call(c);
        at += n;
    }
}

static const char *draw_pairs(dice *d, attention_case *c, int64_t rows)
{
    static const int64_t stripes[] = {0, 0, 1, 2, 5, 16, 64};
    int64_t nq = size(d, rows), nk = one_in(d, 3) ? nq : size(d, rows), lengths[12];
    int n = (int)size(d, 12);
    switch (pick(d, 5)) {
    case 0:
        case_add_pair(c, 0, nq, one_in(d, 2) ? nk - nq : pick(d, nk + 9), 1, 0, nk, 0, 1);
        case_end_call(c);
        return "one pair";
    case 1:
        for (int i = 0; i < n; i++) lengths[i] = one_in(d, 6) ? 0 : size(d, rows / n + 1);
        case_documents(c, lengths, n);
        return "documents";
    case 2:
        case_ring(c, nq, 2 + (int)pick(d, 4), stripes[pick(d, 7)]);
        c->runs = one_in(d, 2);
        return c->runs ? "ring in one call" : "ring";
    case 3: case_add(c, draw_runs(d, nq, nk)), case_end_call(c); return "runs";
    default: draw_parts(d, c, nq, nk); return "parts";
    }
}

static void draw_mask(dice *d, weft_mask *m, int64_t rows)
{
    m->causal = !one_in(d, 3);
    if (one_in(d, 3)) m->left = size(d, rows + 1) - 1;
    if (one_in(d, m->causal ? 8 : 3)) m->right = size(d, rows + 1) - 1;
    if (one_in(d, 4)) m->prefix = size(d, rows);
}

/* Few enough for the answer, which takes most of the time; every sixteenth case may be large. */
static int64_t rows_for(const attention_case *c, int number)
{
    double products = number % 16 == 0 ? 4e8 : 1e7;
    double rows = sqrt(products / ((double)c->d.H * (c->d.D + c->d.Dv)));
    return weft_max_i64(8, weft_min_i64(700, (int64_t)rows));
}

typedef struct drawn {
    attention_case c;
    int number;
    char text[256];
    bool sinks, alibi;
    double q_size;
} drawn;

static void draw(dice *d, drawn *x, int number)
{
    attention_case *c = &x->c;
    x->number = number;
    draw_heads(d, c);
    int64_t rows = rows_for(c, number);
    const char *pairs = draw_pairs(d, c, rows);
    draw_mask(d, &c->d.mask, weft_max_i64(c->q_rows, c->k_rows));
    x->sinks = one_in(d, 4), x->alibi = one_in(d, 5);
    x->q_size = one_in(d, 8) ? 8 : 1;
    if (one_in(d, 4)) c->d.softcap = 1 + (double)pick(d, 20);
    if (one_in(d, 12)) c->d.scale *= -1;
    if (one_in(d, 4)) {
        c->d.dropout = 0.05 * (double)(1 + pick(d, 16));
        c->d.seed = (uint64_t)pick(d, 1 << 30);
        c->word3 = weft_philox_word3((uint32_t)pick(d, 1 << 19), (uint32_t)pick(d, 99), WEFT_SITE_DROP_ATTENTION);
    }
    c->side = one_in(d, 2) ? PLACE_FIRST : PLACE_LAST;
    const weft_mask *m = &c->d.mask;
    snprintf(x->text, sizeof x->text,
             "case %d: %s, %d x %d, H %d/%d group %d, D %d Dv %d, causal %d window %d %d prefix %d, softcap %g, "
             "dropout %g, sinks %d, alibi %d, q %g, scale %g", number, pairs, (int)c->q_rows, (int)c->k_rows, c->d.H,
             c->d.Hkv, c->d.group, c->d.D, c->d.Dv, m->causal, (int)m->left, (int)m->right, (int)m->prefix,
             c->d.softcap, c->d.dropout, x->sinks, x->alibi, x->q_size, c->d.scale);
}

/* ---- against the answer --------------------------------------------------------------------------------- */

/* The limits of design.md section 6 hold where the result is not a small difference of large terms. Where it is, what
 * counts is how far roundings move it: a term carries a few of its own (and, in 16 bits, that of P, dS and of o in
 * delta), and the relative error of its weight is the absolute error of its score. */
static double allowed(const attention_case *c, const kernel *k, const double *want, const double *moduli, int64_t n,
                      double floor)
{
    const double unit = k->prec == WEFT_PREC_F64 ? 0x1p-53 : 0x1p-24;
    double roundings = unit * (4 + 1.5 * c->score_moduli);
    if (k->prec == WEFT_PREC_BF16) roundings += 0x1p-8;
    if (k->prec == WEFT_PREC_F16) roundings += 0x1p-11;
    const double limit = bits16(k) ? 6e-3 : k->limit;
    return fmax(limit * fmax(weft_norm2(want, WEFT_F64, n), floor), roundings * weft_norm2(moduli, WEFT_F64, n));
}

static struct worst { /* error over what is allowed */
    double share;
    int number;
    const char *name;
} worst[WEFT_ISA_COUNT][WEFT_PREC_COUNT];

static void compare(const drawn *x, const kernel *k, const char *name, const double *got, const double *want,
                    const double *moduli, int64_t n)
{
    const attention_case *c = &x->c;
    double sum = 0, floor = weft_norm2(c->dout, WEFT_F64, c->q_rows * c->d.H * c->d.Dv) / 100;
    for (int64_t i = 0; i < n; i++) sum += (got[i] - want[i]) * (got[i] - want[i]);
    double limit = allowed(c, k, want, moduli, n, floor), error = sqrt(sum);
    if (!(error <= limit)) fail_msg("%s, %s: error of %s is %.3e > %.3e", x->text, k->name, name, error, limit);
    struct worst *w = &worst[k->isa][k->prec];
    if (limit > 0 && error / limit > w->share) *w = (struct worst){error / limit, x->number, name};
}

static void against_the_answer(const drawn *x, const kernel *k, const attention_result *r)
{
    const attention_case *c = &x->c;
    const weft_attn_desc *d = &c->d;
    const attention_result *w = &c->want, *m = &c->moduli;
    compare(x, k, "o", r->o, w->o, m->o, c->q_rows * d->H * d->Dv);
    compare(x, k, "dq", r->dq, w->dq, m->dq, c->q_rows * d->H * d->D);
    compare(x, k, "dk", r->dk, w->dk, m->dk, c->k_rows * d->Hkv * d->D);
    compare(x, k, "dv", r->dv, w->dv, m->dv, c->k_rows * d->Hkv * d->Dv);
    if (c->sinks) compare(x, k, "dsinks", r->dsinks, w->dsinks, m->dsinks, d->H);
    double e = weft_max_scaled(r->lse, WEFT_F64, w->lse, WEFT_F64, c->q_rows * d->H);
    if (!(e <= k->lse_limit)) fail_msg("%s, %s: error of lse is %.3e > %.3e", x->text, k->name, e, k->lse_limit);
}

/* Any number of threads gives the same bits, and the second run those of the first. */
static void against_itself(drawn *x, const kernel *k, const weft_attn_ops *ops, const attention_result *one)
{
    attention_result more = result_new(&x->c);
    place_side side = x->c.side;
    for (int threads = 1; threads <= 3; threads++) {
        char text[320];
        snprintf(text, sizeof text, "%s, %s, %d threads", x->text, k->name, threads);
        x->c.side = side == PLACE_LAST ? PLACE_FIRST : PLACE_LAST;
        case_run(&x->c, ops, k->prec, threads, &more);
        case_check_same(&x->c, one, &more, text);
    }
    x->c.side = side;
    result_free(&more);
}

/* ---- who sees whom -------------------------------------------------------------------------------------- */

/* With q = 0 all visible keys weigh the same. Value column y is 1 for the keys y, y + Dv, ... : o times the number of
 * visible keys counts those of each column. With dO of row i that number in column i % Dv, dv counts the rows that see
 * a key. One key too many or too few is an error of 1; rounding to 16 bits makes 2^-8 of the count at most. */
static int64_t seen_by(const attention_case *c, int64_t i, double *column)
{
    int64_t n = 0;
    for (int y = 0; y < c->d.Dv; y++) column[y] = 0;
    for (int a = 0; a < c->n; a++) {
        const weft_attn_pair *p = &c->pair[a];
        if (i < p->q_row || i >= p->q_row + p->nq) continue;
        for (int64_t j = 0; j < p->nk; j++)
            if (case_visible(c, p, i, j)) n++, column[(p->k_row + j) % c->d.Dv]++;
    }
    return n;
}

static void fill_probe(attention_case *c, int64_t *visible, double *column)
{
    const weft_attn_desc *d = &c->d;
    memset(c->q, 0, (size_t)(c->q_rows * d->H * d->D) * sizeof *c->q);
    memset(c->v, 0, (size_t)(c->k_rows * d->Hkv * d->Dv) * sizeof *c->v);
    memset(c->dout, 0, (size_t)(c->q_rows * d->H * d->Dv) * sizeof *c->dout);
    for (int64_t j = 0; j < c->k_rows * d->Hkv; j++) c->v[j * d->Dv + j / d->Hkv % d->Dv] = 1;
    for (int64_t i = 0; i < c->q_rows; i++) {
        visible[i] = seen_by(c, i, column + i * d->Dv);
        for (int h = 0; h < d->H; h++) c->dout[(i * d->H + h) * d->Dv + i % d->Dv] = (double)visible[i];
    }
}

static bool is_count(const kernel *k, double got, double want)
{
    return fabs(got - want) < 0.5 + (bits16(k) ? want * 0x1p-8 : 0);
}

static void check_probe(const drawn *x, const kernel *k, const attention_result *r, const int64_t *visible,
                        const double *column, const double *readers)
{
    const weft_attn_desc *d = &x->c.d;
    for (int64_t i = 0; i < x->c.q_rows * d->H * d->Dv; i++) {
        int64_t row = i / (d->H * d->Dv);
        double got = r->o[i] * (double)visible[row], want = column[row * d->Dv + i % d->Dv];
        if (!is_count(k, got, want))
            fail_msg("%s, %s: row %d, column %d: %.3f keys, not %g", x->text, k->name, (int)row, (int)(i % d->Dv),
                     got, want);
    }
    for (int64_t i = 0; i < x->c.k_rows * d->Hkv * d->Dv; i++)
        if (!is_count(k, r->dv[i], readers[i]))
            fail_msg("%s, %s: dv of key %d, column %d: %.3f rows, not %g", x->text, k->name,
                     (int)(i / (d->Hkv * d->Dv)), (int)(i % d->Dv), r->dv[i], readers[i]);
}

/* readers[key row, head, column]: rows that see the key, of all query heads of its group. */
static void count_readers(const attention_case *c, double *readers)
{
    const weft_attn_desc *d = &c->d;
    for (int a = 0; a < c->n; a++) {
        const weft_attn_pair *p = &c->pair[a];
        for (int64_t i = p->q_row; i < p->q_row + p->nq; i++)
            for (int64_t j = 0; j < p->nk; j++)
                for (int h = 0; h < d->H && case_visible(c, p, i, j); h++)
                    readers[((p->k_row + j) * d->Hkv + weft_attn_kv_head(d, h)) * d->Dv + i % d->Dv]++;
    }
}

static void who_sees_whom(drawn *x)
{
    attention_case *c = &x->c;
    attention_case plain = *c;
    c->d.dropout = 0;
    case_operands(c, true, 1, 1, false, false);
    int64_t *visible = calloc((size_t)c->q_rows + 1, sizeof *visible);
    double *column = calloc((size_t)(c->q_rows * c->d.Dv) + 1, sizeof *column);
    double *readers = calloc((size_t)(c->k_rows * c->d.Hkv * c->d.Dv) + 1, sizeof *readers);
    fill_probe(c, visible, column);
    count_readers(c, readers);
    FOR_KERNELS(k) {
        if (!speaks_for_its_source(k)) continue;
        weft_attn_ops ops = ops_of(k);
        attention_result r = result_new(c);
        case_run(c, &ops, k->prec, 1, &r);
        check_probe(x, k, &r, visible, column, readers);
        result_free(&r);
    }
    free(visible), free(column), free(readers);
    case_clear(c);
    c->d.dropout = plain.d.dropout;
}

/* ---- running -------------------------------------------------------------------------------------------- */

static void run_case(uint64_t seed, int number)
{
    dice d = {seed * 1000003 + (uint64_t)number};
    drawn x;
    draw(&d, &x, number);
    x.c.conditioned = true;
    for (int half = 0; half < 2; half++) {
        case_fill(&x.c, half, d.state, x.q_size, x.sinks, x.alibi);
        FOR_KERNELS(k) {
            if (bits16(k) != half || !has_its_turn(k)) continue;
            weft_attn_ops ops = ops_of(k);
            attention_result one = result_new(&x.c);
            case_run(&x.c, &ops, k->prec, 1, &one);
            against_the_answer(&x, k, &one);
            if (speaks_for_its_source(k)) against_itself(&x, k, &ops, &one);
            result_free(&one);
        }
        case_clear(&x.c);
    }
    who_sees_whom(&x);
}

static int64_t setting(const char *name, int64_t otherwise)
{
    const char *s = getenv(name);
    return s ? strtoll(s, NULL, 0) : otherwise;
}

static void random_cases(void **state)
{
    (void)state;
    uint64_t seed = (uint64_t)setting("WEFT_TEST_SEED", 1);
    int cases = (int)setting("WEFT_TEST_CASES", 3000), only = (int)setting("WEFT_TEST_CASE", -1);
    print_message("WEFT_TEST_SEED=%llu WEFT_TEST_CASES=%d\n", (unsigned long long)seed, cases);
    for (int i = 0; i < cases; i++)
        if (only < 0 || only == i) run_case(seed, i);
    FOR_KERNELS(k) {
        const struct worst *w = &worst[k->isa][k->prec];
        print_message("%s: at most %.2f of what is allowed (case %d, %s)\n", k->name, w->share, w->number, w->name);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(random_cases)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
