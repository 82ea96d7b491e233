/* labels: small tsan */
/* timeout: 120 */
/* Checkpoints of a toy model: every layout writes the same files and reads what any other wrote; damage is found
 * wherever it is; a save that fails leaves nothing and says why on all ranks. */
#include "harness/tempdir.h"
#include "parts_case.h"

#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

typedef struct job { /* what the ranks of a test are to do */
    const char *dir;
    weft_mesh_shape size;
    int64_t buffer, shard;
    weft_ckpt_writers writers;
    const char *fault; /* WEFT_FAULT for the save that is expected to fail */
    const char *why;
    bool sliced;
} job;

typedef struct rank_case { /* one rank's part */
    weft_mesh m;
    weft_spec whole[N], mine[N];
    int n;
    int64_t count;
    double array[3][256];
    weft_piece piece[3][2 * N];
    weft_ckpt_array save[4];
} rank_case;

static void hold(rank_case *k, int a, bool sliced, weft_held *out)
{
    *out = (weft_held){.spec = k->mine,
                       .n = k->n,
                       .piece = k->piece[a],
                       .pieces = k->n,
                       .dtype = WEFT_F64,
                       .copies = !sliced};
    if (sliced) out->pieces = slices(k->mine, k->n, k->count, &k->m, k->array[a], k->piece[a]);
    else weft_pieces_of(k->mine, k->n, k->array[a], WEFT_F64, k->piece[a]);
}

/* Array a holds 1000 number + element + a / 3, which fp32 rounds and fp64 does not. */
static weft_status open_case(rank_case *k, weft_world *world, const job *j)
{
    static const char *const prefix[] = {"", "exp_avg.", "exp_avg_sq.", "master."};
    WEFT_TRY(weft_mesh_create(&k->m, world, j->size));
    whole_table(k->whole);
    k->n = my_table(&k->m, k->mine, &k->count);
    for (int a = 0; a < 3; a++) {
        for (int i = 0; i < k->n; i++) fill(&k->mine[i], k->array[a]);
        for (int64_t e = 0; e < k->count; e++) k->array[a][e] += a / 3.0;
    }
    for (int a = 0; a < 4; a++) {
        k->save[a] = (weft_ckpt_array){.prefix = prefix[a], .file_dtype = a ? WEFT_F64 : WEFT_F32};
        hold(k, a % 3, a % 3 != 0 && j->sliced, &k->save[a].held);
    }
    return WEFT_OK;
}

static weft_ckpt_save save_of(const rank_case *k, const job *j)
{
    return (weft_ckpt_save){.dir = j->dir,
                            .step = 7,
                            .mesh = &k->m,
                            .whole = k->whole,
                            .n_whole = N,
                            .array = k->save,
                            .arrays = 4,
                            .config_json = "{\"a\": 1}",
                            .state_json = "{\"b\": 2}",
                            .max_shard_bytes = j->shard,
                            .buffer_bytes = j->buffer,
                            .writers = j->writers};
}

static weft_status save_once(weft_ctx *ctx, weft_world *world, void *ud)
{
    const job *j = ud;
    rank_case k;
    weft_ckpt_writer *w = NULL;
    WEFT_TRY(open_case(&k, world, j));
    WEFT_TRY(weft_ckpt_writer_create(&w, ctx));
    weft_ckpt_save save = save_of(&k, j);
    WEFT_TRY(weft_ckpt_begin(w, &save));
    REQUIRE(weft_ckpt_begin(w, &save) == WEFT_ERR_INTERNAL); /* one at a time, and it does no harm */
    memset(k.array, 0xff, sizeof k.array);                   /* what is saved is as it was */
    WEFT_TRY(weft_ckpt_finish(w));
    REQUIRE(weft_ckpt_stage_of(w) == WEFT_CKPT_IDLE);
    weft_ckpt_writer_destroy(w);
    weft_mesh_destroy(&k.m);
    return WEFT_OK;
}

static weft_status load_and_compare(weft_ctx *ctx, weft_world *world, void *ud)
{
    const job *j = ud;
    rank_case k, want;
    weft_ckpt *c = NULL;
    (void)ctx;
    WEFT_TRY(open_case(&k, world, j));
    memcpy(want.array, k.array, sizeof want.array);
    WEFT_TRY(weft_ckpt_open(&c, j->dir));
    WEFT_TRY(weft_ckpt_verify(c, weft_world_rank(world), weft_world_size(world)));
    for (int a = 3; a >= 1; a--) { /* the weights through their masters: as fp32 they were rounded */
        weft_held *h = &k.save[a].held;
        for (int i = 0; i < h->pieces; i++) memset(h->piece[i].data, 0xff, (size_t)h->piece[i].count * sizeof(double));
        WEFT_TRY(weft_ckpt_read(c, k.save[a].prefix, h));
    }
    REQUIRE(!memcmp(k.array, want.array, sizeof k.array));
    weft_ckpt_close(c);
    weft_mesh_destroy(&k.m);
    return WEFT_OK;
}

static int ranks_of(weft_mesh_shape s) { return s.tp * s.cp * s.dp * s.pp; }

static const weft_mesh_shape sizes[] = {{1, 1, 1, 1, 0}, {3, 1, 1, 1, 0}, {1, 2, 2, 1, 0},
                                        {2, 1, 2, 2, 5}, {1, 1, 1, 3, 0}, {5, 1, 1, 1, 0}};
enum { SIZES = sizeof sizes / sizeof *sizes };

/* The bytes of all files but the manifest, which has the layout. */
static uint64_t files_hash(const char *dir)
{
    weft_ckpt *c = NULL;
    weft_ckpt_about about;
    assert_ok(weft_ckpt_open(&c, dir));
    weft_ckpt_tell(c, &about);
    assert_int_equal(about.step, 7);
    uint64_t h = test_hash(about.file, (size_t)about.files * sizeof *about.file);
    weft_ckpt_close(c);
    return h;
}

static void any_layout_reads_any(void **state)
{
    (void)state;
    test_dir d;
    char dir[400];
    uint64_t first = 0;
    test_dir_make(&d);
    for (int i = 0; i < SIZES; i++) {
        if (i % test_every(2)) continue;
        snprintf(dir, sizeof dir, "%s/step-%08d", d.path, i + 1);
        job j = {.dir = dir,
                 .size = sizes[i],
                 .buffer = i % 2,
                 .shard = 300,
                 .writers = (weft_ckpt_writers)(i % 3),
                 .sliced = i % 2 == 0};
        assert_ok(weft_run_threads(ranks_of(sizes[i]), save_once, &j));
        if (i == 0) first = files_hash(dir);
        assert_true(files_hash(dir) == first);
        for (int b = 0; b < SIZES; b++) {
            job back = {.dir = dir, .size = sizes[b], .sliced = b % 2};
            assert_ok(weft_run_threads(ranks_of(sizes[b]), load_and_compare, &back));
        }
    }
    assert_int_equal(test_dir_count(&d), (TEST_SANITIZER[0] ? (SIZES + 1) / 2 : SIZES) + 1); /* and `latest` */
    test_dir_remove(&d);
}

/* ---- damage ------------------------------------------------------------------------------------------------------ */

static const char *make_one(test_dir *d)
{
    const char *dir = test_dir_file(d, "step-00000007");
    job j = {.dir = dir, .size = sizes[0], .shard = 300};
    assert_ok(weft_run_threads(1, save_once, &j));
    return dir;
}

static weft_status whole(const char *dir)
{
    weft_ckpt *c = NULL;
    weft_status st = weft_ckpt_open(&c, dir);
    if (st >= 0) st = weft_ckpt_verify(c, 0, 1);
    weft_ckpt_close(c);
    return st;
}

static void expect_damage(const char *dir, const char *path, const char *name, const void *data, size_t bytes)
{
    test_write_raw(path, data, bytes);
    assert_refused(whole(dir), name);
}

static void damage_one(const char *dir, const char *name, bool every_byte)
{
    char path[500];
    size_t bytes = 0;
    snprintf(path, sizeof path, "%s/%s", dir, name);
    char *data = test_read_raw(path, &bytes), *more = malloc(bytes + 1);
    assert_true(bytes > 0 && more);
    for (size_t i = 0; i < bytes; i += every_byte ? 1 : bytes / 3 + 1) {
        data[i] ^= 1 << i % 8;
        expect_damage(dir, path, name, data, bytes);
        data[i] ^= 1 << i % 8;
    }
    memcpy(more, data, bytes);
    more[bytes] = '\n';
    expect_damage(dir, path, name, more, bytes + 1);
    expect_damage(dir, path, name, data, bytes - 1);
    expect_damage(dir, path, name, data, 0);
    unlink(path);
    assert_refused(whole(dir), name);
    test_write_raw(path, data, bytes);
    assert_ok(whole(dir));
    free(data);
    free(more);
}

/* G09 */
static void damage_is_found_in_every_file(void **state)
{
    (void)state;
    test_dir d;
    test_dir_make(&d);
    const char *dir = make_one(&d);
    static const char *const names[] = {"config.json", "state.json", "model.safetensors.index.json",
                                        "model-00002-of-00002.safetensors", "optimizer-00001-of-00001.safetensors"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) damage_one(dir, names[i], false);
    damage_one(dir, "manifest.json", !TEST_SANITIZER[0]);
    test_dir_remove(&d);
}

/* ---- saves that fail -------------------------------------------------------------------------------- */

/* A save that fails on one rank fails on all with its cause, and the next one is good. */
static weft_status fail_then_save(weft_ctx *ctx, weft_world *world, void *ud)
{
    const job *j = ud;
    rank_case k;
    weft_ckpt_writer *w = NULL;
    WEFT_TRY(open_case(&k, world, j));
    WEFT_TRY(weft_fault_parse(&ctx->fault, j->fault));
    WEFT_TRY(weft_ckpt_writer_create(&w, ctx));
    weft_ckpt_save save = save_of(&k, j);
    weft_status st = weft_ckpt_begin(w, &save);
    if (st >= 0) st = weft_ckpt_finish(w);
    REQUIRE(st < 0);
    if (!strstr(weft_last_error(), j->why)) return weft_fail(WEFT_ERR_INTERNAL, "it said: %s", weft_last_error());
    WEFT_TRY(weft_barrier(k.m.all));
    REQUIRE(access(j->dir, F_OK) != 0);
    save.dir = j->dir;
    WEFT_TRY(weft_ckpt_begin(w, &save));
    WEFT_TRY(weft_ckpt_finish(w));
    weft_ckpt_writer_destroy(w);
    weft_mesh_destroy(&k.m);
    return WEFT_OK;
}

static void a_failure_is_one_of_all_ranks(void **state)
{
    (void)state;
    static const char *const faults[] = {"fail:rank=1:site=ckpt.write:hit=1", "fail:rank=2:site=ckpt.write:hit=4",
                                         "fail:rank=0:site=ckpt.sync:hit=2",  "fail:rank=1:site=ckpt.begin",
                                         "fail:rank=0:site=ckpt.manifest",    "fail:rank=0:site=ckpt.rename"};
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) {
        test_dir d;
        test_dir_make(&d);
        const char *dir = test_dir_file(&d, "step-00000007");
        job j = {.dir = dir,
                 .size = {1, 2, 2, 1, 0},
                 .shard = 100,
                 .fault = faults[i],
                 .why = "injected fault",
                 .buffer = 1};
        assert_ok(weft_run_threads(4, fail_then_save, &j));
        assert_ok(whole(dir));
        assert_int_equal(test_dir_count(&d), 2);
        test_dir_remove(&d);
    }
}

/* A rank that does not see the folder: as on a node without the common file system. */
static weft_status from_elsewhere(weft_ctx *ctx, weft_world *world, void *ud)
{
    job j = *(const job *)ud;
    rank_case k;
    weft_ckpt_writer *w = NULL;
    char here[600];
    snprintf(here, sizeof here, "%s/%d", j.dir, weft_world_rank(world));
    REQUIRE(unshare(CLONE_FS) == 0 && mkdir(here, 0777) == 0 && chdir(here) == 0);
    j.dir = "step-00000007";
    WEFT_TRY(open_case(&k, world, &j));
    WEFT_TRY(weft_ckpt_writer_create(&w, ctx));
    weft_ckpt_save save = save_of(&k, &j);
    REQUIRE(weft_ckpt_begin(w, &save) == WEFT_ERR_REFUSED);
    REQUIRE(strstr(weft_last_error(), "rank 1 does not see the folder step-00000007.tmp-"));
    save.writers = WEFT_CKPT_ONE;
    WEFT_TRY(weft_ckpt_begin(w, &save));
    WEFT_TRY(weft_ckpt_finish(w));
    weft_ckpt_writer_destroy(w);
    weft_mesh_destroy(&k.m);
    return WEFT_OK;
}

/* ---- what is on the disk before it has its name ---------------------------------------------------------------- */

typedef struct event { char path[400], to[400]; } event; /* to: of a rename; else the path was synced */
static struct { pthread_mutex_t lock; event at[200]; int n; } calls = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void note(const char *path, const char *to)
{
    pthread_mutex_lock(&calls.lock);
    if (calls.n < 200) {
        snprintf(calls.at[calls.n].path, sizeof calls.at->path, "%s", path);
        snprintf(calls.at[calls.n++].to, sizeof calls.at->to, "%s", to);
    }
    pthread_mutex_unlock(&calls.lock);
}

/* In place of the C library's. */
int fsync(int fd);
int fsync(int fd)
{
    char link[64], path[400];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link, path, sizeof path - 1);
    path[n < 0 ? 0 : n] = 0;
    note(path, "");
    return (int)syscall(SYS_fsync, fd);
}

int rename(const char *from, const char *to)
{
    note(from, to);
    return (int)syscall(SYS_renameat, AT_FDCWD, from, AT_FDCWD, to);
}

/* The last call before `end` that synced a path, which begins with `path`, or, with `whole`, is it; -1: none. */
static int synced(const char *path, bool whole, int from, int end)
{
    for (int i = end - 1; i >= from; i--)
        if (!calls.at[i].to[0] && (whole ? !strcmp(calls.at[i].path, path)
                                         : !strncmp(calls.at[i].path, path, strlen(path))))
            return i;
    return -1;
}

static int renamed(const char *to)
{
    for (int i = 0; i < calls.n; i++)
        if (!strcmp(calls.at[i].to, to)) return i;
    return -1;
}

/* A power cut leaves no file empty: each is synced, then the manifest, then the folder, which then gets its name; then
 * the folder with that name, and only then `latest` points at it. */
static void g09_all_is_synced_before_it_has_its_name(void **state)
{
    (void)state;
    test_dir d;
    char dir[400], file[800], latest[500];
    weft_ckpt *c = NULL;
    weft_ckpt_about about;
    test_dir_make(&d);
    char *real = realpath(d.path, NULL); /* as /proc names it */
    snprintf(dir, sizeof dir, "%s/step-00000007", real);
    snprintf(latest, sizeof latest, "%s/latest", real);
    calls.n = 0;
    job j = {.dir = dir, .size = {3, 1, 1, 1, 0}, .shard = 300, .writers = WEFT_CKPT_ALL};
    assert_ok(weft_run_threads(3, save_once, &j));
    int named = renamed(dir), pointed = renamed(latest);
    assert_true(named > 0 && pointed > named && calls.n < 200);
    const char *temporary = calls.at[named].path;
    assert_ok(weft_ckpt_open(&c, dir));
    weft_ckpt_tell(c, &about);
    assert_true(about.files > 4);
    snprintf(file, sizeof file, "%s/manifest.json", temporary);
    int manifest = synced(file, false, 0, named), listed = renamed(file);
    assert_true(manifest >= 0 && listed > manifest && listed < named);
    for (int i = 0; i < about.files; i++) {
        snprintf(file, sizeof file, "%s/%s", temporary, about.file[i].name);
        if (synced(file, false, 0, manifest) < 0) fail_msg("%s is not synced before the manifest", about.file[i].name);
    }
    assert_true(synced(temporary, true, listed, named) > listed);
    assert_true(synced(real, true, named, pointed) > named);
    assert_true(synced(real, true, pointed, calls.n) > pointed);
    weft_ckpt_close(c);
    free(real);
    test_dir_remove(&d);
}

static void a_rank_that_does_not_see_the_folder_is_named(void **state)
{
    (void)state;
    test_dir d;
    test_dir_make(&d);
    job j = {.dir = d.path, .size = {1, 2, 1, 1, 0}, .writers = WEFT_CKPT_ALL};
    assert_ok(weft_run_threads(2, from_elsewhere, &j));
    assert_ok(whole(test_dir_file(&d, "0/step-00000007")));
    assert_int_equal(access(test_dir_file(&d, "1/step-00000007"), F_OK), -1);
    test_dir_remove(&d);
}

/* ---- a run's folder --------------------------------------------------------------------------------- */

static void names(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        bool final, temporary;
    } cases[] = {{"step-00000007", true, true},
                 {"step-123456789012", true, true},
                 {"step-0000007", false, false},
                 {"step-00000007.tmp-1", false, true},
                 {"step-00000007.tmp-12-3", false, true},
                 {"step-00000007.tmp-", false, false},
                 {"step-00000007.damaged-1", false, false},
                 {"step-notes", false, false},
                 {"latest", false, false}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_int_equal(weft_ckpt_is_name(cases[i].name, false), cases[i].final);
        assert_int_equal(weft_ckpt_is_name(cases[i].name, true), cases[i].temporary);
    }
}

static void copy_checkpoint(test_dir *d, const char *from, const char *name)
{
    char command[1200];
    snprintf(command, sizeof command, "cp -r '%s' '%s/%s'", from, d->path, name);
    assert_int_equal(system(command), 0);
}

static bool there(test_dir *d, const char *name) { return access(test_dir_file(d, name), F_OK) == 0; }

static void only_what_may_go_goes(void **state)
{
    (void)state;
    test_dir d;
    const weft_log mute = {0};
    test_dir_make(&d);
    const char *dir = make_one(&d);
    static const char *const steps[] = {"step-00000001", "step-00000002",          "step-00000004", "step-00000006",
                                        "step-00000008", "step-00000009.tmp-4711", "step-00000010"};
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) copy_checkpoint(&d, dir, steps[i]);
    unlink(test_dir_file(&d, "step-00000010/state.json"));           /* damaged: nobody's to remove, and no newest */
    test_write_raw(test_dir_file(&d, "step-00000002/mine"), "x", 1); /* somebody's file */
    assert_ok(weft_ckpt_prune(d.path, 0, 0, &mute));
    assert_false(there(&d, "step-00000009.tmp-4711"));
    assert_true(there(&d, "step-00000001"));
    assert_ok(weft_ckpt_prune(d.path, 2, 4, &mute));
    assert_true(there(&d, "step-00000010") && there(&d, "step-00000008") && there(&d, "step-00000007"));
    assert_true(there(&d, "step-00000004") && there(&d, "step-00000002/mine"));
    assert_false(there(&d, "step-00000006") || there(&d, "step-00000001"));
    test_dir_remove(&d);
}

/* ---- other files ------------------------------------------------------------------------------------ */

static void resharded(void **state)
{
    (void)state;
    test_dir d;
    test_dir_make(&d);
    const char *dir = make_one(&d), *to = test_dir_file(&d, "out");
    assert_ok(weft_ckpt_reshard(dir, to, WEFT_F64, 0, "{}"));
    assert_ok(whole(to));
    assert_true(there(&d, "out/model.safetensors"));
    weft_ckpt *c = NULL;
    weft_spec table[N];
    weft_piece piece[N];
    double x[256];
    int64_t at = 0;
    whole_table(table);
    for (int i = 0; i < N; i++) table[i].offset = at, at += table[i].count;
    weft_pieces_of(table, N, x, WEFT_F64, piece);
    weft_held held = {.spec = table, .n = N, .piece = piece, .pieces = N, .dtype = WEFT_F64};
    assert_ok(weft_ckpt_open(&c, to));
    assert_ok(weft_ckpt_read(c, "", &held));
    for (int i = 0; i < N; i++)
        for (int64_t e = 0; e < table[i].count; e++) assert_true(x[table[i].offset + e] == (double)(1000 * i + e));
    assert_refused(weft_ckpt_read(c, "exp_avg.", &held), "exp_avg.rows is missing");
    table[1].whole[0]++;
    assert_refused(weft_ckpt_read(c, "", &held), "columns has shape [3, 13], the model needs [4, 13]");
    weft_ckpt_close(c);
    assert_refused(weft_ckpt_reshard(dir, to, WEFT_F64, 0, "{}"), "exists already");
    test_dir_remove(&d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(any_layout_reads_any),
                                       cmocka_unit_test(damage_is_found_in_every_file),
                                       cmocka_unit_test(a_failure_is_one_of_all_ranks),
                                       cmocka_unit_test(g09_all_is_synced_before_it_has_its_name),
                                       cmocka_unit_test(a_rank_that_does_not_see_the_folder_is_named),
                                       cmocka_unit_test(names),
                                       cmocka_unit_test(only_what_may_go_goes),
                                       cmocka_unit_test(resharded)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
