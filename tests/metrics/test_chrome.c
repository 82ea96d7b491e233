/* labels: small */
/* The Chrome trace: Perfetto's rules hold for whatever is recorded (harness/chrome.h); arrows join the ends of messages
 * and of nothing else; what is lost is told. With a file as its argument the program checks that file. */
#include "harness/test.h"

#include "harness/chrome.h"
#include "metrics/metrics.h"

#include <stdio.h>
#include <stdlib.h>

enum { RANKS = 3, ROOM = 512 };

static weft_event ring[RANKS][ROOM];
static weft_trace_names names[RANKS];
static weft_trace trace[RANKS];

static void begin_traces(int64_t capacity)
{
    for (int r = 0; r < RANKS; r++) {
        names[r] = (weft_trace_names){.n = 1};
        trace[r] = (weft_trace){ring[r], &names[r], capacity, 0};
    }
}

static void work(int rank, const char *name, double begin, double end)
{
    weft_trace_emit(&trace[rank], WEFT_TRACK_COMPUTE, name, begin, end, 7, 3);
}

static void end_of_message(int rank, weft_track track, int peer, double begin, double end, int64_t bytes, int tag)
{
    weft_trace_add(&trace[rank], track, "cp", NULL,
                   (weft_event){.begin = begin, .end = end, .bytes = bytes, .layer = -1, .step = -1, .peer = peer,
                                .tag = tag, .group = 1});
}

static void message(int from, int to, double begin, double end, int64_t bytes, int tag)
{
    end_of_message(from, WEFT_TRACK_OUT, to, begin, end, bytes, tag);
    end_of_message(to, WEFT_TRACK_IN, from, begin, end, bytes, tag);
}

static weft_text written(int n, double origin, weft_chrome_told *told)
{
    weft_text t = {0};
    weft_chrome_rank r[RANKS];
    for (int i = 0; i < n; i++) r[i] = (weft_chrome_rank){i, origin, &trace[i]};
    assert_ok(weft_chrome_write(&t, r, n, "a \"note\"", told));
    return t;
}

static chrome_counts holds(int n, weft_chrome_told *told)
{
    chrome_counts c;
    char why[200] = "";
    weft_text t = written(n, 0, told);
    if (!chrome_holds(t.data, t.len, &c, why, sizeof why)) fail_msg("%s", why);
    weft_text_free(&t);
    return c;
}

static void events_keep_their_times(void **state)
{
    (void)state;
    static const char name[] = "a \"quoted\\\" \n name \x01";
    begin_traces(ROOM);
    work(0, name, 2.0, 2.5);
    weft_chrome_told told;
    weft_text t = written(1, 1.5, &told);
    json_t *root = json_loadb(t.data, t.len, 0, NULL), *list = json_object_get(root, "traceEvents"), *x;
    size_t i;
    int found = 0;
    json_array_foreach(list, i, x)
    {
        if (strcmp(json_string_value(json_object_get(x, "ph")), "X")) continue;
        found++;
        assert_string_equal(json_string_value(json_object_get(x, "name")), name);
        assert_true(json_number_value(json_object_get(x, "ts")) == 5e5);
        assert_true(json_number_value(json_object_get(x, "dur")) == 5e5);
        assert_int_equal(json_integer_value(json_object_get(json_object_get(x, "args"), "layer")), 7);
        assert_int_equal(json_integer_value(json_object_get(json_object_get(x, "args"), "step")), 3);
    }
    assert_int_equal(found, 1);
    assert_string_equal(json_string_value(json_object_get(json_object_get(root, "otherData"), "note")), "a \"note\"");
    json_decref(root);
    weft_text_free(&t);
}

/* Whatever overlaps: nested work stays on a row, messages never share one. */
static void rows_show_one_thing_at_a_time(void **state)
{
    (void)state;
    weft_chrome_told told;
    for (uint64_t seed = 0; seed < 20; seed++) {
        begin_traces(ROOM);
        for (int i = 0; i < 60; i++) {
            double begin = test_uniform(seed, 2 * i) + 1, length = (test_uniform(seed, 2 * i + 1) + 1) / 8;
            if (i % 3 == 0) work(i % RANKS, "work", begin, begin + length);
            else message(i % RANKS, (i + 1) % RANKS, begin, begin + length, i, i);
        }
        chrome_counts c = holds(RANKS, &told);
        assert_int_equal(c.slices, 20 + 2 * 40);
        assert_int_equal(c.arrows, 40);
        assert_int_equal(told.lost + told.unpaired, 0);
    }
    begin_traces(ROOM);
    work(0, "layer", 1, 2);
    work(0, "block", 1, 1.5);
    work(0, "block", 1.5, 2);
    assert_int_equal(holds(1, &told).rows, 1);
    message(0, 1, 1, 2, 8, 0);
    message(0, 1, 1, 1.5, 8, 1);
    assert_int_equal(holds(2, &told).rows, 1 + 2 + 2);
}

/* The ring has lost the first sends: the last are joined, with those of their size and order. */
static void the_last_messages_are_joined(void **state)
{
    (void)state;
    weft_chrome_told told;
    begin_traces(ROOM);
    trace[0].capacity = 4;
    for (int i = 0; i < 10; i++) message(0, 1, i, i + 0.5, 100 + i, 5);
    chrome_counts c = holds(2, &told);
    assert_int_equal(c.arrows, 4);
    assert_int_equal(told.lost, 6);
    assert_int_equal(told.unpaired, 6);
    assert_int_equal(c.notes, 1);
}

/* Clocks that differ, sizes that differ, ranks that were not recorded: no arrow. */
static void no_arrow_is_drawn_that_lies(void **state)
{
    (void)state;
    weft_chrome_told told;
    begin_traces(ROOM);
    end_of_message(0, WEFT_TRACK_OUT, 1, 3, 4, 8, 0);
    end_of_message(1, WEFT_TRACK_IN, 0, 1, 2, 8, 0);
    end_of_message(0, WEFT_TRACK_OUT, 1, 5, 6, 8, 1);
    end_of_message(1, WEFT_TRACK_IN, 0, 5, 6, 9, 1);
    message(0, 2, 7, 8, 8, 0);
    assert_int_equal(holds(2, &told).arrows, 0);
    assert_int_equal(told.unpaired, 4);
    assert_int_equal(holds(3, &told).arrows, 1);
}

/* The checker itself finds what it is for. */
static void the_rules_can_be_broken(void **state)
{
    (void)state;
    static const char *const bad[] = {
        "{\"traceEvents\":[{\"ph\":\"X\",\"pid\":0,\"tid\":1,\"ts\":1,\"dur\":2,\"name\":\"a\",\"cat\":\"compute\"}]}",
        "{\"traceEvents\":[{\"ph\":\"s\",\"pid\":0,\"tid\":1,\"ts\":1,\"id\":4}]}",
        "{\"traceEvents\":[{\"ph\":\"i\",\"pid\":0,\"tid\":1,\"ts\":1.0004}]}",
        "[]",
        "{\"traceEvents\":[{\"ph\":\"M\",\"pid\":0,\"tid\":1,\"name\":\"process_name\",\"args\":{\"name\":\"a\"}},"
        "{\"ph\":\"M\",\"pid\":0,\"tid\":1,\"name\":\"process_sort_index\",\"args\":{\"sort_index\":0}},"
        "{\"ph\":\"M\",\"pid\":0,\"tid\":1,\"name\":\"thread_name\",\"args\":{\"name\":\"a\"}},"
        "{\"ph\":\"M\",\"pid\":0,\"tid\":1,\"name\":\"thread_sort_index\",\"args\":{\"sort_index\":0}},"
        "{\"ph\":\"X\",\"pid\":0,\"tid\":1,\"ts\":1,\"dur\":2,\"name\":\"a\",\"cat\":\"compute\"},"
        "{\"ph\":\"X\",\"pid\":0,\"tid\":1,\"ts\":2,\"dur\":2,\"name\":\"a\",\"cat\":\"compute\"}]}",
    };
    chrome_counts c;
    char why[200];
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_false(chrome_holds(bad[i], strlen(bad[i]), &c, why, sizeof why));
}

static void a_trace_without_events(void **state)
{
    (void)state;
    weft_chrome_told told;
    begin_traces(0);
    assert_int_equal(holds(RANKS, &told).slices, 0);
    assert_int_equal(holds(0, &told).slices, 0);
}

static int check_file(const char *path)
{
    weft_map map;
    chrome_counts c;
    char why[200] = "";
    if (weft_map_open(&map, path) < 0) {
        fprintf(stderr, "%s\n", weft_last_error());
        return 1;
    }
    const bool good = chrome_holds((const char *)map.data, map.bytes, &c, why, sizeof why);
    if (good) printf("%d slices, %d arrows, %d rows of %d processes\n", c.slices, c.arrows, c.rows, c.processes);
    else fprintf(stderr, "%s: %s\n", path, why);
    weft_map_close(&map);
    return !good;
}

int main(int argc, char **argv)
{
    if (argc > 1) return check_file(argv[1]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(events_keep_their_times),
        cmocka_unit_test(rows_show_one_thing_at_a_time),
        cmocka_unit_test(the_last_messages_are_joined),
        cmocka_unit_test(no_arrow_is_drawn_that_lies),
        cmocka_unit_test(the_rules_can_be_broken),
        cmocka_unit_test(a_trace_without_events),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
