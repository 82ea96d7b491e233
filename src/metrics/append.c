/* append.c — records at the end of a file, whole or not at all. */
#include "metrics/metrics_impl.h"

#include <errno.h>
#include <sys/stat.h>
#include <unistd.h>

static bool write_all(int fd, const char *p, size_t n)
{
    while (n > 0) {
        ssize_t done = write(fd, p, n);
        if (done < 0 && errno == EINTR) continue;
        if (done == 0) errno = ENOSPC;
        if (done <= 0) return false;
        p += done;
        n -= (size_t)done;
    }
    return true;
}

/* What stands behind a part of a record would be taken for the rest of it. */
bool weft__metrics_append(int fd, off_t *whole, const void *data, size_t bytes)
{
    struct stat s;
    if (*whole >= 0 && ftruncate(fd, *whole)) return false;
    *whole = -1;
    const bool plain = !fstat(fd, &s) && S_ISREG(s.st_mode);
    if (write_all(fd, data, bytes)) return true;
    int why = errno;
    if (plain && ftruncate(fd, s.st_size)) *whole = s.st_size;
    errno = why;
    return false;
}
