/* SPDX-License-Identifier: Apache-2.0 */
/* Start-up over MPI, by libstepaf_mpi. MPI finds the ranks and performs one exchange at init, one
 * at each commit and a few small ones at the first; tensors do not go through MPI. */
#ifndef STEPAF_MPI_H
#define STEPAF_MPI_H

#include <mpi.h>

#include <stepaf/context.h>

#ifdef __cplusplus
extern "C" {
#endif

/** Join the job that @a comm spans; see stepaf_init. Collective over @a comm.
 *
 *  If a start is about to time out, the ranks that have arrived determine which ranks have not
 *  arrived, by empty messages on @a comm with the tags MPI_TAG_UB and MPI_TAG_UB - 1.
 *  @param comm  an intracommunicator; duplicated. MPI must be initialized (any thread level) and
 *               outlive the context.
 *  @return as for stepaf_init; STEPAF_ERR_INVALID (MPI not initialized, or finalized;
 *  MPI_COMM_NULL); STEPAF_ERR_BOOT also if MPI_COMM_WORLD has one rank although the launcher
 *  reports several: the MPI library does not support that launcher. */
STEPAF_API stepaf_status_t stepaf_init_mpi(MPI_Comm comm, const stepaf_params_t *params,
                                           stepaf_context_h *ctx_p);

/** Join the job that MPI_COMM_WORLD spans, as stepaf_init does without a bootstrap.
 *  @return as for stepaf_init_mpi. */
STEPAF_API stepaf_status_t stepaf_init_mpi_world(const stepaf_params_t *params,
                                                 stepaf_context_h *ctx_p);

/** Return a communicator that spans @a group, ranked as the group. Collective over the group's
 *  members at the first call for the group.
 *  @param comm_p  owned by the library until finalize; MPI_COMM_NULL if this rank is not a member.
 *  @return STEPAF_OK; STEPAF_ERR_HANDLE (also if not made by stepaf_init_mpi); STEPAF_ERR_INVALID;
 *  at the first call also STEPAF_ERR_NO_MEMORY and as for stepaf_barrier.
 *
 *  Blocks until the group's members have called this function, for at most about twice
 *  STEPAF_TIMEOUT_US, and then while MPI makes the communicator. The effect of a member's death
 *  meanwhile is up to MPI. */
STEPAF_API stepaf_status_t stepaf_comm(stepaf_context_h ctx, stepaf_group_t group,
                                       MPI_Comm *comm_p);

#ifdef __cplusplus
}
#endif
#endif
