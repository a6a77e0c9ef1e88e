/* SPDX-License-Identifier: Apache-2.0 */
/* The map's parts: what a rank does, and the ways to become one. */
#ifndef STEPAF_TOOLS_INFO_MAP_H
#define STEPAF_TOOLS_INFO_MAP_H

#include <stepaf/context.h>

#include "info.h"

/* One rank's life from its context to the context's end. World rank 0 prints the map. Return 0,
 * with a sentence on standard error, if something failed. */
int info_map_rank(stepaf_context_h ctx);

/* Roles by STEPAF_SPLIT or STEPAF_ROLE, and without these the first ranks attend. */
void info_map_params(int rank, int attention_ranks, stepaf_params_t *params_p);

/* Whether a launcher of MPI programs has started this process; and its job's map. */
int info_map_is_launched(void);
int info_map_launched(void);

/* Processes forked here. */
int info_map_fork(const struct info_job *job);

#endif
