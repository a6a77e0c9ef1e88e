/* SPDX-License-Identifier: Apache-2.0 */
/* What transports deliver to while times are measured: each does what its namesake in op.h or
 * deliver.h does, and counts how long an answer took. */
#ifndef STEPAF_CORE_METER_H
#define STEPAF_CORE_METER_H

#include "core/metrics.h"

extern const struct stepaf_metrics_path stepaf_meter_path;

#endif
