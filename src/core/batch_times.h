/* SPDX-License-Identifier: Apache-2.0 */
/* The times that an FFN rank reports and counts for a batch. */
#ifndef STEPAF_CORE_BATCH_TIMES_H
#define STEPAF_CORE_BATCH_TIMES_H

#include "core/batch.h"

/* Report a batch's times with its answer, even if that costs a longer message, when they are long
 * enough. Count them if times are measured. @a ticks: queueing and work together. */
void stepaf_batch_tell_times(struct stepaf_batch_obj *batch, uint64_t ticks);

#endif
