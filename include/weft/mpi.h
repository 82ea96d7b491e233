/* weft/mpi.h — a group from the MPI communicator of a program that has its own.
 *
 *   MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
 *   weft_group *group;
 *   if (weft_group_mpi(&group, MPI_COMM_WORLD) < 0) { fputs(weft_last_error(), stderr); MPI_Abort(MPI_COMM_WORLD, 3); }
 *
 * The library does not link MPI: a plugin for the MPI that this header was compiled with (Open MPI or MPICH and its
 * kin) is loaded at the first call, and uses the library that the program has loaded. It is looked for in
 * WEFT_PLUGIN_PATH, beside the program or libweft.so, and where an installation keeps it.
 *
 * Fortran: MPI_Comm_f2c gives the MPI_Comm of an INTEGER handle. */
#ifndef WEFT_MPI_H
#define WEFT_MPI_H

#include "weft/group.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What weft_group_mpi calls; use that. comm: address of an MPI_Comm of `bytes` bytes; mpi: "openmpi" or "mpich".
 * COLLECTIVE */
WEFT_API weft_status weft_group_mpi_handle(weft_group **out, const void *comm, size_t bytes, const char *mpi);

/* Who moves messages while a rank computes: "callback" (the kernels, between tiles), "thread" (a helper thread of each
 * rank; needs MPI_THREAD_MULTIPLE) or "auto": what is faster on this machine, measured here with a few exchanges of 1
 * MiB under compute. A new group has "callback". No bit of a result depends on it. Every rank gives the same; other
 * names, and groups that are not MPI's, are refused. COLLECTIVE */
WEFT_API weft_status weft_group_set_progress(weft_group *group, const char *how);

#ifdef __cplusplus
}
#endif

#ifndef WEFT_MPI_HANDLES_ONLY /* for the library itself, which is compiled without mpi.h */
#include <mpi.h>

/* A group of the ranks of `comm`, in its order, over a private copy of it: no message of Weft meets the program's, and
 * `comm` may be freed while the group lives. MPI has to be initialised, and finalised only after the group is destroyed
 * (weft_group_destroy is COLLECTIVE for it). From one thread at a time per group. With less than MPI_THREAD_MULTIPLE
 * the program must not call MPI from another thread meanwhile. Each group has a sleeping thread, which sees when the
 * process of a rank of its node ends: then calls on the group fail and name that rank.
 *
 * Refused: MPI is not initialised, the plugin is not there, or the plugin's MPI is another one than the program's; then
 * the others, if they are not refused as well, wait for the deadline. MPI_COMM_NULL and intercommunicators are refused.
 * What else one rank refuses all refuse. A rank that does not come within 120 s fails the call on the others
 * (WEFT_ERR_TIMEOUT). When a call on the group fails with WEFT_ERR_PEER, _TIMEOUT or _LIBRARY the job cannot go on: end
 * it with MPI_Abort. A rank that fails on its own calls weft_group_abort first, so that the others learn why.
 * COLLECTIVE over comm */
static inline weft_status weft_group_mpi(weft_group **out, MPI_Comm comm)
{
#if defined(OPEN_MPI)
    return weft_group_mpi_handle(out, &comm, sizeof comm, "openmpi");
#else /* MPICH, MVAPICH, Intel MPI: one family of handles */
    return weft_group_mpi_handle(out, &comm, sizeof comm, "mpich");
#endif
}
#endif

#endif
