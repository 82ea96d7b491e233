/* metrics_impl.h — between the files of the room. */
#ifndef WEFT_METRICS_IMPL_H
#define WEFT_METRICS_IMPL_H

#include "metrics/metrics.h"

#include <sys/types.h>

/* Adds all of it to the end of a file, or nothing: a full disk takes a part, which is cut off again. *whole: the end of
 * what is whole, when a part could not be cut off yet; -1 at first. errno says why it failed. */
bool weft__metrics_append(int fd, off_t *whole, const void *data, size_t bytes);

#endif
