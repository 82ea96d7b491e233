/* live.c — the live line of `weft train`: after every step, and within one that takes long. The thread that computes
 * only leaves word of where it is, since it may be in one layer for an hour; another thread looks once a second, and
 * shows what is due. Both write to the same terminal, one at a time. */
#include "cli/cli.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct weft_live {
    pthread_t thread;
    pthread_mutex_t lock;   /* of all that follows */
    pthread_cond_t changed;
    weft_clock clock;
    weft_progress_line line;
    weft_inside inside;
    bool in_step, stop;
};

static void write_out(void *ud, const char *bytes, size_t n)
{
    (void)ud;
    fwrite(bytes, 1, n, stdout);
    fflush(stdout);
}

static void *look(void *ud)
{
    weft_live *l = ud;
    struct timespec next;
    pthread_mutex_lock(&l->lock);
    while (!l->stop) {
        clock_gettime(CLOCK_MONOTONIC, &next);
        next.tv_sec++;
        pthread_cond_timedwait(&l->changed, &l->lock, &next);
        if (l->in_step && !l->stop) weft_progress_inside(&l->line, weft_now(&l->clock), &l->inside);
    }
    pthread_mutex_unlock(&l->lock);
    return NULL;
}

static void open_lock(weft_live *l)
{
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&l->changed, &attr);
    pthread_condattr_destroy(&attr);
    pthread_mutex_init(&l->lock, NULL);
}

static void release(weft_live *l)
{
    pthread_cond_destroy(&l->changed);
    pthread_mutex_destroy(&l->lock);
    free(l);
}

weft_status weft_live_start(weft_live **out, const weft_clock *clock)
{
    weft_live *l = calloc(1, sizeof *l);
    if (!l) return weft_fail(WEFT_ERR_MEMORY, "no memory for the live line");
    l->clock = *clock;
    weft_progress_init(&l->line, write_out, NULL, weft_columns(stdout), weft_on_terminal(stdout),
                       weft_in_colour(stdout));
    open_lock(l);
    int failed = pthread_create(&l->thread, NULL, look, l);
    if (failed) {
        release(l);
        return weft_fail(WEFT_ERR_LIBRARY, "a thread that shows how far a step is cannot be started: %s",
                         strerror(failed));
    }
    *out = l;
    return WEFT_OK;
}

void weft_live_stop(weft_live *l)
{
    if (!l) return;
    pthread_mutex_lock(&l->lock);
    l->stop = true;
    pthread_cond_signal(&l->changed);
    pthread_mutex_unlock(&l->lock);
    pthread_join(l->thread, NULL);
    release(l);
}

void weft_live_at(void *ud, const weft_step_at *at)
{
    weft_live *l = ud;
    const double now = weft_now(&l->clock);
    pthread_mutex_lock(&l->lock);
    weft_inside *x = &l->inside;
    if (at->phase == WEFT_STEP_DATA) x->begun = now;
    if (at->done >= 1) x->before = now - x->begun;
    x->at = *at;
    x->since = now;
    l->in_step = at->done < 1;
    pthread_mutex_unlock(&l->lock);
}

void weft_live_step(weft_live *l, const weft_record *r)
{
    pthread_mutex_lock(&l->lock);
    weft_progress_step(&l->line, weft_now(&l->clock), r);
    pthread_mutex_unlock(&l->lock);
}

void weft_live_note(weft_live *l, const char *text)
{
    pthread_mutex_lock(&l->lock);
    weft_progress_note(&l->line, text);
    pthread_mutex_unlock(&l->lock);
}

void weft_live_done(weft_live *l)
{
    pthread_mutex_lock(&l->lock);
    l->in_step = false;
    weft_progress_done(&l->line);
    pthread_mutex_unlock(&l->lock);
}
