/* SPDX-License-Identifier: Apache-2.0 */
/* The times of a batch. */
#ifndef STEPAF_CORE_BATCH_TIMES_H
#define STEPAF_CORE_BATCH_TIMES_H

#include "core/batch.h"

/* Send the times with the answer at any cost, if they are long enough; count them, if times are
 * measured. @a ticks: both together. */
void stepaf_batch_tell_times(struct stepaf_batch_obj *batch, uint64_t ticks);

#endif
