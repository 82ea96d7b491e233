/* fuzz_folder.h — a folder for readers that take more than one file: it lives as long as the process, and one name in
 * it is a link to the input at hand, which is never on a disk. */
#ifndef WEFT_FUZZ_FOLDER_H
#define WEFT_FUZZ_FOLDER_H

#include <dirent.h>
#include <sys/stat.h>

#include "fuzz/fuzz.h"

typedef struct fuzz_folder {
    char dir[64];
    int input;
} fuzz_folder;

static fuzz_folder fuzz_the_folder;

static inline void fuzz_path(char path[128], const char *name)
{
    FUZZ_CHECK(snprintf(path, 128, "%s/%s", fuzz_the_folder.dir, name) < 128);
}

__attribute__((destructor)) static void fuzz_remove_folder(void)
{
    char path[512];
    DIR *d = fuzz_the_folder.dir[0] ? opendir(fuzz_the_folder.dir) : NULL;
    for (const struct dirent *e; d && (e = readdir(d));) {
        snprintf(path, sizeof path, "%s/%s", fuzz_the_folder.dir, e->d_name);
        unlink(path);
    }
    if (d) closedir(d);
    if (d) rmdir(fuzz_the_folder.dir);
}

/* The input becomes the file `name`. True the first time: the caller adds the other files. */
static inline bool fuzz_folder_take(const char *name, const void *data, size_t size)
{
    fuzz_folder *f = &fuzz_the_folder;
    const bool first = !f->dir[0];
    if (first) {
        char path[128], target[64];
        snprintf(f->dir, sizeof f->dir, "/tmp/weft-fuzz-%ld", (long)getpid());
        f->input = memfd_create("input", 0);
        snprintf(target, sizeof target, "/proc/self/fd/%d", f->input);
        fuzz_path(path, name);
        FUZZ_CHECK(f->input >= 0 && mkdir(f->dir, 0700) == 0 && symlink(target, path) == 0);
    }
    FUZZ_CHECK(ftruncate(f->input, 0) == 0 && pwrite(f->input, data, size, 0) == (ssize_t)size);
    return first;
}

#endif
