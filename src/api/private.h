/* SPDX-License-Identifier: Apache-2.0 */
/* Exported for the launch libraries alone (libstepaf_mpi and its like); not in any installed
 * header, and no promise to users. */
#ifndef STEPAF_API_PRIVATE_H
#define STEPAF_API_PRIVATE_H

#include <stepaf/boot.h>
#include <stepaf/context.h>

/* Return the bootstrap that the context was made with; NULL for an invalid handle. */
STEPAF_API const stepaf_boot_t *stepaf_context_boot(stepaf_context_h ctx);

/* Write the world ranks of @a group's members to ranks_p, which has room for the world's size, and
 * return how many there are; -1 if an argument is invalid. */
STEPAF_API int stepaf_group_ranks(stepaf_context_h ctx, stepaf_group_t group, int *ranks_p);

#endif
