/* SPDX-License-Identifier: Apache-2.0 */
/* The roles of all ranks, decided by the same rules at each rank: the role that a rank requests
 * itself, then the split, then the application numbers. */
#ifndef STEPAF_WIREUP_ROLES_H
#define STEPAF_WIREUP_ROLES_H

#include <stepaf/context.h>

#include "boot/split.h"
#include "settings/settings.h"
#include "wireup/hello.h"

/* Return the role that this rank requests: params->role, else STEPAF_ROLE; else
 * STEPAF_ROLE_AUTO. */
stepaf_role_t stepaf_role_said(const stepaf_params_t *params, const struct stepaf_env *env);

/* Decide the roles of all @a n ranks, with the same outcome at each. @a split is what all ranks
 * have been found to agree on. An override of a weaker source by a stronger one for @a own_rank is
 * logged. STEPAF_ERR_SPLIT: a rank is without a role or a role without a rank, the counts do not
 * fit, or roles that some ranks request contradict the split's counts; roles_p is undefined
 * then. */
stepaf_status_t stepaf_roles_decide(const struct stepaf_hello *hellos, int n, int own_rank,
                                    const struct stepaf_split *split, uint8_t *roles_p);

#endif
