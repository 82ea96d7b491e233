/* Two stages over one group: what is often written about attention that is cut by heads and by tokens, built as it is
 * written, next to the grid that works. docs/maths/two_stages.md tells the story; this is its evidence.
 *
 * The recipe: rank r of N has the K,V of its S = T/N tokens for its heads; all-gather the heads, then all-gather the
 * sequence, both over the N ranks; attend. */
/* labels: small */
#include "harness/test.h"
#include "harness/cp_case.h"

enum { N = 4, U = 2, R = N / U, T = 32, S = T / N, HEADS = 4, DIM = 8, WIDTH = 2 * DIM };

static cp_case the_case(void)
{
    return (cp_case){.name = "one group", .prec = WEFT_PREC_F64, .B = 1, .Tq = T, .T = T, .H = HEADS, .Hkv = HEADS,
                     .D = DIM,
                     .Dv = DIM, .mask = {true, -1, -1, 0}, .seed = 70};
}

typedef struct recipe {
    const cp_data *data;
    bool all_heads;            /* a rank starts with all heads of its tokens, not with its share of them */
    double o[T * HEADS * DIM]; /* what the ranks computed for their own queries */
    bool held[N][T * HEADS];   /* (token, head) whose K,V a rank has in the end */
    int64_t most[N];           /* elements of K,V that a rank holds */
} recipe;

/* One row of K,V: element 0 names token and head, so that one can see afterwards what lies where. */
typedef struct row { double name, kv[WIDTH]; } row;

static row row_of(const cp_data *x, int token, int head)
{
    row r = {.name = token * HEADS + head};
    memcpy(r.kv, x->k + (token * HEADS + head) * DIM, DIM * sizeof(double));
    memcpy(r.kv + DIM, x->v + (token * HEADS + head) * DIM, DIM * sizeof(double));
    return r;
}

/* Causal attention of query `t` over what stands at places 0 .. t of kv[T][HEADS]. */
static void attend(const cp_data *x, const row *kv, int t, int h, double *o)
{
    double p[T], sum = 0, most = -INFINITY;
    for (int j = 0; j <= t; j++) {
        p[j] = 0;
        for (int d = 0; d < DIM; d++) p[j] += x->q[(t * HEADS + h) * DIM + d] * kv[j * HEADS + h].kv[d] / sqrt(DIM);
        most = fmax(most, p[j]);
    }
    for (int j = 0; j <= t; j++) sum += p[j] = exp(p[j] - most);
    for (int d = 0; d < DIM; d++) {
        o[d] = 0;
        for (int j = 0; j <= t; j++) o[d] += p[j] / sum * kv[j * HEADS + h].kv[DIM + d];
    }
}

static weft_status gather(weft_comm *comm, const row *mine, int rows, row *all)
{
    size_t counts[N];
    for (int i = 0; i < N; i++) counts[i] = (size_t)rows * sizeof(row);
    return weft_all_gather(comm, mine, all, counts);
}

/* Stage 1 with one head of a rank's tokens: what comes back from rank h is taken as head h. */
static weft_status gather_heads(weft_comm *comm, const row *mine, row *heads)
{
    row all[N * S];
    WEFT_TRY(gather(comm, mine, S, all));
    for (int h = 0; h < HEADS; h++)
        for (int s = 0; s < S; s++) heads[s * HEADS + h] = all[h * S + s];
    return WEFT_OK;
}

static weft_status follow_recipe(weft_ctx *ctx, weft_world *world, void *ud)
{
    (void)ctx;
    recipe *x = ud;
    static const int ranks[N] = {0, 1, 2, 3};
    int me = weft_world_rank(world);
    weft_comm *comm;
    row mine[S * HEADS], kv[T * HEADS];
    WEFT_TRY(weft_comm_create(&comm, world, ranks, N, "one group"));
    if (x->all_heads) { /* then the first gather brings everything, and nothing is left for a second */
        for (int s = 0; s < S; s++)
            for (int h = 0; h < HEADS; h++) mine[s * HEADS + h] = row_of(x->data, me * S + s, h);
        WEFT_TRY(gather(comm, mine, S * HEADS, kv));
    } else {
        row heads[S * HEADS];
        for (int s = 0; s < S; s++) mine[s] = row_of(x->data, me * S + s, me);
        WEFT_TRY(gather_heads(comm, mine, heads));
        WEFT_TRY(gather(comm, heads, S * HEADS, kv));
    }
    for (int i = 0; i < T * HEADS; i++) x->held[me][(int)kv[i].name] = true;
    x->most[me] = (int64_t)T * HEADS * WIDTH;
    for (int t = me * S; t < (me + 1) * S; t++)
        for (int h = 0; h < HEADS; h++) attend(x->data, kv, t, h, x->o + (t * HEADS + h) * DIM);
    weft_comm_destroy(comm);
    return WEFT_OK;
}

static double error_of_o(const cp_case *c, const cp_data *data, const double *o)
{
    cp_result *want = cp_result_make(c, 1);
    cp_reference(c, data, want);
    double e = weft_rel_l2(o, WEFT_F64, want->o, WEFT_F64, (int64_t)T * HEADS * DIM, 0);
    cp_result_free(want);
    return e;
}

/* A rank with S tokens of one head: all ranks together hold T H / N of T H rows. Gathers move copies; what nobody has
 * they cannot bring. The head axis of the result runs over tokens, too. */
static void heads_of_different_tokens_are_paired(void **state)
{
    (void)state;
    cp_case c = the_case();
    cp_data data = cp_data_make(&c);
    static recipe x;
    x = (recipe){.data = &data};
    assert_ok(weft_run_threads(N, follow_recipe, &x));
    for (int r = 0; r < N; r++) {
        int held = 0;
        for (int i = 0; i < T * HEADS; i++) {
            held += x.held[r][i];
            /* token t of head h is there only where t is a token of rank h */
            assert_int_equal(x.held[r][i], i / HEADS / S == i % HEADS);
        }
        assert_int_equal(held, T * HEADS / N);
    }
    assert_true(error_of_o(&c, &data, x.o) > 0.5); /* no rounding: other numbers */
    cp_data_free(&data);
}

/* With all heads of its tokens on every rank the numbers are right, and every rank has the whole K,V: cutting by heads
 * saved nothing. It is pcp, and not O(T H / N). */
static void the_whole_of_k_and_v_is_rebuilt(void **state)
{
    (void)state;
    cp_case c = the_case();
    cp_data data = cp_data_make(&c);
    static recipe x;
    x = (recipe){.data = &data, .all_heads = true};
    assert_ok(weft_run_threads(N, follow_recipe, &x));
    assert_true(error_of_o(&c, &data, x.o) < 1e-12);
    for (int r = 0; r < N; r++) {
        for (int i = 0; i < T * HEADS; i++) assert_true(x.held[r][i]);
        assert_int_equal(x.most[r], T * HEADS * WIDTH);
    }
    cp_data_free(&data);
}

/* The grid: heads against rows among U ranks, then a gather (or ring) among the R ranks with the same heads. */
static void the_grid_is_exact_in_less_memory(void **state)
{
    (void)state;
    cp_case c = the_case();
    cp_data data = cp_data_make(&c);
    weft_cp_options grid = {.head_size = U, .keep_heads = true};
    cp_job jobs[] = {
        {&c, &data, "dcp", WEFT_LAYOUT_CONTIGUOUS, true, 1, NULL, cp_result_make(&c, N), grid},
        {&c, &data, "dcp-ring", WEFT_LAYOUT_CONTIGUOUS, true, 1, NULL, cp_result_make(&c, N), grid},
        {&c, &data, "pcp", WEFT_LAYOUT_CONTIGUOUS, true, 1, NULL, cp_result_make(&c, N), {0}},
    };
    assert_ok(cp_run_copies(N, jobs, 3)); /* the blocks of others in memory of one's own, as on most machines */
    for (int i = 0; i < 3; i++) assert_true(error_of_o(&c, &data, jobs[i].out->o) < 1e-12);
    const size_t whole = (size_t)T * HEADS * WIDTH * sizeof(double);
    for (int r = 0; r < N; r++) {
        assert_int_equal(jobs[2].out->kv_buffer_bytes[r], whole);
        /* the whole sequence, of the own heads; between forward and backward the own share, 1/N */
        assert_int_equal(jobs[0].out->kv_buffer_bytes[r], whole / U);
        size_t q_m_l = (size_t)(T / R) * (HEADS / U) * (DIM + 2) * sizeof(double);
        assert_true(jobs[0].out->kept_bytes[r] >= whole / N + q_m_l &&
                    jobs[0].out->kept_bytes[r] < whole / N + q_m_l + 256);
    }
    for (int i = 0; i < 3; i++) cp_result_free(jobs[i].out);
    cp_data_free(&data);
}

/* Both stages are right in either order, but not as cheap: after the gather every rank holds R times its K,V, and all
 * of that would have to change heads for rows. Elements of K,V that a rank sends. */
static void heads_first_moves_less(void **state)
{
    (void)state;
    cp_case c = the_case();
    cp_data data = cp_data_make(&c);
    cp_result *out = cp_result_make(&c, N);
    cp_job job = {&c, &data, "dcp", WEFT_LAYOUT_CONTIGUOUS, true, 1, NULL, out, {.head_size = U}};
    assert_ok(cp_run(N, &job, 1));
    int64_t row_kv = HEADS * WIDTH, heads = S * row_kv * (U - 1) / U, gather_own_heads = (R - 1) * S * row_kv;
    int64_t gather_all_heads = (R - 1) * S * row_kv, heads_of_all = R * heads;
    int64_t q_o = S * HEADS * (U - 1) / U * (DIM + DIM + 2); /* q there; o, m, l back */
    for (int r = 0; r < N; r++)
        assert_int_equal(out->forward_bytes[r], (heads + gather_own_heads + q_o) * (int64_t)sizeof(double));
    assert_true(heads + gather_own_heads < gather_all_heads + heads_of_all);
    cp_result_free(out);
    cp_data_free(&data);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(heads_of_different_tokens_are_paired), cmocka_unit_test(the_whole_of_k_and_v_is_rebuilt),
        cmocka_unit_test(the_grid_is_exact_in_less_memory), cmocka_unit_test(heads_first_moves_less),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
