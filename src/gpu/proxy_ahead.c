/* SPDX-License-Identifier: Apache-2.0 */
/* How far streams are ahead of the host. A stream that waits for a proxied peer waits for this
 * process, so a thread that holds the lock must not wait for that stream. Calls that would wait for
 * the whole GPU are refused meanwhile. Captured operations are not counted: the caller launches
 * them. */
#include "core/plan.h"
#include "gpu/proxy.h"

/* Return whether the GPU has passed an event. Also true if the GPU has failed, since it passes no
 * event then. */
static bool is_passed(const struct stepaf_proxy *proxy, uint64_t n)
{
    struct stepaf_gpu *gpu = proxy->stream->plan->ctx->gpu.device;

    return stepaf_gpu_event_test(gpu, proxy->marks[n % STEPAF_PROXY_AHEAD]) != STEPAF_INPROGRESS;
}

stepaf_status_t stepaf_proxy_check_room(const struct stepaf_proxy *proxy)
{
    if (proxy->n_marked < STEPAF_PROXY_AHEAD ||
        is_passed(proxy, proxy->n_marked - STEPAF_PROXY_AHEAD))
        return STEPAF_OK;
    return stepaf_error_set(STEPAF_ERR_WOULD_BLOCK, STEPAF_PHASE_START,
                            "%d operations of stream plan %u are on their streams, the limit for a "
                            "plan with proxied peers",
                            STEPAF_PROXY_AHEAD, proxy->stream->plan->index);
}

stepaf_status_t stepaf_proxy_mark(struct stepaf_proxy *proxy, void *cuda_stream, bool *marked_p)
{
    struct stepaf_gpu *gpu = proxy->stream->plan->ctx->gpu.device;
    void **event = &proxy->marks[proxy->n_marked % STEPAF_PROXY_AHEAD];
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

bool stepaf_proxy_is_ahead(const struct stepaf_proxy *proxy)
{
    return proxy->stream->enqueueing || (proxy->n_marked && !is_passed(proxy, proxy->n_marked - 1));
}

bool stepaf_proxies_are_ahead(const struct stepaf_ctx *ctx)
{
    const struct stepaf_list *node = ctx->gpu.proxies.next;

    for (; node != &ctx->gpu.proxies; node = node->next)
        if (stepaf_proxy_is_ahead(stepaf_container_of(node, struct stepaf_proxy, node)))
            return true;
    return false;
}

void stepaf_proxy_free_events(struct stepaf_proxy *proxy)
{
    for (uint32_t i = 0; i < STEPAF_PROXY_AHEAD; i++)
        if (proxy->marks[i])
            stepaf_gpu_event_destroy(proxy->stream->plan->ctx->gpu.device, proxy->marks[i]);
}
