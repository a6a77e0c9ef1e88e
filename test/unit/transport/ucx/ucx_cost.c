/* SPDX-License-Identifier: Apache-2.0 */
/* What UCX costs a rank in instructions, on a UCX that is made up and does what it is asked for as
 * soon as it may. Without callgrind the program checks what it can count itself: a start sends an
 * active message for each tensor and FFN rank. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "transport/cost_job.h"
#include "ucx_fabric.h"

static struct stepaf_ucx_library library;
static bool counts;
static ucp_am_recv_callback_t takes[STEPAF_UCX_QUICK + 1];

/* ---- UCX, which is not counted; but what it calls is ---- */

static __attribute__((noinline)) ucs_status_t counted_take(unsigned id, void *arg,
                                                           const void *header, size_t header_bytes,
                                                           void *data, size_t bytes,
                                                           const ucp_am_recv_param_t *param)
{
    return takes[id](arg, header, header_bytes, data, bytes, param);
}

static ucs_status_t take_of(unsigned id, void *arg, const void *header, size_t header_bytes,
                            void *data, size_t bytes, const ucp_am_recv_param_t *param)
{
    return counts ? counted_take(id, arg, header, header_bytes, data, bytes, param)
                  : takes[id](arg, header, header_bytes, data, bytes, param);
}

static ucs_status_t take(void *arg, const void *header, size_t header_bytes, void *data,
                         size_t bytes, const ucp_am_recv_param_t *param)
{
    return take_of(STEPAF_UCX_MESSAGE, arg, header, header_bytes, data, bytes, param);
}

static ucs_status_t take_quick(void *arg, const void *header, size_t header_bytes, void *data,
                               size_t bytes, const ucp_am_recv_param_t *param)
{
    return take_of(STEPAF_UCX_QUICK, arg, header, header_bytes, data, bytes, param);
}

static ucs_status_t set_handler(ucp_worker_h worker, const ucp_am_handler_param_t *param)
{
    ucp_am_handler_param_t own = *param;

    takes[param->id] = param->cb;
    own.cb = param->id == STEPAF_UCX_QUICK ? take_quick : take;
    return ucx_fabric_library.worker_set_am_recv_handler(worker, &own);
}

static __attribute__((noinline)) void counted_sent(void *request, ucs_status_t status,
                                                   void *user_data)
{
    stepaf_ucx_has_been_sent(request, status, user_data);
}

static void sent(void *request, ucs_status_t status, void *user_data)
{
    if (counts)
        counted_sent(request, status, user_data);
    else
        stepaf_ucx_has_been_sent(request, status, user_data);
}

static ucs_status_ptr_t am_send(ucp_ep_h ep, unsigned id, const void *header, size_t header_bytes,
                                const void *buffer, size_t count, const ucp_request_param_t *param)
{
    ucp_request_param_t own = *param;

    own.cb.send = sent;
    return ucx_fabric_library.am_send_nbx(ep, id, header, header_bytes, buffer, count, &own);
}

static __attribute__((noinline)) ucs_status_ptr_t counted_am_send(ucp_ep_h ep, unsigned id,
                                                                  const void *header,
                                                                  size_t header_bytes,
                                                                  const void *buffer, size_t count,
                                                                  const ucp_request_param_t *param)
{
    return am_send(ep, id, header, header_bytes, buffer, count, param);
}

static __attribute__((noinline)) unsigned counted_progress(ucp_worker_h worker)
{
    return ucx_fabric_library.worker_progress(worker);
}

static unsigned progress_and_give_way(ucp_worker_h worker)
{
    unsigned n = ucx_fabric_library.worker_progress(worker);

    cost_give_way();
    return n;
}

static __attribute__((noinline)) void counted_request_free(void *request)
{
    ucx_fabric_library.request_free(request);
}

/* What UCX calls is counted then: so it is what calls UCX again that is not. */
static void count_fabric(bool on)
{
    counts = on;
    library.am_send_nbx = on ? counted_am_send : am_send;
    library.worker_progress = on ? counted_progress : progress_and_give_way;
    library.request_free = on ? counted_request_free : ucx_fabric_library.request_free;
}

/* ---- what is checked ---- */

static unsigned n_starts, messages_of_starts;

static void begin_step(enum cost_step step)
{
    if (step == COST_START || step == COST_RECV)
        ucx_fabric.n_messages = 0;
}

static void end_step(enum cost_step step)
{
    if (step != COST_START)
        return;
    n_starts++;
    messages_of_starts += ucx_fabric.n_messages;
}

static void judge_starts(void)
{
    unsigned tensors = n_starts * (unsigned)cost_n_ffn * (unsigned)cost_n_tensors;

    if (messages_of_starts != tensors) {
        fprintf(stderr, "ucx_cost: %u starts of %d tensors at %d FFN ranks: %u messages\n",
                n_starts, cost_n_tensors, cost_n_ffn, messages_of_starts);
        exit(1);
    }
    n_starts = messages_of_starts = 0;
}

int main(void)
{
    static struct cost_carrier fabric = {
        .count = count_fabric, .begin = begin_step, .end = end_step, .judge = judge_starts};

    setenv("STEPAF_TRANSPORTS", "ucx", 1);
    ucx_fabric_reset(1);
    ucx_fabric.prompt = true;
    ucx_fabric.told_in = 0;
    library = ucx_fabric_library;
    library.worker_set_am_recv_handler = set_handler;
    stepaf_ucx_library_fake = &library;
    cost_carrier = &fabric;
    cost_measure_some();
    return 0;
}
