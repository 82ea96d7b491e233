/* labels: long */ /* timeout: 1800 */
/* Every number of stages and micro-batches on every context- and data-parallel size. */
#include "pipeline_case.h"

static test_dir dir;
static const weft_family families[] = {WEFT_LLAMA, WEFT_GPT2, WEFT_QWEN2, WEFT_QWEN3, WEFT_MISTRAL};

/* Micro-batches of one row, as many on each data-parallel rank. */
static void check(int pp, int64_t L, int micros, int cp, int dp)
{
    weft_model_config c = case_config(families[(pp + micros + cp + dp) % 5], L);
    case_write_model(test_dir_file(&dir, "model"), &c);
    case_write(test_dir_file(&dir, "case.safetensors"), micros * dp, micros % 2);
    case_check(test_dir_file(&dir, "model"), test_dir_file(&dir, "case.safetensors"),
               (layout){pp, cp, dp, "1", 1, false});
}

static void every_pipeline(void **state)
{
    (void)state;
    for (int pp = 1; pp <= 4; pp++)
        for (int micros = 1; micros <= 6; micros++)
            for (int cp = 1; cp <= 2; cp++)
                for (int dp = 1; dp <= 2; dp++) check(pp, 4, micros, cp, dp);
}

static void five_stages_of_uneven_layers(void **state)
{
    (void)state;
    for (int64_t L = 5; L <= 7; L++)
        for (int micros = 1; micros <= 6; micros++) check(5, L, micros, 1 + micros % 2, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_pipeline),
                                       cmocka_unit_test(five_stages_of_uneven_layers)};
    test_dir_make(&dir);
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    test_dir_remove(&dir);
    return failed;
}
