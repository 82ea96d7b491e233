/* The option table: what is taken, what is refused and with which words, and that values survive YAML.
 * labels: small */
#include "harness/test.h"

#include <unistd.h>

typedef struct values {
    int64_t steps, cp, buffer, window;
    double lr, clip;
    bool async, tf32;
    const char *strategy, *layout, *out, *note;
} values;

enum { TRAIN = 1, SIM = 2 };
#define AT(field) offsetof(values, field)
static const weft_opt table[] = {
    {.key = "train.steps", .flag = "steps", .type = WEFT_OPT_INT, .offset = AT(steps), .def = "100", .min = 1,
     .max = 1e9,
     .doc = "optimizer steps", .commands = TRAIN},
    {.key = "cp.size", .flag = "context-parallel-size", .alias = "cp|context-parallel", .type = WEFT_OPT_INT,
     .offset = AT(cp), .def = "0", .min = 1, .max = 4096,
     .doc = "ranks that share one sequence; without it the number of ranks that were started divided by all the other "
            "sizes, as a line that is long enough to be wrapped",
     .commands = TRAIN | SIM},
    {.key = "out", .flag = "out", .type = WEFT_OPT_TEXT, .offset = AT(out), .doc = "folder of the run",
     .commands = TRAIN},
    {.key = "cp.strategy", .flag = "cp-strategy", .type = WEFT_OPT_ENUM, .offset = AT(strategy), .def = "auto",
     .choices = "none|pcp|ring|ulysses|auto", .doc = "how attention is split", .commands = TRAIN | SIM},
    {.key = "cp.layout", .flag = "cp-layout", .type = WEFT_OPT_ENUM, .offset = AT(layout), .def = "contiguous",
     .choices = "contiguous|zigzag|striped[:k]|balanced", .doc = "which tokens a rank holds", .commands = TRAIN | SIM},
    {.key = "cp.buffer", .flag = "cp-aggregation-buffer-size", .type = WEFT_OPT_SIZE, .offset = AT(buffer), .def = "4M",
     .min = 65536, .max = INFINITY, .doc = "bytes of one message", .commands = TRAIN | SIM},
    {.key = "cp.overlap.async", .flag = "async-cp-comm", .type = WEFT_OPT_BOOL, .offset = AT(async), .def = "true",
     .doc = "exchange while computing", .commands = TRAIN | SIM},
    {.key = "train.lr", .flag = "lr", .type = WEFT_OPT_REAL, .offset = AT(lr), .def = "3e-4", .min = 0, .max = 1,
     .doc = "peak learning rate", .commands = TRAIN},
    {.key = "train.clip", .flag = "clip", .type = WEFT_OPT_REAL, .offset = AT(clip), .commands = TRAIN},
    {.key = "train.tf32", .flag = "tf32", .type = WEFT_OPT_BOOL, .offset = AT(tf32), .commands = TRAIN},
    {.key = "model.window", .flag = "window", .type = WEFT_OPT_INT, .offset = AT(window), .def = "-1",
     .commands = TRAIN},
    {.key = "note", .type = WEFT_OPT_TEXT, .offset = AT(note), .def = "none", .doc = "free text", .commands = TRAIN},
};
enum { N = sizeof table / sizeof *table };

typedef struct fixture {
    weft_mem mem;
    weft_arena *arena;
    values v;
    weft_opts o;
    char file[64];
} fixture;

static int set_up(void **state)
{
    fixture *f = calloc(1, sizeof *f);
    assert_non_null(f);
    assert_ok(weft_arena_create(&f->arena, &f->mem, "test", NULL));
    assert_ok(weft_opts_init(&f->o, table, N, TRAIN, &f->v, f->arena));
    snprintf(f->file, sizeof f->file, "/tmp/weft-opt-%ld.yaml", (long)getpid());
    *state = f;
    return 0;
}

static int tear_down(void **state)
{
    fixture *f = *state;
    remove(f->file);
    weft_arena_destroy(f->arena);
    free(f);
    return 0;
}

static weft_status args(fixture *f, int max, int *n, const char **words, const char *line)
{
    static const char *const empty = "";
    char *copy = strdup(line), *argv[32], *save = NULL;
    int argc = 0;
    for (char *w = strtok_r(copy, " ", &save); w && argc < 32; w = strtok_r(NULL, " ", &save)) {
        const char *kept = NULL;
        assert_ok(weft_arena_strdup(f->arena, strcmp(w, "''") ? w : empty, &kept));
        argv[argc++] = (char *)(uintptr_t)kept;
    }
    free(copy);
    return weft_opts_argv(&f->o, argc, argv, words, max, n);
}

static weft_status flags(fixture *f, const char *line)
{
    int n = 0;
    return args(f, 0, &n, NULL, line);
}

static weft_status yaml_bytes(fixture *f, const char *text, size_t len)
{
    FILE *file = fopen(f->file, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(text, 1, len, file), len);
    fclose(file);
    return weft_opts_yaml(&f->o, f->file);
}

static weft_status yaml(fixture *f, const char *text) { return yaml_bytes(f, text, strlen(text)); }

/* ---- values --------------------------------------------------------------------------------------- */

static void defaults_are_set(void **state)
{
    fixture *f = *state;
    assert_int_equal(f->v.steps, 100);
    assert_int_equal(f->v.buffer, 4 << 20);
    assert_int_equal(f->v.cp, 0); /* a default may lie outside the users' range */
    assert_true(f->v.async);
    assert_true(f->v.lr == 3e-4);
    assert_string_equal(f->v.strategy, "auto");
    assert_null(f->v.out);
    assert_false(weft_opts_given(&f->o, "train.steps"));
}

static void flags_are_taken(void **state)
{
    fixture *f = *state;
    const char *words[2];
    int n = 0;
    assert_ok(args(f, 2, &n, words,
                   "a.yaml --steps 7 --cp=4 --lr 1e-2 --no-async-cp-comm --tf32 --window -5 "
                   "--cp-layout striped:16 --set cp.strategy=ring --set=note=x=y b --cp-aggregation-buffer-size 64K"));
    assert_int_equal(n, 2);
    assert_string_equal(words[0], "a.yaml");
    assert_string_equal(words[1], "b");
    assert_int_equal(f->v.steps, 7);
    assert_int_equal(f->v.cp, 4);
    assert_int_equal(f->v.window, -5);
    assert_int_equal(f->v.buffer, 65536);
    assert_true(f->v.lr == 1e-2);
    assert_false(f->v.async);
    assert_true(f->v.tf32);
    assert_string_equal(f->v.layout, "striped:16");
    assert_string_equal(f->v.strategy, "ring");
    assert_string_equal(f->v.note, "x=y");
    assert_true(weft_opts_given(&f->o, "cp.size"));
    assert_false(weft_opts_given(&f->o, "train.clip"));
    assert_ok(flags(f, "--async-cp-comm=true --tf32 false --context-parallel 2"));
    assert_true(f->v.async);
    assert_false(f->v.tf32);
    assert_int_equal(f->v.cp, 2);
    assert_ok(args(f, 1, &n, words, "-- --steps"));
    assert_string_equal(words[0], "--steps");
}

static void flags_are_refused(void **state)
{
    fixture *f = *state;
    assert_refused(flags(f, "--cp-stratgy ring"), "unknown flag '--cp-stratgy'; did you mean '--cp-strategy'?");
    assert_refused(flags(f, "--context_parallel_size 2"), "did you mean '--context-parallel-size'?");
    assert_refused(flags(f, "--qqqqqqqqq 2"), "unknown flag '--qqqqqqqqq'; --help lists all");
    assert_refused(flags(f, "-cp 2"), "unknown flag '-cp'; did you mean '--cp'?");
    assert_refused(flags(f, "--steps"), "--steps needs a value");
    assert_refused(flags(f, "--steps --lr 1"), "--steps needs a value, not --lr");
    assert_refused(flags(f, "--steps 1.5"), "--steps: '1.5' is not a whole number");
    assert_refused(flags(f, "--steps 99999999999999999999"), "--steps: '99999999999999999999' is not a whole number");
    assert_refused(flags(f, "--steps 0"), "--steps: 0 is outside 1..1000000000");
    assert_refused(flags(f, "--steps="), "--steps: '' is not a whole number");
    assert_refused(flags(f, "--lr nan"), "--lr: 'nan' is not a number");
    assert_refused(flags(f, "--lr 1.5"), "--lr: 1.5 is outside 0..1");
    assert_refused(flags(f, "--cp-aggregation-buffer-size 1K"), "1K is below the least value 65536");
    assert_refused(flags(f, "--cp-aggregation-buffer-size -1"), "'-1' is not a size");
    assert_refused(flags(f, "--cp-strategy rng"),
                   "--cp-strategy: 'rng' is none of none|pcp|ring|ulysses|auto; did you mean 'ring'?");
    assert_refused(flags(f, "--cp-layout striped:0"), "'striped:0' is none of contiguous|zigzag|striped[:k]|balanced");
    assert_refused(flags(f, "--cp-layout striped:"), "'striped:' is none of");
    assert_refused(flags(f, "--cp-layout zigzag:2"), "'zigzag:2' is none of");
    assert_refused(flags(f, "--no-steps"), "--no-steps: --steps is not a switch");
    assert_refused(flags(f, "--no-tf32=false"), "--no-tf32 takes no value");
    assert_refused(flags(f, "--tf32=yes"), "--tf32: 'yes' is neither true nor false");
    assert_refused(flags(f, "--set train.steps"), "--set takes key=value, not 'train.steps'");
    assert_refused(flags(f, "--set steps=4"), "unknown key 'steps'; did you mean 'train.steps'?");
    assert_refused(flags(f, "extra"), "unexpected word 'extra'");
    assert_refused(flags(f, "--out a\xff" "b"), "is not UTF-8");
    assert_refused(flags(f, "--\x01\x02"), "unknown flag '--?");
    /* Nothing was stored on the way. */
    assert_int_equal(f->v.steps, 100);
    assert_string_equal(f->v.strategy, "auto");
}

static void other_commands_rows_are_refused(void **state)
{
    fixture *f = *state;
    assert_ok(weft_opts_init(&f->o, table, N, SIM, &f->v, f->arena));
    assert_refused(flags(f, "--steps 5"), "flag '--steps' belongs to another command");
    assert_refused(yaml(f, "train:\n  steps: 5\n"), "key 'train.steps' belongs to another command");
    assert_ok(flags(f, "--cp 2"));
    weft_text t = {0};
    weft_opts_yaml_text(&f->o, &t);
    assert_null(strstr(t.data, "steps"));
    weft_text_free(&t);
}

/* ---- YAML ----------------------------------------------------------------------------------------- */

static void yaml_is_taken(void **state)
{
    fixture *f = *state;
    assert_ok(yaml(f, "# a comment\ntrain: {steps: 12, tf32: true}\ncp:\n  strategy: ring # why\n  overlap:\n"
                      "    async: false\ncp.layout: 'striped:4'\nmodel:\nnote: |\n  two\n  lines\nout: \"\"\n"));
    assert_int_equal(f->v.steps, 12);
    assert_true(f->v.tf32);
    assert_false(f->v.async);
    assert_string_equal(f->v.strategy, "ring");
    assert_string_equal(f->v.layout, "striped:4");
    assert_string_equal(f->v.note, "two\nlines\n");
    assert_string_equal(f->v.out, "");
    assert_true(weft_opts_given(&f->o, "cp.overlap.async"));
}

/* The record of a run names every option; read back it must ask for no more than the user did. */
static void a_file_that_names_defaults_asks_for_nothing(void **state)
{
    fixture *f = *state;
    static const char *const keys[] = {"cp.strategy", "cp.buffer", "cp.overlap.async", "train.lr", "train.tf32",
                                       "model.window", "note", "out"};
    assert_ok(yaml(f, "cp: {strategy: auto, buffer: 4096K, overlap: {async: true}}\ntrain: {lr: 0.0003, tf32: false}\n"
                      "model: {window: -1}\nnote: none\n"));
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (weft_opts_given(&f->o, keys[i])) fail_msg("%s counts as given", keys[i]);
    assert_ok(flags(f, "--cp-strategy auto --lr 3e-4 --out x"));
    assert_int_equal(weft_opts_source(&f->o, "cp.strategy"), 2);
    assert_int_equal(weft_opts_source(&f->o, "train.lr"), 2);
    assert_int_equal(weft_opts_source(&f->o, "out"), 2);
    assert_ok(yaml(f, "cp.buffer: 1M\nnote: \"\"\n"));
    assert_int_equal(weft_opts_source(&f->o, "cp.buffer"), 1);
    assert_int_equal(weft_opts_source(&f->o, "note"), 1);
}

static void the_command_line_wins_in_any_order(void **state)
{
    fixture *f = *state;
    assert_ok(flags(f, "--steps 5"));
    assert_ok(yaml(f, "train.steps: 9\ntrain.lr: 0.5\n"));
    assert_int_equal(f->v.steps, 5);
    assert_true(f->v.lr == 0.5);
    assert_ok(flags(f, "--steps 6 --steps 8 --lr 0.25"));
    assert_int_equal(f->v.steps, 8);
    assert_true(f->v.lr == 0.25);
    /* An overruled value is checked all the same. */
    assert_refused(yaml(f, "train.steps: many\n"), "'many' is not a whole number");
}

static void yaml_is_refused(void **state)
{
    fixture *f = *state;
    static const struct { const char *text, *message; } cases[] = {
        {"train:\n  steps: 5\ncp:\n    stratgy: ring\n", ":4:5); did you mean 'cp.strategy'?"},
        {"cp:\n  strategy: rng\n", "cp.strategy: 'rng' is none of none|pcp|ring|ulysses|auto (/tmp/weft-opt-"},
        {"train:\n  steps: 0\n", "train.steps: 0 is outside 1..1000000000 (/tmp/weft-opt-"},
        {"training:\n  steps: 5\n", "unknown key 'training.steps' (/tmp/weft-opt-"},
        {"context_parallel_size: 2\n", "did you mean 'cp.size'?"},
        {"cp-strategy: ring\n", "did you mean 'cp.strategy'?"},
        {"nothing: {}\n", "unknown key 'nothing'"},
        {"cp: ring\n", "'cp' is a group of keys"},
        {"train.steps: {a: 1}\n", "train.steps cannot be a mapping"},
        {"train.steps: [1, 2]\n", "train.steps cannot be a list"},
        {"train.steps: *there\n", "train.steps cannot be an alias"},
        {"[1]: 2\n", "a key cannot be a list"},
        {"? {a: 1}\n: 2\n", "a key cannot be a mapping"},
        {"train:\n  steps: !!int 5\n", "a type tag (!) cannot be given"},
        {"train.steps: 5\ntrain.steps: 6\n", "key 'train.steps' is given twice"},
        {"train: {steps: 5}\ntrain: {lr: 0.1}\n", "key 'train' is given twice"},
        {"train: {steps: 5}\ntrain.steps: 5\n", "key 'train.steps' is given twice"},
        {"train.steps:\n", "train.steps has no value"},
        {"note: ~\n", "note has no value"},
        {"'': 3\n", "an empty key"},
        {"note: \"a\\0b\"\n", "zero character"},
        {"", "the file is empty"},
        {"# only words\n", "the file is empty"},
        {"just text\n", "must hold lines of the form key: value"},
        {"- a\n- b\n", "must hold lines of the form key: value"},
        {"note: a\n---\nnote: b\n", "a second document"},
        {"train: {steps: 5\n", "not valid YAML"},
        {"note: a\n\tout: b\n", "not valid YAML"},
        {"note: \"open\n", "not valid YAML"},
        {"note: \xff\xfe\n", ".yaml:1: not UTF-8"},
        {"note: a\nout: \x1b[0m\n", ".yaml:2: holds control"},
        {"note: a\n%YAML 1.2\n", ".yaml:2: a line cannot start with %"},
        {"a: {b: {c: {d: {e: {f: {g: {h: {i: {j: 1}}}}}}}}}\n", "nested too deeply"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_refused(yaml(f, cases[i].text), cases[i].message);
        assert_null(strchr(weft_last_error(), '\n')); /* one line */
    }
    assert_refused(yaml_bytes(f, "# two lines\nnote: a\0b", 21), ".yaml:2: holds zero bytes");
    assert_refused(weft_opts_yaml(&f->o, "/nowhere/x.yaml"), "/nowhere/x.yaml: cannot be opened");
    assert_refused(weft_opts_yaml(&f->o, "/tmp"), "/tmp: is no plain file");
}

static void long_keys_and_files_are_refused(void **state)
{
    fixture *f = *state;
    enum { BIG = (1 << 20) + 10 };
    char *big = malloc(BIG + 1);
    assert_non_null(big);
    memset(big, 'k', BIG);
    big[BIG] = 0;
    assert_refused(yaml_bytes(f, big, BIG), "larger than 1 MiB");
    memcpy(big + 400, ": 1\n", 4);
    assert_refused(yaml_bytes(f, big, 404), "unknown key 'kkkk");
    assert_true(strlen(weft_last_error()) < 300);
    memset(big, '{', 100000);
    assert_true(yaml_bytes(f, big, 100000) == WEFT_ERR_REFUSED);
    free(big);
}

/* Junk never crashes, never passes a value that was not there, and gives one printable line. */
static void junk_is_refused_or_harmless(void **state)
{
    fixture *f = *state;
    static const char alphabet[] = "cp:train.steps -{}[]\"'#&*!|>%@`,?\n\t \\x0119\xc3\xa9\xff~";
    for (int64_t round = 0; round < 400; round++) {
        char text[200];
        size_t len = (size_t)((test_uniform(11, round) + 1) * 90) + 5;
        for (size_t i = 0; i < len; i++)
            text[i] = alphabet[(size_t)((test_uniform(12, round * 200 + (int64_t)i) + 1) / 2 * (sizeof alphabet - 1))];
        if (yaml_bytes(f, text, len) < 0)
            for (const char *c = weft_last_error(); *c; c++) assert_true((unsigned char)*c >= 0x20 && *c != 0x7f);
    }
}

/* ---- written and read again ----------------------------------------------------------------------- */

static void round_trip(fixture *f, const char *note, double clip)
{
    weft_text text = {0};
    values again;
    weft_opts o;
    f->v.note = note;
    f->v.clip = clip;
    weft_opts_yaml_text(&f->o, &text);
    assert_ok(weft_opts_init(&o, table, N, TRAIN, &again, f->arena));
    FILE *file = fopen(f->file, "wb");
    fwrite(text.data, 1, text.len, file);
    fclose(file);
    assert_ok(weft_opts_yaml(&o, f->file));
    assert_string_equal(again.note, note);
    assert_true(again.clip == clip);
    assert_int_equal(again.steps, f->v.steps);
    assert_int_equal(again.buffer, f->v.buffer);
    assert_true(again.async == f->v.async);
    assert_string_equal(again.layout, f->v.layout);
    assert_null(again.out);
    weft_text_free(&text);
}

static void values_survive_yaml(void **state)
{
    fixture *f = *state;
    static const char *const notes[] = {
        "plain", "two words", "true", "null", "~", "", "-", "--- x", "...", "a: b", "a #b", "'q'", "\"dq\"",
        "back\\slash",
        "tab\there", "line\nbreak\n", " lead", "trail ", "*a", "&a", "!t", "%d", "@x", "`x", "[1]", "{a: 1}", "1e5",
        "/a/b-c.d",
        "\x01\x1b\x7f", "é√", "\xc2\x85", "\xe2\x80\xa8", "\xef\xbb\xbf", "\xf0\x9f\x98\x80", "no", "0x1F", "a,b", "|",
        ">", "?",
    };
    f->v.steps = 999999999;
    f->v.async = false;
    f->v.layout = "striped:8";
    for (size_t i = 0; i < sizeof notes / sizeof *notes; i++) round_trip(f, notes[i], 0.1);
    static const double reals[] =
        {0, 1, -1, 0.1, 1.0 / 3, 3e-4, 1e300, 5e-324, 1e-7, 123456789.123456789, 0x1.fffffffffffffp1023};
    for (size_t i = 0; i < sizeof reals / sizeof *reals; i++) round_trip(f, "x", reals[i]);
    for (int64_t i = 0; i < 200; i++) round_trip(f, "x", test_normal(5, i) * pow(10.0, (double)(i % 40) - 20));
}

static void groups_are_written_once(void **state)
{
    fixture *f = *state;
    weft_text t = {0};
    weft_opts_yaml_text(&f->o, &t);
    const char *first = strstr(t.data, "train:\n");
    assert_non_null(first);
    assert_null(strstr(first + 1, "train:\n")); /* train.* stands at two places of the table */
    assert_non_null(strstr(t.data, "\n  overlap.async: true\n"));
    assert_non_null(strstr(t.data, "  lr: 0.0003\n"));
    weft_text_free(&t);
}

/* ---- shown ---------------------------------------------------------------------------------------- */

static void help_is_aligned(void **state)
{
    fixture *f = *state;
    for (int width = 40; width <= 120; width += 20) {
        weft_text t = {0};
        weft_opts_help(&f->o, width, &t);
        assert_non_null(strstr(t.data, "  --context-parallel-size N, --cp"));
        assert_non_null(strstr(t.data, "--[no-]async-cp-comm"));
        assert_non_null(strstr(t.data, "--set note=TEXT"));
        assert_non_null(strstr(t.data, ": none | pcp |"));
        assert_non_null(strstr(t.data, "--set KEY=VALUE"));
        char *save = NULL;
        for (char *line = strtok_r(t.data, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
            if (strlen(line) > (size_t)width) fail_msg("%d columns: %s", width, line);
            assert_true(line[0] != '\0' && line[strlen(line) - 1] != ' ');
        }
        weft_text_free(&t);
    }
}

static void table_marks_what_was_given(void **state)
{
    fixture *f = *state;
    weft_text t = {0};
    assert_ok(flags(f, "--steps 7"));
    assert_int_equal(weft_opts_table(&f->o, false, &t), 0);
    assert_non_null(strstr(t.data, "* train.steps       7\n"));
    assert_non_null(strstr(t.data, "  train.lr          0.0003\n"));
    assert_non_null(strstr(t.data, "  out               -\n"));
    int rows = 0;
    for (const char *p = t.data; *p; p++) rows += *p == '\n';
    t.len = 0;
    assert_int_equal(weft_opts_table(&f->o, true, &t), rows - 1);
    assert_string_equal(t.data, "* train.steps  7\n");
    weft_text_free(&t);
}

static void suggestions_leave_no_memory_behind(void **state)
{
    fixture *f = *state;
    size_t before = weft_arena_used(f->arena);
    for (int i = 0; i < 50; i++) {
        (void)weft_opts_set(&f->o, "cp.stratgy", "x", 2);
        (void)weft_opts_set(&f->o, "cp.strategy", "rnig", 2);
    }
    assert_int_equal(weft_arena_used(f->arena), before);
}

static void a_bad_default_is_a_fault_of_the_table(void **state)
{
    fixture *f = *state;
    static const weft_opt bad[] = {{.key = "x", .type = WEFT_OPT_ENUM, .choices = "a|b", .def = "c", .commands = 1}};
    weft_opts o;
    assert_int_equal(weft_opts_init(&o, bad, 1, 1, &f->v, f->arena), WEFT_ERR_INTERNAL);
    assert_non_null(strstr(weft_last_error(), "option table, default: x: 'c' is none of a|b"));
}

#define T(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
int main(void)
{
    const struct CMUnitTest tests[] = {
        T(defaults_are_set), T(flags_are_taken), T(flags_are_refused), T(other_commands_rows_are_refused),
        T(a_file_that_names_defaults_asks_for_nothing), T(yaml_is_taken), T(the_command_line_wins_in_any_order),
        T(yaml_is_refused), T(long_keys_and_files_are_refused),
        T(junk_is_refused_or_harmless), T(values_survive_yaml), T(groups_are_written_once), T(help_is_aligned),
        T(table_marks_what_was_given), T(suggestions_leave_no_memory_behind), T(a_bad_default_is_a_fault_of_the_table),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
