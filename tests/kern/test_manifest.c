/* labels: small */
/* Every row of the manifest (operation, precision, instruction set) against the same operation in fp64, at
 * awkward sizes, with NaN in everything that must not be read: gaps between rows, work, ignored rows. The
 * inputs of both runs are the same numbers, rounded to the tested precision's types. Each kernel also runs
 * with three threads and must give the same bits. All arrays lie against pages that cannot be read: behind the last
 * byte with one thread, before the first with three. The cases are those of weft_kern_check. */
#include "harness/place.h"
#include "harness/test.h"
#include "kern/check/check_impl.h"

/* ---- running ---------------------------------------------------------------------------------------- */

typedef struct placed { /* everything that a run has taken */
    void *blocks[WEFT_CHECK_BLOCKS];
    int n;
    place_side side;
} placed;

static void *place_one(void *memory, size_t bytes, size_t align)
{
    placed *p = memory;
    assert_true(p->n < WEFT_CHECK_BLOCKS);
    return p->blocks[p->n++] = place_new(bytes, align, p->side);
}

typedef struct run { weft_check_run t; placed *memory; } run;

static run start(const weft_kern *k, weft_prec prec, weft_prec from, int64_t rows, int64_t n, int64_t gap, int threads)
{
    placed *memory = calloc(1, sizeof *memory);
    assert_non_null(memory);
    memory->side = threads == 1 ? PLACE_LAST : PLACE_FIRST;
    return (run){{.op = &k->op[prec], .prec = prec, .from = from, .rows = rows, .n = n, .gap = gap, .threads = threads,
                  .take = place_one, .memory = memory}, memory};
}

static void finish(run *t)
{
    for (int i = 0; i < t->memory->n; i++) place_free(t->memory->blocks[i]);
    free(t->memory);
}

static void check_size(int c, weft_prec prec, weft_isa isa, int64_t rows, int64_t n)
{
    char what[160];
    weft_kern k, ref;
    int count;
    const weft_check_case *cases = weft__check_cases(&count);
    const int64_t gap = (rows + n) % 2 ? 5 : 0;
    assert_ok(weft_kern_init(&k, isa));
    assert_ok(weft_kern_init(&ref, WEFT_ISA_REF));
    run one = start(&k, prec, prec, rows, n, gap, 1), three = start(&k, prec, prec, rows, n, gap, 3);
    run want = start(&ref, WEFT_PREC_F64, prec, rows, n, gap, 1);
    cases[c].body(&one.t);
    cases[c].body(&three.t);
    cases[c].body(&want.t);
    assert_int_equal(one.t.n_out, want.t.n_out);
    if (!weft__check_compare(&one.t, &want.t, what, sizeof what) ||
        !weft__check_same_bits(&one.t, &three.t, what, sizeof what))
        fail_msg("%s %s %s rows %d n %d gap %d: %s", cases[c].ops, weft_prec_name(prec), weft_isa_name(isa), (int)rows,
                 (int)n, (int)gap, what);
    finish(&one), finish(&three), finish(&want);
}

static void check_case(int c, weft_prec prec, weft_isa isa)
{
    static const int64_t rows[] = {0, 1, 2, 3, 5, 7, 33, 257}, n[] = {1, 2, 3, 5, 7, 33, 257, 1001};
    for (int i = 0; i < 8; i++) {
        check_size(c, prec, isa, rows[i], 33); /* all row counts at two lengths, all lengths at two row counts */
        check_size(c, prec, isa, rows[i], 5);
        check_size(c, prec, isa, 3, n[i]);
        check_size(c, prec, isa, 34, n[i]);
    }
}

/* Rows that share a case (forward and backward, for one precision and instruction set) run once. */
static void every_row_equals_fp64(void **state)
{
    (void)state;
    enum { CASES_MAX = 64 };
    bool done[CASES_MAX][WEFT_PREC_COUNT][WEFT_ISA_COUNT] = {{{false}}};
    int count, n_cases;
    weft__check_cases(&n_cases);
    assert_true(n_cases <= CASES_MAX);
    const weft_kern_entry *e = weft_kern_manifest(&count);
    for (int i = 0; i < count; i++) {
        if (strcmp(e[i].op, "attn") == 0 || strcmp(e[i].op, "move") == 0) continue; /* test_attention*.c, test_move.c */
        const int c = weft__check_case_of(e[i].op);
        if (c < 0) fail_msg("%s has no case here", e[i].op);
        if (!weft_isa_available(e[i].isa) || done[c][e[i].prec][e[i].isa]) continue;
        done[c][e[i].prec][e[i].isa] = true;
        check_case(c, e[i].prec, e[i].isa);
    }
}

static void fp64_is_always_the_reference(void **state)
{
    (void)state;
    int count;
    const weft_kern_entry *e = weft_kern_manifest(&count);
    for (int i = 0; i < count; i++)
        if (e[i].prec == WEFT_PREC_F64) assert_int_equal(e[i].isa, WEFT_ISA_REF);
}

/* The table must be complete: a NULL function would be found only by the model that calls it. */
static void tables_have_no_holes(void **state)
{
    (void)state;
    for (int isa = 0; isa < WEFT_ISA_COUNT; isa++) {
        weft_kern k;
        if (!weft_isa_available((weft_isa)isa)) continue;
        assert_ok(weft_kern_init(&k, (weft_isa)isa));
        assert_int_equal(k.isa, isa);
        for (int p = 0; p < WEFT_PREC_COUNT; p++) {
            const char *f = (const char *)&k.op[p];
            for (size_t at = offsetof(weft_kern_ops, rmsnorm_fwd); at < sizeof k.op[p]; at += sizeof(void *)) {
                static const char zero[sizeof(void *)];
                if (memcmp(f + at, zero, sizeof zero) == 0)
                    fail_msg("%s %s: entry %zu is NULL", weft_isa_name((weft_isa)isa), weft_prec_name((weft_prec)p),
                             at / sizeof(void *));
            }
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_row_equals_fp64),
        cmocka_unit_test(fp64_is_always_the_reference),
        cmocka_unit_test(tables_have_no_holes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
