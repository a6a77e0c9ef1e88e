/* SPDX-License-Identifier: Apache-2.0 */
/* The memory that a context takes. */
#ifndef STEPAF_CORE_MEMORY_USE_H
#define STEPAF_CORE_MEMORY_USE_H

#include "core/ctx.h"

stepaf_memory_use_t stepaf_memory_count(const struct stepaf_ctx *ctx);

#endif
