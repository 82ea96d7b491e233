/* tensorboard.c — numbers of steps as TensorBoard reads them: a file of records, each an Event of its protocol
 * buffers. The few fields that numbers need are written by hand.
 *
 *   record:   length u64 | masked CRC-32C of those 8 bytes | data | masked CRC-32C of the data, all little-endian
 *   Event:    wall_time = 1 (double), step = 2 (varint), file_version = 3 (text), summary = 5, session_log = 7
 *   Summary:  value = 1, each {tag = 1 (text), simple_value = 2 (float)}
 *
 * A run that goes on, or begins anew, where a file lies already gets one of its own, which begins with the session's
 * start at its first step: from there on, readers forget what an earlier file has. Files of a folder are read in the
 * order of their names. */
#include "metrics/metrics_impl.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { VALUES_MAX = 32, TAG_MAX = 60, RECORD_MAX = 4096, PATH_BYTES = 4096, HOST_BYTES = 256 };

struct weft_tensorboard {
    int fd;
    off_t whole;
    char *path;
};

/* ---- protocol buffers -------------------------------------------------------------------------------------- */

typedef struct bytes { unsigned char at[RECORD_MAX]; size_t n; } bytes; /* callers know that it is enough */

static void put_little(bytes *b, uint64_t x, int n)
{
    for (int i = 0; i < n; i++) b->at[b->n++] = (unsigned char)(x >> 8 * i);
}

static void put_varint(bytes *b, uint64_t x)
{
    for (; x >= 0x80; x >>= 7) b->at[b->n++] = (unsigned char)(x | 0x80);
    b->at[b->n++] = (unsigned char)x;
}

typedef enum { VARINT = 0, FIXED64 = 1, LENGTH = 2, FIXED32 = 5 } wire;

static void put_key(bytes *b, int field, wire w) { put_varint(b, (uint64_t)field << 3 | w); }

static void put_double(bytes *b, int field, double x)
{
    uint64_t u;
    memcpy(&u, &x, sizeof u);
    put_key(b, field, FIXED64);
    put_little(b, u, 8);
}

static void put_float(bytes *b, int field, float x)
{
    uint32_t u;
    memcpy(&u, &x, sizeof u);
    put_key(b, field, FIXED32);
    put_little(b, u, 4);
}

static void put_data(bytes *b, int field, const void *data, size_t n)
{
    put_key(b, field, LENGTH);
    put_varint(b, n);
    memcpy(b->at + b->n, data, n);
    b->n += n;
}

static void put_value(bytes *b, const weft_tensorboard_value *v)
{
    bytes x = {.n = 0};
    put_data(&x, 1, v->tag, strlen(v->tag));
    put_float(&x, 2, (float)v->value);
    put_data(b, 1, x.at, x.n);
}

/* ---- records ----------------------------------------------------------------------------------------------- */

static uint32_t masked(const void *data, size_t n)
{
    const uint32_t crc = weft_crc32c(data, n);
    return (crc >> 15 | crc << 17) + 0xa282ead8u;
}

static weft_status add_record(weft_tensorboard *t, const bytes *event)
{
    bytes r = {.n = 0};
    put_little(&r, event->n, 8);
    put_little(&r, masked(r.at, 8), 4);
    memcpy(r.at + r.n, event->at, event->n);
    r.n += event->n;
    put_little(&r, masked(event->at, event->n), 4);
    if (weft__metrics_append(t->fd, &t->whole, r.at, r.n)) return WEFT_OK;
    return weft_fail(WEFT_ERR_IO, "cannot write numbers for TensorBoard to %s: %s", t->path, strerror(errno));
}

static weft_status begin_file(weft_tensorboard *t, double wall)
{
    static const char version[] = "brain.Event:2";
    bytes event = {.n = 0};
    put_double(&event, 1, wall);
    put_data(&event, 3, version, sizeof version - 1);
    return add_record(t, &event);
}

/* SessionLog {status = 1: START = 1}: what other files have from this step on is of no account. */
static weft_status begin_session(weft_tensorboard *t, double wall, int64_t step)
{
    static const unsigned char start[] = {1 << 3 | VARINT, 1};
    bytes event = {.n = 0};
    put_double(&event, 1, wall);
    put_key(&event, 2, VARINT);
    put_varint(&event, (uint64_t)step);
    put_data(&event, 7, start, sizeof start);
    return add_record(t, &event);
}

weft_status weft_tensorboard_write(weft_tensorboard *t, double wall, int64_t step, const weft_tensorboard_value *v,
                                   int n)
{
    bytes event = {.n = 0}, summary = {.n = 0};
    if (n < 0 || n > VALUES_MAX)
        return weft_fail(WEFT_ERR_INTERNAL, "%d numbers of one step; at most %d fit", n, VALUES_MAX);
    for (int i = 0; i < n; i++) {
        if (strlen(v[i].tag) > TAG_MAX)
            return weft_fail(WEFT_ERR_INTERNAL, "the tag %s is longer than %d letters", v[i].tag, TAG_MAX);
        put_value(&summary, &v[i]);
    }
    put_double(&event, 1, wall);
    put_key(&event, 2, VARINT);
    put_varint(&event, (uint64_t)step);
    put_data(&event, 5, summary.at, summary.n);
    return add_record(t, &event);
}

/* ---- files ------------------------------------------------------------------------------------------------- */

static const char prefix[] = "events.out.tfevents.";

bool weft_tensorboard_is_name(const char *name) { return !strncmp(name, prefix, sizeof prefix - 1); }

/* A second that no file here has, and none after it: names are in the order of the files, also of two in one second. */
static long long next_second(const char *dir, double wall, bool *others)
{
    long long second = (long long)wall;
    DIR *d = opendir(dir);
    for (struct dirent *e; d && (e = readdir(d));) {
        if (!weft_tensorboard_is_name(e->d_name)) continue;
        *others = true;
        const long long there = strtoll(e->d_name + sizeof prefix - 1, NULL, 10);
        if (there >= second && there < 9999999999LL) second = there + 1;
    }
    if (d) closedir(d);
    return second;
}

static weft_status make_file(weft_tensorboard *t, const char *dir, double wall, bool *others)
{
    char host[HOST_BYTES] = "", path[PATH_BYTES];
    gethostname(host, sizeof host - 1);
    if (!*host) snprintf(host, sizeof host, "localhost");
    if ((size_t)snprintf(path, sizeof path, "%s/%s%010lld.%s.%ld.0", dir, prefix, next_second(dir, wall, others), host,
                         (long)getpid()) >= sizeof path)
        return weft_fail(WEFT_ERR_REFUSED, "%s: the path is too long", dir);
    t->path = strdup(path);
    if (!t->path) return weft_fail(WEFT_ERR_MEMORY, "%s: out of memory", path);
    t->fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0666);
    if (t->fd >= 0) return WEFT_OK;
    return weft_fail(WEFT_ERR_IO, "cannot write numbers for TensorBoard to %s: %s", path, strerror(errno));
}

weft_status weft_tensorboard_open(weft_tensorboard **out, const char *dir, double wall, int64_t after)
{
    WEFT_TRY(weft_make_dir(dir));
    weft_tensorboard *t = calloc(1, sizeof *t);
    if (!t) return weft_fail(WEFT_ERR_MEMORY, "%s: out of memory", dir);
    t->fd = -1;
    t->whole = -1;
    bool others = false;
    weft_status st = make_file(t, dir, wall, &others);
    if (st >= 0) st = begin_file(t, wall);
    if (st >= 0 && others) st = begin_session(t, wall, after + 1);
    if (st < 0) {
        weft_tensorboard_close(t);
        return st;
    }
    *out = t;
    return WEFT_OK;
}

void weft_tensorboard_close(weft_tensorboard *t)
{
    if (!t) return;
    if (t->fd >= 0) close(t->fd);
    free(t->path);
    free(t);
}
