/* SPDX-License-Identifier: Apache-2.0 */
/* In builds without MPI no launcher is understood. */
#include "info_map.h"

int info_map(const struct info_job *job)
{
    return info_map_fork(job);
}
