/* spill_file.c — a file without a name whose room is taken beforehand, and which leaves nothing in the page cache.
 *
 * Pages of a file that are not written yet count as memory of whoever wrote them, in a control group too, and a machine
 * that is short of memory would begin to write at the worst time. So they are written while the next ones come, and
 * dropped; what is read is read once, and dropped as well. */
#include "base/spill_impl.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "base/text.h"

enum { PIECE = 4 << 20 }; /* bytes that are moved at once, and in the cache at once: twice so many */

/* ---- opening ------------------------------------------------------------------------------------------ */

/* Where the file system knows no files without a name, one that has it for a moment. */
static int open_named(const char *folder)
{
    const size_t room = strlen(folder) + 32;
    char *path = malloc(room);
    if (!path) return errno = ENOMEM, -1;
    snprintf(path, room, "%s/weft-spill-XXXXXX", folder);
    int fd = mkostemp(path, O_CLOEXEC);
    if (fd >= 0) unlink(path);
    free(path);
    return fd;
}

static int open_unnamed(const char *folder)
{
    int fd = open(folder, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    return fd >= 0 || (errno != EOPNOTSUPP && errno != EISDIR && errno != EINVAL) ? fd : open_named(folder);
}

static weft_status refuse_room(const char *folder, int fd, int64_t bytes, int why)
{
    struct statvfs s;
    char need[32], is_free[32] = "?";
    if (fstatvfs(fd, &s) == 0)
        weft_format_bytes((double)s.f_bavail * (double)s.f_frsize, is_free, sizeof is_free);
    weft_format_bytes((double)bytes, need, sizeof need);
    return weft_fail(why == EIO ? WEFT_ERR_IO : WEFT_ERR_REFUSED,
                     "%s has no room for a file of %s: %s (%s are free); another folder may have it", folder, need,
                     strerror(why), is_free);
}

weft_status weft__spill_file(int *fd, const char *folder, int64_t bytes)
{
    int file = open_unnamed(folder), why;
    if (file < 0)
        return weft_fail(WEFT_ERR_REFUSED, "no file can be made in %s: %s; give a folder in which this user may write",
                         folder, strerror(errno));
    do why = bytes > 0 ? posix_fallocate(file, 0, bytes) : 0;
    while (why == EINTR);
    if (why) {
        weft_status st = refuse_room(folder, file, bytes, why);
        close(file);
        return st;
    }
    *fd = file;
    return WEFT_OK;
}

bool weft__spill_file_in_memory(int fd)
{
    struct statfs s;
    return fstatfs(fd, &s) == 0 && (s.f_type == TMPFS_MAGIC || s.f_type == RAMFS_MAGIC);
}

/* ---- moving ------------------------------------------------------------------------------------------- */

static weft_status say(const char *what, const char *folder, size_t bytes, int64_t at, int why)
{
    return weft_fail(WEFT_ERR_IO, "cannot %s %zu bytes at %lld of the unnamed file in %s: %s", what, bytes,
                     (long long)at, folder, strerror(why));
}

/* A file system that cannot write a range by itself (ENOSYS, EINVAL, ESPIPE) writes when it likes; one that could not
 * says so here, and only here. */
static weft_status write_back(int fd, const char *folder, size_t bytes, int64_t at, unsigned how)
{
    int failed;
    do failed = sync_file_range(fd, at, (off_t)bytes, how) ? errno : 0;
    while (failed == EINTR);
    return failed == EIO || failed == ENOSPC || failed == EDQUOT ? say("write", folder, bytes, at, failed) : WEFT_OK;
}

static weft_status put_piece(int fd, const char *folder, const char *from, size_t bytes, int64_t at)
{
    for (size_t done = 0; done < bytes;) {
        ssize_t n = pwrite(fd, from + done, bytes - done, at + (int64_t)done);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return say("write", folder, bytes - done, at + (int64_t)done, n < 0 ? errno : ENOSPC);
        done += (size_t)n;
    }
    return write_back(fd, folder, bytes, at, SYNC_FILE_RANGE_WRITE);
}

static weft_status settle(int fd, const char *folder, size_t bytes, int64_t at)
{
    const unsigned all = SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER;
    WEFT_TRY(write_back(fd, folder, bytes, at, all));
    posix_fadvise(fd, at, (off_t)bytes, POSIX_FADV_DONTNEED); /* advice: memory is all that it saves */
    return WEFT_OK;
}

static size_t piece_of(size_t left) { return left < PIECE ? left : PIECE; }

/* One piece goes to the disk while the next one is copied. */
weft_status weft__spill_write(int fd, const char *folder, const char *from, size_t bytes, int64_t at)
{
    size_t before = 0;
    for (size_t done = 0; done < bytes; done += before) {
        size_t n = piece_of(bytes - done);
        WEFT_TRY(put_piece(fd, folder, from + done, n, at + (int64_t)done));
        if (before) WEFT_TRY(settle(fd, folder, before, at + (int64_t)(done - before)));
        before = n;
    }
    return before ? settle(fd, folder, before, at + (int64_t)(bytes - before)) : WEFT_OK;
}

weft_status weft__spill_read(int fd, const char *folder, char *to, size_t bytes, int64_t at)
{
    for (size_t done = 0; done < bytes;) {
        ssize_t n = pread(fd, to + done, piece_of(bytes - done), at + (int64_t)done);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return say("read", folder, bytes - done, at + (int64_t)done, n < 0 ? errno : EIO);
        posix_fadvise(fd, at + (int64_t)done, n, POSIX_FADV_DONTNEED);
        done += (size_t)n;
    }
    return WEFT_OK;
}
