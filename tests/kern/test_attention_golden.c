/* test_attention_golden.c — every attention kernel against tests/golden/attention, computed in float64 by an
 * independent implementation, within the limits that each file states. The files are read by the room `ckpt`.
 * labels: small */
/* timeout: 300 */
#include "attention_kernels.h"
#include "ckpt/ckpt.h"

#include <dirent.h>

static double meta(const weft_st *st, const char *key, double missing)
{
    const char *s = weft_st_meta(st, key);
    return s ? atof(s) : missing;
}

static double *doubles(const weft_st *st, const char *name)
{
    const weft_view *v = weft_st_find(st, name);
    if (!v) return NULL;
    int64_t n = weft_view_count(v);
    double *x = malloc((size_t)(n + 1) * sizeof *x);
    assert_non_null(x);
    weft_convert(x, WEFT_F64, v->data, v->dtype, n);
    return x;
}

/* A pair per row of the batch and document; query i stands at position T - Tq + i of its row. */
static void add_pairs(attention_case *c, const weft_st *st, int64_t B, int64_t Tq, int64_t T)
{
    const weft_view *cu = weft_st_find(st, "cu_seqlens");
    int64_t docs = cu ? weft_view_count(cu) - 1 : 1;
    for (int64_t b = 0; b < B; b++)
        for (int64_t i = 0; i < docs; i++) {
            int64_t from = cu ? (int64_t)weft_load(cu->data, cu->dtype, i) : 0;
            int64_t to = cu ? (int64_t)weft_load(cu->data, cu->dtype, i + 1) : T;
            int64_t q0 = weft_max_i64(from, T - Tq), q1 = weft_max_i64(to, q0);
            case_add_pair(c, b * Tq + q0 - (T - Tq), q1 - q0, q0 - from, 1, b * T + from, to - from, 0, 1);
        }
    case_end_call(c);
}

static void load(attention_case *c, const weft_st *st)
{
    const weft_view *q, *k, *v;
    assert_ok(weft_st_require(st, "q", &q));
    assert_ok(weft_st_require(st, "k", &k));
    assert_ok(weft_st_require(st, "v", &v));
    case_init(c, (int)q->shape[2], (int)k->shape[2], (int)q->shape[3], (int)v->shape[3]);
    c->d.scale = meta(st, "scale", c->d.scale);
    c->d.softcap = meta(st, "softcap", 0);
    c->d.mask = (weft_mask){meta(st, "causal", 0) != 0, (int64_t)meta(st, "window_left", -1),
                            (int64_t)meta(st, "window_right", -1), (int64_t)meta(st, "prefix", 0)};
    add_pairs(c, st, q->shape[0], q->shape[1], k->shape[1]);
    c->q = doubles(st, "q"), c->k = doubles(st, "k"), c->v = doubles(st, "v"), c->dout = doubles(st, "do");
    c->sinks = doubles(st, "sinks"), c->alibi = doubles(st, "alibi");
    c->want = (attention_result){doubles(st, "o"),  doubles(st, "lse"), doubles(st, "dq"),
                                 doubles(st, "dk"), doubles(st, "dv"),  doubles(st, "dsinks")};
}

static void check(const weft_st *st, const char *name, const char *tensor, const char *limit_of,
                  const char *precision, const double *x, const double *want, int64_t n, double floor)
{
    char key[64];
    snprintf(key, sizeof key, "tol_%s_%s", precision, limit_of);
    double limit = meta(st, key, 2e-6), e = weft_rel_l2(x, WEFT_F64, want, WEFT_F64, n, floor);
    if (!(e <= limit)) fail_msg("%s, %s: error of %s is %.3e > %.3e", weft_st_path(st), name, tensor, e, limit);
}

static void check_kernel(const attention_case *c, const weft_st *st, const kernel *k)
{
    weft_attn_ops ops = ops_of(k);
    const weft_attn_desc *d = &c->d;
    const char *p = bits16(k) ? "bf16" : "fp32", *name = k->name;
    int64_t on = c->q_rows * d->H * d->Dv;
    double floor = weft_norm2(c->dout, WEFT_F64, on) / 100;
    attention_result r = result_new(c);
    case_run(c, &ops, k->prec, 1, &r);
    check(st, name, "o", "o", p, r.o, c->want.o, on, floor);
    check(st, name, "dq", "dq", p, r.dq, c->want.dq, c->q_rows * d->H * d->D, floor);
    check(st, name, "dk", "dk", p, r.dk, c->want.dk, c->k_rows * d->Hkv * d->D, floor);
    check(st, name, "dv", "dv", p, r.dv, c->want.dv, c->k_rows * d->Hkv * d->Dv, floor);
    if (c->want.dsinks)
        check(st, name, "dsinks", bits16(k) ? "dq" : "dsinks", p, r.dsinks, c->want.dsinks, d->H, floor);
    double e = weft_max_scaled(r.lse, WEFT_F64, c->want.lse, WEFT_F64, c->q_rows * d->H);
    double limit = bits16(k) ? 1e-3 : 1e-5;
    if (!(e <= limit)) fail_msg("%s, %s: error of lse is %.3e > %.3e", weft_st_path(st), name, e, limit);
    result_free(&r);
}

static void golden_files(void **state)
{
    (void)state;
    const char *root = getenv("WEFT_GOLDEN");
    char path[1024];
    int files = 0;
    if (!root) skip();
    snprintf(path, sizeof path, "%s/attention", root);
    DIR *dir = opendir(path);
    assert_non_null(dir);
    for (struct dirent *e; (e = readdir(dir));) {
        weft_st *st;
        attention_case c;
        if (!strstr(e->d_name, ".safetensors")) continue;
        snprintf(path, sizeof path, "%s/attention/%s", root, e->d_name);
        assert_ok(weft_st_open(&st, path));
        load(&c, st);
        FOR_KERNELS(k)
            if ((files + (int)k->isa + (int)k->prec) % test_every(3) == 0) check_kernel(&c, st, k);
        case_clear(&c);
        weft_st_close(st);
        files++;
    }
    closedir(dir);
    assert_true(files > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(golden_files)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
