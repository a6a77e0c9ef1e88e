/* SPDX-License-Identifier: Apache-2.0 */
/* A connection through librdmacm: the parts common to both sides. */
#include <arpa/inet.h>
#include <errno.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "transport/verbs/cm.h"

enum { ADDRESS_TEXT = 64 };

/* A count that was never possible, so a sender ignores it. */
static const uint32_t unheard = UINT32_MAX;

static bool call_is_open(uint8_t state)
{
    return state > STEPAF_VERBS_CALL_NONE && state < STEPAF_VERBS_CALL_UP;
}

static bool is_asking(uint8_t state)
{
    return state >= STEPAF_VERBS_CALL_ADDRESS && state <= STEPAF_VERBS_CALL_CONNECT;
}

static bool is_watched(uint8_t state)
{
    return state == STEPAF_VERBS_CALL_UNHEARD || state == STEPAF_VERBS_CALL_GREETED ||
           state == STEPAF_VERBS_CALL_PAUSED;
}

void stepaf_verbs_call_move(struct stepaf_verbs_call *call, enum stepaf_verbs_call_state state)
{
    struct stepaf_verbs_cm *cm = &stepaf_verbs_of(call->link)->cm;

    cm->n_open = cm->n_open - call_is_open(call->state) + call_is_open(state);
    cm->n_asking = cm->n_asking - is_asking(call->state) + is_asking(state);
    cm->n_watched = cm->n_watched - is_watched(call->state) + is_watched(state);
    call->state = (uint8_t)state;
}

void stepaf_verbs_call_fail(struct stepaf_verbs_call *call, stepaf_status_t status,
                            const char *format, ...)
{
    struct stepaf_verbs *verbs = stepaf_verbs_of(call->link);
    const struct stepaf_verbs_path *path = stepaf_verbs_call_path(call);
    char what[STEPAF_REASON_MAX];
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(what, sizeof(what), format, arguments);
    va_end(arguments);
    stepaf_verbs_call_move(call, STEPAF_VERBS_CALL_FAILED);
    if (verbs->cm.failed)
        return;
    verbs->cm.failed = status;
    verbs->cm.failed_peer = call->link->base.peer;
    snprintf(verbs->cm.failed_why, sizeof(verbs->cm.failed_why), "%.40s, queue pair 0x%x: %.120s",
             path->rail->name, path->qp->qp_num, what);
}

static void format_call_address(const struct stepaf_verbs_call *call,
                                char text_p[static ADDRESS_TEXT])
{
    char address[INET6_ADDRSTRLEN] = "?";
    bool is_ipv4 = stepaf_verbs_is_ipv4(&call->address);

    (void)inet_ntop(is_ipv4 ? AF_INET : AF_INET6, &call->address.raw[is_ipv4 ? 12 : 0], address,
                    sizeof(address));
    snprintf(text_p, ADDRESS_TEXT, is_ipv4 ? "%s:%u" : "[%s]:%u", address, call->port);
}

void stepaf_verbs_call_say(const struct stepaf_verbs_call *call, char *text_p, size_t capacity)
{
    bool initiates = stepaf_verbs_of(call->link)->base.up->initiates;
    char address[ADDRESS_TEXT];

    format_call_address(call, address);
    switch (call->state) {
    case STEPAF_VERBS_CALL_IDLE:
        if (initiates)
            snprintf(text_p, capacity, "not begun, to %s", address);
        else
            snprintf(text_p, capacity, "it has not connected");
        break;
    case STEPAF_VERBS_CALL_ADDRESS:
        snprintf(text_p, capacity, "resolving %s", address);
        break;
    case STEPAF_VERBS_CALL_ROUTE:
        snprintf(text_p, capacity, "finding the route to %s", address);
        break;
    case STEPAF_VERBS_CALL_ACCEPTED:
        snprintf(text_p, capacity, "answered, but it has not confirmed");
        break;
    case STEPAF_VERBS_CALL_UNHEARD:
        snprintf(text_p, capacity, "established, but no data arrives");
        break;
    case STEPAF_VERBS_CALL_GREETED:
        snprintf(text_p, capacity, "connected to %s, but no data arrives", address);
        break;
    default:
        snprintf(text_p, capacity, "connecting to %s", address);
    }
}

int stepaf_verbs_call_prepare(struct stepaf_verbs_call *call)
{
    struct stepaf_verbs *verbs = stepaf_verbs_of(call->link);
    int error = stepaf_verbs_qp_follow(verbs, stepaf_verbs_call_path(call), call->id, IBV_QPS_INIT);

    if (!error && !call->prepared)
        error = stepaf_verbs_refill(call->link, stepaf_verbs_call_path(call), verbs->qp.receives);
    call->prepared = call->prepared || !error;
    return error;
}

int stepaf_verbs_call_ready(struct stepaf_verbs_call *call)
{
    struct stepaf_verbs *verbs = stepaf_verbs_of(call->link);
    const struct stepaf_verbs_path *path = stepaf_verbs_call_path(call);
    int error;

    if (path->rail->iwarp) /* connecting does it */
        return 0;
    error = stepaf_verbs_qp_follow(verbs, path, call->id, IBV_QPS_RTR);
    return error ? error : stepaf_verbs_qp_follow(verbs, path, call->id, IBV_QPS_RTS);
}

void stepaf_verbs_call_up(struct stepaf_verbs_call *call)
{
    const struct stepaf_verbs *verbs = stepaf_verbs_of(call->link);
    int error = stepaf_verbs_lag_apply(verbs, call->link, call->index);

    if (error)
        stepaf_verbs_call_fail(call, STEPAF_ERR_NO_TRANSPORT, "choosing the bond's port: %s",
                               strerror(error));
    else
        stepaf_verbs_call_move(call, STEPAF_VERBS_CALL_UP);
}

void stepaf_verbs_call_greet(struct stepaf_verbs_call *call)
{
    struct stepaf_verbs_link *link = call->link;
    struct stepaf_verbs_path *path = &link->paths[call->index];

    /* without space, the peer has been written to often enough */
    (void)stepaf_verbs_tell(link, path, true);
    if (link->base.dead || path->closed)
        stepaf_verbs_call_fail(call, STEPAF_ERR_NO_TRANSPORT, "it cannot be written to");
}

void stepaf_verbs_call_await(const struct stepaf_verbs_call *call)
{
    _Atomic uint32_t *word = (_Atomic uint32_t *)call->link->paths[call->index].tx_ack;

    atomic_store_explicit(word, unheard, memory_order_relaxed);
}

bool stepaf_verbs_call_is_heard(const struct stepaf_verbs_call *call)
{
    return atomic_load_explicit(call->link->paths[call->index].tx_ack, memory_order_acquire) !=
           unheard;
}
