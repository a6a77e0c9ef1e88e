/* SPDX-License-Identifier: Apache-2.0 */
/* The bootstrap of whoever has launched this process. Bootstraps that need a foreign library live
 * in libraries of their own, so that this one is bound to none; they are loaded here when asked
 * for. */
#ifndef STEPAF_BOOT_BOOT_AUTO_H
#define STEPAF_BOOT_BOOT_AUTO_H

#include <stepaf/context.h>

#include "settings/settings.h"

/* Which of them: STEPAF_ENV_BOOT_mpi, _pmix, _local or _tcp, by @a env->boot or, where that is
 * auto, by what this process finds itself in; -1 if it finds nothing. */
int stepaf_boot_choose(const struct stepaf_env *env);

/* How such a library joins the job: as stepaf_init, with a bootstrap of its own. */
typedef stepaf_status_t (*stepaf_boot_init_t)(const stepaf_params_t *params,
                                              stepaf_context_h *ctx_p);

/* Load the library of STEPAF_ENV_BOOT_mpi or _pmix. STEPAF_ERR_BOOT if it is not there. */
stepaf_status_t stepaf_boot_load(int choice, stepaf_boot_init_t *init_p);

#endif
