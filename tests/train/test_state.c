/* labels: small */
/* state.json: back to the same numbers, every value that is not as it must be refused with its key, and which options
 * may differ. */
#include "harness/test.h"
#include "train/train.h"

#include <jansson.h>

static weft_mem mem;

static weft_run_options *options(weft_arena **arena)
{
    static weft_run_options o; /* defaults of the table */
    weft_opts opts;
    int n = 0;
    const weft_opt *table = weft_run_table(&n);
    assert_ok(weft_arena_create(arena, &mem, "options", NULL));
    assert_ok(weft_opts_init(&opts, table, n, WEFT_CMD_TRAIN, &o, *arena));
    return &o;
}

static weft_train_state some_state(void)
{
    return (weft_train_state){.step = 12,
                              .updates = 11,
                              .skips = 1,
                              .sequence = 96,
                              .tokens = 98304,
                              .loss = 1.0 / 3,
                              .data_tokens = 1001,
                              .data_docs = 3,
                              .data_hash = {1, 2},
                              .scale_dynamic = true,
                              .scaler = {.scale = 1024, .good = 7, .skipped = 1},
                              .spike = {.seen = 11, .mean = 0.1, .variance = 1e-7}};
}

static void numbers_come_back(void **state)
{
    (void)state;
    weft_arena *arena = NULL;
    weft_run_options *o = options(&arena);
    weft_train_state a = some_state(), b;
    json_t *saved = NULL;
    weft_text text = {0};
    assert_ok(weft_train_state_text(&a, o, &text));
    assert_ok(weft_train_state_read(&b, &saved, "state.json", text.data, text.len));
    assert_memory_equal(&a, &b, sizeof a);
    assert_int_equal(json_integer_value(json_object_get(saved, "train.steps")), 100);
    json_decref(saved);
    weft_text_free(&text);
    weft_arena_destroy(arena);
}

/* One value replaced: the message names the key. */
static void replaced(const char *text, const char *key, const char *value, const char *inside)
{
    json_t *root = json_loads(text, 0, NULL), *at = inside ? json_object_get(root, inside) : root;
    json_t *v = value ? json_loads(value, JSON_DECODE_ANY, NULL) : NULL;
    assert_non_null(json_object_get(at, key));
    if (v) assert_int_equal(json_object_set_new(at, key, v), 0);
    else assert_int_equal(json_object_del(at, key), 0);
    char *changed = json_dumps(root, 0);
    weft_train_state s;
    assert_refused(weft_train_state_read(&s, NULL, "state.json", changed, strlen(changed)), key);
    free(changed);
    json_decref(root);
}

static void what_is_wrong_is_named(void **state)
{
    (void)state;
    weft_arena *arena = NULL;
    weft_run_options *o = options(&arena);
    weft_train_state a = some_state();
    weft_text text = {0};
    assert_ok(weft_train_state_text(&a, o, &text));
    static const struct {
        const char *key, *value, *inside;
    } cases[] = {{"format", "\"other\"", NULL},
                 {"version", "2", NULL},
                 {"step", "-1", NULL},
                 {"step", "1.5", NULL},
                 {"next_sequence", NULL, NULL},
                 {"updates", "\"3\"", NULL},
                 {"left_out", "-3", NULL},
                 {"tokens", "null", NULL},
                 {"loss", "null", NULL},
                 {"tokens", "-1", "data"},
                 {"documents", "[]", "data"},
                 {"xxh3_128", "\"12\"", "data"},
                 {"scale", "0", "loss_scaler"},
                 {"scale", "-4", "loss_scaler"},
                 {"good_steps", "-1", "loss_scaler"},
                 {"skipped", NULL, "loss_scaler"},
                 {"seen", "-1", "loss_spikes"},
                 {"mean", "\"x\"", "loss_spikes"},
                 {"variance", "-1", "loss_spikes"},
                 {"options", "[]", NULL}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        replaced(text.data, cases[i].key, cases[i].value, cases[i].inside);
    weft_train_state s;
    for (size_t n = 0; n < text.len; n += 7) /* cut short anywhere */
        assert_int_equal(weft_train_state_read(&s, NULL, "state.json", text.data, n), WEFT_ERR_REFUSED);
    weft_text_free(&text);
    weft_arena_destroy(arena);
}

static void some_options_may_differ(void **state)
{
    (void)state;
    weft_arena *arena = NULL;
    weft_run_options *o = options(&arena), now = *o;
    weft_train_state a = some_state();
    json_t *saved = NULL;
    weft_text text = {0}, differs = {0};
    assert_ok(weft_train_state_text(&a, o, &text));
    assert_ok(weft_train_state_read(&a, &saved, "state.json", text.data, text.len));
    assert_ok(weft_train_state_compare(saved, &now, "state.json", &differs));
    assert_int_equal(differs.len, 0);
    now.cp = 4, now.threads = 3, now.save_interval = 7, now.run_name = "x"; /* nothing that is computed */
    assert_ok(weft_train_state_compare(saved, &now, "state.json", &differs));
    assert_int_equal(differs.len, 0);
    now.lr = 0.25, now.steps = 7;
    assert_ok(weft_train_state_compare(saved, &now, "state.json", &differs));
    assert_string_equal(differs.data, "train.steps is 7, was 100; optim.lr is 0.25, was 0.001");
    now.separator = "\n\n";
    assert_refused(weft_train_state_compare(saved, &now, "state.json", &differs),
                   "data.separator is \"\\n\\n\", was null");
    json_decref(saved);
    weft_text_free(&text);
    weft_text_free(&differs);
    weft_arena_destroy(arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(numbers_come_back), cmocka_unit_test(what_is_wrong_is_named),
                                       cmocka_unit_test(some_options_may_differ)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
