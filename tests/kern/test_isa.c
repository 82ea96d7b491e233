/* labels: small */
/* Names of instruction sets, what may be chosen, and the environment's limit. */
#include "harness/test.h"

#include "kern/kern.h"

static void names_read_back(void **state)
{
    (void)state;
    for (int i = 0; i < WEFT_ISA_COUNT; i++) {
        weft_isa isa = WEFT_ISA_COUNT;
        assert_true(weft_isa_parse(weft_isa_name((weft_isa)i), &isa));
        assert_int_equal(isa, i);
    }
    weft_isa untouched = WEFT_ISA_AVX2;
    const char *bad[] = {"", "AVX2", "avx", "avx5120", NULL};
    for (int i = 0; i < 5; i++) assert_false(weft_isa_parse(bad[i], &untouched));
    assert_int_equal(untouched, WEFT_ISA_AVX2);
}

/* The reported set is the one asked for, and each set includes the weaker ones. */
static void what_is_available_can_be_had(void **state)
{
    (void)state;
    assert_true(weft_isa_available(WEFT_ISA_REF));
    assert_false(weft_isa_available(WEFT_ISA_COUNT));
    for (int i = 0; i < WEFT_ISA_COUNT; i++) {
        weft_kern k;
        if (weft_isa_available((weft_isa)i)) {
            assert_ok(weft_kern_init(&k, (weft_isa)i));
            assert_int_equal(k.isa, i);
            if (i > 0) assert_true(weft_isa_available((weft_isa)(i - 1)));
        } else {
            assert_refused(weft_kern_init(&k, (weft_isa)i), "this machine has ref");
            assert_non_null(strstr(weft_last_error(), weft_isa_name((weft_isa)i)));
        }
    }
}

/* A fast row must really replace the reference where the machine has it. */
static void stronger_rows_win(void **state)
{
    (void)state;
    weft_kern ref, best;
    if (weft_isa_best() == WEFT_ISA_REF) skip();
    assert_ok(weft_kern_init(&ref, WEFT_ISA_REF));
    assert_ok(weft_kern_init(&best, weft_isa_best()));
    assert_true(ref.op[WEFT_PREC_BF16].swiglu_fwd != best.op[WEFT_PREC_BF16].swiglu_fwd);
    assert_true(ref.op[WEFT_PREC_F64].swiglu_fwd == best.op[WEFT_PREC_F64].swiglu_fwd);
    assert_true(ref.op[WEFT_PREC_F32].embed_fwd == best.op[WEFT_PREC_F32].embed_fwd); /* has no fast row */
}

static void the_environment_lowers_the_choice(void **state)
{
    (void)state;
    weft_kern k;
    const char *before = getenv("WEFT_ISA");
    char *saved = before ? strdup(before) : NULL;
    for (int i = 0; i < WEFT_ISA_COUNT; i++) {
        setenv("WEFT_ISA", weft_isa_name((weft_isa)i), 1);
        if (weft_isa_available((weft_isa)i)) {
            assert_int_equal(weft_isa_best(), i);
            assert_ok(weft_kern_init(&k, WEFT_ISA_REF));
        } else {
            assert_refused(weft_kern_init(&k, WEFT_ISA_REF), "WEFT_ISA=");
        }
    }
    setenv("WEFT_ISA", "avx1024", 1);
    assert_refused(weft_kern_init(&k, WEFT_ISA_REF), "WEFT_ISA=avx1024");
    if (saved) setenv("WEFT_ISA", saved, 1);
    else unsetenv("WEFT_ISA");
    free(saved);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_read_back),
        cmocka_unit_test(what_is_available_can_be_had),
        cmocka_unit_test(stronger_rows_win),
        cmocka_unit_test(the_environment_lowers_the_choice),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
