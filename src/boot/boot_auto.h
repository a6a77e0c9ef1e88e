/* SPDX-License-Identifier: Apache-2.0 */
/* The choice of the bootstrap, by what has launched this process. Bootstraps that need a foreign
 * library live in libraries of their own, so that libstepaf depends on none of them. They are
 * loaded here on request. */
#ifndef STEPAF_BOOT_BOOT_AUTO_H
#define STEPAF_BOOT_BOOT_AUTO_H

#include <stepaf/context.h>

#include "settings/settings.h"

/* Choose the bootstrap: return STEPAF_ENV_BOOT_mpi, _pmix, _local or _tcp, according to @a
 * env->boot or, if that is auto, to the environment of this process. Returns -1 if the environment
 * shows none. */
int stepaf_boot_choose(const struct stepaf_env *env);

/* How such a library joins the job: as stepaf_init does, with a bootstrap of its own. */
typedef stepaf_status_t (*stepaf_boot_init_t)(const stepaf_params_t *params,
                                              stepaf_context_h *ctx_p);

/* Load the library of STEPAF_ENV_BOOT_mpi or _pmix. Returns STEPAF_ERR_BOOT if it is not there. */
stepaf_status_t stepaf_boot_load(int choice, stepaf_boot_init_t *init_p);

#endif
