/* SPDX-License-Identifier: Apache-2.0 */
/* The bootstrap of whoever has launched this process. Bootstraps that need a foreign library live in
 * libraries of their own, so that this one is bound to none; they are loaded here when asked for. */
#ifndef STEPAF_BOOT_BOOT_AUTO_H
#define STEPAF_BOOT_BOOT_AUTO_H

#include <stepaf/context.h>

#include "base/env.h"

/* Which of them: STEPAF_ENV_BOOT_MPI, _PMIX or _LOCAL, by @a env->boot or, where that is auto, by
 * what this process finds itself in; -1 if it finds nothing. */
int stepaf_boot_choose(const struct stepaf_env *env);

/* Join the job by it: as stepaf_init. STEPAF_ERR_BOOT if nothing has launched this process, or the
 * library for it is not there. */
stepaf_status_t stepaf_boot_auto_init(const struct stepaf_env *env, const stepaf_params_t *params,
                                      stepaf_context_h *ctx_p);

#endif
