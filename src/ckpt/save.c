/* save.c — one checkpoint, from the collection of its tensors to its name.
 *
 * All ranks agree before anything is made, after the tensors are collected, and on the files before the folder gets
 * its name. The name comes by one rename when everything under it is synced, so whoever finds it finds all of it; the
 * manifest, written before, tells a folder that was completed from one whose files another program changed. */
#include "ckpt/ckpt_impl.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { PATH_BYTES = 4096, HOST_BYTES = 64 };

struct weft_ckpt_writer {
    weft_ctx *ctx;
    weft_arena *ring_arena, *arena; /* the snapshot's memory, kept from save to save; what one save needs beside it */
    char *ring;
    size_t ring_bytes;
    weft__drain *drain;
    weft__pack pack;
    weft_mesh mesh;
    int64_t step;
    bool busy;
    char dir[PATH_BYTES], folder[PATH_BYTES]; /* the name in the end, and the temporary one */
    weft_fault fault;                         /* of the thread */
};

weft_status weft_ckpt_writer_create(weft_ckpt_writer **out, weft_ctx *ctx)
{
    weft_ckpt_writer *w = calloc(1, sizeof *w);
    if (!w) return weft_fail(WEFT_ERR_MEMORY, "no memory for a writer of checkpoints");
    w->ctx = ctx;
    w->fault = ctx->fault;
    weft_status st = weft_arena_create(&w->ring_arena, &ctx->mem, "checkpoint", NULL);
    if (st >= 0) st = weft_arena_create(&w->arena, &ctx->mem, "checkpoint", NULL);
    if (st < 0) weft_ckpt_writer_destroy(w);
    else *out = w;
    return st;
}

void weft_ckpt_writer_destroy(weft_ckpt_writer *w)
{
    if (!w) return;
    weft__drain_free(w->drain);
    weft_arena_destroy(w->ring_arena);
    weft_arena_destroy(w->arena);
    free(w);
}

weft_ckpt_stage weft_ckpt_stage_of(const weft_ckpt_writer *w)
{
    bool failed = false;
    if (!w->busy) return WEFT_CKPT_IDLE;
    bool over = weft__drain_over(w->drain, &failed);
    return failed ? WEFT_CKPT_FAILED : over ? WEFT_CKPT_WRITTEN : WEFT_CKPT_WRITING;
}

static weft_status fault(weft_ckpt_writer *w, const char *site)
{
    return weft_fault_pass(&w->ctx->fault, w->ctx->rank, site, NULL);
}

/* ---- who writes ------------------------------------------------------------------------------------------------ */

/* The first rank of each node, by the nodes' names. */
static weft_status first_of_nodes(weft_comm *all, weft_arena *arena, int *writer, int *n)
{
    int world = weft_comm_size(all);
    char own[HOST_BYTES] = "?", *host = NULL;
    size_t *bytes = NULL;
    WEFT_TRY(WEFT_NEW(arena, world * HOST_BYTES, "names of nodes", &host));
    WEFT_TRY(WEFT_NEW(arena, world, "names of nodes", &bytes));
    for (int r = 0; r < world; r++) bytes[r] = HOST_BYTES;
    gethostname(own, sizeof own - 1);
    WEFT_TRY(weft_all_gather(all, own, host, bytes));
    for (int r = 0; r < world; r++) {
        bool seen = false;
        for (int k = 0; k < *n && !seen; k++)
            seen = !strcmp(host + (size_t)writer[k] * HOST_BYTES, host + (size_t)r * HOST_BYTES);
        if (!seen) writer[(*n)++] = r;
    }
    return WEFT_OK;
}

weft_status weft_ckpt_choose_writers(weft_comm *all, weft_arena *arena, weft_ckpt_writers who, int **writer, int *n)
{
    int world = weft_comm_size(all);
    WEFT_TRY(WEFT_NEW(arena, world, "ranks that write", writer));
    *n = 0;
    if (who == WEFT_CKPT_NODE) return first_of_nodes(all, arena, *writer, n);
    for (int r = 0; r < (who == WEFT_CKPT_ALL ? world : 1); r++) (*writer)[(*n)++] = r;
    return WEFT_OK;
}

/* ---- the folder -------------------------------------------------------------------------------------------------- */

static weft_status make_folder(weft_ckpt_writer *w, const char *dir)
{
    struct stat there;
    if ((size_t)snprintf(w->dir, sizeof w->dir, "%s", dir) >= sizeof w->dir ||
        (size_t)snprintf(w->folder, sizeof w->folder, "%s.tmp-%ld", dir, (long)getpid()) >= sizeof w->folder)
        return weft_fail(WEFT_ERR_REFUSED, "%s: the path is too long", dir);
    if (!lstat(dir, &there))
        return weft_fail(WEFT_ERR_REFUSED, "%s exists already; a checkpoint is never overwritten", dir);
    if (!lstat(w->folder, &there)) WEFT_TRY(weft_ckpt_remove(w->folder)); /* of a process that had the same number */
    return weft_make_dir(w->folder);
}

/* Rank 0 makes it; who writes must see it. */
static weft_status agree_on_folder(weft_ckpt_writer *w, const char *dir, const int *writers, int n)
{
    struct stat s;
    weft_status st = w->ctx->rank == 0 ? make_folder(w, dir) : WEFT_OK;
    WEFT_TRY(weft_agree(w->mesh.all, st));
    WEFT_TRY(weft_broadcast(w->mesh.all, w->dir, sizeof w->dir, 0));
    WEFT_TRY(weft_broadcast(w->mesh.all, w->folder, sizeof w->folder, 0));
    for (int i = 0; i < n; i++)
        if (writers[i] == w->ctx->rank && (stat(w->folder, &s) || !S_ISDIR(s.st_mode)))
            st = weft_fail(WEFT_ERR_REFUSED,
                           "rank %d does not see the folder %s that rank 0 made: ranks that write checkpoints need a "
                           "common file system; --save-writers one lets rank 0 write alone",
                           w->ctx->rank, w->folder);
    return weft_agree(w->mesh.all, st);
}

/* ---- collecting ------------------------------------------------------------------------------------- */

static weft_status get_ring(weft_ckpt_writer *w, int64_t limit)
{
    size_t need = weft__pack_ring(&w->pack, w->ctx->rank, limit);
    if (need <= w->ring_bytes) return WEFT_OK;
    weft_arena_reset(w->ring_arena);
    w->ring_bytes = 0;
    WEFT_TRY(WEFT_NEW(w->ring_arena, (int64_t)need, "snapshot", &w->ring));
    w->ring_bytes = need;
    return WEFT_OK;
}

/* Item number `turn` of each rank, -1 past its last. */
static void items_of_turn(const weft__pack *p, int world, int turn, int *item)
{
    for (int r = 0; r < world; r++) {
        int left = turn;
        item[r] = -1;
        for (int i = 0; i < p->files && item[r] < 0; i++) {
            if (p->file[i].writer != r) continue;
            if (left < p->file[i].n) item[r] = p->file[i].first + left;
            left -= p->file[i].n;
        }
    }
}

static int turns(const weft__pack *p, int world)
{
    int most = 0;
    for (int r = 0; r < world; r++) {
        int n = 0;
        for (int i = 0; i < p->files; i++)
            if (p->file[i].writer == r) n += p->file[i].n;
        if (n > most) most = n;
    }
    return most;
}

/* In every turn each rank gets its next tensor; those of one array travel together. */
static weft_status collect(weft_ckpt_writer *w, const weft_ckpt_save *save, weft_gather **gather, int *item,
                           int *tensor)
{
    int world = weft_comm_size(w->mesh.all), me = w->ctx->rank, n = turns(&w->pack, world);
    for (int turn = 0; turn < n; turn++) {
        items_of_turn(&w->pack, world, turn, item);
        for (int a = 0; a < save->arrays; a++) {
            bool any = false;
            for (int r = 0; r < world; r++) {
                bool in = item[r] >= 0 && w->pack.item[item[r]].array == a;
                tensor[r] = in ? w->pack.item[item[r]].tensor : -1;
                any = any || in;
            }
            if (!any) continue;
            void *into = tensor[me] >= 0 ? weft__drain_room(w->drain, (size_t)w->pack.item[item[me]].bytes) : NULL;
            WEFT_TRY(fault(w, "ckpt.gather"));
            WEFT_TRY(weft_gather_round(gather[a], tensor, into, save->array[a].file_dtype));
            if (into) weft__drain_push(w->drain);
        }
    }
    return WEFT_OK;
}

static weft_status collect_all(weft_ckpt_writer *w, const weft_ckpt_save *save)
{
    int world = weft_comm_size(w->mesh.all), *item = NULL, *tensor = NULL;
    weft_gather **gather = NULL;
    WEFT_TRY(WEFT_NEW(w->arena, world, "turns of a checkpoint", &item));
    WEFT_TRY(WEFT_NEW(w->arena, world, "turns of a checkpoint", &tensor));
    WEFT_TRY(WEFT_NEW0(w->arena, save->arrays, "turns of a checkpoint", &gather));
    weft_status st = WEFT_OK;
    for (int a = 0; a < save->arrays && st >= 0; a++)
        st = weft_gather_create(&gather[a], &w->mesh, &save->array[a].held, save->whole, save->n_whole);
    if (st >= 0) st = collect(w, save, gather, item, tensor);
    for (int a = 0; a < save->arrays; a++) weft_gather_destroy(gather[a]);
    return st;
}

/* ---- beginning -------------------------------------------------------------------------------------- */

static weft_status start_drain(weft_ckpt_writer *w, const weft_ckpt_save *save, const weft_text *index)
{
    const weft__small small[] = {{WEFT__CKPT_CONFIG, save->config_json},
                                 {WEFT__CKPT_STATE, save->state_json},
                                 {WEFT__HF_INDEX, index->data}};
    int n = w->ctx->rank != 0 ? 0 : index->data ? 3 : 2;
    WEFT_TRY(get_ring(w, save->buffer_bytes));
    return weft__drain_begin(&w->drain, w->ctx->rank, &w->pack, w->folder, small, n, w->ring, w->ring_bytes, &w->fault);
}

static void forget(weft_ckpt_writer *w)
{
    weft__drain_free(w->drain);
    w->drain = NULL;
    w->busy = false;
    weft_arena_reset(w->arena);
}

/* The message of what went wrong stays the last one. */
static weft_status give_up(weft_ckpt_writer *w, weft_status st)
{
    char why[1024];
    snprintf(why, sizeof why, "%s", weft_last_error());
    forget(w);
    if (w->ctx->rank == 0 && *w->folder) weft_ckpt_remove(w->folder);
    return weft_fail(st, "%s", why);
}

static weft_status check(const weft_ckpt_save *save)
{
    if (save->n_whole < 1 || save->arrays < 1)
        return weft_fail(WEFT_ERR_INTERNAL, "%s: a checkpoint without tensors", save->dir);
    for (int a = 0; a < save->arrays; a++)
        if (!weft__is_weight_type(save->array[a].file_dtype) || !weft__is_weight_type(save->array[a].held.dtype))
            return weft_fail(WEFT_ERR_REFUSED, "%s: tensors cannot be saved as %s", save->dir,
                             weft_dtype_name(save->array[a].file_dtype));
    return WEFT_OK;
}

static weft_status prepare(weft_ckpt_writer *w, const weft_ckpt_save *save, weft_text *index)
{
    int *writers = NULL, n = 0;
    *w->folder = '\0';
    WEFT_TRY(weft_agree(w->mesh.all, check(save)));
    WEFT_TRY(weft_ckpt_choose_writers(w->mesh.all, w->arena, save->writers, &writers, &n));
    weft_status st = weft__pack_make(&w->pack, w->arena, save, writers, n);
    if (st >= 0) st = weft__pack_index(&w->pack, save, index);
    if (st >= 0) st = fault(w, "ckpt.begin");
    WEFT_TRY(weft_agree(w->mesh.all, st));
    WEFT_TRY(agree_on_folder(w, save->dir, writers, n));
    return weft_agree(w->mesh.all, start_drain(w, save, index));
}

weft_status weft_ckpt_begin(weft_ckpt_writer *w, const weft_ckpt_save *save)
{
    weft_text index = {0};
    if (w->busy) return weft_fail(WEFT_ERR_INTERNAL, "%s: the checkpoint before is not finished", save->dir);
    w->mesh = *save->mesh;
    w->step = save->step;
    weft_place(w->mesh.world, "begin a checkpoint", -1, -1);
    weft_status st = prepare(w, save, &index);
    weft_text_free(&index);
    if (st >= 0) st = collect_all(w, save);
    if (st < 0) return give_up(w, st);
    w->busy = true;
    return WEFT_OK;
}

/* ---- finishing -------------------------------------------------------------------------------------- */

/* Nobody waits in a transfer for a disk: ranks look at each other's threads now and then. */
static weft_status wait_for_all(weft_ckpt_writer *w)
{
    for (;;) {
        weft_ckpt_stage stage = weft_ckpt_stage_of(w);
        int64_t flag[2] = {stage == WEFT_CKPT_WRITING, stage == WEFT_CKPT_FAILED};
        WEFT_TRY(weft_all_reduce(w->mesh.all, flag, 2, WEFT_I64, WEFT_MAX));
        if (flag[1]) weft__drain_cancel(w->drain);
        if (flag[1] || !flag[0]) return WEFT_OK;
        nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
    }
}

static weft_status collect_files(weft_ckpt_writer *w, const weft_ckpt_file *mine, int n, weft_ckpt_file **all,
                                 int *n_all)
{
    int world = weft_comm_size(w->mesh.all);
    size_t *bytes = NULL;
    int64_t own = n, *each = NULL, total = 0;
    WEFT_TRY(WEFT_NEW(w->arena, world, "files of a checkpoint", &bytes));
    WEFT_TRY(WEFT_NEW(w->arena, world, "files of a checkpoint", &each));
    for (int r = 0; r < world; r++) bytes[r] = sizeof own;
    WEFT_TRY(weft_all_gather(w->mesh.all, &own, each, bytes));
    for (int r = 0; r < world; r++) total += each[r], bytes[r] = (size_t)each[r] * sizeof **all;
    WEFT_TRY(WEFT_NEW(w->arena, total, "files of a checkpoint", all));
    *n_all = (int)total;
    return weft_all_gather(w->mesh.all, mine, *all, bytes);
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const weft_ckpt_file *)a)->name, ((const weft_ckpt_file *)b)->name);
}

static weft_status write_manifest(weft_ckpt_writer *w, weft_ckpt_file *file, int n)
{
    char path[PATH_BYTES + 16];
    weft_text text = {0};
    qsort(file, (size_t)n, sizeof *file, by_name);
    weft_ckpt_about about = {.step = w->step, .layout = w->mesh.size, .files = n, .file = file};
    weft_status st = weft__manifest_text(&about, &text);
    snprintf(path, sizeof path, "%s/%s", w->folder, WEFT__CKPT_MANIFEST);
    if (st >= 0) st = weft_write_file(path, text.data, text.len);
    weft_text_free(&text);
    return st;
}

/* The folder in which a path lies, and its name there. */
static const char *split(const char *path, char parent[PATH_BYTES])
{
    const char *slash = strrchr(path, '/');
    int n = !slash || slash == path ? 1 : (int)(slash - path);
    snprintf(parent, PATH_BYTES, "%.*s", n, slash ? path : ".");
    return slash ? slash + 1 : path;
}

static weft_status name_it(weft_ckpt_writer *w)
{
    char parent[PATH_BYTES];
    const char *name = split(w->dir, parent);
    WEFT_TRY(fault(w, "ckpt.rename"));
    if (rename(w->folder, w->dir))
        return weft_fail(WEFT_ERR_IO, "cannot rename %s to %s: %s", w->folder, w->dir, strerror(errno));
    WEFT_TRY(fault(w, "ckpt.renamed"));
    WEFT_TRY(weft__sync_folder(parent));
    WEFT_TRY(fault(w, "ckpt.latest"));
    return weft_ckpt_is_name(name, false) ? weft__point_latest(parent, name) : WEFT_OK;
}

static weft_status complete(weft_ckpt_writer *w, weft_ckpt_file *file, int n)
{
    if (w->ctx->rank != 0) return WEFT_OK;
    WEFT_TRY(fault(w, "ckpt.manifest"));
    WEFT_TRY(write_manifest(w, file, n));
    WEFT_TRY(weft__sync_folder(w->folder));
    return name_it(w);
}

weft_status weft_ckpt_finish(weft_ckpt_writer *w)
{
    const weft_ckpt_file *mine = NULL;
    weft_ckpt_file *file = NULL;
    int n = 0, n_all = 0;
    if (!w->busy) return WEFT_OK;
    weft_place(w->mesh.world, "finish a checkpoint", -1, -1);
    weft_status st = wait_for_all(w);
    if (st < 0) return give_up(w, st);
    st = weft_agree(w->mesh.all, weft__drain_end(w->drain, &mine, &n));
    if (st >= 0) st = collect_files(w, mine, n, &file, &n_all);
    if (st >= 0) st = weft_agree(w->mesh.all, complete(w, file, n_all));
    if (st < 0) return give_up(w, st);
    forget(w);
    return WEFT_OK;
}
