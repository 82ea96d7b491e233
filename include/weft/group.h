/* weft/group.h — a group is one rank's end of a set of ranks that work together.
 *
 * Each rank holds its own handle; nothing here exposes how bytes travel. A function marked COLLECTIVE must
 * be called by every rank of the group, in the same order; LOCAL functions may be called by any. When a
 * COLLECTIVE call fails with WEFT_ERR_TIMEOUT, WEFT_ERR_PEER or WEFT_ERR_LIBRARY the group cannot be used
 * any more: leave and destroy it. A refusal (WEFT_ERR_REFUSED) harms nothing; a rank that is refused alone
 * (a NULL that only it gave) leaves by returning the failure, which ends the waits of the others. */
#ifndef WEFT_GROUP_H
#define WEFT_GROUP_H

#include "weft/weft.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct weft_group weft_group;

/* Runs fn(group, ud) on `ranks` threads of this process, as ranks 0 .. ranks-1 of one group, and returns
 * when all have ended. The handle belongs to the call: fn does not destroy it. When fn of one rank returns
 * a failure, the waits of the others end with an error; the first failure is returned, with its message as
 * the caller's weft_last_error(). `ud` is shared by all ranks. LOCAL */
typedef weft_status (*weft_group_fn)(weft_group *group, void *ud);
WEFT_API weft_status weft_group_threads(int ranks, weft_group_fn fn, void *ud);

/* A group of this one rank; the caller destroys it. LOCAL */
WEFT_API weft_status weft_group_self(weft_group **out);

/* Of a group from weft_group_self (LOCAL) or weft_group_mpi (COLLECTIVE, unless the group has failed); NULL is fine.
 * Destroy what was made with the group first. */
WEFT_API void weft_group_destroy(weft_group *group);

/* For a rank that fails for a reason of its own: the waits of the others end with WEFT_ERR_PEER and its message, and
 * the group cannot be used any more. A function of weft_group_threads that returns a failure need not call it. LOCAL */
WEFT_API void weft_group_abort(weft_group *group, weft_status status, const char *message);

WEFT_API int weft_group_rank(const weft_group *group); /* LOCAL */
WEFT_API int weft_group_size(const weft_group *group); /* LOCAL */

/* Seconds that this rank waits for another before a call ends with WEFT_ERR_TIMEOUT and a message that
 * names rank, peer and place. Default 120; refuses what is not above 0. LOCAL */
WEFT_API weft_status weft_group_set_timeout(weft_group *group, double seconds);

#ifdef __cplusplus
}
#endif
#endif
