/* SPDX-License-Identifier: Apache-2.0 */
/* Starting on PMIx, without MPI: libstepaf_pmix. The launcher's PMIx server (mpirun's, or Slurm's
 * under srun --mpi=pmix) tells the ranks of each other, and carries one exchange at init and one at
 * each commit; no tensor goes through it. */
#ifndef STEPAF_PMIX_H
#define STEPAF_PMIX_H

#include <stepaf/context.h>

#ifdef __cplusplus
extern "C" {
#endif

/** Join the job that the launcher has started; see stepaf_init. Collective over the job.
 *
 *  The process is then a client of PMIx until it exits; by _exit it would count as failed. An MPI
 *  in it may use PMIx as well, before or after. A process that makes several
 *  contexts makes them in the same order on every rank, one at a time; what each exchanges stays
 *  in the launcher's store until the job ends, and may be 16 MiB a rank at most.
 *  @return as stepaf_init; STEPAF_ERR_BOOT (no PMIx server has started this process, or it knows
 *  one rank only where the launcher has started several; this process is a fork of the one that
 *  was started). Nothing else is left behind.
 *  Any thread. Blocks as stepaf_init does, after PMIx_Init has found its server, which is on the
 *  same node. */
STEPAF_API stepaf_status_t stepaf_init_pmix(const stepaf_params_t *params, stepaf_context_h *ctx_p);

#ifdef __cplusplus
}
#endif
#endif
