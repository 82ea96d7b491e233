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

static bool is_half_written(const char *name)
{
    static const char config[] = "config.yaml";
    return !strncmp(name, config, sizeof config - 1) && weft__is_temporary_end(name + sizeof config - 1);
}

/* What an earlier run left: checked or removed. Names that no run writes are not looked at. */
static weft_status each_left(const char *dir, bool remove)
{
    char path[PATH_BYTES];
    weft_status st = WEFT_OK;
    DIR *d = opendir(dir);
    if (!d) return weft_fail(WEFT_ERR_IO, "cannot read the folder %s: %s", dir, strerror(errno));
    for (struct dirent *e; st >= 0 && (e = readdir(d));) {
        bool checkpoint = weft__is_checkpoint_name(e->d_name);
        if (!checkpoint && !is_half_written(e->d_name)) continue;
        if ((size_t)snprintf(path, sizeof path, "%s/%s", dir, e->d_name) >= sizeof path)
            st = weft_fail(WEFT_ERR_REFUSED, "%s: the path is too long", dir);
        else if (checkpoint) st = remove ? weft__remove_checkpoint(path) : weft__check_checkpoint(path);
        else if (remove && unlink(path)) st = weft_fail(WEFT_ERR_IO, "cannot remove %s: %s", path, strerror(errno));
    }
    closedir(d);
    return st;
}

static weft_status clear(const char *dir, int lock)
{
    WEFT_TRY(each_left(dir, false));
    WEFT_TRY(each_left(dir, true));
    if (ftruncate(lock, 0) == 0) return WEFT_OK;
    return weft_fail(WEFT_ERR_IO, "cannot empty %s/metrics.jsonl: %s", dir, strerror(errno));
}

weft_status weft_run_dir_open(const char *dir, bool overwrite, int *lock)
{
    struct stat there;
    int fd;
    if (!overwrite && !lstat(dir, &there))
        return weft_fail(WEFT_ERR_REFUSED, "%s exists already; choose another --name or give --overwrite", dir);
    WEFT_TRY(weft_make_dir(dir));
    WEFT_TRY(lock_file(dir, &fd));
    weft_status st = overwrite ? clear(dir, fd) : WEFT_OK;
    if (st < 0) close(fd);
    else *lock = fd;
    return st;
}
