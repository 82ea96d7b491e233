/* file.c — mapping a file, and replacing a file so that no reader ever sees half of it. */
#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

/* ---- reading ---------------------------------------------------------------------------------------- */

static weft_status check_regular(int fd, const char *path, size_t *bytes)
{
    struct stat s;
    if (fstat(fd, &s) != 0) return weft_fail(WEFT_ERR_IO, "cannot inspect %s: %s", path, strerror(errno));
    if (S_ISDIR(s.st_mode)) return weft_fail(WEFT_ERR_REFUSED, "%s is a directory, not a file", path);
    if (!S_ISREG(s.st_mode)) return weft_fail(WEFT_ERR_REFUSED, "%s is not a regular file", path);
    if (s.st_size == 0) return weft_fail(WEFT_ERR_REFUSED, "file %s is empty", path);
    *bytes = (size_t)s.st_size;
    return WEFT_OK;
}

weft_status weft_map_open(weft_map *map, const char *path)
{
    if (path[0] == '\0') return weft_fail(WEFT_ERR_REFUSED, "a file to read has an empty name; give one");
    /* O_NONBLOCK: opening a FIFO must end in a refusal, not wait for a writer. */
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) return weft_fail(WEFT_ERR_REFUSED, "cannot read %s: %s", path, strerror(errno));
    size_t bytes = 0;
    weft_status st = check_regular(fd, path, &bytes);
    if (st == WEFT_OK) {
        void *data = mmap(NULL, bytes, PROT_READ, MAP_PRIVATE, fd, 0);
        if (data == MAP_FAILED)
            st = weft_fail(WEFT_ERR_IO, "cannot map %s (%zu bytes): %s", path, bytes, strerror(errno));
        else
            *map = (weft_map){data, bytes};
    }
    close(fd); /* the mapping keeps the file */
    return st;
}

void weft_map_close(weft_map *map)
{
    if (map->data) munmap((void *)map->data, map->bytes);
    *map = (weft_map){0};
}

/* ---- writing ---------------------------------------------------------------------------------------- */

static void writer_free(weft_writer *w)
{
    free(w->path);
    free(w->temporary);
    *w = (weft_writer){.fd = -1};
}

/* The rename would put a plain file in the place of a device or a pipe: /dev/null for the whole machine. */
static weft_status check_target(const char *path)
{
    struct stat s;
    if (path[0] == '\0') return weft_fail(WEFT_ERR_REFUSED, "a file to write has an empty name; give one");
    if (stat(path, &s) != 0 || S_ISREG(s.st_mode)) return WEFT_OK;
    return weft_fail(WEFT_ERR_REFUSED, "cannot write %s: it is a %s; give the name of a plain file", path,
                     S_ISDIR(s.st_mode) ? "directory" : "device or a pipe");
}

static char *folder_of(const char *path)
{
    const char *slash = strrchr(path, '/');
    return !slash ? strdup(".") : slash == path ? strdup("/") : strndup(path, (size_t)(slash - path));
}

weft_status weft_writer_check(const char *path)
{
    WEFT_TRY(check_target(path));
    char *folder = folder_of(path);
    if (!folder) return weft_fail(WEFT_ERR_MEMORY, "out of memory for the folder of %s", path);
    weft_status st = WEFT_OK;
    if (access(folder, W_OK | X_OK) != 0)
        st = weft_fail(WEFT_ERR_REFUSED, "cannot write %s: folder %s: %s", path, folder, strerror(errno));
    free(folder);
    return st;
}

/* Who may not read or write the old file shall not the new one, from its first byte. */
static weft_status take_mode_of_old(const weft_writer *w)
{
    struct stat s;
    if (stat(w->path, &s) != 0) return WEFT_OK; /* a new file has the mode that the umask leaves */
    if (fchmod(w->fd, s.st_mode & 0777) == 0) return WEFT_OK;
    return weft_fail(WEFT_ERR_IO, "cannot give the new %s the mode of the old one: %s", w->path, strerror(errno));
}

weft_status weft_writer_open(weft_writer *w, const char *path)
{
    *w = (weft_writer){.fd = -1};
    WEFT_TRY(check_target(path));
    w->path = realpath(path, NULL); /* a link stays, and what it names is replaced */
    if (!w->path) w->path = strdup(path);
    size_t room = w->path ? strlen(w->path) + 48 : 0;
    w->temporary = malloc(room);
    if (!w->path || !w->temporary) {
        writer_free(w);
        return weft_fail(WEFT_ERR_MEMORY, "out of memory for the name of %s", path);
    }
    /* Process and thread in the name: ranks may be threads, and each may write its own files. */
    snprintf(w->temporary, room, "%s.tmp-%ld-%ld", w->path, (long)getpid(), (long)syscall(SYS_gettid));
    unlink(w->temporary); /* left by a killed process that had the same number */
    w->fd = open(w->temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (w->fd < 0) {
        weft_status st = weft_fail(WEFT_ERR_IO, "cannot write %s: %s", path, strerror(errno));
        writer_free(w);
        return st;
    }
    weft_status st = take_mode_of_old(w);
    if (st < 0) weft_writer_abandon(w);
    return st;
}

weft_status weft_writer_put(weft_writer *w, const void *data, size_t bytes)
{
    const char *p = data;
    while (bytes > 0) {
        size_t piece = bytes < (1u << 30) ? bytes : (1u << 30); /* Linux writes at most 2 GiB at once */
        ssize_t done = write(w->fd, p, piece);
        if (done < 0 && errno == EINTR) continue;
        if (done <= 0)
            return weft_fail(WEFT_ERR_IO, "cannot write %s: %s", w->path, done < 0 ? strerror(errno) : "disk full");
        p += done;
        bytes -= (size_t)done;
    }
    return WEFT_OK;
}

/* Opened before the rename, so that what can fail does while the old file is there. */
static weft_status open_folder_of(const char *path, int *fd)
{
    char *folder = folder_of(path);
    if (!folder) return weft_fail(WEFT_ERR_MEMORY, "out of memory for the folder of %s", path);
    *fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    weft_status st =
        *fd < 0 ? weft_fail(WEFT_ERR_IO, "cannot open the folder %s: %s", folder, strerror(errno)) : WEFT_OK;
    free(folder);
    return st;
}

static weft_status sync_folder(int fd, const char *path)
{
    /* Some file systems cannot sync a folder (EINVAL, EROFS); there the rename is all there is. */
    if (fsync(fd) == 0 || errno == EINVAL || errno == EROFS) return WEFT_OK;
    return weft_fail(WEFT_ERR_IO, "%s is written, but its folder cannot be synced: %s", path, strerror(errno));
}

weft_status weft_writer_commit(weft_writer *w)
{
    int folder = -1;
    weft_status st = open_folder_of(w->path, &folder);
    if (st == WEFT_OK && fsync(w->fd) != 0) st = weft_fail(WEFT_ERR_IO, "cannot sync %s: %s", w->path, strerror(errno));
    int closed = close(w->fd);
    w->fd = -1;
    if (st == WEFT_OK && closed != 0) st = weft_fail(WEFT_ERR_IO, "cannot close %s: %s", w->path, strerror(errno));
    if (st == WEFT_OK && rename(w->temporary, w->path) != 0)
        st = weft_fail(WEFT_ERR_IO, "cannot rename %s to %s: %s", w->temporary, w->path, strerror(errno));
    if (st == WEFT_OK) st = sync_folder(folder, w->path);
    else unlink(w->temporary);
    if (folder >= 0) close(folder);
    writer_free(w);
    return st;
}

void weft_writer_abandon(weft_writer *w)
{
    if (w->fd >= 0) close(w->fd);
    if (w->temporary) unlink(w->temporary);
    writer_free(w);
}
