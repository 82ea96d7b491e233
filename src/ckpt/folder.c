/* folder.c — the folders of checkpoints inside the folder of a run: their names, which are kept, how they go.
 *
 * Names decide: what has the name of a checkpoint and its manifest is complete; what has a temporary end never was.
 * Only files that checkpoints have are ever removed, and a folder loses its name before its first file. */
#include "ckpt/ckpt_impl.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PATH_BYTES = 4096 };

/* ---- names -------------------------------------------------------------------------------------------------- */

static bool skip_digits(const char **p, int least)
{
    int n = 0;
    for (; isdigit((unsigned char)**p); (*p)++) n++;
    return n >= least;
}

bool weft_ckpt_is_temporary_end(const char *p)
{
    if (strncmp(p, ".tmp-", 5)) return false;
    p += 5;
    if (!skip_digits(&p, 1)) return false;
    if (*p == '-' && (p++, !skip_digits(&p, 1))) return false;
    return !*p;
}

bool weft_ckpt_is_name(const char *name, bool temporary)
{
    const char *p = name + 5;
    return !strncmp(name, "step-", 5) && skip_digits(&p, 8) && (!*p || (temporary && weft_ckpt_is_temporary_end(p)));
}

/* The part of a name after "model-" or "optimizer-" : "00001-of-00002.safetensors". */
static const char *after_shard(const char *p)
{
    if (!skip_digits(&p, 5) || strncmp(p, "-of-", 4)) return NULL;
    p += 4;
    if (!skip_digits(&p, 5) || strncmp(p, ".safetensors", 12)) return NULL;
    return p + 12;
}

bool weft__is_checkpoint_file(const char *name)
{
    static const char *const files[] = {WEFT__CKPT_CONFIG, WEFT__CKPT_STATE, WEFT__CKPT_MANIFEST, WEFT__HF_INDEX,
                                        WEFT__HF_SINGLE};
    const char *p = NULL;
    for (size_t i = 0; i < sizeof files / sizeof *files && !p; i++)
        if (!strncmp(name, files[i], strlen(files[i]))) p = name + strlen(files[i]);
    if (!p && !strncmp(name, "model-", 6)) p = after_shard(name + 6);
    if (!p && !strncmp(name, "optimizer-", 10)) p = after_shard(name + 10);
    return p && (!*p || weft_ckpt_is_temporary_end(p));
}

weft_status weft_ckpt_path(const char *run_dir, int64_t step, char *path, size_t size)
{
    int n = snprintf(path, size, "%s/step-%08lld", run_dir, (long long)step);
    if (n >= 0 && (size_t)n < size) return WEFT_OK;
    return weft_fail(WEFT_ERR_REFUSED, "%s: the path is too long", run_dir);
}

/* ---- removing ------------------------------------------------------------------------------------------------- */

/* For every file in `dir`: removed, or only looked at. The first one that is not a checkpoint's, or cannot be removed,
 * ends it: its name is in odd[n], empty for the folder itself, and errno tells why, 0 for a file of somebody else's.
 * Writes no message: a failure may have been told already. */
static bool each_file(const char *dir, bool remove, char *odd, size_t n)
{
    DIR *d = opendir(dir);
    int why = d ? 0 : errno;
    bool fine = d != NULL;
    snprintf(odd, n, "%s", "");
    for (struct dirent *e; fine && (e = readdir(d));) {
        struct stat s;
        if (!strcmp(e->d_name, ".") || !strcmp(e->d_name, "..")) continue;
        fine = weft__is_checkpoint_file(e->d_name) && !fstatat(dirfd(d), e->d_name, &s, AT_SYMLINK_NOFOLLOW) &&
               S_ISREG(s.st_mode);
        if (fine && remove && unlinkat(dirfd(d), e->d_name, 0)) fine = false, why = errno;
        if (!fine) snprintf(odd, n, "/%s", e->d_name);
    }
    if (d) closedir(d);
    errno = why;
    return fine;
}

weft_status weft_ckpt_check_folder(const char *dir)
{
    char odd[300];
    struct stat s;
    if (lstat(dir, &s) || !S_ISDIR(s.st_mode))
        return weft_fail(WEFT_ERR_REFUSED, "%s is no folder of a run; move it away, or choose another --name", dir);
    if (each_file(dir, false, odd, sizeof odd)) return WEFT_OK;
    if (errno) return weft_fail(WEFT_ERR_IO, "cannot read %s: %s", dir, strerror(errno));
    return weft_fail(WEFT_ERR_REFUSED,
                     "%s%s is no file of a checkpoint, so its folder is not removed; move it away, or choose "
                     "another --name",
                     dir, odd);
}

/* A folder that is killed half-way must not look like a checkpoint that was damaged. */
static bool take_name_away(const char *dir, char *path, size_t size)
{
    const char *base = strrchr(dir, '/');
    bool final = weft_ckpt_is_name(base ? base + 1 : dir, false);
    if (!final) return (size_t)snprintf(path, size, "%s", dir) < size;
    if ((size_t)snprintf(path, size, "%s.tmp-%ld", dir, (long)getpid()) >= size) return false;
    return rename(dir, path) == 0;
}

weft_status weft_ckpt_remove(const char *dir)
{
    char odd[300] = "", path[PATH_BYTES];
    if (take_name_away(dir, path, sizeof path) && each_file(path, true, odd, sizeof odd) && !rmdir(path))
        return WEFT_OK;
    return weft_fail(WEFT_ERR_IO, "cannot remove %s%s: %s", dir, odd, strerror(errno));
}

/* ---- a run's checkpoints -------------------------------------------------------------------------------------- */

static int newest_first(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x < y) - (x > y);
}

weft_status weft_ckpt_list(const char *run_dir, int64_t **step, int *n)
{
    DIR *d = opendir(run_dir);
    if (!d && errno == ENOTDIR)
        return weft_fail(WEFT_ERR_REFUSED, "%s is no folder; the folder of a run is needed, or of one checkpoint",
                         run_dir);
    if (!d) return weft_fail(WEFT_ERR_IO, "cannot read the folder %s: %s", run_dir, strerror(errno));
    int64_t *list = NULL;
    int count = 0, room = 0;
    weft_status st = WEFT_OK;
    for (struct dirent *e; st >= 0 && (e = readdir(d));) {
        int64_t value;
        if (!weft_ckpt_is_name(e->d_name, false) || weft_parse_i64(e->d_name + 5, &value) < 0) continue;
        if (count == room) {
            room = room ? 2 * room : 16;
            int64_t *more = realloc(list, (size_t)room * sizeof *list);
            if (!more) st = weft_fail(WEFT_ERR_MEMORY, "%s: no memory for a list of checkpoints", run_dir);
            else list = more;
        }
        if (st >= 0) list[count++] = value;
    }
    closedir(d);
    if (st < 0) {
        free(list);
        return st;
    }
    if (count) qsort(list, (size_t)count, sizeof *list, newest_first);
    *step = list;
    *n = count;
    return WEFT_OK;
}

static bool is_complete(const char *dir)
{
    weft_ckpt *c = NULL;
    bool yes = weft_ckpt_open(&c, dir) >= 0;
    weft_ckpt_close(c);
    return yes;
}

static void prune_one(const char *dir, const weft_log *log)
{
    weft_status st = weft_ckpt_check_folder(dir);
    if (st >= 0) st = weft_ckpt_remove(dir);
    if (st < 0) weft_logf(log, WEFT_LOG_WARN, "an old checkpoint stays: %s", weft_last_error());
}

static weft_status prune_temporary(const char *run_dir, const weft_log *log)
{
    char path[PATH_BYTES];
    DIR *d = opendir(run_dir);
    if (!d) return weft_fail(WEFT_ERR_IO, "cannot read the folder %s: %s", run_dir, strerror(errno));
    for (struct dirent *e; (e = readdir(d));) {
        if (!weft_ckpt_is_name(e->d_name, true) || weft_ckpt_is_name(e->d_name, false)) continue;
        if ((size_t)snprintf(path, sizeof path, "%s/%s", run_dir, e->d_name) < sizeof path) prune_one(path, log);
    }
    closedir(d);
    return WEFT_OK;
}

weft_status weft_ckpt_prune(const char *run_dir, int64_t keep_last, int64_t keep_every, const weft_log *log)
{
    int64_t *step = NULL, newer = 0;
    int n = 0;
    char path[PATH_BYTES];
    WEFT_TRY(prune_temporary(run_dir, log));
    WEFT_TRY(weft_ckpt_list(run_dir, &step, &n));
    weft_status st = WEFT_OK;
    for (int i = 0; i < n && keep_last > 0 && st >= 0; i++) {
        st = weft_ckpt_path(run_dir, step[i], path, sizeof path);
        /* one that is not complete may be all that is left of something: it is nobody's to remove */
        if (st < 0 || !is_complete(path)) continue;
        bool kept = newer++ < keep_last || (keep_every > 0 && step[i] % keep_every == 0);
        if (!kept) prune_one(path, log);
    }
    free(step);
    return st;
}

/* ---- names that change at once ---------------------------------------------------------------------------------- */

weft_status weft__sync_folder(const char *dir)
{
    int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return weft_fail(WEFT_ERR_IO, "cannot open the folder %s: %s", dir, strerror(errno));
    int failed = fsync(fd) != 0 && errno != EINVAL && errno != EROFS ? errno : 0;
    close(fd);
    return failed ? weft_fail(WEFT_ERR_IO, "cannot sync the folder %s: %s", dir, strerror(failed)) : WEFT_OK;
}

weft_status weft__point_latest(const char *run_dir, const char *name)
{
    char link[PATH_BYTES], temporary[PATH_BYTES];
    struct stat s;
    if ((size_t)snprintf(link, sizeof link, "%s/latest", run_dir) >= sizeof link ||
        (size_t)snprintf(temporary, sizeof temporary, "%s/latest.tmp-%ld", run_dir, (long)getpid()) >= sizeof temporary)
        return weft_fail(WEFT_ERR_REFUSED, "%s: the path is too long", run_dir);
    if (!lstat(link, &s) && !S_ISLNK(s.st_mode))
        return weft_fail(WEFT_ERR_REFUSED, "%s is no link of a run's; move it away", link);
    unlink(temporary);
    if (symlink(name, temporary) || rename(temporary, link)) {
        int why = errno;
        unlink(temporary);
        return weft_fail(WEFT_ERR_IO, "cannot point %s at %s: %s", link, name, strerror(why));
    }
    return weft__sync_folder(run_dir);
}
