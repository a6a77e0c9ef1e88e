/* SPDX-License-Identifier: Apache-2.0 */
/* The parts of the map: the body of a rank, and the ways to start ranks. */
#ifndef STEPAF_TOOLS_INFO_MAP_H
#define STEPAF_TOOLS_INFO_MAP_H

#include <stepaf/context.h>

#include "info.h"

/* Run one rank from its context's creation to its end. World rank 0 prints the map. Returns 0,
 * with a sentence on standard error, on failure. */
int info_map_rank(stepaf_context_h ctx);

/* Take roles from STEPAF_SPLIT or STEPAF_ROLE; without these the first ranks are attention
 * ranks. */
void info_map_params(int rank, int attention_ranks, stepaf_params_t *params_p);

/* Whether an MPI launcher has started this process; and the map of its job. */
int info_map_is_launched(void);
int info_map_launched(void);

/* Fork the ranks here. */
int info_map_fork(const struct info_job *job);

#endif
