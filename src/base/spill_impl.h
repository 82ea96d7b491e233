/* spill_impl.h — the file of spill.c. */
#ifndef WEFT_BASE_SPILL_IMPL_H
#define WEFT_BASE_SPILL_IMPL_H

#include "base/status.h"

/* A file of `folder` without a name, with room for all of `bytes`. */
weft_status weft__spill_file(int *fd, const char *folder, int64_t bytes);
bool weft__spill_file_in_memory(int fd);
/* All of it, or a failure. What was moved does not stay in the page cache. */
weft_status weft__spill_write(int fd, const char *folder, const char *from, size_t bytes, int64_t at);
weft_status weft__spill_read(int fd, const char *folder, char *to, size_t bytes, int64_t at);

#endif
