/* labels: small tsan */
/* The optimizer over ranks, on a made model whose sums are known: ZeRO 0 and 1, overlap on and off, slices that are
 * uneven and empty, parameters that ranks of tp hold together or in parts, a tied embedding on both ends of a pipeline;
 * one norm over all of it; gradients that are not finite, refused by all alike; memory of the moments. */
#include "harness/ranks.h"
#include "harness/test.h"
#include "optim/optim.h"

enum { WORLD_MAX = 12, STEPS = 5, COUNT_MAX = 1200 };

static const weft_optim_options options =
    {.lr = 1e-2, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .weight_decay = 0.1, .clip = 1.0};

/* ---- a made model --------------------------------------------------------------------------------------- */

/* What the whole model has; each rank's table is its part of it. */
enum { EMBED, NORM, SHARED_HEADS, HEADS, BIAS, TAIL, TENSORS };
static const struct {
    const char *name;
    int64_t rows, cols;
} whole[TENSORS] = {{"embed", 7, 11},  {"norm", 33, 0}, {"kv", 5, 13},
                    {"fused", 12, 17}, {"bias", 1, 0},  {"tail", 3, 37}};

static int64_t whole_count(int t) { return whole[t].rows * (whole[t].cols ? whole[t].cols : 1); }

static weft_spec whole_spec(int t, int64_t offset)
{
    weft_spec s = {.name = whole[t].name,
                   .nd = whole[t].cols ? 2 : 1,
                   .shape = {whole[t].rows, whole[t].cols},
                   .offset = offset,
                   .count = whole_count(t),
                   .decay = whole[t].cols > 0,
                   .number = t};
    weft_spec_uncut(&s);
    return s;
}

static void cut(weft_spec *s, int ranges, weft_span a, weft_span b)
{
    s->cut_dim = 0;
    s->cuts = ranges;
    s->cut[0] = a;
    s->cut[1] = b;
    s->shape[0] = a.end - a.begin + (ranges > 1 ? b.end - b.begin : 0);
    s->count = s->shape[0] * s->whole[1];
    s->own_count = s->count;
}

/* Rows [begin, end) of the five that rank tp of tps reads: neighbours overlap, as with heads that two ranks read. */
static weft_span read_rows(int tp, int tps)
{
    weft_span s = weft_model_cut(5, tps, tp);
    if (tp > 0 && s.begin > 0) s.begin--;
    return s;
}

typedef struct part { /* of one rank */
    weft_spec spec[TENSORS];
    int n, buckets;
    int64_t count, bucket[5];
} part;

static void add_tensor(part *p, weft_spec s)
{
    s.offset = p->count;
    p->count += s.count;
    p->spec[p->n++] = s;
}

static void bound(part *p) { p->bucket[++p->buckets] = p->count; }

/* Embedding on the first stage and, tied, on the last; the rest on the first of one stage, or on the second. */
static void make_part(part *p, const weft_mesh *m)
{
    int tp = m->at.tp, tps = m->size.tp;
    bool first = m->at.pp == 0, last = m->at.pp == m->size.pp - 1;
    *p = (part){0};
    if (first || last) {
        weft_spec e = whole_spec(EMBED, 0);
        e.ends = m->size.pp > 1;
        cut(&e, 1, weft_model_cut(7, tps, tp), (weft_span){0, 0});
        if (!first) e.own_count = 0;
        add_tensor(p, e);
    }
    bound(p);
    if (last) {
        weft_spec norm = whole_spec(NORM, 0), kv = whole_spec(SHARED_HEADS, 0), fused = whole_spec(HEADS, 0);
        norm.sum = WEFT_SUM_TP;
        norm.own_count = tp == 0 ? norm.count : 0;
        weft_span rows = read_rows(tp, tps), mine = weft_model_cut(5, tps, tp), six = weft_model_cut(6, tps, tp);
        cut(&kv, 1, rows, (weft_span){0, 0});
        kv.sum = WEFT_SUM_SHARED;
        kv.shared = (weft_span){0, 4}; /* the last row is one rank's alone */
        kv.own_first = (mine.begin - rows.begin) * 13;
        kv.own_count = (mine.end - mine.begin) * 13;
        cut(&fused, 2, six, (weft_span){6 + six.begin, 6 + six.end});
        add_tensor(p, norm);
        add_tensor(p, kv);
        bound(p);
        add_tensor(p, fused);
    }
    bound(p);
    if (first) {
        weft_spec bias = whole_spec(BIAS, 0), tail = whole_spec(TAIL, 0);
        if (tp > 0) bias.own_count = tail.own_count = 0; /* copies with complete gradients */
        add_tensor(p, bias);
        add_tensor(p, tail);
    }
    bound(p);
}

static double initial(int t, int64_t i) { return (double)((t * 131 + i * 17) % 257) / 64 - 2; }

/* What rank d of dp x cp and rank tp give to the gradient of an element: reals whose sum depends on the order. */
static double gives(int step, int d, int tp, int end, int t, int64_t i)
{
    uint64_t x = ((uint64_t)i * 4096 + (uint64_t)(d * 256 + tp * 32 + end * 16 + step + 1) + ((uint64_t)t << 40)) *
                 0x9e3779b97f4a7c15u;
    x = (x ^ x >> 29) * 0xbf58476d1ce4e5b9u;
    x ^= x >> 32;
    return ldexp((double)(int64_t)x, -64 - (int)(x % 5));
}

typedef struct job {
    weft_mesh_shape shape;
    weft_prec prec;
    int zero;
    bool overlap;
    int bad_rank; /* whose gradient has a NaN in the last step; -1: none */
    double weights[WORLD_MAX][COUNT_MAX], norm[WORLD_MAX][STEPS];
    int64_t moment_elements[WORLD_MAX];
    part part[WORLD_MAX];
    weft_status st[WORLD_MAX];
    char message[WORLD_MAX][256];
} job;

/* The walk of a piece's elements as those of the whole tensor. */
static void each_element(const weft_spec *s, void (*fn)(void *ud, int64_t local, int64_t element), void *ud)
{
    weft_spec_walk w = weft_spec_walk_of(s, 0, s->count);
    weft_stretch at;
    while (weft_spec_walk_next(&w, &at))
        for (int64_t k = 0; k < at.n; k++) fn(ud, at.at + k, at.whole + k);
}

typedef struct filling {
    const weft_spec *s;
    void *array;
    weft_dtype t;
    int step, d, tp, end;
    bool weights;
} filling;

static void fill_one(void *ud, int64_t local, int64_t element)
{
    const filling *f = ud;
    int t = (int)f->s->number, tp = f->tp;
    bool in_parts = t == NORM || (t == SHARED_HEADS && element / 13 < 4);
    if (!in_parts) tp = 0; /* complete: every rank that has it has the same */
    weft_store(f->array, f->t, f->s->offset + local,
               f->weights ? initial(t, element) : gives(f->step, f->d, tp, t == EMBED ? f->end : 0, t, element));
}

static void fill(const job *j, const weft_mesh *m, const part *p, void *array, int step, bool weights)
{
    for (int i = 0; i < p->n; i++) {
        filling f = {&p->spec[i],  array,  weft_prec_real(j->prec), step, weft_comm_rank(m->dp_cp), m->at.tp,
                     m->at.pp > 0, weights};
        each_element(&p->spec[i], fill_one, &f);
    }
}

/* As a backward pass announces them: from the end, with looks at the world between. */
static void announce(const part *p, weft_optim *o, weft_world *w)
{
    for (int b = p->buckets - 1; b >= 0; b--) {
        if (p->bucket[b + 1] > p->bucket[b]) weft_optim_ready(o, p->bucket[b], p->bucket[b + 1] - p->bucket[b]);
        for (int k = 0; k < (weft_world_rank(w) + b) % 3; k++) weft_progress(w);
    }
}

static weft_status steps(job *j, const weft_mesh *m, const part *p, weft_optim *o, void *w, void *g)
{
    int rank = weft_world_rank(m->world);
    weft_dtype R = weft_prec_real(j->prec);
    for (int s = 0; s < STEPS; s++) {
        fill(j, m, p, g, s, false);
        if (s == STEPS - 1 && rank == j->bad_rank) weft_store(g, R, p->spec[p->n - 1].offset + 2, NAN);
        announce(p, o, m->world);
        WEFT_TRY(weft_optim_reduce(o));
        WEFT_TRY(weft_optim_norm(o, 1, &j->norm[rank][s]));
        WEFT_TRY(weft_optim_update(o, j->norm[rank][s], 1, 1e-2, s + 1));
        weft_convert(j->weights[rank], WEFT_F64, w, R, p->count);
    }
    return WEFT_OK;
}

static weft_status body(weft_ctx *ctx, weft_world *world, void *ud)
{
    job *j = ud;
    weft_mesh m;
    weft_kern kern;
    weft_optim *o;
    weft_optim_options oo = options;
    part *p = &j->part[ctx->rank];
    int n;
    oo.zero = j->zero;
    oo.overlap = j->overlap;
    weft_world_set_timeout(world, 30);
    WEFT_TRY(weft_kern_init(&kern, weft_isa_best()));
    WEFT_TRY(weft_mesh_create(&m, world, j->shape));
    make_part(p, &m);
    void *w = calloc(COUNT_MAX, 8), *g = calloc(COUNT_MAX, 8);
    REQUIRE(w && g && p->count <= COUNT_MAX);
    fill(j, &m, p, w, 0, true);
    weft_optim_parts parts = {.prec = j->prec,
                              .spec = p->spec,
                              .n = p->n,
                              .count = p->count,
                              .weights = w,
                              .gradients = g,
                              .bucket = p->bucket,
                              .buckets = p->buckets,
                              .mesh = &m};
    WEFT_TRY(weft_optim_create(&o, ctx, &kern, &parts, &oo));
    const weft_piece *piece = weft_optim_state(o, 0, &n);
    for (int i = 0; i < n; i++) j->moment_elements[ctx->rank] += piece[i].count;
    j->st[ctx->rank] = steps(j, &m, p, o, w, g);
    snprintf(j->message[ctx->rank], sizeof *j->message, "%s", weft_last_error());
    weft_optim_destroy(o);
    weft_mesh_destroy(&m);
    free(w), free(g);
    return j->bad_rank < 0 ? j->st[ctx->rank] : WEFT_OK;
}

static job *run(weft_mesh_shape shape, weft_prec prec, int zero, bool overlap, int bad_rank)
{
    job *j = calloc(1, sizeof *j);
    assert_non_null(j);
    j->shape = shape;
    j->prec = prec;
    j->zero = zero;
    j->overlap = overlap;
    j->bad_rank = bad_rank;
    assert_ok(weft_run_threads(shape.tp * shape.cp * shape.dp * shape.pp, body, j));
    return j;
}

/* ---- the same, on one rank in double ---------------------------------------------------------------------- */

typedef struct plain {
    double w[TENSORS][COUNT_MAX], m[TENSORS][COUNT_MAX], v[TENSORS][COUNT_MAX], norm[STEPS];
} plain;

/* How many ranks of tp give a part of an element's gradient. */
static int givers(weft_mesh_shape n, int t, int64_t element, int *who)
{
    int found = 0;
    for (int tp = 0; tp < n.tp; tp++) {
        weft_span rows = read_rows(tp, n.tp);
        bool here = t == NORM ||
                    (t == SHARED_HEADS && element / 13 < 4 && element / 13 >= rows.begin && element / 13 < rows.end);
        if (here) who[found++] = tp;
    }
    if (found == 0) who[found++] = 0;
    return found;
}

static double gradient(weft_mesh_shape n, int step, int t, int64_t i)
{
    int who[WORLD_MAX], found = givers(n, t, i, who);
    double sum = 0;
    for (int d = 0; d < n.dp * n.cp; d++)
        for (int k = 0; k < found; k++)
            for (int end = 0; end < (t == EMBED && n.pp > 1 ? 2 : 1); end++) sum += gives(step, d, who[k], end, t, i);
    return sum;
}

static void plain_step(plain *p, weft_mesh_shape n, int s)
{
    double sum = 0;
    for (int t = 0; t < TENSORS; t++)
        for (int64_t i = 0; i < whole_count(t); i++) sum += gradient(n, s, t, i) * gradient(n, s, t, i);
    p->norm[s] = sqrt(sum);
    double factor = fmin(1, options.clip / (p->norm[s] + 1e-6));
    for (int t = 0; t < TENSORS; t++)
        for (int64_t i = 0; i < whole_count(t); i++) {
            double g = gradient(n, s, t, i) * factor, *w = &p->w[t][i], *m = &p->m[t][i], *v = &p->v[t][i];
            *m = 0.9 * *m + (1 - 0.9) * g;
            *v = 0.95 * *v + (1 - 0.95) * g * g;
            double mh = *m / (1 - pow(0.9, s + 1)), vh = *v / (1 - pow(0.95, s + 1));
            *w -= 1e-2 * (mh / (sqrt(vh) + 1e-8) + (whole[t].cols ? 0.1 : 0) * *w);
        }
}

static plain *plain_run(weft_mesh_shape n)
{
    plain *p = calloc(1, sizeof *p);
    assert_non_null(p);
    for (int t = 0; t < TENSORS; t++)
        for (int64_t i = 0; i < whole_count(t); i++) p->w[t][i] = initial(t, i);
    for (int s = 0; s < STEPS; s++) plain_step(p, n, s);
    return p;
}

typedef struct comparison {
    const plain *p;
    const double *got;
    const weft_spec *s;
    double worst;
} comparison;

static void compare_one(void *ud, int64_t local, int64_t element)
{
    comparison *c = ud;
    double want = c->p->w[c->s->number][element];
    c->worst = fmax(c->worst, fabs(c->got[c->s->offset + local] - want) / fmax(1, fabs(want)));
}

static void against_plain(const job *j)
{
    plain *p = plain_run(j->shape);
    int ranks = j->shape.tp * j->shape.cp * j->shape.dp * j->shape.pp;
    /* Sums in another order differ by 1e-16 of their terms, which the root of a small second moment may amplify; fp32
     * rounds at 6e-8 and its small gradients likewise. */
    double limit = j->prec == WEFT_PREC_F64 ? 1e-12 : 2e-5;
    for (int r = 0; r < ranks; r++) {
        for (int i = 0; i < j->part[r].n; i++) {
            comparison c = {p, j->weights[r], &j->part[r].spec[i], 0};
            each_element(c.s, compare_one, &c);
            if (!(c.worst <= limit))
                fail_msg("tp %d cp %d dp %d pp %d, zero %d, rank %d: %s differs by %.2e", j->shape.tp, j->shape.cp,
                         j->shape.dp, j->shape.pp, j->zero, r, c.s->name, c.worst);
        }
        for (int s = 0; s < STEPS; s++) {
            assert_memory_equal(&j->norm[r][s], &j->norm[0][s], sizeof(double));
            assert_at_most(fabs(j->norm[r][s] - p->norm[s]) / p->norm[s], j->prec == WEFT_PREC_F64 ? 1e-13 : 1e-6);
        }
    }
    free(p);
}

/* ---- tests ------------------------------------------------------------------------------------------------ */

static const weft_mesh_shape shapes[] = {
    {.tp = 1, .cp = 1, .dp = 1, .pp = 1}, {.tp = 1, .cp = 1, .dp = 2, .pp = 1}, {.tp = 1, .cp = 3, .dp = 1, .pp = 1},
    {.tp = 1, .cp = 2, .dp = 2, .pp = 1}, {.tp = 1, .cp = 5, .dp = 1, .pp = 1}, {.tp = 2, .cp = 1, .dp = 2, .pp = 1},
    {.tp = 3, .cp = 1, .dp = 3, .pp = 1}, {.tp = 5, .cp = 1, .dp = 1, .pp = 1}, {.tp = 1, .cp = 1, .dp = 2, .pp = 2},
    {.tp = 2, .cp = 1, .dp = 1, .pp = 3}, {.tp = 2, .cp = 3, .dp = 1, .pp = 2},
};

/* Stage and overlap change no bit; the result is that of one rank which has all of it. */
static void every_way_is_the_same_bits(void **state)
{
    (void)state;
    for (size_t k = 0; k < sizeof shapes / sizeof *shapes; k++)
        for (int prec = WEFT_PREC_F64; prec <= WEFT_PREC_F32; prec++) {
            job *first = run(shapes[k], (weft_prec)prec, 1, true, -1);
            against_plain(first);
            for (int way = 0; way < 3; way++) {
                job *j = run(shapes[k], (weft_prec)prec, way / 2, way == 1, -1);
                assert_memory_equal(j->weights, first->weights, sizeof j->weights);
                assert_memory_equal(j->norm, first->norm, sizeof j->norm);
                free(j);
            }
            free(first);
        }
}

typedef struct copies {
    const job *j;
    int rank;
    const weft_spec *s;
    double *seen;
    bool *known;
} copies;

static void same_as_seen(void *ud, int64_t local, int64_t element)
{
    copies *c = ud;
    double x = c->j->weights[c->rank][c->s->offset + local];
    if (c->known[element]) assert_true(x == c->seen[element]);
    c->known[element] = true;
    c->seen[element] = x;
}

/* Copies of a parameter lie at other places of other ranks' arrays, in other ranks' slices: no bit differs. */
static void copies_never_drift_apart(void **state)
{
    (void)state;
    static const weft_mesh_shape wide[] = {{.tp = 3, .cp = 4, .dp = 1, .pp = 1}, {.tp = 2, .cp = 3, .dp = 1, .pp = 2}};
    for (int k = 0; k < 2; k++) {
        job *j = run(wide[k], WEFT_PREC_F32, 1, true, -1);
        double seen[TENSORS][COUNT_MAX];
        bool known[TENSORS][COUNT_MAX] = {0};
        for (int r = 0; r < 12; r++)
            for (int i = 0; i < j->part[r].n; i++) {
                const weft_spec *s = &j->part[r].spec[i];
                copies c = {j, r, s, seen[s->number], known[s->number]};
                each_element(s, same_as_seen, &c);
            }
        for (int t = 0; t < TENSORS; t++)
            for (int64_t i = 0; i < whole_count(t); i++) assert_true(known[t][i]);
        free(j);
    }
}

/* Two moments of every element, once over dp x cp, whatever the sizes; slices of one rank differ by one per bucket. */
static void moments_are_shared_to_the_element(void **state)
{
    (void)state;
    for (int P = 1; P <= 9; P++) {
        job *j = run((weft_mesh_shape){.tp = 1, .cp = P, .dp = 1, .pp = 1}, WEFT_PREC_F32, 1, true, -1);
        int64_t sum = 0;
        for (int r = 0; r < P; r++) {
            int64_t whole_buckets = j->part[r].buckets, n = j->moment_elements[r];
            sum += n;
            assert_in_range(n, j->part[r].count / P - whole_buckets, j->part[r].count / P + whole_buckets);
        }
        assert_int_equal(sum, j->part[0].count);
        free(j);
    }
    job *j = run((weft_mesh_shape){.tp = 1, .cp = 3, .dp = 1, .pp = 1}, WEFT_PREC_F32, 0, true, -1);
    for (int r = 0; r < 3; r++) assert_int_equal(j->moment_elements[r], j->part[r].count);
    free(j);
}

/* A NaN of one rank, in what it shares with others, or in a copy that another rank counts in the norm (rank 1 where tp
 * is 2): all refuse with the same words, and no weight has changed. */
static void what_is_not_finite_is_refused_by_all_alike(void **state)
{
    (void)state;
    static const weft_mesh_shape three[] = {{.tp = 1, .cp = 4, .dp = 1, .pp = 1},
                                            {.tp = 2, .cp = 1, .dp = 2, .pp = 1},
                                            {.tp = 1, .cp = 1, .dp = 2, .pp = 2}};
    for (int k = 0; k < 3; k++)
        for (int way = 0; way < 4; way++) {
            job *bad = run(three[k], WEFT_PREC_F32, way / 2, true, way % 2);
            for (int r = 0; r < 4; r++) {
                assert_int_equal(bad->st[r], WEFT_ERR_NUMERIC);
                assert_non_null(strstr(bad->message[r], "step 5: the gradient norm is nan: grad.tail holds nan at "
                                                        "element 2; the weights were not changed"));
            }
            free(bad);
        }
}

/* ---- the norm ------------------------------------------------------------------------------------------- */

typedef struct even {
    weft_mesh_shape shape;
    double norm[8];
    float weight[8];
} even;

static weft_status even_body(weft_ctx *ctx, weft_world *world, void *ud)
{
    even *x = ud;
    weft_mesh m;
    weft_kern kern;
    weft_optim *o;
    enum { N = 1001 };
    static const int64_t bounds[] = {0, N};
    weft_spec s = {.name = "w", .nd = 1, .shape = {N}, .count = N};
    weft_optim_options oo = {.lr = 1, .eps = 1024, .clip = 1, .zero = 1, .overlap = true};
    float w[N] = {0}, g[N];
    WEFT_TRY(weft_kern_init(&kern, weft_isa_best()));
    WEFT_TRY(weft_mesh_create(&m, world, x->shape));
    weft_spec_uncut(&s);
    if (m.at.tp > 0) s.own_count = 0;
    for (int i = 0; i < N; i++) g[i] = 0.6f / sqrtf(N) / (float)weft_comm_size(m.dp_cp);
    weft_optim_parts parts = {.prec = WEFT_PREC_F32,
                              .spec = &s,
                              .n = 1,
                              .count = N,
                              .weights = w,
                              .gradients = g,
                              .bucket = bounds,
                              .buckets = 1,
                              .mesh = &m};
    WEFT_TRY(weft_optim_create(&o, ctx, &kern, &parts, &oo));
    weft_status st = weft_optim_reduce(o);
    if (st == WEFT_OK) st = weft_optim_norm(o, 1, &x->norm[ctx->rank]);
    if (st == WEFT_OK) st = weft_optim_update(o, x->norm[ctx->rank], 1, 1, 1);
    x->weight[ctx->rank] = w[N / 2];
    weft_optim_destroy(o);
    weft_mesh_destroy(&m);
    return st;
}

/* Four ranks have the same summed gradient of norm 0.6, as copies over dp x cp or over tp: the norm is 0.6, not 1.2,
 * and nothing is clipped: with beta 0 and a large eps the update is gradient / 1024. */
static void g15_norm_counts_each_parameter_once(void **state)
{
    (void)state;
    static const weft_mesh_shape four[] = {{.tp = 1, .cp = 4, .dp = 1, .pp = 1},
                                           {.tp = 1, .cp = 2, .dp = 2, .pp = 1},
                                           {.tp = 4, .cp = 1, .dp = 1, .pp = 1},
                                           {.tp = 2, .cp = 1, .dp = 2, .pp = 1}};
    for (int k = 0; k < 4; k++) {
        even x = {.shape = four[k]};
        assert_ok(weft_run_threads(4, even_body, &x));
        for (int r = 0; r < 4; r++) {
            assert_at_most(fabs(x.norm[r] - 0.6), 0.6 * 0x1p-22); /* the gradient's own rounding in fp32 */
            assert_true(x.norm[r] == x.norm[0] && x.weight[r] == x.weight[0]);
            double want = -0.6 / sqrt(1001) / 1024;
            assert_at_most(fabs(x.weight[r] - want) / -want, 1e-3); /* |g| beside eps: 2e-5; clipped it would be 0.5 */
        }
    }
}

/* ---- announcements --------------------------------------------------------------------------------------- */

static weft_status wrong_body(weft_ctx *ctx, weft_world *world, void *ud)
{
    weft_mesh m;
    weft_kern kern;
    static const int64_t bounds[] = {0, 4, 4, 10};
    (void)ud;
    WEFT_TRY(weft_kern_init(&kern, weft_isa_best()));
    WEFT_TRY(weft_mesh_create(&m, world, (weft_mesh_shape){.tp = 1, .cp = 1, .dp = 2, .pp = 1}));
    weft_spec s = {.name = "w", .nd = 1, .shape = {10}, .count = 10};
    weft_optim_options oo = options;
    double w[10] = {0}, g[10] = {0};
    oo.zero = 1;
    oo.overlap = true;
    weft_spec_uncut(&s);
    weft_optim_parts parts = {.prec = WEFT_PREC_F64,
                              .spec = &s,
                              .n = 1,
                              .count = 10,
                              .weights = w,
                              .gradients = g,
                              .bucket = bounds,
                              .buckets = 3,
                              .mesh = &m};
    const int64_t wrong[][2] = {{0, 4}, {4, 5}, {3, 7}};
    for (int i = 0; i < 3; i++) {
        weft_optim *o;
        WEFT_TRY(weft_optim_create(&o, ctx, &kern, &parts, &oo));
        weft_optim_ready(o, wrong[i][0], wrong[i][1]);
        REQUIRE(weft_optim_reduce(o) == WEFT_ERR_INTERNAL && strstr(weft_last_error(), "no bucket of the model"));
        weft_optim_destroy(o);
    }
    weft_mesh_destroy(&m);
    return WEFT_OK;
}

static void wrong_announcements_are_named(void **state)
{
    (void)state;
    assert_ok(weft_run_threads(2, wrong_body, NULL));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_way_is_the_same_bits),
        cmocka_unit_test(copies_never_drift_apart),
        cmocka_unit_test(moments_are_shared_to_the_element),
        cmocka_unit_test(what_is_not_finite_is_refused_by_all_alike),
        cmocka_unit_test(g15_norm_counts_each_parameter_once),
        cmocka_unit_test(wrong_announcements_are_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
