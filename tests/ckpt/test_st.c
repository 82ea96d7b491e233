/* safetensors: what is written is read back, in the canonical form; every malformed file is refused with
 * file, tensor and sizes (report G35), and nothing is read past the end (run under the sanitizers). */
/* labels: small */
#include "harness/test.h"
#include "harness/tempdir.h"
#include "ckpt/ckpt.h"

#include <unistd.h>

static test_dir dir;
static int setup(void **state) { (void)state; test_dir_make(&dir); return 0; }
static int teardown(void **state) { (void)state; test_dir_remove(&dir); return 0; }

/* ---- raw files ---------------------------------------------------------------------------------------- */

/* A file with this header text (unpadded) and `bytes` bytes of data counting up from 0. */
static const char *raw(const char *header, size_t bytes)
{
    const char *path = test_dir_file(&dir, "raw.safetensors");
    const size_t n = strlen(header);
    const uint64_t length = n;
    unsigned char *data = malloc(8 + n + bytes);
    assert_non_null(data);
    memcpy(data, &length, 8);
    memcpy(data + 8, header, n);
    for (size_t i = 0; i < bytes; i++) data[8 + n + i] = (unsigned char)i;
    test_write_raw(path, data, 8 + n + bytes);
    free(data);
    return path;
}

static void refused(const char *header, size_t bytes, const char *part)
{
    weft_st *st = NULL;
    const char *path = raw(header, bytes);
    assert_refused(weft_st_open(&st, path), part);
    if (!strstr(weft_last_error(), path)) fail_msg("the message does not name the file: %s", weft_last_error());
}

static void g35_truncated(void **state)
{
    (void)state;
    const char *h = "{\"w\":{\"dtype\":\"F32\",\"shape\":[4,4],\"data_offsets\":[0,64]}}";
    refused(h, 60, "tensor w ends at byte 64, the file has 60 bytes");
    refused(h, 68, "end at byte 64, but the file has 68");
    weft_st *st = NULL;
    const char *path = test_dir_file(&dir, "four.safetensors");
    test_write_raw(path, "abcd", 4);
    assert_refused(weft_st_open(&st, path), "4 bytes");
    const uint64_t huge = 1000000000000u;
    char file[16] = {0};
    memcpy(file, &huge, 8);
    test_write_raw(path, file, sizeof file);
    assert_refused(weft_st_open(&st, path), "1000000000000");
    const uint64_t long_one = 99999999;
    memcpy(file, &long_one, 8);
    test_write_raw(path, file, sizeof file);
    assert_refused(weft_st_open(&st, path), "the header needs 100000007 bytes, the file has 16");
}

static void g35_overlap_and_holes(void **state)
{
    (void)state;
    refused("{\"a\":{\"dtype\":\"U8\",\"shape\":[8],\"data_offsets\":[0,8]},"
            "\"b\":{\"dtype\":\"U8\",\"shape\":[8],\"data_offsets\":[4,12]}}", 12, "inside tensor a");
    refused("{\"a\":{\"dtype\":\"U8\",\"shape\":[8],\"data_offsets\":[0,8]},"
            "\"b\":{\"dtype\":\"U8\",\"shape\":[8],\"data_offsets\":[0,8]}}", 8, "inside tensor a");
    refused("{\"a\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]},"
            "\"b\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[5,9]}}", 9, "hole before tensor b");
    refused("{\"a\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[1,5]}}", 5, "hole before tensor a");
    refused("{}", 1, "end at byte 0");
}

static void test_headers(void **state)
{
    (void)state;
    refused("", 0, "does not begin with '{'");
    refused(" {}", 0, "does not begin with '{'");
    refused("[]", 0, "does not begin with '{'");
    refused("{", 0, "header byte");
    refused("{} x", 0, "header byte");
    refused("{\"a\xff\":{}}", 0, "unable to decode");
    refused("{\"w\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]},"
            "\"w\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}", 1, "duplicate");
    refused("{\"w\":{\"dtype\":\"U8\",\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}", 1, "duplicate");
    refused("{\"__metadata__\":{\"a\":1}}", 0, "__metadata__ \"a\" is not a text");
    refused("{\"__metadata__\":[]}", 0, "__metadata__ is not an object");
}

static void test_tensor_descriptions(void **state)
{
    (void)state;
    refused("{\"w\":1}", 0, "tensor w must have exactly");
    refused("{\"w\":{\"dtype\":\"U8\",\"shape\":[1]}}", 1, "tensor w must have exactly");
    refused("{\"w\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1],\"strides\":[1]}}", 1,
            "tensor w must have exactly");
    refused("{\"w\":{\"dtype\":\"U9\",\"shape\":[1],\"data_offsets\":[0,1]}}", 1, "dtype U9");
    refused("{\"w\":{\"dtype\":7,\"shape\":[1],\"data_offsets\":[0,1]}}", 1, "no \"dtype\" text");
    refused("{\"w\":{\"dtype\":\"U8\",\"shape\":1,\"data_offsets\":[0,1]}}", 1, "no \"shape\" list");
    refused("{\"w\":{\"dtype\":\"U8\",\"shape\":[-1],\"data_offsets\":[0,1]}}", 1, "dimension 0");
    refused("{\"w\":{\"dtype\":\"U8\",\"shape\":[1.0],\"data_offsets\":[0,1]}}", 1, "dimension 0");
    refused("{\"w\":{\"dtype\":\"U8\",\"shape\":[1,1,1,1,1,1,1],\"data_offsets\":[0,1]}}", 1, "7 dimensions");
    refused("{\"w\":{\"dtype\":\"U8\",\"shape\":[4294967296,4294967296],\"data_offsets\":[0,1]}}", 1, "w");
    refused("{\"w\":{\"dtype\":\"F64\",\"shape\":[2305843009213693952],\"data_offsets\":[0,0]}}", 0,
            "data_offsets give 0");
    refused("{\"w\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[1,0]}}", 1, "begin <= end");
    refused("{\"w\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[-1,0]}}", 1, "begin <= end");
    refused("{\"w\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0]}}", 1, "begin <= end");
    refused("{\"w\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,99999999999999999999]}}", 1, "header byte");
    refused("{\"w\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,4]}}", 4,
            "needs 2 x 4 bytes, its data_offsets give 4");
}

static void test_not_files(void **state)
{
    (void)state;
    weft_st *st = NULL;
    assert_refused(weft_st_open(&st, dir.path), "is a directory");
    assert_refused(weft_st_open(&st, test_dir_file(&dir, "absent")), "No such file");
    const char *empty = test_dir_file(&dir, "empty");
    test_write_raw(empty, "", 0);
    assert_refused(weft_st_open(&st, empty), "is empty");
    assert_null(st);
}

/* Files by others may have a header of any length; tensors must still be aligned in memory. */
static void test_unaligned(void **state)
{
    (void)state;
    char header[256];
    for (int pad = 0; pad < 8; pad++) {
        snprintf(header, sizeof header,
                 "{\"c\":{\"dtype\":\"U8\",\"shape\":[3],\"data_offsets\":[0,3]},"
                 "\"d\":{\"dtype\":\"F64\",\"shape\":[2],\"data_offsets\":[3,19]},"
                 "\"e\":{\"dtype\":\"BOOL\",\"shape\":[2],\"data_offsets\":[19,21]},"
                 "\"h\":{\"dtype\":\"BF16\",\"shape\":[2],\"data_offsets\":[21,25]}}%*s", pad, "");
        weft_st *st = NULL;
        assert_ok(weft_st_open(&st, raw(header, 25)));
        for (int i = 0; i < weft_st_count(st); i++) {
            const weft_view *v = &weft_st_at(st, i)->view;
            const unsigned char *b = v->data;
            const size_t size = weft_dtype_size(v->dtype);
            assert_true((uintptr_t)v->data % size == 0);
            const unsigned first[] = {0, 3, 19, 21}; /* data count up from 0, entries are in file order */
            for (size_t k = 0; k < (size_t)weft_view_count(v) * size; k++) assert_int_equal(b[k], first[i] + k);
        }
        weft_st_close(st);
    }
}

/* ---- round trips -------------------------------------------------------------------------------------- */

static const int64_t shapes[][4] = {{-1}, {0, -1}, {1, -1}, {257, -1}, {3, 0, 5, -1}, {7, 33, -1}, {2, 3, 5, -1}};
enum { SHAPES = sizeof shapes / sizeof *shapes };

static void test_round_trip(void **state)
{
    (void)state;
    enum { N = WEFT_DTYPE_COUNT * SHAPES };
    static char name[N][64], data[N][8 * 257];
    weft_st_entry e[N];
    int n = 0;
    for (int t = 0; t < WEFT_DTYPE_COUNT; t++)
        for (int s = 0; s < SHAPES; s++, n++) {
            weft_view v = {.data = data[n], .dtype = (weft_dtype)t, .kind = WEFT_MEM_HOST};
            while (shapes[s][v.nd] >= 0) { v.shape[v.nd] = shapes[s][v.nd]; v.nd++; }
            /* every bit pattern is allowed, NaN and infinities among them */
            for (size_t i = 0; i < sizeof data[0]; i++) data[n][i] = (char)(i * 73 + (size_t)n * 31);
            snprintf(name[n], sizeof name[n], "t\xc3\xa9st.%d.%d \"q\"\\", s, t);
            e[n] = (weft_st_entry){name[n], v};
        }
    const char *path = test_dir_file(&dir, "all.safetensors"), *meta[] = {"format", "pt", "k\xc3\xa9y", "", NULL};
    assert_ok(weft_st_write(path, e, n, meta));
    assert_int_equal(test_dir_count(&dir), 1); /* no temporary file is left */
    weft_st *st = NULL;
    assert_ok(weft_st_open(&st, path));
    assert_int_equal(weft_st_count(st), n);
    assert_string_equal(weft_st_meta(st, "format"), "pt");
    assert_string_equal(weft_st_meta(st, "k\xc3\xa9y"), "");
    for (int i = 0; i < n; i++) {
        const weft_view *v = weft_st_find(st, e[i].name);
        assert_non_null(v);
        assert_int_equal(v->dtype, e[i].view.dtype);
        assert_true(weft_same_shape(v, &e[i].view));
        assert_memory_equal(v->data, e[i].view.data, (size_t)weft_view_count(v) * weft_dtype_size(v->dtype));
    }
    weft_st_close(st);
}

static void test_canonical(void **state)
{
    (void)state;
    float f[2] = {NAN, INFINITY};
    double d[1] = {1};
    uint8_t u[3] = {1, 2, 3};
    weft_bf16 h[1] = {0x3f80};
    const weft_st_entry e[] = {
        {"u", {.data = u, .dtype = WEFT_U8, .nd = 1, .shape = {3}}},
        {"z", {.data = f, .dtype = WEFT_F32, .nd = 1, .shape = {1}}},
        {"h", {.data = h, .dtype = WEFT_BF16, .nd = 0}},
        {"a", {.data = f, .dtype = WEFT_F32, .nd = 1, .shape = {2}}},
        {"d", {.data = d, .dtype = WEFT_F64, .nd = 2, .shape = {1, 1}}},
    };
    const char *path = test_dir_file(&dir, "canonical.safetensors");
    assert_ok(weft_st_write(path, e, 5, NULL));
    size_t bytes;
    char *text = test_read_raw(path, &bytes);
    const char *expected = "{\"d\":{\"dtype\":\"F64\",\"shape\":[1,1],\"data_offsets\":[0,8]},"
                           "\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[8,16]},"
                           "\"z\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[16,20]},"
                           "\"h\":{\"dtype\":\"BF16\",\"shape\":[],\"data_offsets\":[20,22]},"
                           "\"u\":{\"dtype\":\"U8\",\"shape\":[3],\"data_offsets\":[22,25]}}";
    uint64_t length;
    memcpy(&length, text, 8);
    assert_int_equal(length % 8, 0);
    assert_int_equal(bytes, 8 + length + 25);
    assert_memory_equal(text + 8, expected, strlen(expected));
    for (size_t i = strlen(expected); i < length; i++) assert_int_equal(text[8 + i], ' ');
    free(text);
}

static void test_write_refusals(void **state)
{
    (void)state;
    float x[4] = {0};
    const weft_view v = {.data = x, .dtype = WEFT_F32, .nd = 1, .shape = {4}};
    const char *path = test_dir_file(&dir, "bad.safetensors");
    const weft_st_entry twice[] = {{"w", v}, {"w", v}}, reserved[] = {{"__metadata__", v}}, latin[] = {{"\xe9", v}};
    weft_st_entry device[] = {{"w", v}}, none[] = {{"w", v}};
    device[0].view.kind = WEFT_MEM_DEVICE;
    none[0].view.data = NULL;
    const char *odd[] = {"key", NULL};
    assert_refused(weft_st_write(path, twice, 2, NULL), "used twice");
    assert_refused(weft_st_write(path, reserved, 1, NULL), "reserved");
    assert_refused(weft_st_write(path, latin, 1, NULL), "UTF-8");
    assert_refused(weft_st_write(path, device, 1, NULL), "device memory");
    assert_refused(weft_st_write(path, none, 1, NULL), "no data");
    assert_refused(weft_st_write(path, none, 0, odd), "metadata \"key\" has no value");
    assert_int_equal(test_dir_count(&dir), 0);
    assert_int_equal(weft_st_write(test_dir_file(&dir, "no/such/folder"), twice, 1, NULL), WEFT_ERR_IO);
    assert_ok(weft_st_write(path, NULL, 0, NULL));
    weft_st *st = NULL;
    assert_ok(weft_st_open(&st, path));
    assert_int_equal(weft_st_count(st), 0);
    weft_st_close(st);
}

/* ---- damage ------------------------------------------------------------------------------------------- */

/* Reads every byte that the views promise; returns a sum so that nothing is optimised away. */
static unsigned touch(const weft_st *st)
{
    unsigned sum = 0;
    for (int i = 0; i < weft_st_count(st); i++) {
        const weft_view *v = &weft_st_at(st, i)->view;
        const unsigned char *b = v->data;
        for (size_t k = 0; k < (size_t)weft_view_count(v) * weft_dtype_size(v->dtype); k++) sum += b[k];
    }
    return sum;
}

/* A damaged file is refused, or it is still a valid file: then its views cover its data exactly. */
static int opens_or_refused(const char *path, size_t data_bytes)
{
    weft_st *st = NULL;
    weft_status s = weft_st_open(&st, path);
    if (s == WEFT_ERR_REFUSED) return 0;
    assert_int_equal(s, WEFT_OK);
    size_t covered = 0;
    for (int i = 0; i < weft_st_count(st); i++) {
        const weft_view *v = &weft_st_at(st, i)->view;
        covered += (size_t)weft_view_count(v) * weft_dtype_size(v->dtype);
    }
    assert_true(touch(st) < UINT32_MAX);
    if (data_bytes != SIZE_MAX) assert_int_equal(covered, data_bytes);
    weft_st_close(st);
    return 1;
}

static void test_mutations(void **state)
{
    (void)state;
    float x[6] = {1, 2, 3, 4, 5, 6};
    int64_t y[2] = {7, 8};
    const weft_st_entry e[] = {{"w", {.data = x, .dtype = WEFT_F32, .nd = 2, .shape = {2, 3}}},
                               {"ids", {.data = y, .dtype = WEFT_I64, .nd = 1, .shape = {2}}}};
    const char *path = test_dir_file(&dir, "good.safetensors"), *meta[] = {"format", "pt", NULL};
    assert_ok(weft_st_write(path, e, 2, meta));
    size_t bytes;
    char *good = test_read_raw(path, &bytes), *bad = malloc(bytes + 1);
    const char *target = test_dir_file(&dir, "bad.safetensors");
    uint64_t length;
    memcpy(&length, good, 8);
    for (size_t cut = 0; cut < bytes; cut++) { /* every truncation is refused */
        test_write_raw(target, good, cut);
        assert_int_equal(opens_or_refused(target, SIZE_MAX), 0);
    }
    memcpy(bad, good, bytes);
    bad[bytes] = 0;
    test_write_raw(target, bad, bytes + 1);
    assert_int_equal(opens_or_refused(target, SIZE_MAX), 0);
    static const unsigned char xors[] = {0x01, 0x02, 0x04, 0x10, 0x20, 0x40, 0x80, 0xff};
    int valid = 0;
    for (size_t at = 0; at < 8 + length; at++)
        for (size_t k = 0; k < sizeof xors; k++) {
            memcpy(bad, good, bytes);
            bad[at] = (char)((unsigned char)bad[at] ^ xors[k]);
            test_write_raw(target, bad, bytes);
            valid += opens_or_refused(target, at < 8 ? SIZE_MAX : bytes - 8 - length);
        }
    /* Flips inside a name or a metadata text leave a valid file; most others must not. */
    assert_true(valid > 0 && valid < (int)(8 + length) * 3);
    free(good);
    free(bad);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(g35_truncated, setup, teardown),
        cmocka_unit_test_setup_teardown(g35_overlap_and_holes, setup, teardown),
        cmocka_unit_test_setup_teardown(test_headers, setup, teardown),
        cmocka_unit_test_setup_teardown(test_tensor_descriptions, setup, teardown),
        cmocka_unit_test_setup_teardown(test_not_files, setup, teardown),
        cmocka_unit_test_setup_teardown(test_unaligned, setup, teardown),
        cmocka_unit_test_setup_teardown(test_round_trip, setup, teardown),
        cmocka_unit_test_setup_teardown(test_canonical, setup, teardown),
        cmocka_unit_test_setup_teardown(test_write_refusals, setup, teardown),
        cmocka_unit_test_setup_teardown(test_mutations, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
