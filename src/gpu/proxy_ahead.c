/* SPDX-License-Identifier: Apache-2.0 */
/* How far streams are ahead of the host. A stream that waits for a relayed peer waits for this
 * process: whoever holds the lock must not wait for that stream. So what would wait for the whole GPU is
 * refused meanwhile. What is captured is not counted: its launches are the caller's. */
#include "gpu/proxy.h"

/* Whether the GPU has come by an event. One that has failed will not come by any. */
static bool is_passed(const struct stepaf_relay *relay, uint64_t n)
{
    struct stepaf_gpu *gpu = relay->stream->plan->ctx->gpu;

    return stepaf_gpu_event_test(gpu, relay->marks[n % STEPAF_RELAY_AHEAD]) != STEPAF_INPROGRESS;
}

stepaf_status_t stepaf_relay_admit(const struct stepaf_relay *relay)
{
    if (relay->n_marked < STEPAF_RELAY_AHEAD ||
        is_passed(relay, relay->n_marked - STEPAF_RELAY_AHEAD))
        return STEPAF_OK;
    return stepaf_error_set(
        STEPAF_ERR_WOULD_BLOCK, STEPAF_PHASE_START,
        "%d operations of stream plan %u are on their streams, which is all that "
        "a plan with peers by way of the host may have",
        STEPAF_RELAY_AHEAD, relay->stream->plan->index);
}

stepaf_status_t stepaf_relay_mark(struct stepaf_relay *relay, void *cuda_stream, bool *marked_p)
{
    struct stepaf_gpu *gpu = relay->stream->plan->ctx->gpu;
    void **event = &relay->marks[relay->n_marked % STEPAF_RELAY_AHEAD];
    bool capturing = false;
    stepaf_status_t status = stepaf_gpu_capturing(gpu, cuda_stream, &capturing);

    if (status || capturing)
        return status;
    if (!*event)
        status = stepaf_gpu_event_create(gpu, event);
    if (!status)
        status = stepaf_gpu_event_record(gpu, *event, cuda_stream);
    *marked_p = !status;
    return status;
}

bool stepaf_relay_is_ahead(const struct stepaf_relay *relay)
{
    return relay->stream->enqueueing || (relay->n_marked && !is_passed(relay, relay->n_marked - 1));
}

bool stepaf_relays_are_ahead(const struct stepaf_ctx *ctx)
{
    const struct stepaf_list *node = ctx->relays.next;

    for (; node != &ctx->relays; node = node->next)
        if (stepaf_relay_is_ahead(stepaf_container_of(node, struct stepaf_relay, node)))
            return true;
    return false;
}

void stepaf_relay_forget(struct stepaf_relay *relay)
{
    for (uint32_t i = 0; i < STEPAF_RELAY_AHEAD; i++)
        if (relay->marks[i])
            stepaf_gpu_event_destroy(relay->stream->plan->ctx->gpu, relay->marks[i]);
}
