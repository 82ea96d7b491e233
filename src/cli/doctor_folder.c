/* doctor_folder.c — the folder where runs are written: whether it takes files, how fast, and what is left. */
#include "cli/doctor.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <unistd.h>

enum { PIECE = 1 << 20, PIECES = 16 };
#define WRITE_SECONDS 2.0
static const char elsewhere[] = "weft train --runs FOLDER ... (a folder that can be written)";

void weft_doctor_folder_file(const weft_doctor *d, int pid, char *path, size_t n)
{
    snprintf(path, n, "%s/.weft-doctor-%d", d->folder, pid);
}

void weft_doctor_folder_clean(const weft_doctor *d, int pid)
{
    char path[4096];
    weft_doctor_folder_file(d, pid, path, sizeof path);
    unlink(path);
}

/* ---- what kind of folder ------------------------------------------------------------------------------- */

static const char *kind_of(const char *folder)
{
    static const struct { long type; const char *name; } kinds[] = {
        {0x01021994, "tmpfs"}, {0x858458f6, "ramfs"},  {0xef53, "ext4"},         {0x58465342, "XFS"},
        {0x9123683e, "btrfs"}, {0x6969, "NFS"},        {0x0bd00bd0, "Lustre"},   {0x794c7630, "overlayfs"},
        {0x2fc12fc1, "ZFS"},   {0x65735546, "FUSE"},   {0x01021997, "9p"},       {0x47504653, "GPFS"},
    };
    struct statfs s;
    if (statfs(folder, &s) != 0) return "unknown";
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if ((long)s.f_type == kinds[i].type) return kinds[i].name;
    return "another file system";
}

static void tell_room(weft_doctor *d, const char *kind)
{
    struct statvfs s;
    char room[32];
    if (!strcmp(kind, "tmpfs") || !strcmp(kind, "ramfs"))
        weft_doctor_add(d, WEFT_DOCTOR_NOTE, "folder", "weft train --runs FOLDER ... (a folder on a disk)",
                        "%s lies in memory (%s): checkpoints take memory, and are gone after a restart", d->folder,
                        kind);
    if (statvfs(d->folder, &s) != 0) return;
    const double left = (double)s.f_frsize * (double)s.f_bavail;
    weft_format_bytes(left, room, sizeof room);
    if (s.f_files > 0 && s.f_favail == 0)
        weft_doctor_add(d, WEFT_DOCTOR_BAD, "folder", elsewhere, "%s: no more files can be made there (df -i)",
                        d->folder);
    else if (left < (double)(1 << 30))
        weft_doctor_add(d, WEFT_DOCTOR_LOOK, "folder", "weft train --keep-last 2 ... (or another --runs FOLDER)",
                        "%s: %s left", d->folder, room);
    else weft_doctor_add(d, WEFT_DOCTOR_OK, "folder", NULL, "%s: %s, %s left", d->folder, kind, room);
}

/* ---- how fast -------------------------------------------------------------------------------------------- */

/* Pieces until all are written or it has taken long enough, then the disk; bytes written, or -1 and errno. */
static int64_t write_pieces(int fd, const char *piece, double start)
{
    int64_t bytes = 0;
    for (int i = 0; i < PIECES && weft_now(&weft_clock_real) - start < WRITE_SECONDS; i++) {
        for (size_t done = 0; done < PIECE;) {
            const ssize_t n = write(fd, piece + done, PIECE - done);
            if (n < 0 && errno == EINTR) continue;
            if (n <= 0) return -1;
            done += (size_t)n;
        }
        bytes += PIECE;
    }
    return fsync(fd) == 0 ? bytes : -1;
}

static void tell_speed(weft_doctor *d, double bytes, double seconds)
{
    const double rate = bytes / seconds / (1 << 20);
    if (rate < 20)
        weft_doctor_add(d, WEFT_DOCTOR_LOOK, "folder", "weft train --runs FOLDER ... (a folder of a faster disk)",
                        "%s takes %.1f MiB/s: a checkpoint of 1 GiB lasts %.0f s", d->folder, rate, 1024 / rate);
    else
        weft_doctor_add(d, WEFT_DOCTOR_OK, "folder", NULL, "%s takes %.0f MiB/s (%.0f MiB with fsync)", d->folder, rate,
                        bytes / (1 << 20));
}

static void write_there(weft_doctor *d)
{
    char path[4096];
    char *piece = calloc(1, PIECE);
    weft_doctor_folder_file(d, getpid(), path, sizeof path);
    const int fd = piece ? open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600) : -1;
    if (fd < 0) {
        weft_doctor_add(d, WEFT_DOCTOR_BAD, "folder", elsewhere, "no file can be made in %s: %s", d->folder,
                        strerror(errno));
        free(piece);
        return;
    }
    for (size_t i = 0; i < PIECE; i++) piece[i] = (char)(i * 31 + i / 977); /* for file systems that drop zeros */
    const double start = weft_now(&weft_clock_real);
    const int64_t bytes = write_pieces(fd, piece, start);
    const int error = errno;
    const double seconds = weft_now(&weft_clock_real) - start;
    close(fd);
    unlink(path);
    free(piece);
    if (bytes < 0)
        weft_doctor_add(d, WEFT_DOCTOR_BAD, "folder", elsewhere, "%s does not take %d MiB: %s", d->folder,
                        PIECES * (PIECE >> 20), strerror(error));
    else tell_speed(d, (double)bytes, seconds > 1e-6 ? seconds : 1e-6);
}

void weft_doctor_folder(weft_doctor *d)
{
    struct stat s;
    char mend[1100];
    snprintf(mend, sizeof mend, "mkdir -p '%.1000s'", d->folder);
    if (stat(d->folder, &s) != 0)
        weft_doctor_add(d, WEFT_DOCTOR_BAD, "folder", errno == ENOENT ? mend : elsewhere, "%s: %s", d->folder,
                        strerror(errno));
    else if (!S_ISDIR(s.st_mode))
        weft_doctor_add(d, WEFT_DOCTOR_BAD, "folder", elsewhere, "%s is no folder", d->folder);
    else {
        tell_room(d, kind_of(d->folder));
        write_there(d);
    }
}
