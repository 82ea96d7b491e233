/* run_dir.c — the folder of a run belongs to one run at a time, and its files to one run only. Old checkpoints under a
 * new config.yaml would be taken for the new run's, and two runs that write the same names would mix.
 *
 * The lock is on metrics.jsonl, which is open for writing during the whole run, and not on the folder: network file
 * systems lock only what is open for writing. The kernel lets it go with the process, so a killed run leaves no lock
 * behind. */
#include "train/trainer_impl.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PATH_BYTES = 4096 };

static weft_status lock_file(const char *dir, int *lock)
{
    char path[PATH_BYTES];
    struct stat s;
    if ((size_t)snprintf(path, sizeof path, "%s/metrics.jsonl", dir) >= sizeof path)
        return weft_fail(WEFT_ERR_REFUSED, "%s: the path is too long", dir);
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0666);
    if (fd < 0) return weft_fail(WEFT_ERR_IO, "cannot write metrics to %s: %s", path, strerror(errno));
    weft_status st = WEFT_OK;
    if (fstat(fd, &s) || !S_ISREG(s.st_mode))
        st = weft_fail(WEFT_ERR_REFUSED, "%s is not a plain file; move it away", path);
    else if (flock(fd, LOCK_EX | LOCK_NB) && errno == EWOULDBLOCK) /* other errors: a file system without locks */
        st = weft_fail(WEFT_ERR_REFUSED, "another run is writing into %s; let it end, or choose another --name", dir);
    if (st < 0) close(fd);
    else *lock = fd;
    return st;
}

/* The first checkpoint would end the run when it comes to it. */
static weft_status check_latest(const char *dir)
{
    char path[PATH_BYTES];
    struct stat s;
    if ((size_t)snprintf(path, sizeof path, "%s/latest", dir) >= sizeof path)
        return weft_fail(WEFT_ERR_REFUSED, "%s: the path is too long", dir);
    if (lstat(path, &s) || S_ISLNK(s.st_mode)) return WEFT_OK;
    return weft_fail(WEFT_ERR_REFUSED, "%s is no link, and a run needs the name for one; move it away", path);
}

static bool is_half_written(const char *name)
{
    static const char config[] = "config.yaml";
    return !strncmp(name, config, sizeof config - 1) && weft_ckpt_is_temporary_end(name + sizeof config - 1);
}

/* "latest", or what a killed run left of it. */
static bool is_link(DIR *d, const char *name)
{
    struct stat s;
    return !strncmp(name, "latest", 6) && (!name[6] || weft_ckpt_is_temporary_end(name + 6)) &&
           !fstatat(dirfd(d), name, &s, AT_SYMLINK_NOFOLLOW) && S_ISLNK(s.st_mode);
}

/* Of a folder, not of what a link leads to; NULL: there is none. */
static DIR *open_own(const char *dir)
{
    int fd = open(dir, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    DIR *d = fd >= 0 ? fdopendir(fd) : NULL;
    if (fd >= 0 && !d) close(fd);
    return d;
}

/* Files of one folder that a test of names takes, and the folder when nothing else is in it. */
static void remove_files(const char *dir, bool (*is_ours)(const char *name))
{
    DIR *d = open_own(dir);
    if (!d) return;
    for (struct dirent *e; (e = readdir(d));)
        if (is_ours(e->d_name)) unlinkat(dirfd(d), e->d_name, 0);
    closedir(d);
    rmdir(dir);
}

/* TensorBoard would show the old run's numbers with the new one's. */
static void remove_boards(const char *dir)
{
    char path[PATH_BYTES], rank[PATH_BYTES + 300];
    if ((size_t)snprintf(path, sizeof path, "%s/tb", dir) >= sizeof path) return;
    DIR *d = open_own(path);
    if (!d) return;
    for (struct dirent *e; (e = readdir(d));) {
        snprintf(rank, sizeof rank, "%s/%s", path, e->d_name);
        if (!strncmp(e->d_name, "rank-", 5)) remove_files(rank, weft_tensorboard_is_name);
    }
    closedir(d);
    rmdir(path);
}

static bool is_time_line(const char *name)
{
    static const char begin[] = "trace-step-";
    return !strncmp(name, begin, sizeof begin - 1) && strstr(name, ".json");
}

/* What an earlier run left: checked or removed. Names that no run writes are not looked at. */
static weft_status each_left(const char *dir, bool remove)
{
    char path[PATH_BYTES];
    weft_status st = WEFT_OK;
    DIR *d = opendir(dir);
    if (!d) return weft_fail(WEFT_ERR_IO, "cannot read the folder %s: %s", dir, strerror(errno));
    for (struct dirent *e; st >= 0 && (e = readdir(d));) {
        bool checkpoint = weft_ckpt_is_name(e->d_name, true);
        if (is_link(d, e->d_name) || is_time_line(e->d_name)) {
            if (remove) unlinkat(dirfd(d), e->d_name, 0);
            continue;
        }
        if (!checkpoint && !is_half_written(e->d_name)) continue;
        if ((size_t)snprintf(path, sizeof path, "%s/%s", dir, e->d_name) >= sizeof path)
            st = weft_fail(WEFT_ERR_REFUSED, "%s: the path is too long", dir);
        else if (checkpoint) st = remove ? weft_ckpt_remove(path) : weft_ckpt_check_folder(path);
        else if (remove && unlink(path)) st = weft_fail(WEFT_ERR_IO, "cannot remove %s: %s", path, strerror(errno));
    }
    closedir(d);
    return st;
}

static weft_status clear(const char *dir, int lock)
{
    WEFT_TRY(each_left(dir, false));
    WEFT_TRY(each_left(dir, true));
    remove_boards(dir);
    if (ftruncate(lock, 0) == 0) return WEFT_OK;
    return weft_fail(WEFT_ERR_IO, "cannot empty %s/metrics.jsonl: %s", dir, strerror(errno));
}

/* ---- going on --------------------------------------------------------------------------------------------------- */

/* Where the lines of steps after `step` begin. */
static int64_t end_of_step(FILE *f, int64_t step)
{
    char *line = NULL;
    size_t room = 0;
    int64_t end = 0;
    for (ssize_t n; (n = getline(&line, &room, f)) > 0 && line[n - 1] == '\n'; end += n) {
        const char *at = strstr(line, "\"step\":");
        if (!at || strtoll(at + 7, NULL, 10) > step) break;
    }
    free(line);
    return end;
}

/* Steps that are done again are written again. */
static weft_status cut_metrics(const char *dir, int64_t step, int lock)
{
    char path[PATH_BYTES];
    if ((size_t)snprintf(path, sizeof path, "%s/metrics.jsonl", dir) >= sizeof path)
        return weft_fail(WEFT_ERR_REFUSED, "%s: the path is too long", dir);
    FILE *f = fopen(path, "re");
    if (!f) return weft_fail(WEFT_ERR_IO, "cannot read %s: %s", path, strerror(errno));
    int64_t end = end_of_step(f, step);
    fclose(f);
    return ftruncate(lock, end) == 0 ? WEFT_OK : weft_fail(WEFT_ERR_IO, "cannot shorten %s: %s", path, strerror(errno));
}

/* Whole, and of the step that its name says. */
static bool is_good(const char *path, int64_t step)
{
    weft_ckpt *c = NULL;
    weft_ckpt_about about = {.step = -1};
    bool good = weft_ckpt_open(&c, path) >= 0 && weft_ckpt_verify(c, 0, 1) >= 0;
    if (good) weft_ckpt_tell(c, &about);
    weft_ckpt_close(c);
    return good && about.step == step;
}

/* A later checkpoint that is good is somebody's result; one that was passed over stands where a new one will. */
static weft_status move_later_aside(const char *dir, int64_t step)
{
    int64_t *later = NULL;
    int n = 0;
    char path[PATH_BYTES], aside[PATH_BYTES + 32];
    weft_status st = weft_ckpt_list(dir, &later, &n);
    for (int i = 0; i < n && later[i] > step && st >= 0; i++) {
        st = weft_ckpt_path(dir, later[i], path, sizeof path);
        if (st < 0) break;
        snprintf(aside, sizeof aside, "%s.damaged-%ld", path, (long)getpid());
        if (is_good(path, later[i]))
            st = weft_fail(WEFT_ERR_REFUSED,
                           "%s is newer than the checkpoint of step %lld; choose another --name, or "
                           "--resume auto",
                           path, (long long)step);
        else if (rename(path, aside))
            st = weft_fail(WEFT_ERR_IO, "cannot rename %s to %s: %s", path, aside, strerror(errno));
    }
    free(later);
    return st;
}

weft_status weft_run_dir_open(const char *dir, weft_run_dir_how how, int64_t step, int *lock)
{
    struct stat there;
    int fd;
    if (how == WEFT_RUN_NEW && !lstat(dir, &there))
        return weft_fail(WEFT_ERR_REFUSED,
                         "%s exists already; choose another --name, or give --resume auto or --overwrite", dir);
    WEFT_TRY(weft_make_dir(dir));
    WEFT_TRY(lock_file(dir, &fd));
    weft_status st = check_latest(dir);
    if (st >= 0 && how == WEFT_RUN_OVERWRITE) st = clear(dir, fd);
    if (st >= 0 && how == WEFT_RUN_CONTINUE) st = move_later_aside(dir, step);
    if (how == WEFT_RUN_CONTINUE && st >= 0) st = cut_metrics(dir, step, fd);
    if (st < 0) close(fd);
    else *lock = fd;
    return st;
}
