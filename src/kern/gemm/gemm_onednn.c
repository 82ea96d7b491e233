/* gemm_onednn.c — products by oneDNN: of bf16 by its matmul, for its C interfaces 2.x and 3.x (which differ in how a
 * description is made), of fp32 by its sgemm.
 *
 * A matmul is compiled for one shape, so all that it depends on is its key; the pointers are set at each call.
 * Scratchpads are ours (user mode): oneDNN's own would escape the account. Its sgemm needs no description and packs
 * both operands whatever their strides. The matmul that oneDNN 2.6 would choose for fp32 reads them in place, which
 * halves its speed where rows lie a multiple of 4 KiB apart (README.md has the figures). */
#include "kern/gemm/gemm_impl.h"

#include <stdlib.h>
#include <string.h>

#include <oneapi/dnnl/dnnl.h>
#ifdef _OPENMP
#include <omp.h>
#endif

typedef struct gemm_key { /* compared as bytes: no padding, see key_of */
    int64_t M, N, K, lda, ldb, ldc;
    int32_t ab, c, trans, beta, threads, bias;
} gemm_key;

enum { ARG_A, ARG_B, ARG_C, ARG_PAD, ARG_BIAS, ARGS };

typedef struct gemm_entry {
    gemm_key key;
    dnnl_primitive_t primitive; /* NULL: the slot is free */
    dnnl_memory_t memory[ARGS]; /* ARG_PAD, ARG_BIAS: NULL when there is none */
    size_t pad_bytes;
} gemm_entry;

struct weft_gemm_dnn {
    dnnl_engine_t engine;
    dnnl_stream_t stream;
    bool native_bf16; /* AMX: below it fp32 products are faster */
    gemm_entry *table; /* open addressing, at most half full */
    int64_t capacity, count;
};

static weft_status check_dnnl(dnnl_status_t st, const char *call)
{
    if (st == dnnl_success) return WEFT_OK;
    return weft_fail(st == dnnl_out_of_memory ? WEFT_ERR_MEMORY : WEFT_ERR_LIBRARY, "oneDNN: %s gave status %d", call,
                     (int)st);
}
#define TRY_DNNL(call) WEFT_TRY(check_dnnl((call), #call))

/* ---- descriptions: the part that differs between oneDNN 2 and 3 ----------------------------------- */

#if DNNL_VERSION_MAJOR >= 3
#define MD_REF(md) (md)
#define MD_FREE(md) dnnl_memory_desc_destroy(md)
#else
#define MD_REF(md) (&(md))
#define MD_FREE(md) ((void)(md))
#endif

typedef struct matmul_md { dnnl_memory_desc_t a, b, c, bias; } matmul_md; /* bias: of the key's, if it has one */

static dnnl_data_type_t dnnl_type(int32_t t) { return t == WEFT_BF16 ? dnnl_bf16 : dnnl_f32; }

static dnnl_status_t make_md(dnnl_memory_desc_t *md, int64_t rows, int64_t cols, int32_t type, int64_t ld, bool trans)
{
    const dnnl_dims_t dims = {rows, cols}, strides = {trans ? 1 : ld, trans ? ld : 1};
#if DNNL_VERSION_MAJOR >= 3
    return dnnl_memory_desc_create_with_strides(md, 2, dims, dnnl_type(type), strides);
#else
    return dnnl_memory_desc_init_by_strides(md, 2, dims, dnnl_type(type), strides);
#endif
}

static dnnl_status_t make_attr(dnnl_primitive_attr_t attr, const gemm_key *k)
{
    dnnl_status_t st = dnnl_primitive_attr_set_scratchpad_mode(attr, dnnl_scratchpad_mode_user);
    if (st != dnnl_success || !k->beta) return st;
    dnnl_post_ops_t ops;
    st = dnnl_post_ops_create(&ops);
    if (st != dnnl_success) return st;
#if DNNL_VERSION_MAJOR >= 3
    st = dnnl_post_ops_append_sum(ops, 1.0f, 0, dnnl_data_type_undef);
#else
    st = dnnl_post_ops_append_sum(ops, 1.0f);
#endif
    if (st == dnnl_success) st = dnnl_primitive_attr_set_post_ops(attr, ops);
    dnnl_post_ops_destroy(ops);
    return st;
}

static dnnl_status_t make_pd(dnnl_primitive_desc_t *pd, dnnl_engine_t engine, const matmul_md *md, const gemm_key *k)
{
    dnnl_primitive_attr_t attr;
    dnnl_status_t st = dnnl_primitive_attr_create(&attr);
    if (st != dnnl_success) return st;
    st = make_attr(attr, k);
#if DNNL_VERSION_MAJOR >= 3
    const_dnnl_memory_desc_t bias = k->bias ? md->bias : NULL;
    if (st == dnnl_success) st = dnnl_matmul_primitive_desc_create(pd, engine, md->a, md->b, bias, md->c, attr);
#else
    dnnl_matmul_desc_t op;
    if (st == dnnl_success) st = dnnl_matmul_desc_init(&op, &md->a, &md->b, k->bias ? &md->bias : NULL, &md->c);
    if (st == dnnl_success) st = dnnl_primitive_desc_create(pd, &op, attr, engine, NULL);
#endif
    dnnl_primitive_attr_destroy(attr);
    return st;
}

/* ---- one entry -------------------------------------------------------------------------------------- */

static void destroy_entry(gemm_entry *e)
{
    for (int i = 0; i < ARGS; i++)
        if (e->memory[i]) dnnl_memory_destroy(e->memory[i]);
    if (e->primitive) dnnl_primitive_destroy(e->primitive);
    memset(e, 0, sizeof *e);
}

static dnnl_status_t make_memories(gemm_entry *e, dnnl_engine_t engine, const matmul_md *md, dnnl_primitive_desc_t pd)
{
    dnnl_status_t st = dnnl_memory_create(&e->memory[ARG_A], MD_REF(md->a), engine, DNNL_MEMORY_NONE);
    if (st == dnnl_success) st = dnnl_memory_create(&e->memory[ARG_B], MD_REF(md->b), engine, DNNL_MEMORY_NONE);
    if (st == dnnl_success) st = dnnl_memory_create(&e->memory[ARG_C], MD_REF(md->c), engine, DNNL_MEMORY_NONE);
    if (st == dnnl_success && e->key.bias)
        st = dnnl_memory_create(&e->memory[ARG_BIAS], MD_REF(md->bias), engine, DNNL_MEMORY_NONE);
    if (st != dnnl_success) return st;
    e->pad_bytes = dnnl_memory_desc_get_size(dnnl_primitive_desc_query_md(pd, dnnl_query_scratchpad_md, 0));
    if (e->pad_bytes == 0) return dnnl_success;
    return dnnl_memory_create(&e->memory[ARG_PAD], dnnl_primitive_desc_query_md(pd, dnnl_query_scratchpad_md, 0),
                              engine, DNNL_MEMORY_NONE);
}

static dnnl_status_t make_primitive(gemm_entry *e, dnnl_engine_t engine, const matmul_md *md)
{
    dnnl_primitive_desc_t pd;
    dnnl_status_t st = make_pd(&pd, engine, md, &e->key);
    if (st != dnnl_success) return st;
    st = dnnl_primitive_create(&e->primitive, pd);
    if (st == dnnl_success) st = make_memories(e, engine, md, pd);
    dnnl_primitive_desc_destroy(pd);
    return st;
}

/* A chain of descriptions; later ones are made only when the earlier were. */
static dnnl_status_t make_entry(gemm_entry *e, dnnl_engine_t engine)
{
    const gemm_key *k = &e->key;
    matmul_md md;
    dnnl_status_t st = make_md(&md.a, k->M, k->K, k->ab, k->lda, k->trans & 1);
    if (st != dnnl_success) return st;
    st = make_md(&md.b, k->K, k->N, k->ab, k->ldb, k->trans & 2);
    if (st != dnnl_success) goto free_a;
    st = make_md(&md.c, k->M, k->N, k->c, k->ldc, false);
    if (st != dnnl_success) goto free_b;
    st = make_md(&md.bias, 1, k->N, WEFT_F32, k->N, false);
    if (st != dnnl_success) goto free_c;
    st = make_primitive(e, engine, &md);
    MD_FREE(md.bias);
free_c:
    MD_FREE(md.c);
free_b:
    MD_FREE(md.b);
free_a:
    MD_FREE(md.a);
    return st;
}

/* ---- the cache -------------------------------------------------------------------------------------- */

static gemm_key key_of(const weft_gemm_args *a, int threads)
{
    gemm_key k;
    memset(&k, 0, sizeof k);
    k.M = a->M;
    k.N = a->N;
    k.K = a->K;
    k.lda = a->lda;
    k.ldb = a->ldb;
    k.ldc = a->ldc;
    k.ab = (int32_t)a->ab;
    k.c = (int32_t)a->c;
    k.trans = (int32_t)a->trans_a | (int32_t)a->trans_b << 1;
    k.beta = a->beta;
    k.bias = a->bias != NULL;
    k.threads = threads; /* a primitive is blocked for the number of threads at its creation */
    return k;
}

static uint64_t hash_key(const gemm_key *k) /* FNV-1a */
{
    const unsigned char *p = (const unsigned char *)k;
    uint64_t h = 14695981039346656037u;
    for (size_t i = 0; i < sizeof *k; i++) h = (h ^ p[i]) * 1099511628211u;
    return h ^ h >> 32;
}

static gemm_entry *find_slot(gemm_entry *table, int64_t capacity, const gemm_key *k)
{
    const uint64_t mask = (uint64_t)capacity - 1;
    uint64_t i = hash_key(k) & mask;
    while (table[i].primitive && memcmp(&table[i].key, k, sizeof *k) != 0) i = (i + 1) & mask;
    return &table[i];
}

/* The old table stays in the arena: tables double, so all old ones together are as large as the new one. */
static weft_status grow(weft_gemm_dnn *dnn, weft_arena *arena)
{
    gemm_entry *table;
    const int64_t capacity = dnn->capacity ? 2 * dnn->capacity : 64;
    WEFT_TRY(WEFT_NEW0(arena, capacity, "cache", &table));
    for (int64_t i = 0; i < dnn->capacity; i++)
        if (dnn->table[i].primitive) *find_slot(table, capacity, &dnn->table[i].key) = dnn->table[i];
    dnn->table = table;
    dnn->capacity = capacity;
    return WEFT_OK;
}

static weft_status get_entry(weft_gemm *gemm, const gemm_key *k, gemm_entry **out)
{
    weft_gemm_dnn *dnn = gemm->dnn;
    *out = find_slot(dnn->table, dnn->capacity, k);
    if ((*out)->primitive) return WEFT_OK;
    if (2 * (dnn->count + 1) > dnn->capacity) {
        WEFT_TRY(grow(dnn, gemm->arena));
        *out = find_slot(dnn->table, dnn->capacity, k);
    }
    (*out)->key = *k;
    const dnnl_status_t st = make_entry(*out, dnn->engine);
    if (st != dnnl_success) {
        destroy_entry(*out);
        return weft_fail(st == dnnl_out_of_memory ? WEFT_ERR_MEMORY : WEFT_ERR_LIBRARY,
                         "oneDNN has no product [%lld, %lld] of %s with K %lld (status %d)", (long long)k->M,
                         (long long)k->N, weft_dtype_name((weft_dtype)k->ab), (long long)k->K, (int)st);
    }
    dnn->count++;
    return WEFT_OK;
}

/* ---- the door's functions --------------------------------------------------------------------------- */

static dnnl_cpu_isa_t cap_of(int isa)
{
    return isa == 1 ? dnnl_cpu_isa_avx2 : isa == 2 ? dnnl_cpu_isa_avx512_core_bf16 : dnnl_cpu_isa_avx512_core_amx;
}

weft_status weft_gemm_dnn_create(weft_gemm *gemm, int isa)
{
    weft_gemm_dnn *dnn;
    WEFT_TRY(WEFT_NEW0(gemm->arena, 1, "object", &dnn));
    gemm->dnn = dnn; /* weft_gemm_destroy cleans up from here on */
    WEFT_TRY(grow(dnn, gemm->arena));
    /* Fails when another rank of the process was first: harmless if it set the same. */
    const dnnl_cpu_isa_t cap = cap_of(isa);
    dnnl_set_max_cpu_isa(cap);
    const dnnl_cpu_isa_t now = dnnl_get_effective_cpu_isa();
    if ((now & ~cap) != 0)
        weft_logf(&gemm->ctx->log, WEFT_LOG_WARN,
                  "oneDNN was in use before its instruction set could be limited: it stays at 0x%x", (unsigned)now);
    dnn->native_bf16 = (now & dnnl_cpu_isa_avx512_core_amx) == dnnl_cpu_isa_avx512_core_amx;
    TRY_DNNL(dnnl_engine_create(&dnn->engine, dnnl_cpu, 0));
    TRY_DNNL(dnnl_stream_create(&dnn->stream, dnn->engine, dnnl_stream_default_flags));
    return WEFT_OK;
}

static const char *isa_name(dnnl_cpu_isa_t isa)
{
    static const struct { dnnl_cpu_isa_t isa; const char *name; } names[] = {
        {dnnl_cpu_isa_avx512_core_amx, "avx512_core_amx"},
        {dnnl_cpu_isa_avx512_core_bf16, "avx512_core_bf16"},
        {dnnl_cpu_isa_avx512_core_vnni, "avx512_core_vnni"},
        {dnnl_cpu_isa_avx512_core, "avx512_core"},
        {dnnl_cpu_isa_avx2_vnni, "avx2_vnni"},
        {dnnl_cpu_isa_avx2, "avx2"},
        {dnnl_cpu_isa_avx, "avx"},
        {dnnl_cpu_isa_sse41, "sse41"},
    };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (isa == names[i].isa) return names[i].name;
    return "another set";
}

weft_gemm_library weft_gemm_library_now(void)
{
    static const char *const variables[] = {"ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA"};
    const dnnl_version_t *v = dnnl_version();
    weft_gemm_library out = {.version = {v->major, v->minor, v->patch}, .isa = isa_name(dnnl_get_effective_cpu_isa())};
    for (int i = 0; i < 2 && !out.variable; i++)
        if ((out.value = getenv(variables[i]))) out.variable = variables[i];
    return out;
}

void weft_gemm_dnn_destroy(weft_gemm_dnn *dnn)
{
    if (!dnn) return;
    for (int64_t i = 0; i < dnn->capacity; i++) destroy_entry(&dnn->table[i]);
    if (dnn->stream) dnnl_stream_destroy(dnn->stream);
    if (dnn->engine) dnnl_engine_destroy(dnn->engine);
}

bool weft_gemm_dnn_has(const weft_gemm_dnn *dnn, weft_dtype ab)
{
    return ab == WEFT_F32 || (ab == WEFT_BF16 && dnn->native_bf16);
}

static weft_status execute(weft_gemm *gemm, gemm_entry *e, const weft_gemm_args *args)
{
    static const int names[ARGS] = {DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DST, DNNL_ARG_SCRATCHPAD,
                                    DNNL_ARG_BIAS};
    void *const data[ARGS] = {(void *)args->A, (void *)args->B, args->C, gemm->pad.data, (void *)args->bias};
    dnnl_exec_arg_t list[ARGS];
    int n = 0;
    for (int i = 0; i < ARGS; i++) {
        if (!e->memory[i]) continue;
        TRY_DNNL(dnnl_memory_set_data_handle(e->memory[i], data[i]));
        list[n++] = (dnnl_exec_arg_t){names[i], e->memory[i]};
    }
    TRY_DNNL(dnnl_primitive_execute(e->primitive, gemm->dnn->stream, n, list));
    TRY_DNNL(dnnl_stream_wait(gemm->dnn->stream));
    return WEFT_OK;
}

static weft_status run_f32(const weft_gemm_args *a)
{
    TRY_DNNL(dnnl_sgemm(a->trans_a ? 'T' : 'N', a->trans_b ? 'T' : 'N', a->M, a->N, a->K, 1.0f, a->A, a->lda, a->B,
                        a->ldb, (float)a->beta, a->C, a->ldc));
    return WEFT_OK;
}

static weft_status run_with_threads(weft_gemm *gemm, const weft_gemm_args *args)
{
    if (args->ab == WEFT_F32) return run_f32(args);
    const gemm_key key = key_of(args, gemm->ctx->threads);
    gemm_entry *e = NULL;
    WEFT_TRY(get_entry(gemm, &key, &e));
    WEFT_TRY(weft_gemm_reserve(gemm, &gemm->pad, "oneDNN scratchpad", e->pad_bytes));
    return execute(gemm, e, args);
}

/* oneDNN asks OpenMP for the number of threads of the calling thread: ours during the call, then the
 * caller's again. */
weft_status weft_gemm_dnn_run(weft_gemm *gemm, const weft_gemm_args *args)
{
#ifdef _OPENMP
    const int before = omp_get_max_threads();
    if (before != gemm->ctx->threads) omp_set_num_threads(gemm->ctx->threads);
    const weft_status st = run_with_threads(gemm, args);
    if (before != gemm->ctx->threads) omp_set_num_threads(before);
    return st;
#else
    return run_with_threads(gemm, args);
#endif
}
