/* spill.c — the thread that moves blocks, and the list of moves between it and their owner. */
#include "base/spill.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/spill_impl.h"

typedef struct move {
    char *memory;
    int64_t place;
    size_t bytes;
    bool put;
} move;

struct weft_spill {
    weft_spill_options o;
    char *folder;            /* a copy; NULL: the places are memory */
    int fd;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t asked_for, made;
    bool started, closing;
    int64_t asked, over;     /* moves; move i of them (from 1) is in list[i mod WEFT_SPILL_MOVES] */
    move list[WEFT_SPILL_MOVES];
    weft_status status;      /* the first failure */
    char message[1024];
};

/* ---- the thread --------------------------------------------------------------------------------------- */

static weft_status move_memory(const weft_spill *s, const move *x)
{
    const weft_mem_provider *p = s->o.provider;
    void *there = s->o.memory[x->place];
    return p->copy(p->self, x->put ? there : x->memory, x->put ? x->memory : there, x->bytes, NULL);
}

static weft_status move_file(const weft_spill *s, const move *x)
{
    const int64_t at = x->place * (int64_t)s->o.bytes;
    return x->put ? weft__spill_write(s->fd, s->folder, x->memory, x->bytes, at)
                  : weft__spill_read(s->fd, s->folder, x->memory, x->bytes, at);
}

static weft_status make(const weft_spill *s, const move *x)
{
    if (s->o.fault) WEFT_TRY(weft_fault_pass(s->o.fault, s->o.rank, x->put ? "spill.put" : "spill.get", NULL));
    return (s->folder ? move_file : move_memory)(s, x);
}

/* The next move; false: none will come. */
static bool next(weft_spill *s, move *x)
{
    pthread_mutex_lock(&s->lock);
    while (s->asked == s->over && !s->closing) pthread_cond_wait(&s->asked_for, &s->lock);
    bool more = !s->closing;
    if (more) *x = s->list[(s->over + 1) % WEFT_SPILL_MOVES];
    pthread_mutex_unlock(&s->lock);
    return more;
}

static void over(weft_spill *s, weft_status st)
{
    pthread_mutex_lock(&s->lock);
    s->over++;
    if (st < 0 && s->status >= 0) {
        s->status = st;
        snprintf(s->message, sizeof s->message, "%s", weft_last_error());
    }
    pthread_cond_broadcast(&s->made);
    pthread_mutex_unlock(&s->lock);
}

/* After a failure moves are only counted: a block that did not get out must not be taken for one that came back. */
static void *run(void *ud)
{
    weft_spill *s = ud;
    weft_status st = WEFT_OK;
    for (move x; next(s, &x); over(s, st))
        if (st >= 0) st = make(s, &x);
    return NULL;
}

/* ---- its owner ---------------------------------------------------------------------------------------- */

static weft_status ask(weft_spill *s, const move *x, int64_t *number)
{
    weft_status st = WEFT_OK;
    if (x->place < 0 || x->place >= s->o.places || x->bytes > s->o.bytes)
        return weft_fail(WEFT_ERR_INTERNAL, "%zu bytes for place %lld; %lld places of %zu bytes are there", x->bytes,
                         (long long)x->place, (long long)s->o.places, s->o.bytes);
    pthread_mutex_lock(&s->lock);
    if (s->asked - s->over == WEFT_SPILL_MOVES)
        st = weft_fail(WEFT_ERR_INTERNAL, "%d moves are under way, and more are not kept", WEFT_SPILL_MOVES);
    else {
        *number = ++s->asked;
        s->list[s->asked % WEFT_SPILL_MOVES] = *x;
        pthread_cond_signal(&s->asked_for);
    }
    pthread_mutex_unlock(&s->lock);
    return st;
}

weft_status weft_spill_put(weft_spill *s, int64_t place, const void *from, size_t bytes, int64_t *number)
{
    return ask(s, &(move){.memory = (char *)(uintptr_t)from, .place = place, .bytes = bytes, .put = true}, number);
}

weft_status weft_spill_get(weft_spill *s, int64_t place, void *to, size_t bytes, int64_t *number)
{
    return ask(s, &(move){.memory = to, .place = place, .bytes = bytes}, number);
}

static struct timespec in_seconds(double seconds)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    int64_t ns = t.tv_nsec + (int64_t)(seconds * 1e9);
    return (struct timespec){t.tv_sec + (time_t)(ns / 1000000000), (long)(ns % 1000000000)};
}

weft_status weft_spill_wait(weft_spill *s, int64_t number, double seconds, bool *is_over)
{
    weft_status st = WEFT_OK;
    const struct timespec until = in_seconds(seconds);
    pthread_mutex_lock(&s->lock);
    while (s->over < number && s->status >= 0 && seconds > 0)
        if (pthread_cond_timedwait(&s->made, &s->lock, &until) == ETIMEDOUT) break;
    *is_over = s->over >= number;
    if (s->status < 0) st = weft_fail(s->status, "%s", s->message);
    pthread_mutex_unlock(&s->lock);
    return st;
}

/* ---- its life ----------------------------------------------------------------------------------------- */

bool weft_spill_in_memory(const weft_spill *s) { return s->folder && weft__spill_file_in_memory(s->fd); }

static void init(weft_spill *s)
{
    pthread_condattr_t monotonic;
    pthread_mutex_init(&s->lock, NULL);
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&s->asked_for, NULL);
    pthread_cond_init(&s->made, &monotonic);
    pthread_condattr_destroy(&monotonic);
}

static weft_status open_file(weft_spill *s)
{
    int64_t all;
    if (!weft_mul_i64(s->o.places, (int64_t)s->o.bytes, &all))
        return weft_fail(WEFT_ERR_REFUSED, "%lld places of %zu bytes do not fit into a file", (long long)s->o.places,
                         s->o.bytes);
    s->folder = strdup(s->o.folder);
    if (!s->folder) return weft_fail(WEFT_ERR_MEMORY, "no memory for the name of %s", s->o.folder);
    return weft__spill_file(&s->fd, s->folder, all);
}

weft_status weft_spill_open(weft_spill **out, const weft_spill_options *options)
{
    weft_spill *s = calloc(1, sizeof *s);
    if (!s) return weft_fail(WEFT_ERR_MEMORY, "no memory for a thread that moves blocks");
    s->o = *options;
    s->fd = -1;
    if (!s->o.provider) s->o.provider = &weft_mem_host;
    init(s);
    weft_status st = s->o.memory ? WEFT_OK : open_file(s);
    if (st >= 0) {
        int failed = pthread_create(&s->thread, NULL, run, s);
        s->started = !failed;
        if (failed)
            st = weft_fail(WEFT_ERR_MEMORY, "a thread that moves blocks cannot be started: %s", strerror(failed));
    }
    if (st < 0) weft_spill_close(s);
    else *out = s;
    return st;
}

void weft_spill_close(weft_spill *s)
{
    if (!s) return;
    pthread_mutex_lock(&s->lock);
    s->closing = true;
    pthread_cond_signal(&s->asked_for);
    pthread_mutex_unlock(&s->lock);
    if (s->started) pthread_join(s->thread, NULL);
    if (s->fd >= 0) close(s->fd);
    pthread_cond_destroy(&s->asked_for);
    pthread_cond_destroy(&s->made);
    pthread_mutex_destroy(&s->lock);
    free(s->folder);
    free(s);
}
