/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the files of the test "life". */
#ifndef STEPAF_TEST_GPU_LIFE_H
#define STEPAF_TEST_GPU_LIFE_H

#include "gpu/exchange.h"

enum { LIFE_PLANS = 3 };

/* A plan of one of the shapes, with keys of @a id. */
bool life_make(struct hs_job *job, stepaf_context_h ctx, int id, struct gx_plan *plan);
/* After a commit, on all ranks. */
bool life_ready(struct hs_job *job, struct gx_plan *plans, int n);
/* Operations on the plan's stream, and a look at what they brought. */
bool life_exchange(struct gx_plan *plan, int n);

/* Requests: waited for by the host, with and without a stream that waits too. */
void life_requests(struct hs_job *job, struct gx_plan *plans);

#endif
