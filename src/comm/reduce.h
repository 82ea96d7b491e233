/* reduce.h — combining two arrays element by element, for reductions (private to this room). */
#ifndef WEFT_COMM_REDUCE_H
#define WEFT_COMM_REDUCE_H

#include "comm/comm.h"

/* acc[i] = acc[i] op x[i] for n elements. */
typedef void weft_reduce_fn(void *acc, const void *x, int64_t n);

/* Refuses types that are not added here; `what` names the collective. */
weft_status weft_reduce_find(weft_reduce_fn **out, weft_dtype t, weft_op op, const char *what);

#endif
