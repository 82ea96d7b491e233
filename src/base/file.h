/* file.h — files as the rest of Weft needs them: mapped whole for reading, replaced whole for writing.
 *
 * A reader of a run's folder must see the old file or the new one and nothing between, whenever the
 * writer is killed: new content goes to a temporary name beside the file, is synced, and is then renamed
 * over it; the folder is synced last, because a rename is only on the disk once its folder is. */
#ifndef WEFT_BASE_FILE_H
#define WEFT_BASE_FILE_H

#include "base/status.h"

typedef struct weft_map { /* a file mapped read-only; another process that cuts the file short breaks it */
    const unsigned char *data;
    size_t bytes;
} weft_map;

/* Refuses a path that is missing, not a regular file, or empty. LOCAL */
weft_status weft_map_open(weft_map *map, const char *path);
void weft_map_close(weft_map *map); /* a map that is {0} is fine */

typedef struct weft_writer { /* a file that appears under its name only when it is complete */
    int fd;
    char *path, *temporary;
} weft_writer;

/* Refuses what cannot be written: an empty name, a folder that is missing or closed, a directory, a device, a
 * pipe. For the time before hours of work. LOCAL */
weft_status weft_writer_check(const char *path);
/* Refuses a directory, a device and a pipe. After a successful open, exactly one of commit and abandon must
 * follow. LOCAL */
weft_status weft_writer_open(weft_writer *w, const char *path);
weft_status weft_writer_put(weft_writer *w, const void *data, size_t bytes);
/* Sync, rename, sync of the folder. The new file has the old one's mode. A failure leaves the old file and no temporary
 * one; only when the folder cannot be synced is the new file there, of which the message tells. */
weft_status weft_writer_commit(weft_writer *w);
void weft_writer_abandon(weft_writer *w);

#endif
