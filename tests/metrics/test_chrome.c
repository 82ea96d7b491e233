/* labels: small */
/* The Chrome trace: valid JSON for any names, every event with its times, and no two events of a row at once. */
#include "harness/test.h"
#include "metrics/metrics.h"

#include <jansson.h>

static weft_event ring[64];

static weft_trace trace_of(const weft_event *e, int n)
{
    weft_trace t = {ring, 64, 0};
    for (int i = 0; i < n; i++)
        weft_trace_emit(&t, e[i].track, e[i].name, e[i].begin, e[i].end, e[i].arg[0], e[i].arg[1]);
    return t;
}

static json_t *parse(weft_text *t)
{
    json_error_t error;
    json_t *root = json_loads(t->data, 0, &error);
    if (!root) fail_msg("line %d: %s in %s", error.line, error.text, t->data);
    weft_text_free(t);
    return root;
}

static double number(const json_t *o, const char *key) { return json_number_value(json_object_get(o, key)); }

static void events_keep_their_times(void **state)
{
    (void)state;
    const weft_event e[] = {{"cp.forward.block", "compute", 2.0, 2.5, {7, 3}},
                            {"a \"quoted\\\" \n name \x01", "comm", 2.5, 2.75, {7, 4}}};
    weft_trace trace = trace_of(e, 2);
    weft_text t = {0};
    weft_chrome_open(&t);
    assert_ok(weft_chrome_rank(&t, 5, &trace, 2.0));
    weft_chrome_close(&t);
    json_t *root = parse(&t), *list = json_object_get(root, "traceEvents");
    int found = 0;
    size_t i;
    json_t *x;
    json_array_foreach(list, i, x)
    {
        if (strcmp(json_string_value(json_object_get(x, "ph")), "X")) continue;
        const weft_event *want = &e[found++];
        assert_string_equal(json_string_value(json_object_get(x, "name")), want->name);
        assert_string_equal(json_string_value(json_object_get(x, "cat")), want->track);
        assert_int_equal(number(x, "pid"), 5);
        assert_at_most(fabs(number(x, "ts") - (want->begin - 2) * 1e6), 1e-3);
        assert_at_most(fabs(number(x, "dur") - (want->end - want->begin) * 1e6), 1e-3);
        assert_int_equal(number(json_object_get(x, "args"), "step"), want->arg[1]);
    }
    assert_int_equal(found, 2);
    json_decref(root);
}

static void rows_show_one_thing_at_a_time(void **state)
{
    (void)state;
    weft_event e[40];
    for (int i = 0; i < 40; i++) {
        double begin = test_uniform(1, i) + 1, length = (test_uniform(2, i) + 1) / 8;
        e[i] = (weft_event){"cp", i % 3 ? "transfer" : "compute", begin, begin + length, {100, i}};
    }
    weft_trace trace = trace_of(e, 40);
    weft_text t = {0};
    weft_chrome_open(&t);
    assert_ok(weft_chrome_rank(&t, 0, &trace, 0));
    weft_chrome_close(&t);
    json_t *root = parse(&t), *list = json_object_get(root, "traceEvents"), *x, *y;
    size_t i, k;
    int events = 0, rows = 0;
    json_array_foreach(list, i, x)
    {
        const char *ph = json_string_value(json_object_get(x, "ph"));
        rows += !strcmp(ph, "M") && !strcmp(json_string_value(json_object_get(x, "name")), "thread_name");
        if (strcmp(ph, "X")) continue;
        events++;
        json_array_foreach(list, k, y)
        {
            if (k <= i || strcmp(json_string_value(json_object_get(y, "ph")), "X") ||
                number(x, "tid") != number(y, "tid"))
                continue;
            assert_string_equal(json_string_value(json_object_get(x, "cat")),
                                json_string_value(json_object_get(y, "cat")));
            assert_true(number(x, "ts") + number(x, "dur") <= number(y, "ts") + 1e-3 ||
                        number(y, "ts") + number(y, "dur") <= number(x, "ts") + 1e-3);
        }
    }
    assert_int_equal(events, 40);
    assert_true(rows > 2);
    json_decref(root);
}

static void a_trace_without_events(void **state)
{
    (void)state;
    weft_trace none = {0};
    weft_text t = {0};
    weft_chrome_open(&t);
    assert_ok(weft_chrome_rank(&t, 0, &none, 0));
    weft_chrome_close(&t);
    json_decref(parse(&t));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(events_keep_their_times),
        cmocka_unit_test(rows_show_one_thing_at_a_time),
        cmocka_unit_test(a_trace_without_events),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
