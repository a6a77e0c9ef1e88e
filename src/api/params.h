/* SPDX-License-Identifier: Apache-2.0 */
/* Parameter structures that the library reads: a mask names the fields that the caller has set. */
#ifndef STEPAF_API_PARAMS_H
#define STEPAF_API_PARAMS_H

#include "core/ctx.h"

/* Read the fields that the mask of @a given names, and set the others to zero. Return
 * STEPAF_ERR_INVALID for unknown bits. */
stepaf_status_t stepaf_params_of_start(const stepaf_start_params_t *given,
                                       stepaf_start_params_t *params_p);

#endif
