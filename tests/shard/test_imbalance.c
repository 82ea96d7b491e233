/* How uneven the work of the ranks is, by layout and mask: the formulas of the theory, and the table in
 * docs/maths/context_parallel.md. */
/* labels: small */
#include "shard_case.h"

static double imbalance(const weft_mask *m, const weft_shard *q, const weft_shard *k)
{
    int64_t most = 0, total = 0;
    for (int r = 0; r < q->P; r++) {
        int64_t area = weft_shard_area(m, q, r, k, -1);
        most = weft_max_i64(most, area);
        total += area;
    }
    return (double)most * q->P / (double)total;
}

static double imbalance_of(weft_layout layout, const weft_mask *m, const int64_t *cu, int64_t n, int P)
{
    shard_world w;
    weft_shard s;
    int64_t first[2] = {0, n + 1};
    weft_docs docs = {1, cu[n], cu, first, NULL};
    world_open(&w);
    make_shard(&w, &s, layout, &docs, P, 0);
    double ratio = imbalance(m, &s, &s);
    world_close(&w);
    return ratio;
}

static const weft_mask causal = {true, -1, -1, 0};

/* Causal, one document. Contiguous: (2T - T/P + 1)/(T + 1), which is 2 - 1/P but for the diagonal; zigzag 1 when 2P
 * divides T; striped:k 1 + k (P - 1)/(T + 1) when k P divides T. */
static void formulas(void **state)
{
    (void)state;
    for (int P = 1; P <= 16; P++)
        for (int64_t h = 1; h <= 64; h *= 4) {
            int64_t T = 2 * h * P, cu[2] = {0, T};
            double t = (double)T, p = P;
            double contiguous = (2 * t - t / p + 1) / (t + 1);
            assert_at_most(fabs(imbalance_of((weft_layout){WEFT_LAYOUT_CONTIGUOUS, 0}, &causal, cu, 1, P) - contiguous),
                           1e-12);
            assert_at_most(fabs(imbalance_of((weft_layout){WEFT_LAYOUT_ZIGZAG, 0}, &causal, cu, 1, P) - 1), 1e-12);
            for (int64_t k = 1; k <= 2 * h; k *= 2)
                assert_at_most(fabs(imbalance_of((weft_layout){WEFT_LAYOUT_STRIPED, k}, &causal, cu, 1, P) - 1 -
                                    (double)k * (p - 1) / (t + 1)), 1e-12);
        }
}

enum { T = 65536, RANKS = 8, LAYOUTS = 5, MASKS = 4 };
static const weft_layout layouts[LAYOUTS] = {{WEFT_LAYOUT_CONTIGUOUS, 0}, {WEFT_LAYOUT_ZIGZAG, 0},
                                             {WEFT_LAYOUT_STRIPED, 1},
                                             {WEFT_LAYOUT_STRIPED, 128}, {WEFT_LAYOUT_BALANCED, 0}};
static const weft_mask masks[MASKS] = {{true, -1, -1, 0},
                                       {true, 4095, -1, 0},
                                       {false, 2048, 2047, 0},
                                       {false, -1, -1, 0}};

static void check_table(const char *what, const int64_t *cu, int64_t n, const double want[MASKS][LAYOUTS])
{
    for (int m = 0; m < MASKS; m++)
        for (int l = 0; l < LAYOUTS; l++) {
            double got = imbalance_of(layouts[l], &masks[m], cu, n, RANKS);
            char text[32];
            if (fabs(got - want[m][l]) > 6e-4) /* printed with three digits */
                fail_msg("%s, mask %d, %s: %.3f, the table has %.3f", what, m,
                         weft_layout_text(layouts[l], text, sizeof text), got, want[m][l]);
        }
}

static void table_of_one_document(void **state)
{
    (void)state;
    static const int64_t cu[] = {0, T};
    static const double want[MASKS][LAYOUTS] = {{1.875, 1.000, 1.000, 1.014, 1.000},
                                                {1.032, 1.032, 1.000, 1.007, 1.032},
                                                {1.016, 1.016, 1.000, 1.000, 1.016},
                                                {1.000, 1.000, 1.000, 1.000, 1.000}};
    check_table("one document", cu, 1, want);
}

static void table_of_documents(void **state)
{
    (void)state;
    static const struct { int64_t len, n; } lengths[] = {{32768, 1}, {8192, 2}, {4096, 2}, {2048, 2}, {32, 128}};
    static int64_t cu[136];
    static const double want[MASKS][LAYOUTS] = {{3.006, 1.718, 1.000, 1.044, 1.000},
                                                {1.361, 1.361, 1.001, 1.056, 1.345},
                                                {1.207, 1.131, 1.000, 1.000, 1.131},
                                                {1.718, 1.074, 1.000, 1.000, 1.228}};
    int64_t n = 0;
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++)
        for (int64_t k = 0; k < lengths[i].n; k++, n++) cu[n + 1] = cu[n] + lengths[i].len;
    assert_int_equal(n, 135);
    check_table("documents", cu, n, want);
}

/* Queries that are the last part of the keys: a document that begins before them has heavy queries, however few, and
 * `balanced` must know. */
static void queries_of_the_last_part(void **state)
{
    (void)state;
    enum { DOCS = 6, KEYS = 20000 };
    static const int64_t cu[DOCS + 1] = {0, 100, 15000, 15007, 16500, 16501, KEYS}, first[2] = {0, DOCS + 1};
    static const int64_t before[] = {0, 1, 5000, 14000, 16000, 18000};
    const weft_docs keys = {1, KEYS, cu, first, NULL};
    const weft_layout balanced = {WEFT_LAYOUT_BALANCED, 0};
    for (size_t i = 0; i < sizeof before / sizeof *before; i++)
        for (int P = 2; P <= 9; P += P == 2 ? 1 : 3) {
            int64_t q_cu[DOCS + 1], start[DOCS + 1];
            for (int d = 0; d <= DOCS; d++) {
                q_cu[d] = weft_max_i64(0, cu[d] - before[i]);
                start[d] = weft_max_i64(0, before[i] - cu[d]);
            }
            const weft_docs queries = {1, KEYS - before[i], q_cu, first, start};
            shard_world w;
            weft_shard q, k;
            world_open(&w);
            make_shard(&w, &q, balanced, &queries, P, 0);
            make_shard(&w, &k, balanced, &keys, P, 0);
            assert_at_most(imbalance(&causal, &q, &k), 1.05);
            world_close(&w);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(formulas),
        cmocka_unit_test(table_of_one_document),
        cmocka_unit_test(table_of_documents),
        cmocka_unit_test(queries_of_the_last_part),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
