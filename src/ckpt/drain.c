/* drain.c — the thread that writes this rank's files of a checkpoint while training goes on.
 *
 * Tensors come in the order in which they stand in the files, each in one stretch of a ring of fixed size; the thread
 * writes and hashes them in that order and gives their room back. After a failure it goes on taking tensors, so that
 * nobody waits for room for ever, and writes nothing more. */
#include "ckpt/ckpt_impl.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { WRITE_BYTES = 1 << 18, ALIGN = 64 };

typedef struct slot {
    size_t at, bytes;
} slot; /* of one tensor in the ring */

struct weft__drain {
    const weft__pack *pack;
    int rank;
    char *folder;
    char **small_name, **small_text;
    int n_small;
    char *ring;
    size_t ring_bytes, next; /* next: where the next tensor goes, if there is room */
    slot *slot;              /* [n] by tensor of this rank */
    int n, pushed, taken;    /* taken: written and given back */
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool started, over, cancelled;
    weft_status status;
    char message[1024];
    weft_ckpt_file *file; /* [files] */
    int files;
    weft_hasher *hasher;
    int fd;
    int64_t written;   /* of the open file */
    weft_fault *fault; /* nobody else counts passes at these sites */
};

static bool mine(const weft__drain *d, int file) { return d->pack->file[file].writer == d->rank; }

/* ---- one file ------------------------------------------------------------------------------------------------ */

static weft_status say(const weft__drain *d, const char *name, const char *what, int why)
{
    return weft_fail(WEFT_ERR_IO, "cannot %s %s/%s: %s", what, d->folder, name, strerror(why));
}

static weft_status open_file(weft__drain *d, const char *name)
{
    char path[4096];
    if ((size_t)snprintf(path, sizeof path, "%s/%s", d->folder, name) >= sizeof path)
        return weft_fail(WEFT_ERR_REFUSED, "%s: the path is too long", d->folder);
    d->written = 0;
    d->fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    return d->fd < 0 ? say(d, name, "write", errno) : WEFT_OK;
}

static weft_status put(weft__drain *d, const char *name, const void *data, size_t bytes)
{
    const char *p = data;
    weft_hasher_add(d->hasher, data, bytes);
    while (bytes > 0) {
        WEFT_TRY(weft_fault_pass(d->fault, d->rank, "ckpt.write", NULL));
        ssize_t done = write(d->fd, p, weft_min_size(bytes, WRITE_BYTES));
        if (done < 0 && errno == EINTR) continue;
        if (done <= 0) return say(d, name, "write", done < 0 ? errno : ENOSPC);
        p += done;
        bytes -= (size_t)done;
        d->written += done;
    }
    return WEFT_OK;
}

static weft_status close_file(weft__drain *d, const char *name, weft_status so_far)
{
    weft_status st = so_far;
    if (st >= 0) st = weft_fault_pass(d->fault, d->rank, "ckpt.sync", NULL);
    if (st >= 0 && fsync(d->fd)) st = say(d, name, "sync", errno);
    if (close(d->fd) && st >= 0) st = say(d, name, "close", errno);
    d->fd = -1;
    weft_ckpt_file *f = &d->file[d->files];
    *f = (weft_ckpt_file){.bytes = d->written, .hash = weft_hasher_end(d->hasher)};
    snprintf(f->name, sizeof f->name, "%s", name);
    if (st >= 0) d->files++;
    return st;
}

static weft_status write_small(weft__drain *d, const char *name, const char *text)
{
    WEFT_TRY(open_file(d, name));
    return close_file(d, name, put(d, name, text, strlen(text)));
}

/* ---- tensors as they come -------------------------------------------------------------------------------------- */

/* The next tensor when it is there; false when none will come. */
static bool wait_for(weft__drain *d, int i)
{
    pthread_mutex_lock(&d->lock);
    while (d->pushed <= i && !d->cancelled) pthread_cond_wait(&d->changed, &d->lock);
    bool there = d->pushed > i;
    pthread_mutex_unlock(&d->lock);
    return there;
}

static void give_back(weft__drain *d, weft_status st)
{
    pthread_mutex_lock(&d->lock);
    d->taken++;
    if (st < 0 && d->status >= 0) {
        d->status = st;
        snprintf(d->message, sizeof d->message, "%s", weft_last_error());
    }
    pthread_cond_broadcast(&d->changed);
    pthread_mutex_unlock(&d->lock);
}

/* Another rank has failed, and tells why: here nothing is wrong. */
static bool is_cancelled(weft__drain *d)
{
    pthread_mutex_lock(&d->lock);
    bool yes = d->cancelled;
    pthread_mutex_unlock(&d->lock);
    return yes;
}

static weft_status begin_file(weft__drain *d, const weft__pack_file *f)
{
    char *text = NULL;
    size_t length = 0;
    WEFT_TRY(weft__st_header(f->name, d->pack->st + f->first, f->n, weft__hf_meta, &text, &length));
    const uint64_t prefix = length;
    weft_status st = open_file(d, f->name);
    if (st >= 0) st = put(d, f->name, &prefix, sizeof prefix);
    if (st >= 0) st = put(d, f->name, text, length);
    free(text);
    return st;
}

/* Every tensor is taken, whatever failed before. */
static weft_status write_file(weft__drain *d, const weft__pack_file *f, int *next, weft_status so_far)
{
    weft_status st = so_far >= 0 ? begin_file(d, f) : so_far;
    for (int k = 0; k < f->n; k++, ++*next) {
        bool there = wait_for(d, *next);
        if (st >= 0 && there && !is_cancelled(d))
            st = put(d, f->name, d->ring + d->slot[*next].at, d->slot[*next].bytes);
        give_back(d, st);
    }
    if (d->fd >= 0) st = close_file(d, f->name, st);
    return st;
}

static void *run(void *ud)
{
    weft__drain *d = ud;
    weft_status st = WEFT_OK;
    int next = 0;
    for (int i = 0; i < d->n_small && st >= 0; i++) st = write_small(d, d->small_name[i], d->small_text[i]);
    for (int i = 0; i < d->pack->files; i++)
        if (mine(d, i)) st = write_file(d, &d->pack->file[i], &next, st);
    pthread_mutex_lock(&d->lock);
    if (st < 0 && d->status >= 0) {
        d->status = st;
        snprintf(d->message, sizeof d->message, "%s", weft_last_error());
    }
    d->over = true;
    pthread_cond_broadcast(&d->changed);
    pthread_mutex_unlock(&d->lock);
    return NULL;
}

/* ---- the ring ---------------------------------------------------------------------------------------------------- */

/* Where `bytes` fit between the tensors that are in the ring; false: nowhere yet. */
static bool find_room(const weft__drain *d, size_t bytes, size_t *at)
{
    if (d->taken == d->pushed) {
        *at = 0;
        return true;
    }
    size_t oldest = d->slot[d->taken].at;
    *at = d->next;
    if (d->next > oldest) {
        if (d->ring_bytes - d->next >= bytes) return true;
        *at = 0;
        return oldest >= bytes;
    }
    return oldest - d->next >= bytes;
}

void *weft__drain_room(weft__drain *d, size_t bytes)
{
    size_t room = (bytes + ALIGN) / ALIGN * ALIGN, at = 0; /* one byte at least: an empty tensor has a place, too */
    pthread_mutex_lock(&d->lock);
    while (!find_room(d, room, &at)) pthread_cond_wait(&d->changed, &d->lock);
    d->slot[d->pushed] = (slot){at, bytes};
    d->next = at + room;
    pthread_mutex_unlock(&d->lock);
    return d->ring + at;
}

void weft__drain_push(weft__drain *d)
{
    pthread_mutex_lock(&d->lock);
    d->pushed++;
    pthread_cond_broadcast(&d->changed);
    pthread_mutex_unlock(&d->lock);
}

/* ---- its life --------------------------------------------------------------------------------------- */

static bool copy_small(weft__drain *d, const weft__small *small, int n)
{
    d->small_name = calloc((size_t)n + 1, sizeof *d->small_name);
    d->small_text = calloc((size_t)n + 1, sizeof *d->small_text);
    if (!d->small_name || !d->small_text) return false;
    for (d->n_small = 0; d->n_small < n; d->n_small++) {
        d->small_name[d->n_small] = strdup(small[d->n_small].name);
        d->small_text[d->n_small] = strdup(small[d->n_small].text);
        if (!d->small_name[d->n_small] || !d->small_text[d->n_small]) return d->n_small++, false;
    }
    return true;
}

weft_status weft__drain_begin(weft__drain **out, int rank, const weft__pack *pack, const char *folder,
                              const weft__small *small, int n_small, void *ring, size_t ring_bytes, weft_fault *fault)
{
    weft__drain *d = calloc(1, sizeof *d);
    if (!d) return weft_fail(WEFT_ERR_MEMORY, "%s: no memory to write it", folder);
    *d = (weft__drain){.pack = pack, .rank = rank, .ring = ring, .ring_bytes = ring_bytes, .fd = -1, .fault = fault};
    pthread_mutex_init(&d->lock, NULL);
    pthread_cond_init(&d->changed, NULL);
    int files = n_small;
    for (int i = 0; i < pack->files; i++)
        if (mine(d, i)) d->n += pack->file[i].n, files++;
    d->folder = strdup(folder);
    d->slot = calloc((size_t)d->n + 1, sizeof *d->slot);
    d->file = calloc((size_t)files + 1, sizeof *d->file);
    d->hasher = weft_hasher_create();
    int failed = !d->folder || !d->slot || !d->file || !d->hasher || !copy_small(d, small, n_small)
                     ? ENOMEM
                     : pthread_create(&d->thread, NULL, run, d);
    if (failed) {
        weft__drain_free(d);
        return weft_fail(WEFT_ERR_MEMORY, "%s: a thread to write it cannot be started: %s", folder, strerror(failed));
    }
    d->started = true;
    *out = d;
    return WEFT_OK;
}

bool weft__drain_over(weft__drain *d, bool *failed)
{
    pthread_mutex_lock(&d->lock);
    bool over = d->over;
    *failed = d->status < 0;
    pthread_mutex_unlock(&d->lock);
    return over;
}

void weft__drain_cancel(weft__drain *d)
{
    pthread_mutex_lock(&d->lock);
    d->cancelled = true;
    pthread_cond_broadcast(&d->changed);
    pthread_mutex_unlock(&d->lock);
}

weft_status weft__drain_end(weft__drain *d, const weft_ckpt_file **files, int *n)
{
    if (d->started) pthread_join(d->thread, NULL);
    d->started = false;
    *files = d->file;
    *n = d->files;
    return d->status < 0 ? weft_fail(d->status, "%s", d->message) : WEFT_OK;
}

void weft__drain_free(weft__drain *d)
{
    if (!d) return;
    if (d->started) {
        weft__drain_cancel(d);
        pthread_join(d->thread, NULL);
    }
    for (int i = 0; i < d->n_small; i++) {
        free(d->small_name[i]);
        free(d->small_text[i]);
    }
    free(d->small_name);
    free(d->small_text);
    free(d->folder);
    free(d->slot);
    free(d->file);
    weft_hasher_destroy(d->hasher);
    pthread_mutex_destroy(&d->lock);
    pthread_cond_destroy(&d->changed);
    free(d);
}
