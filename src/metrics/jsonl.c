/* jsonl.c — one JSON object per step and line, in SI units, flushed: readable while the run goes on, and
 * complete up to the last step when it is killed. */
#include "metrics/metrics_impl.h"

#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct weft_jsonl {
    FILE *file;  /* lines go to its descriptor: a buffer would keep those that could not be written */
    char *path;
    off_t whole; /* the end of the last whole line, when half a one may stand behind it; else -1 */
};

/* ---- open ------------------------------------------------------------------------------------------------- */

enum { LONGEST = 65536 }; /* no line of ours is longer */

/* A killed run may have left half a line; it is cut off, because the line that follows it would be lost
 * too. What does not begin as a line of ours is another kind of file, and is not touched. */
static weft_status drop_half_line(FILE *f, const char *path)
{
    char tail[LONGEST];
    fseeko(f, 0, SEEK_END);
    const off_t end = ftello(f), from = end > LONGEST ? end - LONGEST : 0;
    const size_t n = (size_t)(end - from);
    fseeko(f, from, SEEK_SET);
    if (fread(tail, 1, n, f) != n) return weft_fail(WEFT_ERR_IO, "cannot read %s: %s", path, strerror(errno));
    const char *newline = memrchr(tail, '\n', n);
    const size_t whole = newline ? (size_t)(newline - tail) + 1 : 0;
    const bool half = whole < n;
    if (half && (tail[whole] != '{' || (whole == 0 && from > 0)))
        return weft_fail(WEFT_ERR_REFUSED, "%s exists and is no file of JSON lines: choose another name", path);
    fseeko(f, 0, SEEK_END); /* between reading and writing C wants a move */
    if (half && ftruncate(fileno(f), from + (off_t)whole) != 0)
        return weft_fail(WEFT_ERR_IO, "cannot cut %s after its last whole line: %s", path, strerror(errno));
    return WEFT_OK;
}

weft_status weft_jsonl_open(weft_jsonl **out, const char *path)
{
    weft_jsonl *j = calloc(1, sizeof *j);
    if (j) j->path = strdup(path), j->whole = -1;
    if (!j || !j->path) {
        weft_jsonl_close(j);
        return weft_fail(WEFT_ERR_MEMORY, "%s: out of memory", path);
    }
    j->file = fopen(path, "a+e");
    struct stat s;
    weft_status st = WEFT_OK;
    if (!j->file || fstat(fileno(j->file), &s) != 0)
        st = weft_fail(WEFT_ERR_IO, "cannot write metrics to %s: %s", path, strerror(errno));
    else if (S_ISREG(s.st_mode)) /* pipes and terminals are fine as a target, but have no end to look at */
        st = drop_half_line(j->file, path);
    if (st < 0) {
        weft_jsonl_close(j);
        return st;
    }
    *out = j;
    return WEFT_OK;
}

void weft_jsonl_close(weft_jsonl *j)
{
    if (!j) return;
    if (j->file) fclose(j->file);
    free(j->path);
    free(j);
}

/* ---- write ------------------------------------------------------------------------------------------------ */

/* JSON has no NaN: null, and the key is named in "nonfinite", so that a reader can tell it from "not measured". */
static void put_real(json_t *o, json_t *nonfinite, const char *key, double x)
{
    if (isfinite(x)) {
        json_object_set_new(o, key, json_real(x));
        return;
    }
    json_object_set_new(o, key, json_null());
    json_array_append_new(nonfinite, json_string(key));
}

static void put_int(json_t *o, const char *key, int64_t x) { json_object_set_new(o, key, json_integer(x)); }

static json_t *object_of(const weft_record *r)
{
    json_t *o = json_object(), *nonfinite = json_array();
    const double speed = weft_record_throughput(r);
    put_int(o, "step", r->step);
    put_int(o, "steps", r->steps);
    put_real(o, nonfinite, "loss", r->loss);
    put_real(o, nonfinite, "grad_norm", r->grad_norm);
    put_real(o, nonfinite, "lr", r->lr);
    put_real(o, nonfinite, "seconds", r->seconds);
    put_int(o, "tokens", r->tokens);
    put_int(o, "valid_tokens", r->valid_tokens);
    put_real(o, nonfinite, "tokens_per_second", speed);
    if (r->ranks > 0) {
        put_int(o, "ranks", r->ranks);
        put_real(o, nonfinite, "tokens_per_second_per_rank", speed / (double)r->ranks);
    }
    put_real(o, nonfinite, "comm_share", r->comm_share);
    put_real(o, nonfinite, "exposed_share", r->exposed_share);
    put_real(o, nonfinite, "idle_share", r->idle_share);
    put_real(o, nonfinite, "reduce_exposed_share", r->reduce_exposed_share);
    put_int(o, "bytes_logical", r->bytes_logical);
    put_int(o, "messages", r->messages);
    put_real(o, nonfinite, "memory_bytes", r->memory_bytes);
    put_real(o, nonfinite, "resident_bytes", r->resident_bytes);
    put_real(o, nonfinite, "imbalance", r->imbalance);
    put_real(o, nonfinite, "imbalance_time", r->imbalance_time);
    put_real(o, nonfinite, "eta_seconds", r->eta_seconds);
    json_object_set_new(o, "skipped", json_boolean(r->skip != WEFT_SKIP_NOT));
    if (r->skip) json_object_set_new(o, "skip_reason", json_string(weft_skip_name(r->skip)));
    put_int(o, "skips", r->skips);
    put_real(o, nonfinite, "loss_scale", r->loss_scale);
    put_int(o, "guard_ranks", r->guard_ranks);
    put_real(o, nonfinite, "loss_zscore", r->loss_zscore);
    json_object_set_new(o, "spike", json_boolean(r->spike));
    if (r->flops > 0) put_real(o, nonfinite, "model_flops", r->flops);
    if (r->mfu > 0) put_real(o, nonfinite, "mfu", r->mfu);
    json_t *plan = r->plan ? json_loads(r->plan, 0, NULL) : NULL;
    if (plan) json_object_set_new(o, "plan", plan);
    if (json_array_size(nonfinite) > 0) json_object_set(o, "nonfinite", nonfinite);
    json_decref(nonfinite);
    return o;
}

weft_status weft_jsonl_write(weft_jsonl *j, const weft_record *r)
{
    weft_text line = {0};
    json_t *o = object_of(r);
    char *text = json_dumps(o, JSON_COMPACT);
    json_decref(o);
    if (text) weft_text_add(&line, "%s\n", text);
    free(text);
    weft_status st = WEFT_OK;
    if (!line.data || line.failed) st = weft_fail(WEFT_ERR_MEMORY, "%s: out of memory for a line", j->path);
    else if (!weft__metrics_append(fileno(j->file), &j->whole, line.data, line.len))
        st = weft_fail(WEFT_ERR_IO, "cannot write metrics to %s: %s", j->path, strerror(errno));
    weft_text_free(&line);
    return st;
}

bool weft_jsonl_lost(const weft_jsonl *j)
{
    struct stat own, there;
    if (fstat(fileno(j->file), &own) || !S_ISREG(own.st_mode)) return false;
    return stat(j->path, &there) || own.st_ino != there.st_ino || own.st_dev != there.st_dev;
}
