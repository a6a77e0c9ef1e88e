/* SPDX-License-Identifier: Apache-2.0 */
/* The times that an FFN rank reports and counts for a batch. */
#include "core/batch_times.h"

#include "core/metrics.h"
#include "core/remote_plan.h"

void stepaf_batch_tell_times(struct stepaf_batch_obj *batch, uint64_t ticks)
{
    const struct stepaf_peer *peer = batch->remote->peer;
    struct stepaf_histogram *times = peer->times;
    struct stepaf_msg *msg = &batch->answer.msg;

    if (times) {
        stepaf_histogram_add(&times[STEPAF_TIME_QUEUE], msg->word[STEPAF_MSG_QUEUE]);
        stepaf_histogram_add(&times[STEPAF_TIME_WORK], msg->word[STEPAF_MSG_WORK]);
        if (ticks < peer->ctx->polling.metrics->plain.told_from)
            return;
    }
    batch->answer.is_short = false;
    msg->flags |= STEPAF_MSG_TIMED;
}
