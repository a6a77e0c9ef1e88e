/* SPDX-License-Identifier: Apache-2.0 */
/* One connection through librdmacm, on the listening side. The caller is a stranger: its request is
 * compared with known facts before anything changes. */
#include <string.h>

#include "base/log.h"
#include "transport/verbs/cm.h"

/* Return the call that a request is for; NULL if none: *why_p says why. */
static struct stepaf_verbs_call *recognize_request(const struct stepaf_verbs *verbs,
                                                   const struct stepaf_verbs_cm_event *event,
                                                   enum stepaf_verbs_refusal *why_p)
{
    struct stepaf_verbs_request request;

    *why_p = STEPAF_VERBS_REFUSAL_STRANGER;
    if (event->bytes < sizeof(request))
        return NULL;
    memcpy(&request, event->data, sizeof(request));
    if (request.magic != STEPAF_VERBS_REQUEST_MAGIC)
        return NULL;
    struct stepaf_claim claim = stepaf_verbs_claim(request.magic, request.place, request.nonce);
    struct stepaf_verbs_link *link = claim.slot < verbs->n_peers ? verbs->links[claim.slot] : NULL;
    if (!link || !stepaf_claim_is_proven(link->secret, verbs->secret, &claim, request.proof))
        return NULL;
    *why_p = STEPAF_VERBS_REFUSAL_UNEXPECTED;
    if (link->base.dead || !link->calls || claim.part >= link->n_paths ||
        link->calls[claim.part].state != STEPAF_VERBS_CALL_IDLE ||
        link->paths[claim.part].rail->listener != event->listener)
        return NULL;
    struct stepaf_verbs_call *call = &link->calls[claim.part];
    memcpy(call->nonce, request.nonce, sizeof(call->nonce));
    return call;
}

static void reject_request(const struct stepaf_verbs *verbs, struct rdma_cm_id *id,
                           enum stepaf_verbs_refusal why)
{
    struct stepaf_verbs_answer answer = {.magic = STEPAF_VERBS_ANSWER_MAGIC, .why = why};

    verbs->provider->cm->reject(id, &answer, sizeof(answer));
}

static int accept_it(struct stepaf_verbs_call *call)
{
    const struct stepaf_verbs *verbs = stepaf_verbs_of(call->link);
    struct stepaf_verbs_answer answer = {.magic = STEPAF_VERBS_ANSWER_MAGIC};
    struct stepaf_claim claim =
        stepaf_verbs_claim(answer.magic, call->link->base.peer << 8 | call->index, call->nonce);
    int error = stepaf_verbs_call_prepare(call);

    if (!error)
        error = stepaf_verbs_call_ready(call);
    if (!error)
        error = stepaf_claim_draw(answer.nonce);
    if (error)
        return error;
    memcpy(claim.listener, answer.nonce, sizeof(claim.listener));
    stepaf_claim_prove(call->link->secret, verbs->secret, &claim, answer.proof);
    return verbs->provider->cm->accept(call->id,
                                       &(struct stepaf_verbs_cm_hello){
                                           .qpn = call->link->paths[call->index].qp->qp_num,
                                           .retry = (uint8_t)verbs->base.up->env->verbs_retry,
                                           .rnr_retry = STEPAF_VERBS_RNR_RETRY,
                                           .data = &answer,
                                           .bytes = sizeof(answer),
                                       });
}

void stepaf_verbs_cm_answer(struct stepaf_verbs *verbs, const struct stepaf_verbs_cm_event *event)
{
    enum stepaf_verbs_refusal why;
    struct stepaf_verbs_call *call = recognize_request(verbs, event, &why);
    int error;

    if (!call) {
        stepaf_log_info("verbs: a connection %s was rejected", why == STEPAF_VERBS_REFUSAL_STRANGER
                                                                   ? "without the right secret"
                                                                   : "that is not expected");
        reject_request(verbs, event->id, why);
        verbs->provider->cm->destroy(event->id);
        return;
    }
    call->id = event->id;
    verbs->provider->cm->adopt(call->id, call);
    error = accept_it(call);
    if (error) {
        reject_request(verbs, call->id, STEPAF_VERBS_REFUSAL_TROUBLE);
        stepaf_verbs_call_fail(call, STEPAF_ERR_NO_TRANSPORT, "accepting its connection: %s",
                               strerror(error));
    } else {
        stepaf_verbs_call_move(call, STEPAF_VERBS_CALL_ACCEPTED);
    }
}

void stepaf_verbs_answer_advance(struct stepaf_verbs_call *call,
                                 const struct stepaf_verbs_cm_event *event)
{
    if (event->type == STEPAF_VERBS_CM_ESTABLISHED && !event->status &&
        call->state == STEPAF_VERBS_CALL_ACCEPTED)
        stepaf_verbs_call_move(call, STEPAF_VERBS_CALL_UNHEARD);
    else if (event->type != STEPAF_VERBS_CM_OTHER)
        stepaf_verbs_call_fail(call, STEPAF_ERR_NO_TRANSPORT,
                               "accepting its connection: %s, status %d%s%s", event->text,
                               event->status, event->status < 0 ? ": " : "",
                               event->status < 0 ? strerror(-event->status) : "");
}

void stepaf_verbs_answer_heard(struct stepaf_verbs_call *call)
{
    stepaf_verbs_call_up(call);
    if (call->state == STEPAF_VERBS_CALL_UP && call->link->paths[call->index].rail->iwarp)
        stepaf_verbs_call_greet(call);
}
