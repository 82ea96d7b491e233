/* Every mask, with and without documents, is exact on every P: fp64 within 1e-12 (rounding of sums in another
 * order; the differences seen are near 1e-15). */
/* labels: small */
/* mpi-long: 8 */
/* timeout: 240 */
#include "harness/test.h"
#include "harness/cp_case.h"

static const int ranks[] = {1, 2, 3, 4, 5, 8};
enum { RANKS = sizeof ranks / sizeof *ranks };

static const struct mask_case { const char *name; weft_mask mask; } masks[] = {
    {"causal", {true, -1, -1, 0}},
    {"full", {false, -1, -1, 0}},
    {"window left", {true, 3, -1, 0}},
    {"window both", {false, 2, 3, 0}},
    {"only itself", {false, 0, 0, 0}},
    {"prefix", {true, -1, -1, 5}},
    {"prefix and window", {true, 4, 6, 9}},
};

static cp_case base(int64_t B, int64_t T)
{
    return (cp_case){.prec = WEFT_PREC_F64, .B = B, .Tq = T, .T = T, .H = 4, .Hkv = 2, .D = 6, .Dv = 5, .seed = 11};
}

static void check_masks(int64_t B, int64_t T, int pattern)
{
    cp_docs docs = cp_docs_make(B, T, pattern);
    for (size_t m = 0; m < sizeof masks / sizeof *masks; m++) {
        cp_case c = base(B, T);
        c.name = masks[m].name;
        c.mask = masks[m].mask;
        if (pattern) c.cu = docs.cu, c.first = docs.first;
        cp_check_all(&c, ranks, RANKS, 1e-12, 1e-12, 1);
    }
    cp_docs_free(&docs);
}

static void one_document(void **state) { (void)state; check_masks(1, 33, 0); }
static void batch_of_three(void **state) { (void)state; check_masks(3, 7, 0); }
static void documents_different_in_every_row(void **state) { (void)state; check_masks(3, 33, 1); }
static void other_documents(void **state) { (void)state; check_masks(1, 57, 4); }

/* Every token its own document: no rank needs another's keys, and the blocks still travel in the ring. */
static void documents_of_one_token(void **state)
{
    (void)state;
    int64_t cu[14], first[] = {0, 14};
    for (int i = 0; i < 14; i++) cu[i] = i;
    cp_case c = base(1, 13);
    c.name = "documents of one token";
    c.mask = (weft_mask){true, -1, -1, 0};
    c.cu = cu, c.first = first;
    cp_check_all(&c, ranks, RANKS, 1e-12, 1e-12, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_document), cmocka_unit_test(batch_of_three),
        cmocka_unit_test(documents_different_in_every_row), cmocka_unit_test(other_documents),
        cmocka_unit_test(documents_of_one_token),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
