/* local_spawn.h — starting one rank as a process, and finding oneself started so (private to this room). */
#ifndef WEFT_COMM_LOCAL_SPAWN_H
#define WEFT_COMM_LOCAL_SPAWN_H

#include "comm/local_map.h"

#include <signal.h>
#include <sys/types.h>

typedef struct weft_spawner {
    char *const *argv;
    char **env;            /* the caller's, with what a rank needs at its end */
    char rank_text[48];    /* "WEFT_LOCAL_RANK=3", pointed to by env; rewritten before each fork */
    char fd_text[48], parent_text[48], threads_text[48], spin_text[32];
    weft_local *map;
    int fd;
    pid_t parent;
    weft_local_share share;
    sigset_t signals;      /* the mask that a rank starts with */
} weft_spawner;

/* Fixes threads per rank, cores and environment. `signals`: the mask for ranks. Call free at the end. */
weft_status weft_spawner_init(weft_spawner *s, const weft_spawn *spawn, weft_local *map, const sigset_t *signals);
void weft_spawner_free(weft_spawner *s);
weft_status weft_spawner_start(weft_spawner *s, int rank, pid_t *pid);

#endif
