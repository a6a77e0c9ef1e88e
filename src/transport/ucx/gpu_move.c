/* SPDX-License-Identifier: Apache-2.0 */
/* Transfers of GPU memory. A tensor in GPU memory, or for GPU memory, is an active message whose data
 * UCX fetches at the receiver, directly into their place: no code of the library reads or writes GPU
 * memory.
 *
 * UCX 1.13 to 1.18 copies only if the calling thread is in the GPU's context; newer versions enter the
 * context themselves. So UCX is called in the GPU's context; the progress of newer versions only while
 * a transfer of GPU memory is in flight. If this rank has GPU memory, fetches into host memory count
 * as such transfers too: the data may come from a peer's GPU, and UCX may use this rank's GPU to fetch
 * them. */
#include "base/log.h"
#include "device/gpu.h"
#include "transport/ucx/ucx.h"

static const char *const gone = "this rank's GPU no longer has a context";

/* The context is gone, so transfers of GPU memory never complete: lose all links. */
static __attribute__((noinline, cold)) void give_gpu_up(struct stepaf_ucx *ucx)
{
    if (ucx->gpu.is_gone)
        return;
    ucx->gpu.is_gone = true;
    stepaf_log_info("ucx: %s", stepaf_last_error()->text);
    for (uint32_t p = 0; p < ucx->shared.n_peers; p++) {
        struct stepaf_ucx_link *link = &ucx->links[p];
        if (!link->shared.used || link->shared.base.dead || link->fault)
            continue;
        link->fault = gone;
        stepaf_ucx_note(link);
    }
}

struct turn {
    const struct stepaf_ucx *ucx;
    unsigned n;
};

static void take_turn(void *arg)
{
    struct turn *job = arg;

    job->n = job->ucx->calls->worker_progress(job->ucx->worker);
}

unsigned stepaf_ucx_turn_inside(struct stepaf_ucx *ucx)
{
    struct turn job = {.ucx = ucx};

    if (!ucx->gpu.is_gone && stepaf_gpu_inside(ucx->gpu.device, take_turn, &job))
        give_gpu_up(ucx);
    return job.n;
}

/* ---- sending ---- */

static void sent_from_gpu(void *request, ucs_status_t status, void *user_data)
{
    const struct stepaf_ucx_op *op = user_data;

    stepaf_ucx_of((struct stepaf_ucx_link *)op->flight->link)->gpu.n_inside--;
    stepaf_ucx_has_been_sent(request, status, user_data);
}

bool stepaf_ucx_send_fetched(struct stepaf_ucx_op *op, const void *head, size_t head_bytes,
                             const struct stepaf_xfer *xfer)
{
    const struct stepaf_ucx_link *link = (struct stepaf_ucx_link *)op->flight->link;
    struct stepaf_ucx *ucx = stepaf_ucx_of(link);
    const struct stepaf_ucx_registration *own = xfer->src_mem->registration[ucx->shared.base.index];
    ucp_request_param_t param = {.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK |
                                                 UCP_OP_ATTR_FIELD_USER_DATA |
                                                 UCP_OP_ATTR_FIELD_FLAGS,
                                 .flags = UCP_AM_SEND_FLAG_RNDV,
                                 .cb.send = stepaf_ucx_has_been_sent,
                                 .user_data = op};

    if (own->gpu) {
        param.op_attr_mask |= UCP_OP_ATTR_FIELD_MEMH | UCP_OP_ATTR_FIELD_MEMORY_TYPE;
        param.memh = own->memh;
        param.memory_type = own->type;
        param.cb.send = sent_from_gpu;
    }
    ucs_status_ptr_t request = ucx->calls->am_send_nbx(link->ep, STEPAF_UCX_MESSAGE, head,
                                                       head_bytes, xfer->src, xfer->bytes, &param);
    ucx->gpu.n_inside += own->gpu && UCS_PTR_IS_PTR(request);
    return stepaf_ucx_answer(op, request);
}

/* ---- fetching ---- */

struct fetch {
    struct stepaf_ucx_link *link;
    uint32_t place;
    void *data, *to;
    size_t bytes;
    const struct stepaf_ucx_registration *own; /* of the GPU memory at to; NULL: host memory */
};

static void fetched_inside(void *request, ucs_status_t status, size_t bytes, void *user_data)
{
    const struct stepaf_ucx_in *in = user_data;
    struct stepaf_ucx *ucx = stepaf_ucx_of(in->link);

    (void)bytes;
    ucx->gpu.n_inside--;
    in->link->n_fetches--;
    ucx->calls->request_free(request);
    stepaf_ucx_has_come(in->link, in->place, status);
}

static void begin_fetch(void *arg)
{
    const struct fetch *job = arg;
    struct stepaf_ucx *ucx = stepaf_ucx_of(job->link);
    ucp_request_param_t param = {.op_attr_mask =
                                     UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA,
                                 .cb.recv_am = fetched_inside,
                                 .user_data = &job->link->in[job->place]};

    if (job->own) {
        param.op_attr_mask |= UCP_OP_ATTR_FIELD_MEMH | UCP_OP_ATTR_FIELD_MEMORY_TYPE;
        param.memh = job->own->memh;
        param.memory_type = job->own->type;
    }
    ucx->gpu.n_inside++; /* before the call, which may report the completion */
    job->link->n_fetches++;
    ucs_status_ptr_t request =
        ucx->calls->am_recv_data_nbx(ucx->worker, job->data, job->to, job->bytes, &param);
    if (UCS_PTR_IS_PTR(request))
        return;
    ucx->gpu.n_inside--;
    job->link->n_fetches--;
    stepaf_ucx_has_come(job->link, job->place, UCS_PTR_STATUS(request));
}

ucs_status_t stepaf_ucx_fetch_inside(struct stepaf_ucx_link *link, uint32_t place, void *data,
                                     const struct stepaf_ucx_registration *own, void *to,
                                     size_t bytes)
{
    struct stepaf_ucx *ucx = stepaf_ucx_of(link);
    struct fetch job = {link, place, data, to, bytes, own};

    if (!stepaf_gpu_inside(ucx->gpu.device, begin_fetch, &job))
        return UCS_INPROGRESS;
    give_gpu_up(ucx);
    return UCS_OK;
}
