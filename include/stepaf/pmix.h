/* SPDX-License-Identifier: Apache-2.0 */
/* Start-up over PMIx, without MPI, by libstepaf_pmix. The launcher's PMIx server (of mpirun, or of
 * Slurm under srun --mpi=pmix) finds the ranks and performs one exchange at init, one at each
 * commit and a few small ones at the first; tensors do not go through PMIx. */
#ifndef STEPAF_PMIX_H
#define STEPAF_PMIX_H

#include <stepaf/context.h>

#ifdef __cplusplus
extern "C" {
#endif

/** Join the job that the launcher has started; see stepaf_init. Collective over the job.
 *
 *  The process is then a client of PMIx until it exits; a process that ends by _exit counts as
 *  failed. An MPI library in the process may use PMIx as well, before or after. A process with
 *  several contexts creates them in the same order on every rank, one at a time. The data of each
 *  exchange stays in the launcher's store until the job ends, and may be at most 16 MiB for each
 *  rank.
 *  @return as for stepaf_init; STEPAF_ERR_BOOT (no PMIx server started this process; the server
 *  knows one rank although the launcher started several; or this process is a fork of the one that
 *  was started).
 *
 *  On failure, nothing else is left behind. Any thread. Blocks as stepaf_init does, once PMIx_Init
 *  has found its server, which is on the same node. */
STEPAF_API stepaf_status_t stepaf_init_pmix(const stepaf_params_t *params, stepaf_context_h *ctx_p);

#ifdef __cplusplus
}
#endif
#endif
