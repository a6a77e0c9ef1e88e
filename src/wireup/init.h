/* SPDX-License-Identifier: Apache-2.0 */
/* Creation of a context together with all ranks of the job. */
#ifndef STEPAF_WIREUP_INIT_H
#define STEPAF_WIREUP_INIT_H

#include <stepaf/stepaf.h>

struct stepaf_ctx;
struct stepaf_feature_ops;

/* Make a context. @a own: an earlier failure of this rank, which the others are notified of. */
stepaf_status_t stepaf_ctx_init(const stepaf_boot_t *boot, const stepaf_params_t *params,
                                const struct stepaf_feature_ops *feature, stepaf_status_t own,
                                struct stepaf_ctx **ctx_p);

#endif
