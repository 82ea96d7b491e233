/* labels: small */
/* TensorBoard's files: bytes as its own writer makes them, checksums, and every record read back strictly. With files
 * as arguments the program prints what they hold: "STEP TAG VALUE", "STEP START". */
#include "harness/test.h"

#include "harness/tempdir.h"
#include "metrics/metrics.h"

#include <dirent.h>

/* Bit by bit, as the polynomial says. */
static uint32_t crc_of(const unsigned char *p, size_t n)
{
    uint32_t crc = 0xffffffffu;
    for (size_t i = 0; i < n; i++) {
        crc ^= p[i];
        for (int k = 0; k < 8; k++) crc = crc & 1 ? crc >> 1 ^ 0x82f63b78u : crc >> 1;
    }
    return ~crc;
}

static void checksums(void **state)
{
    (void)state;
    unsigned char x[300];
    assert_int_equal(weft_crc32c("123456789", 9), 0xe3069283u);
    assert_int_equal(weft_crc32c("", 0), 0);
    for (size_t i = 0; i < sizeof x; i++) x[i] = (unsigned char)(i * 7 + 3);
    for (size_t n = 0; n < sizeof x; n += 13) assert_int_equal(weft_crc32c(x, n), crc_of(x, n));
}

/* ---- a strict reader --------------------------------------------------------------------------------------- */

typedef struct view { const unsigned char *at, *end; } view;

static uint64_t little(view *v, int n)
{
    uint64_t x = 0;
    assert_true(v->end - v->at >= n);
    for (int i = 0; i < n; i++) x |= (uint64_t)*v->at++ << 8 * i;
    return x;
}

static uint64_t varint(view *v)
{
    uint64_t x = 0;
    for (int shift = 0;; shift += 7) {
        assert_true(v->at < v->end && shift < 64);
        x |= (uint64_t)(*v->at & 0x7f) << shift;
        if (!(*v->at++ & 0x80)) return x;
    }
}

static view part(view *v)
{
    uint64_t n = varint(v);
    assert_true((uint64_t)(v->end - v->at) >= n);
    view p = {v->at, v->at + n};
    v->at += n;
    return p;
}

static void key(view *v, uint64_t want) { assert_int_equal(varint(v), want); }

static double real(uint64_t u)
{
    double x;
    memcpy(&x, &u, sizeof x);
    return x;
}

static uint32_t unmasked(uint64_t m)
{
    uint32_t r = (uint32_t)m - 0xa282ead8u;
    return r >> 17 | r << 15;
}

static bool next_record(view *file, view *event)
{
    if (file->at == file->end) return false;
    const unsigned char *length = file->at;
    const uint64_t n = little(file, 8);
    assert_int_equal(unmasked(little(file, 4)), crc_of(length, 8));
    assert_true((uint64_t)(file->end - file->at) >= n + 4);
    *event = (view){file->at, file->at + n};
    file->at += n;
    assert_int_equal(unmasked(little(file, 4)), crc_of(event->at, n));
    return true;
}

enum { SEEN = 64, PATH_BYTES = 1024 };

typedef struct seen { /* the last value of each event */
    int versions, starts, steps;
    int64_t step[SEEN], start;
    float value[SEEN];
    char tag[SEEN][64];
    bool print;
} seen;

static void read_summary(view s, int64_t step, seen *x)
{
    const int i = x->steps++ % SEEN;
    x->step[i] = step;
    while (s.at < s.end) {
        key(&s, 1 << 3 | 2);
        view v = part(&s);
        key(&v, 1 << 3 | 2);
        view tag = part(&v);
        key(&v, 2 << 3 | 5);
        uint32_t u = (uint32_t)little(&v, 4);
        assert_ptr_equal(v.at, v.end);
        memcpy(&x->value[i], &u, 4);
        snprintf(x->tag[i], sizeof x->tag[i], "%.*s", (int)(tag.end - tag.at), (const char *)tag.at);
        if (x->print) printf("%lld %s %.9g\n", (long long)step, x->tag[i], (double)x->value[i]);
    }
}

static void read_event(view e, seen *x)
{
    key(&e, 1 << 3 | 1);
    assert_true(real(little(&e, 8)) >= 1.7e9);
    const uint64_t k = varint(&e);
    if (k == (3 << 3 | 2)) {
        view text = part(&e);
        assert_true(text.end - text.at == 13 && !memcmp(text.at, "brain.Event:2", 13));
        x->versions++;
    } else {
        assert_int_equal(k, 2 << 3 | 0);
        const int64_t step = (int64_t)varint(&e);
        const uint64_t what = varint(&e);
        view inner = part(&e);
        if (what == (7 << 3 | 2)) {
            assert_true(inner.end - inner.at == 2 && inner.at[0] == 8 && inner.at[1] == 1);
            x->starts++;
            x->start = step;
            if (x->print) printf("%lld START\n", (long long)step);
        } else {
            assert_int_equal(what, 5 << 3 | 2);
            read_summary(inner, step, x);
        }
    }
    assert_ptr_equal(e.at, e.end);
}

/* The names of a folder's files in the order in which they are read. */
static int names_of(const char *dir, char name[4][256])
{
    struct dirent **list;
    int n = scandir(dir, &list, NULL, alphasort), kept = 0;
    for (int i = 0; i < n; i++) {
        if (weft_tensorboard_is_name(list[i]->d_name)) snprintf(name[kept++], 256, "%s", list[i]->d_name);
        free(list[i]);
    }
    free(list);
    return kept;
}

static seen read_path(const char *path, bool print)
{
    size_t n;
    seen x = {.print = print};
    char *data = test_read_raw(path, &n);
    view file = {(unsigned char *)data, (unsigned char *)data + n}, event;
    for (int i = 0; next_record(&file, &event); i++) {
        read_event(event, &x);
        assert_int_equal(x.versions, 1); /* first of all */
    }
    free(data);
    return x;
}

static seen read_file(const char *dir, const char *name)
{
    char path[PATH_BYTES];
    assert_true((size_t)snprintf(path, sizeof path, "%s/%s", dir, name) < sizeof path);
    return read_path(path, false);
}

/* ---- files ------------------------------------------------------------------------------------------------- */

/* Bytes that TensorBoard's own writer gives for the same events. */
static void bytes_are_those_of_its_writer(void **state)
{
    (void)state;
    static const unsigned char want[] = {
        0x18, 0, 0, 0, 0, 0, 0, 0, 0xa3, 0x7f, 0x4b, 0x22, 0x09, 0, 0, 0, 0x40, 0xfc, 0x54, 0xd9, 0x41, 0x1a, 0x0d,
        'b', 'r', 'a', 'i', 'n', '.', 'E', 'v', 'e', 'n', 't', ':', '2', 0xec, 0xed, 0x8f, 0x9d,
        0x20, 0, 0, 0, 0, 0, 0, 0, 0x29, 0xed, 0xa9, 0x50, 0x09, 0, 0, 0, 0x40, 0xfc, 0x54, 0xd9, 0x41, 0x10, 0x07,
        0x2a, 0x13, 0x0a, 0x11, 0x0a, 0x0a, 't', 'r', 'a', 'i', 'n', '/', 'l', 'o', 's', 's', 0x15, 0, 0, 0xc0, 0x3f,
        0xb6, 0x11, 0xf8, 0x09};
    test_dir d;
    weft_tensorboard *t;
    char name[4][256], path[1024];
    size_t n;
    test_dir_make(&d);
    assert_ok(weft_tensorboard_open(&t, d.path, 1.7e9, 0));
    assert_ok(weft_tensorboard_write(t, 1.7e9, 7, &(weft_tensorboard_value){"train/loss", 1.5}, 1));
    weft_tensorboard_close(t);
    assert_int_equal(names_of(d.path, name), 1);
    snprintf(path, sizeof path, "%s/%s", d.path, name[0]);
    char *data = test_read_raw(path, &n);
    assert_int_equal(n, sizeof want);
    assert_memory_equal(data, want, n);
    free(data);
    test_dir_remove(&d);
}

static void a_run_that_goes_on_gets_a_file_of_its_own(void **state)
{
    (void)state;
    test_dir d;
    char name[4][256];
    const char *dir;
    weft_tensorboard *t;
    test_dir_make(&d);
    dir = test_dir_file(&d, "tb/rank-00000"); /* folders are made */
    for (int run = 0; run < 3; run++) {
        assert_ok(weft_tensorboard_open(&t, dir, 1.7e9, 10 * run)); /* all in one second */
        for (int64_t step = 10 * run + 1; step < 10 * run + 15; step++)
            assert_ok(weft_tensorboard_write(t, 1.7e9 + 1, step << 33,
                                             &(weft_tensorboard_value){"train/loss", (double)step}, 1));
        weft_tensorboard_close(t);
    }
    assert_int_equal(names_of(dir, name), 3);
    for (int run = 0; run < 3; run++) {
        seen x = read_file(dir, name[run]);
        assert_int_equal(x.steps, 14);
        assert_int_equal(x.starts, run > 0);
        if (run > 0) assert_int_equal(x.start, 10 * run + 1);
        for (int i = 0; i < 14; i++) {
            assert_int_equal(x.step[i], (int64_t)(10 * run + 1 + i) << 33);
            assert_true(x.value[i] == (float)(10 * run + 1 + i));
            assert_string_equal(x.tag[i], "train/loss");
        }
    }
    assert_ok(weft_tensorboard_open(&t, dir, 1.7e9, 0)); /* of a run that was killed before its first checkpoint */
    weft_tensorboard_close(t);
    assert_int_equal(names_of(dir, name), 4);
    assert_int_equal(read_file(dir, name[3]).start, 1);
    test_dir_remove(&d);
}

static void numbers_that_are_none_stay_so(void **state)
{
    (void)state;
    test_dir d;
    char name[4][256];
    weft_tensorboard *t;
    test_dir_make(&d);
    assert_ok(weft_tensorboard_open(&t, d.path, 1.7e9, 0));
    assert_ok(weft_tensorboard_write(t, 1.7e9, 1, &(weft_tensorboard_value){"train/loss", NAN}, 1));
    assert_ok(weft_tensorboard_write(t, 1.7e9, 2, NULL, 0));
    assert_int_equal(weft_tensorboard_write(t, 1.7e9, 3, NULL, 33), WEFT_ERR_INTERNAL);
    weft_tensorboard_close(t);
    names_of(d.path, name);
    seen x = read_file(d.path, name[0]);
    assert_true(isnan(x.value[0]));
    assert_int_equal(x.steps, 2);
    assert_true(weft_tensorboard_open(&t, "/dev/null/tb", 1.7e9, 0) < 0);
    test_dir_remove(&d);
}

static char **files;

static void print_files(void **state)
{
    (void)state;
    for (char **f = files; *f; f++) read_path(*f, true);
}

int main(int argc, char **argv)
{
    if (argc > 1) {
        const struct CMUnitTest print[] = {cmocka_unit_test(print_files)};
        files = argv + 1;
        return cmocka_run_group_tests(print, NULL, NULL);
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(checksums),
        cmocka_unit_test(bytes_are_those_of_its_writer),
        cmocka_unit_test(a_run_that_goes_on_gets_a_file_of_its_own),
        cmocka_unit_test(numbers_that_are_none_stay_so),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
