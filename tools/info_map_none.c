/* SPDX-License-Identifier: Apache-2.0 */
/* In builds without MPI no launcher is understood. */
#include "info_map.h"

int info_map_is_launched(void)
{
    return 0;
}

int info_map_launched(void)
{
    return 0;
}
