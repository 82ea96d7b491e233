/* fault.c — parses WEFT_FAULT and acts at its site. */
#include "base/fault.h"

#include "base/text.h"

#include <errno.h>
#include <limits.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static const char *const kind_names[WEFT_FAULT_KINDS] = {"none", "kill", "stop",  "sleep", "exit",
                                                         "fail", "nan",  "stray", "inf",   "large"};

static bool kind_of(const char *s, weft_fault_kind *out)
{
    for (int i = 0; i < WEFT_FAULT_KINDS; i++)
        if (!strcmp(s, kind_names[i])) {
            *out = (weft_fault_kind)i;
            return true;
        }
    return false;
}

static weft_status parse_seconds(weft_fault *f, const char *word)
{
    if (word && weft_parse_i64(word, &f->seconds) == WEFT_OK && f->seconds >= 1 && f->seconds <= 86400) return WEFT_OK;
    return weft_fail(WEFT_ERR_REFUSED, "WEFT_FAULT: sleep:%s; give whole seconds, such as sleep:30", word ? word : "");
}

static weft_status parse_field(weft_fault *f, const char *field)
{
    int64_t value = 0;
    if (!strncmp(field, "site=", 5)) {
        if (strlen(field + 5) >= sizeof f->site)
            return weft_fail(WEFT_ERR_REFUSED, "WEFT_FAULT: site \"%s\" is longer than %zu letters", field + 5,
                             sizeof f->site - 1);
        memcpy(f->site, field + 5, strlen(field + 5) + 1);
        return WEFT_OK;
    }
    if (!strncmp(field, "rank=", 5)) {
        WEFT_TRY(weft_parse_i64(field + 5, &value));
        if (value < -1 || value > INT_MAX)
            return weft_fail(WEFT_ERR_REFUSED, "WEFT_FAULT: rank %lld", (long long)value);
        f->rank = (int)value;
        return WEFT_OK;
    }
    if (!strncmp(field, "hit=", 4)) {
        WEFT_TRY(weft_parse_i64(field + 4, &f->hit));
        return f->hit >= 1 ? WEFT_OK
                           : weft_fail(WEFT_ERR_REFUSED, "WEFT_FAULT: hit=%s; passes count from 1", field + 4);
    }
    if (!strncmp(field, "row=", 4) || !strncmp(field, "column=", 7)) {
        WEFT_TRY(weft_parse_i64(strchr(field, '=') + 1, &value));
        *(*field == 'r' ? &f->row : &f->column) = value;
        return value >= 0 ? WEFT_OK
                          : weft_fail(WEFT_ERR_REFUSED, "WEFT_FAULT: %s; rows and columns count from 0", field);
    }
    return weft_fail(WEFT_ERR_REFUSED,
                     "WEFT_FAULT: unknown part \"%s\"; known are rank=N, site=NAME, hit=N, row=N, column=N", field);
}

weft_status weft_fault_parse(weft_fault *fault, const char *spec)
{
    *fault = (weft_fault){.rank = -1, .hit = 1};
    if (!spec || !*spec) return WEFT_OK;
    char copy[160];
    if (strlen(spec) >= sizeof copy) return weft_fail(WEFT_ERR_REFUSED, "WEFT_FAULT is longer than 159 letters");
    memcpy(copy, spec, strlen(spec) + 1);
    char *rest = NULL, *word = strtok_r(copy, ":", &rest);
    if (!word || !kind_of(word, &fault->kind))
        return weft_fail(
            WEFT_ERR_REFUSED,
            "WEFT_FAULT: unknown kind \"%s\"; known are kill, stop, sleep:SECONDS, exit, fail, nan, stray, inf, "
            "large",
            word ? word : "");
    if (fault->kind == WEFT_FAULT_SLEEP) WEFT_TRY(parse_seconds(fault, strtok_r(NULL, ":", &rest)));
    while ((word = strtok_r(NULL, ":", &rest))) WEFT_TRY(parse_field(fault, word));
    if (fault->kind != WEFT_FAULT_NONE && !*fault->site) /* would never act, and a test would pass for nothing */
        return weft_fail(WEFT_ERR_REFUSED, "WEFT_FAULT: \"%s\" names no site=NAME", spec);
    return WEFT_OK;
}

/* Whether it is this fault's turn; counts the pass. */
static bool due(weft_fault *f, int rank, const char *site)
{
    if (f->kind == WEFT_FAULT_NONE || (f->rank >= 0 && f->rank != rank) || strcmp(f->site, site)) return false;
    return ++f->passed == f->hit;
}

static void sleep_for(int64_t seconds)
{
    struct timespec left = {.tv_sec = (time_t)seconds};
    while (nanosleep(&left, &left) != 0 && errno == EINTR) {}
}

bool weft_fault_strays(weft_fault *f, int rank, const char *site)
{
    return f->kind == WEFT_FAULT_STRAY && due(f, rank, site);
}

weft_status weft_fault_pass(weft_fault *f, int rank, const char *site, bool *nan)
{
    if (nan) *nan = false;
    if (!due(f, rank, site)) return WEFT_OK;
    switch (f->kind) {
    case WEFT_FAULT_KILL: raise(SIGKILL); break;
    case WEFT_FAULT_STOP:
        for (;;) pause();
    case WEFT_FAULT_SLEEP: sleep_for(f->seconds); break;
    case WEFT_FAULT_EXIT: _exit(5);
    case WEFT_FAULT_FAIL:
        return weft_fail(WEFT_ERR_INTERNAL, "injected fault at %s, pass %lld", site, (long long)f->hit);
    case WEFT_FAULT_NAN:
        if (!nan) return weft_fail(WEFT_ERR_REFUSED, "WEFT_FAULT: site %s has no value to turn into a NaN", site);
        *nan = true;
        break;
    case WEFT_FAULT_INF:
    case WEFT_FAULT_LARGE:
        return weft_fail(WEFT_ERR_REFUSED, "WEFT_FAULT: site %s has no rows of numbers", site);
    case WEFT_FAULT_STRAY:
        return weft_fail(WEFT_ERR_REFUSED, "WEFT_FAULT: site %s has no group of ranks to stray from", site);
    case WEFT_FAULT_NONE:
    case WEFT_FAULT_KINDS: break;
    }
    return WEFT_OK;
}

bool weft_fault_number(weft_fault *f, int rank, const char *site, double *value)
{
    if (f->kind != WEFT_FAULT_NAN && f->kind != WEFT_FAULT_INF && f->kind != WEFT_FAULT_LARGE) return false;
    *value = f->kind == WEFT_FAULT_NAN ? (double)NAN : f->kind == WEFT_FAULT_INF ? (double)INFINITY : 1e5;
    return due(f, rank, site);
}
