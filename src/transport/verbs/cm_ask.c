/* SPDX-License-Identifier: Apache-2.0 */
/* One connection through librdmacm, on the side that requests it. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/time.h"
#include "transport/verbs/cm.h"

/* A peer's kernel keeps a limited number of requests and rejects the others: try again after 10 ms,
 * 20 ms ... 1.3 s in all. An unanswered first word is repeated after the same times. */
enum { TRIES = 8, PAUSE_NS = 10000000, WHAT = 96, CM_REJECT_NO_LISTENER = 8 };

void stepaf_verbs_call_begin(struct stepaf_verbs_call *call, int timeout_ms)
{
    struct stepaf_verbs *verbs = stepaf_verbs_of(call->link);
    const struct stepaf_verbs_cm_ops *ops = verbs->provider->cm;
    int error;

    stepaf_verbs_call_move(call, STEPAF_VERBS_CALL_ADDRESS);
    call->id =
        ops->create(verbs->cm.channel, call, (uint8_t)verbs->base.up->env->verbs_traffic_class);
    error = call->id ? ops->resolve_address(call->id, &stepaf_verbs_call_path(call)->rail->port.gid,
                                            &call->address, call->port, timeout_ms)
                     : errno;
    if (error) {
        char what[WHAT];
        stepaf_verbs_call_say(call, what, sizeof(what));
        stepaf_verbs_call_fail(call, STEPAF_ERR_NO_TRANSPORT, "%s: %s", what, strerror(error));
    }
}

/* The address is resolved: find the route, if the address is reached over this rail. */
static int find_route(struct stepaf_verbs_call *call, int timeout_ms)
{
    const struct stepaf_verbs *verbs = stepaf_verbs_of(call->link);
    const struct stepaf_verbs_rail *rail = stepaf_verbs_call_path(call)->rail;

    if (!verbs->provider->cm->is_on(call->id, rail->context, rail->port.number))
        return ENODEV;
    stepaf_verbs_call_move(call, STEPAF_VERBS_CALL_ROUTE);
    return verbs->provider->cm->resolve_route(call->id, timeout_ms);
}

static int send_request(struct stepaf_verbs_call *call)
{
    const struct stepaf_verbs *verbs = stepaf_verbs_of(call->link);
    struct stepaf_verbs_request request = {
        .magic = STEPAF_VERBS_REQUEST_MAGIC,
        .place = call->link->slot << 8 | call->index,
    };
    int error = stepaf_verbs_call_prepare(call);

    stepaf_verbs_call_move(call, STEPAF_VERBS_CALL_CONNECT);
    if (error)
        return error;
    error = stepaf_claim_draw(call->nonce);
    if (error)
        return error;
    struct stepaf_claim claim = stepaf_verbs_claim(request.magic, request.place, call->nonce);
    memcpy(request.nonce, call->nonce, sizeof(request.nonce));
    stepaf_claim_prove(verbs->secret, call->link->secret, &claim, request.proof);
    return verbs->provider->cm->connect(call->id,
                                        &(struct stepaf_verbs_cm_hello){
                                            .qpn = stepaf_verbs_call_path(call)->qp->qp_num,
                                            .retry = (uint8_t)verbs->base.up->env->verbs_retry,
                                            .rnr_retry = STEPAF_VERBS_RNR_RETRY,
                                            .data = &request,
                                            .bytes = sizeof(request),
                                        });
}

/* Return whether the listener knows the secrets, too: addresses can mean another host. */
static bool is_peer(const struct stepaf_verbs_call *call, const struct stepaf_verbs_cm_event *event)
{
    struct stepaf_claim claim = stepaf_verbs_claim(
        STEPAF_VERBS_ANSWER_MAGIC, call->link->slot << 8 | call->index, call->nonce);
    struct stepaf_verbs_answer answer;

    if (event->bytes < sizeof(answer))
        return false;
    memcpy(&answer, event->data, sizeof(answer));
    memcpy(claim.listener, answer.nonce, sizeof(claim.listener));
    return answer.magic == STEPAF_VERBS_ANSWER_MAGIC &&
           stepaf_claim_is_proven(stepaf_verbs_of(call->link)->secret, call->link->secret, &claim,
                                  answer.proof);
}

/* The peer has accepted: make this end ready, and send first. */
static void call_accepted(struct stepaf_verbs_call *call, const struct stepaf_verbs_cm_event *event)
{
    const struct stepaf_verbs *verbs = stepaf_verbs_of(call->link);
    char what[WHAT];
    int error;

    stepaf_verbs_call_say(call, what, sizeof(what));
    if (!is_peer(call, event)) {
        stepaf_verbs_call_fail(call, STEPAF_ERR_NO_TRANSPORT, "%s: it does not know the secret",
                               what);
        return;
    }
    error = stepaf_verbs_call_ready(call);
    if (!error && event->type == STEPAF_VERBS_CM_RESPONSE)
        error = verbs->provider->cm->establish(call->id);
    if (error) {
        stepaf_verbs_call_fail(call, STEPAF_ERR_NO_TRANSPORT, "%s: preparing the queue pair: %s",
                               what, strerror(error));
        return;
    }
    call->tries = 0;
    call->again_ns = stepaf_monotonic_ns() + PAUSE_NS;
    if (stepaf_verbs_call_path(call)->rail->iwarp)
        stepaf_verbs_call_move(call, STEPAF_VERBS_CALL_GREETED);
    else
        stepaf_verbs_call_up(call);
    if (call->state != STEPAF_VERBS_CALL_FAILED)
        stepaf_verbs_call_greet(call);
}

void stepaf_verbs_call_repeat(struct stepaf_verbs_call *call, int64_t now_ns)
{
    if (now_ns < call->again_ns)
        return;
    if (call->tries + 1 < TRIES)
        call->tries++;
    call->again_ns = now_ns + ((int64_t)PAUSE_NS << call->tries);
    stepaf_verbs_call_greet(call);
}

/* Handle a rejection: by the peer, which gives a reason, or by its kernel. */
static void rejected(struct stepaf_verbs_call *call, const struct stepaf_verbs_cm_event *event)
{
    static const char *const reasons[] = {
        [STEPAF_VERBS_REFUSAL_STRANGER] = "it does not know the secret",
        [STEPAF_VERBS_REFUSAL_UNEXPECTED] = "it does not expect this queue pair",
        [STEPAF_VERBS_REFUSAL_TROUBLE] = "it has failed to prepare its end",
    };
    const struct stepaf_verbs *verbs = stepaf_verbs_of(call->link);
    struct stepaf_verbs_answer answer = {0};
    bool nobody = event->status == -ECONNREFUSED || event->status == CM_REJECT_NO_LISTENER;
    char what[WHAT];

    if (event->bytes >= sizeof(answer))
        memcpy(&answer, event->data, sizeof(answer));
    bool told = answer.magic == STEPAF_VERBS_ANSWER_MAGIC && answer.why &&
                answer.why <= STEPAF_VERBS_REFUSAL_TROUBLE;
    if (!told && !nobody && call->tries + 1 < TRIES) {
        verbs->provider->cm->destroy(call->id);
        call->id = NULL;
        call->again_ns = stepaf_monotonic_ns() + ((int64_t)PAUSE_NS << call->tries++);
        stepaf_verbs_call_move(call, STEPAF_VERBS_CALL_PAUSED);
        return;
    }
    stepaf_verbs_call_say(call, what, sizeof(what));
    stepaf_verbs_call_fail(call, STEPAF_ERR_NO_TRANSPORT, "%s: %s, status %d%s%s", what,
                           event->text, event->status, told || nobody ? ": " : "",
                           told     ? reasons[answer.why]
                           : nobody ? "no process listens there"
                                    : "");
}

void stepaf_verbs_call_advance(struct stepaf_verbs_call *call,
                               const struct stepaf_verbs_cm_event *event, int timeout_ms)
{
    char what[WHAT];
    int error = 0;

    if (event->type == STEPAF_VERBS_CM_ADDRESS && call->state == STEPAF_VERBS_CALL_ADDRESS) {
        error = find_route(call, timeout_ms);
    } else if (event->type == STEPAF_VERBS_CM_ROUTE && call->state == STEPAF_VERBS_CALL_ROUTE) {
        error = send_request(call);
    } else if ((event->type == STEPAF_VERBS_CM_RESPONSE ||
                event->type == STEPAF_VERBS_CM_ESTABLISHED) &&
               call->state == STEPAF_VERBS_CALL_CONNECT && !event->status) {
        call_accepted(call, event);
    } else if (event->type == STEPAF_VERBS_CM_REJECTED &&
               call->state == STEPAF_VERBS_CALL_CONNECT) {
        rejected(call, event);
    } else if (event->type != STEPAF_VERBS_CM_OTHER) {
        stepaf_verbs_call_say(call, what, sizeof(what));
        stepaf_verbs_call_fail(call, STEPAF_ERR_NO_TRANSPORT, "%s: %s, status %d%s%s", what,
                               event->text, event->status, event->status < 0 ? ": " : "",
                               event->status < 0 ? strerror(-event->status) : "");
    }
    if (!error)
        return;
    stepaf_verbs_call_say(call, what, sizeof(what));
    stepaf_verbs_call_fail(call, STEPAF_ERR_NO_TRANSPORT, "%s: %s", what,
                           error == ENODEV ? "the route to it uses another device"
                                           : strerror(error));
}
