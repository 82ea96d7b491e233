/* labels: small tsan */
/* Whole tensors from parts: whatever the cuts, the copies, the slices and the layout, every element of the model comes
 * once and at its place. Values are the numbers of elements, so one that strays is seen. */
#include "parts_case.h"

typedef struct seen {
    int n;
    double sum;
    int fail_at;
} seen;

static weft_status look(void *ud, const weft_spec *s, const void *data)
{
    seen *x = ud;
    const double *v = data;
    REQUIRE(!strcmp(s->name, shapes[x->n].name));
    for (int64_t i = 0; i < weft_spec_whole_count(s); i++) REQUIRE(v[i] == (double)(1000 * x->n + i));
    if (x->fail_at == x->n) weft_fail(WEFT_ERR_REFUSED, "tensor %d displeases", x->n);
    return x->fail_at == x->n++ ? WEFT_ERR_REFUSED : WEFT_OK;
}

/* Ranks get tensors in turn, as fp32. */
static weft_status rounds(const weft_mesh *m, const weft_held *parts, const weft_spec *whole)
{
    weft_gather *g = NULL;
    int world = weft_world_size(m->world), me = weft_world_rank(m->world), tensor[16];
    float into[64];
    WEFT_TRY(weft_gather_create(&g, m, parts, whole, N));
    for (int i = 0; i < N; i++) {
        for (int r = 0; r < world; r++) tensor[r] = r % 3 == 2 ? -1 : (i + r) % N;
        WEFT_TRY(weft_gather_round(g, tensor, into, WEFT_F32));
        if (tensor[me] < 0) continue;
        for (int64_t e = 0; e < weft_spec_whole_count(&whole[tensor[me]]); e++)
            REQUIRE(into[e] == (float)(1000 * tensor[me] + e));
    }
    weft_gather_destroy(g);
    return WEFT_OK;
}

static weft_status all_ways(weft_ctx *ctx, weft_world *world, void *ud)
{
    const weft_mesh_shape *size = ud;
    weft_mesh m;
    weft_spec whole[N], mine[N];
    weft_piece piece[2 * N];
    double array[256];
    int64_t count;
    (void)ctx;
    WEFT_TRY(weft_mesh_create(&m, world, *size));
    whole_table(whole);
    int n = my_table(&m, mine, &count);
    for (int i = 0; i < n; i++) fill(&mine[i], array);
    for (int sliced = 0; sliced < 2; sliced++) {
        weft_held parts = {.spec = mine, .n = n, .piece = piece, .pieces = n, .dtype = WEFT_F64, .copies = !sliced};
        if (sliced) parts.pieces = slices(mine, n, count, &m, array, piece);
        else weft_pieces_of(mine, n, array, WEFT_F64, piece);
        seen x = {.fail_at = -1}, y = {.fail_at = 1};
        WEFT_TRY(weft_gather_each(&m, &parts, whole, N, look, &x));
        REQUIRE(weft_world_rank(world) == 0 ? x.n == N : x.n == 0);
        REQUIRE(weft_gather_each(&m, &parts, whole, N, look, &y) == WEFT_ERR_REFUSED);
        REQUIRE(strstr(weft_last_error(), "tensor 1 displeases"));
        WEFT_TRY(rounds(&m, &parts, whole));
    }
    weft_mesh_destroy(&m);
    return WEFT_OK;
}

static void every_element_comes_once(void **state)
{
    (void)state;
    static const weft_mesh_shape sizes[] = {{1, 1, 1, 1, 0}, {3, 1, 1, 1, 0}, {1, 2, 2, 1, 0}, {2, 1, 2, 2, 5},
                                            {2, 2, 1, 2, 0}, {1, 1, 1, 3, 0}, {7, 1, 1, 1, 0}};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        weft_mesh_shape s = sizes[i];
        if (i % (size_t)test_every(2)) continue;
        assert_ok(weft_run_threads(s.tp * s.cp * s.dp * s.pp, all_ways, &s));
    }
}

/* An element that nobody owns is found before anything is written. */
static weft_status unowned(weft_ctx *ctx, weft_world *world, void *ud)
{
    weft_mesh m;
    weft_spec whole[N];
    weft_piece piece[N];
    double array[256] = {0};
    int64_t at = 0;
    weft_gather *g = NULL;
    (void)ctx, (void)ud;
    WEFT_TRY(weft_mesh_create(&m, world, (weft_mesh_shape){1, 2, 1, 1, 0}));
    whole_table(whole);
    weft_spec mine[N];
    memcpy(mine, whole, sizeof mine);
    for (int i = 0; i < N; i++) mine[i].offset = at, at += mine[i].count;
    mine[2].own_count--;
    weft_pieces_of(mine, N, array, WEFT_F64, piece);
    weft_held parts = {.spec = mine, .n = N, .piece = piece, .pieces = N, .dtype = WEFT_F64, .copies = true};
    REQUIRE(weft_gather_create(&g, &m, &parts, whole, N) == WEFT_ERR_INTERNAL);
    REQUIRE(strstr(weft_last_error(), "norm: the ranks own 32 of its 33"));
    weft_mesh_destroy(&m);
    return WEFT_OK;
}

static void what_nobody_owns_is_told(void **state)
{
    (void)state;
    assert_ok(weft_run_threads(2, unowned, NULL));
}

/* More than one message per part. */
static weft_status large(weft_ctx *ctx, weft_world *world, void *ud)
{
    enum { ROWS = 1001, COLUMNS = 2003 };
    weft_mesh m;
    weft_gather *g = NULL;
    (void)ctx, (void)ud;
    WEFT_TRY(weft_mesh_create(&m, world, (weft_mesh_shape){2, 1, 1, 1, 0}));
    weft_spec whole = {.name = "large", .nd = 2, .shape = {ROWS, COLUMNS}, .count = ROWS * COLUMNS}, mine;
    weft_spec_uncut(&whole);
    mine = whole;
    keep(&mine, 1, weft_model_cut(COLUMNS, 2, m.at.tp));
    double *x = malloc((size_t)mine.count * sizeof *x);
    float *all = malloc((size_t)whole.count * sizeof *all);
    REQUIRE(x && all);
    fill(&mine, x);
    weft_piece piece;
    weft_pieces_of(&mine, 1, x, WEFT_F64, &piece);
    weft_held parts = {.spec = &mine, .n = 1, .piece = &piece, .pieces = 1, .dtype = WEFT_F64, .copies = true};
    WEFT_TRY(weft_gather_create(&g, &m, &parts, &whole, 1));
    WEFT_TRY(weft_gather_round(g, (const int[]){-1, 0}, all, WEFT_F32));
    if (m.at.tp == 1)
        for (int64_t i = 0; i < whole.count; i++) REQUIRE(all[i] == (float)i);
    weft_gather_destroy(g);
    free(x);
    free(all);
    weft_mesh_destroy(&m);
    return WEFT_OK;
}

static void large_parts_travel_in_chunks(void **state)
{
    (void)state;
    assert_ok(weft_run_threads(2, large, NULL));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_element_comes_once),
                                       cmocka_unit_test(what_nobody_owns_is_told),
                                       cmocka_unit_test(large_parts_travel_in_chunks)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
