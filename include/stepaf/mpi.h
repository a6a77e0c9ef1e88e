/* SPDX-License-Identifier: Apache-2.0 */
/* Starting on MPI: libstepaf_mpi. MPI finds the ranks and carries one exchange at init and one at
 * each commit; no tensor goes through it. */
#ifndef STEPAF_MPI_H
#define STEPAF_MPI_H

#include <mpi.h>

#include <stepaf/context.h>

#ifdef __cplusplus
extern "C" {
#endif

/** Join the job that @a comm spans; see stepaf_init. Collective over @a comm.
 *  @param comm  an intracommunicator; duplicated. MPI must be initialized (any thread level) and
 *               outlive the context.
 *  @return as stepaf_init; STEPAF_ERR_INVALID (MPI not initialized, or finalized;
 *  MPI_COMM_NULL); STEPAF_ERR_BOOT also if MPI_COMM_WORLD has one rank and a launcher says that it
 *  has started several: MPI and launcher do not know each other. */
STEPAF_API stepaf_status_t stepaf_init_mpi(MPI_Comm comm, const stepaf_params_t *params,
                                           stepaf_context_h *ctx_p);

/** The same over MPI_COMM_WORLD; what stepaf_init calls when it is given no bootstrap.
 *  @return as stepaf_init_mpi. */
STEPAF_API stepaf_status_t stepaf_init_mpi_world(const stepaf_params_t *params,
                                                 stepaf_context_h *ctx_p);

/** Return a communicator that spans @a group, ranked as the group. Collective over the group's
 *  members at the first call for it.
 *  @param comm_p  the library's, until finalize; MPI_COMM_NULL if this rank is not a member.
 *  @return STEPAF_OK; STEPAF_ERR_HANDLE (not made by stepaf_init_mpi, among others);
 *  STEPAF_ERR_INVALID; at the first call also STEPAF_ERR_NO_MEMORY and as stepaf_barrier. Blocks
 *  until the group's members have called, for at most about STEPAF_TIMEOUT_US. */
STEPAF_API stepaf_status_t stepaf_comm(stepaf_context_h ctx, stepaf_group_t group,
                                       MPI_Comm *comm_p);

#ifdef __cplusplus
}
#endif
#endif
