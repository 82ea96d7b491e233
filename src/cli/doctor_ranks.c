/* doctor_ranks.c — two ranks as a run starts them, by executing this program again; they exchange a few bytes. */
#include "cli/doctor.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { RANKS = 2, BYTES = 4096 };
#define SECONDS 8.0 /* of every wait */

/* What rank `rank` sends at place i. */
static uint8_t letter(int rank, int i) { return (uint8_t)(rank * 101 + i * 7); }

static weft_status exchange(weft_world *world)
{
    weft_comm *all = weft_world_all(world);
    const int me = weft_world_rank(world), peer = 1 - me;
    uint8_t mine[BYTES], theirs[BYTES];
    double sum = me + 1;
    weft_req in, out;
    for (int i = 0; i < BYTES; i++) mine[i] = letter(me, i);
    weft_place(world, "doctor", -1, -1);
    WEFT_TRY(weft_irecv(all, theirs, BYTES, peer, 0, WEFT_MEM_HOST, NULL, &in));
    WEFT_TRY(weft_isend(all, mine, BYTES, peer, 0, WEFT_MEM_HOST, NULL, &out));
    WEFT_TRY(weft_wait(&in));
    WEFT_TRY(weft_wait(&out));
    WEFT_TRY(weft_all_reduce(all, &sum, 1, WEFT_F64, WEFT_SUM));
    for (int i = 0; i < BYTES; i++)
        if (theirs[i] != letter(peer, i))
            return weft_fail(WEFT_ERR_INTERNAL, "byte %d of rank %d's message is %d, it sent %d", i, peer, theirs[i],
                             letter(peer, i));
    return sum == 3 ? WEFT_OK : weft_fail(WEFT_ERR_INTERNAL, "1 + 2 over two ranks is %g", sum);
}

int weft_doctor_rank(const weft_cli *cli, weft_local *local, int rank)
{
    weft_ctx ctx;
    weft_world *world = NULL;
    (void)cli;
    weft_ctx_init(&ctx);
    ctx.rank = rank;
    ctx.world = weft_local_ranks(local);
    weft_status st = weft_world_local(&world, &ctx, local, rank);
    if (st >= 0) st = weft_world_set_timeout(world, SECONDS);
    if (st >= 0) st = exchange(world);
    if (st < 0 && world) weft_world_abort(world, st, weft_last_error());
    else if (st < 0) weft_local_abort(local, rank, st, weft_last_error());
    weft_world_close(world);
    weft_local_destroy(local);
    return weft_exit_code(st);
}

/* What most often stands in the way of a start. */
static const char *mend_of(void)
{
    if (access("/proc/self/exe", F_OK) != 0) return "sudo mount -t proc proc /proc";
    return "ulimit -v unlimited; ulimit -u unlimited";
}

void weft_doctor_ranks(weft_doctor *d)
{
    int code;
    const double start = weft_now(&weft_clock_real);
    const weft_spawn spawn = {.ranks = RANKS, .threads_per_rank = 1, .argv = d->cli->argv, .grace_seconds = 1,
                              .timeout_seconds = SECONDS};
    if (weft_local_supervise(&spawn, &code) < 0)
        weft_doctor_add(d, WEFT_DOCTOR_BAD, "ranks", mend_of(), "two ranks could not exchange bytes: %s",
                        weft_last_error());
    else
        weft_doctor_add(d, WEFT_DOCTOR_OK, "ranks", NULL, "two processes were started, exchanged %d bytes, and left in "
                        "%.0f ms", BYTES, (weft_now(&weft_clock_real) - start) * 1e3);
}
