/* Tensor parallelism outside of context parallelism: each part of the heads is cut over its own ranks, and all parts
 * together are the whole, where heads are cut as they come: inside a group, one K,V head on several parts, a part with
 * none. Bytes are those of the formulas. */
/* labels: small */
#include "harness/cp_case.h"
#include "harness/ranks.h"
#include "harness/sim_case.h"
#include "harness/test.h"

static const char *const names[] = {"pcp", "ring", "pairwise", "dcp", "dcp-ring", "dcp-pairwise", "ulysses"};
enum { NAMES = sizeof names / sizeof *names, PARTS_MAX = 4 };

typedef struct shape { int H, Hkv, parts, P; weft_layout_kind layout; bool causal; } shape;
static const shape shapes[] = {{7, 7, 2, 3, WEFT_LAYOUT_ZIGZAG, false},     /* 3 and 4 heads */
                               {8, 2, 3, 2, WEFT_LAYOUT_STRIPED, false},    /* both K,V heads on the middle part */
                               {6, 3, 4, 2, WEFT_LAYOUT_BALANCED, true},    /* 1, 2, 1, 2 heads */
                               {5, 1, 2, 3, WEFT_LAYOUT_CONTIGUOUS, true},  /* one K,V head on all parts */
                               {3, 1, 4, 2, WEFT_LAYOUT_ZIGZAG, false},     /* a part without heads */
                               {12, 4, 2, 4, WEFT_LAYOUT_ZIGZAG, true}};    /* head groups of 4 begin inside a group */

/* ---- parts ------------------------------------------------------------------------------------------------ */

typedef struct columns { int64_t rows; int width, first, count; } columns; /* of a tensor of all heads */

static void take(double *part, const double *whole, columns x)
{
    for (int64_t r = 0; r < x.rows; r++)
        for (int j = 0; j < x.count; j++) part[r * x.count + j] = whole[r * x.width + x.first + j];
}

static void add(double *whole, const double *part, columns x)
{
    for (int64_t r = 0; r < x.rows; r++)
        for (int j = 0; j < x.count; j++) whole[r * x.width + x.first + j] += part[r * x.count + j];
}

static columns of_queries(const cp_case *c, const cp_case *part, int dim)
{
    return (columns){c->B * c->Tq, c->H * dim, part->head0 * dim, part->H * dim};
}

static columns of_keys(const cp_case *c, const cp_case *part, int dim)
{
    return (columns){c->B * c->T, c->Hkv * dim, part->head0 / part->group * dim, part->Hkv * dim};
}

static columns of_heads(const cp_case *c, const cp_case *part)
{
    return (columns){1, c->H, part->head0, part->H};
}

/* Heads [t H / parts, (t + 1) H / parts) and the K,V heads that they read. */
static cp_case case_of(const cp_case *c, int parts, int t)
{
    cp_case x = *c;
    int end = (t + 1) * c->H / parts;
    x.group = c->H / c->Hkv;
    x.head0 = t * c->H / parts;
    x.H = end - x.head0;
    x.Hkv = x.H ? (end - 1) / x.group - x.head0 / x.group + 1 : 0;
    return x;
}

static cp_data data_of(const cp_case *c, const cp_case *part, const cp_data *whole)
{
    cp_data x = cp_data_make(part);
    take(x.q, whole->q, of_queries(c, part, c->D));
    take(x.k, whole->k, of_keys(c, part, c->D));
    take(x.v, whole->v, of_keys(c, part, c->Dv));
    take(x.dout, whole->dout, of_queries(c, part, c->Dv));
    take(x.sinks, whole->sinks, of_heads(c, part));
    take(x.alibi, whole->alibi, of_heads(c, part));
    return x;
}

static void add_result(const cp_case *c, const cp_case *part, cp_result *whole, cp_result *x)
{
    cp_result_sum_sinks(x, part->H);
    add(whole->o, x->o, of_queries(c, part, c->Dv));
    add(whole->lse, x->lse, of_queries(c, part, 1));
    add(whole->dq, x->dq, of_queries(c, part, c->D));
    add(whole->dk, x->dk, of_keys(c, part, c->D));
    add(whole->dv, x->dv, of_keys(c, part, c->Dv));
    add(whole->dsinks, x->dsinks, of_heads(c, part));
}

/* ---- on parts x P ranks -------------------------------------------------------------------------------------- */

typedef struct run {
    int parts, P;
    cp_case part[PARTS_MAX];
    cp_data data[PARTS_MAX];
    cp_job jobs[PARTS_MAX][NAMES];
} run;

static int largest_divisor(int P, int most)
{
    int U = P < most ? P : most;
    while (P % U != 0) U--;
    return U;
}

/* Each part chooses for itself, as far as its heads go. */
static void make_jobs(run *r, const shape *s, const cp_case *whole, const cp_data *data)
{
    *r = (run){.parts = s->parts, .P = s->P};
    for (int t = 0; t < s->parts; t++) {
        cp_case *c = &r->part[t];
        *c = case_of(whole, s->parts, t);
        r->data[t] = data_of(whole, c, data);
        for (int i = 0; i < NAMES && c->H; i++) {
            const char *name = strcmp(names[i], "ulysses") || c->H >= s->P ? names[i] : "dcp";
            cp_job *j = &r->jobs[t][i];
            *j = (cp_job){c, &r->data[t], name, s->layout, i % 2, 1, NULL, cp_result_make(c, s->P), {0}};
            if (!strncmp(name, "dcp", 3)) j->more.head_size = largest_divisor(s->P, c->H);
            j->more.keep_heads = !strcmp(name, "dcp-ring");
        }
    }
}

static void free_jobs(run *r)
{
    for (int t = 0; t < r->parts; t++) {
        cp_data_free(&r->data[t]);
        for (int i = 0; i < NAMES && r->part[t].H; i++) cp_result_free(r->jobs[t][i].out);
    }
}

static weft_status body(weft_ctx *ctx, weft_world *world, void *ud)
{
    run *r = ud;
    weft_mesh mesh;
    WEFT_TRY(weft_mesh_create(&mesh, world, (weft_mesh_shape){.tp = r->parts, .cp = r->P, .dp = 1, .pp = 1}));
    weft_status st = WEFT_OK;
    for (int i = 0; i < NAMES && r->part[mesh.at.tp].H && st == WEFT_OK; i++)
        st = cp_run_rank(ctx, mesh.cp, &r->jobs[mesh.at.tp][i]);
    weft_mesh_destroy(&mesh);
    return st;
}

static void check_parts(const shape *s, weft_prec prec, double limit, double lse_weight)
{
    char name[64];
    snprintf(name, sizeof name, "H=%d/%d, %d parts x %d ranks", s->H, s->Hkv, s->parts, s->P);
    cp_case c = {.name = name, .prec = prec, .B = 2, .Tq = 29, .T = 29, .H = s->H, .Hkv = s->Hkv, .D = 6, .Dv = 5,
                 .mask = {s->causal, -1, -1, 0}, .dropout = 0.2, .alibi = true, .sinks = s->causal, .seed = 9};
    cp_data data = cp_data_make(&c);
    cp_result *one = cp_result_make(&c, 1);
    cp_job alone = {&c, &data, "none", WEFT_LAYOUT_CONTIGUOUS, true, 1, NULL, one, {0}};
    run r;
    assert_ok(cp_run(1, &alone, 1));
    make_jobs(&r, s, &c, &data);
    assert_ok(weft_run_threads(s->parts * s->P, body, &r));
    for (int i = 0; i < NAMES; i++) {
        cp_result *sum = cp_result_make(&c, 1);
        for (int t = 0; t < s->parts; t++) {
            if (!r.part[t].H) continue;
            add_result(&c, &r.part[t], sum, r.jobs[t][i].out);
            cp_check_planned(&r.jobs[t][i]);
            if (!s->causal) cp_check_traffic(&r.jobs[t][i]);
        }
        double e = cp_distance(&c, &data, sum, one, lse_weight);
        if (!(e <= limit)) fail_msg("%s: %s: %.3e from one rank, limit %.3e", name, names[i], e, limit);
        cp_result_free(sum);
    }
    free_jobs(&r);
    cp_result_free(one);
    cp_data_free(&data);
}

static void parts_are_the_whole_in_fp64(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i += (size_t)test_every(2))
        check_parts(&shapes[i], WEFT_PREC_F64, 1e-12, 1);
}

/* half of what may lie between fp32 and float64; lse within 1e-5 */
static void parts_are_the_whole_in_fp32(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i += 2) check_parts(&shapes[i], WEFT_PREC_F32, 1e-6, 0.1);
}

/* ---- one part ---------------------------------------------------------------------------------------------------- */

/* All of what holds for a model's heads holds for heads 4..8 in groups of 3: K,V heads 1, 2. */
static void a_part_is_a_case_of_its_own(void **state)
{
    (void)state;
    const int ranks[] = {2, 4};
    cp_case c = {.name = "heads 4..8 in groups of 3", .prec = WEFT_PREC_F64, .B = 1, .Tq = 21, .T = 21, .H = 5,
                 .Hkv = 2, .D = 4, .Dv = 4, .mask = {true, -1, -1, 0}, .alibi = true, .group = 3, .head0 = 4,
                 .seed = 3};
    cp_check_all(&c, ranks, 2, 1e-12, 1e-12, 1);
}

static void simulated_parts_send_what_the_formulas_say(void **state)
{
    (void)state;
    int ran = 0;
    for (int i = 0; i < NAMES; i++)
        for (int P = 2; P <= 8; P += 3) {
            sim_case c = sim_case_make(names[i], WEFT_LAYOUT_ZIGZAG, P, 101);
            c.H = 5, c.Hkv = 3, c.group = 3, c.head0 = 2; /* heads 2..6: K,V heads 0, 1, 2 */
            if (strncmp(names[i], "dcp", 3) == 0) c.head_size = largest_divisor(P, c.H);
            ran += sim_case_check_formula(&c);
        }
    assert_int_equal(ran, 3 * NAMES - 1); /* ulysses on 8 ranks is refused */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parts_are_the_whole_in_fp64),
        cmocka_unit_test(parts_are_the_whole_in_fp32),
        cmocka_unit_test(a_part_is_a_case_of_its_own),
        cmocka_unit_test(simulated_parts_send_what_the_formulas_say),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
