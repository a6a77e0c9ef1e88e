/* SPDX-License-Identifier: Apache-2.0 */
/* Sends in flight, from the call of UCX to its report of completion; and notes on links that are
 * made within UCX. */
#include "base/writable.h"
#include "transport/ucx/ucx.h"

void stepaf_ucx_has_no_place(struct stepaf_ucx_link *link)
{
    link->fault = "it has sent something that has no place here";
    stepaf_ucx_note(link);
}

void stepaf_ucx_cannot_write(struct stepaf_ucx_link *link)
{
    link->fault = stepaf_unwritable_own;
    stepaf_ucx_note(link);
}

void stepaf_ucx_has_come(struct stepaf_ucx_link *link, uint32_t place, ucs_status_t status)
{
    if (status != UCS_OK)
        link->failed = status;
    else
        link->shared.due[place].landed++;
    stepaf_ucx_note(link);
}

struct stepaf_ucx_op *stepaf_ucx_take_op(struct stepaf_ucx *ucx,
                                         struct stepaf_fabric_flight *flight)
{
    struct stepaf_ucx_op *op = ucx->free_op;

    if (!op)
        return NULL;
    ucx->free_op = op->next;
    op->flight = flight;
    return op;
}

/* Without the reserve, a peer would seem silent because other peers hold all ops. */
struct stepaf_ucx_op *stepaf_ucx_take_control(struct stepaf_ucx *ucx,
                                              struct stepaf_fabric_flight *flight)
{
    struct stepaf_ucx_op *op = stepaf_ucx_take_op(ucx, flight);

    if (op || !ucx->free_reserve)
        return op;
    op = ucx->free_reserve;
    ucx->free_reserve = op->next;
    op->flight = flight;
    return op;
}

void stepaf_ucx_free_op(struct stepaf_ucx_op *op)
{
    struct stepaf_ucx *ucx = stepaf_ucx_of((struct stepaf_ucx_link *)op->flight->link);

    if (op->pool) {
        op->next = *op->pool;
        *op->pool = op;
    }
    if (op->copy) {
        op->copy->next = ucx->free_copy;
        ucx->free_copy = op->copy;
    }
    op->copy = NULL;
}

/* This may run within UCX's progress, where the link cannot be closed: an error is only noted. */
void stepaf_ucx_end_op(struct stepaf_ucx_op *op, ucs_status_t status)
{
    struct stepaf_fabric_flight *flight = op->flight;
    struct stepaf_ucx_link *link = (struct stepaf_ucx_link *)flight->link;
    struct stepaf_ucx *ucx = stepaf_ucx_of(link);

    stepaf_ucx_free_op(op);
    if (status != UCS_OK) {
        flight->post = NULL; /* the post was not sent */
        link->failed = status;
        stepaf_ucx_note(link);
    }
    stepaf_fabric_end_send(flight);
    ucx->counted += flight != &link->shared.control;
}

void stepaf_ucx_has_been_sent(void *request, ucs_status_t status, void *user_data)
{
    struct stepaf_ucx_op *op = user_data;
    struct stepaf_ucx *ucx = stepaf_ucx_of((struct stepaf_ucx_link *)op->flight->link);

    ucx->calls->request_free(request);
    stepaf_ucx_end_op(op, status);
}

bool stepaf_ucx_answer(struct stepaf_ucx_op *op, ucs_status_ptr_t request)
{
    struct stepaf_fabric_link *link = op->flight->link;

    if (UCS_PTR_IS_PTR(request)) {
        op->flight->pending++;
        return true;
    }
    ucs_status_t status = UCS_PTR_STATUS(request);
    stepaf_ucx_free_op(op);
    link->heard++;
    if (status != UCS_OK)
        stepaf_fabric_lose(link, status);
    return status == UCS_OK;
}

bool stepaf_ucx_send_am(struct stepaf_ucx_op *op, const void *head, size_t head_bytes,
                        const void *source, size_t bytes)
{
    const struct stepaf_ucx_link *link = (struct stepaf_ucx_link *)op->flight->link;
    ucp_request_param_t param; /* UCX reads only the fields that op_attr_mask names */

    param.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
    param.cb.send = stepaf_ucx_has_been_sent;
    param.user_data = op;
    return stepaf_ucx_answer(
        op, stepaf_ucx_of(link)->calls->am_send_nbx(link->ep, STEPAF_UCX_MESSAGE, head, head_bytes,
                                                    source, bytes, &param));
}
