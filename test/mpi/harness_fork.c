/* SPDX-License-Identifier: Apache-2.0 */
/* Launch by nobody: ranks are forked. For programs without MPI. */
#include "harness.h"

#include <stdlib.h>

bool hs_launch_found(void)
{
    return false;
}

void hs_launch_start(struct hs_job *job, int *argc_p, char ***argv_p)
{
    (void)job, (void)argc_p, (void)argv_p;
    abort();
}

stepaf_status_t hs_launch_init(const stepaf_params_t *params, stepaf_context_h *ctx_p)
{
    (void)params, (void)ctx_p;
    abort();
}

_Noreturn void hs_launch_end(struct hs_job *job, const char *name)
{
    (void)job, (void)name;
    abort();
}
