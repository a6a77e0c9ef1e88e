/* SPDX-License-Identifier: Apache-2.0 */
/* The roles of all ranks, by the same rules at each: what a rank says of itself, then the split,
 * then the application numbers. */
#ifndef STEPAF_WIREUP_ROLES_H
#define STEPAF_WIREUP_ROLES_H

#include <stepaf/context.h>

#include "boot/split.h"
#include "settings/settings.h"
#include "wireup/hello.h"

/* The role that this rank says of itself: params->role, else STEPAF_ROLE; else STEPAF_ROLE_AUTO. */
stepaf_role_t stepaf_role_said(const stepaf_params_t *params, const struct stepaf_env *env);

/* Decide for all @a n ranks, the same on each; @a split is what all have been found to agree on.
 * Where a stronger source overrides a weaker one for @a own_rank, that is logged. STEPAF_ERR_SPLIT
 * if a rank is without a role or a role without a rank, if the counts do not fit, or if roles that
 * some ranks say of themselves contradict the split's counts; roles_p is in no state then. */
stepaf_status_t stepaf_roles_decide(const struct stepaf_hello *hellos, int n, int own_rank,
                                    const struct stepaf_split *split, uint8_t *roles_p);

#endif
