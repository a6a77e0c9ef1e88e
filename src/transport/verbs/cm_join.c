/* SPDX-License-Identifier: Apache-2.0 */
/* Drive all connections through librdmacm: in the commit until they are up, later while idle. */
#include <stdio.h>
#include <string.h>

#include "base/time.h"
#include "transport/verbs/cm.h"

enum {
    ASKING_MAX = 64, /* begun by this side and not up: so that listeners are not flooded */
    EVENTS = 64,     /* of one step */
    WATCH_MS = 1     /* while waiting for something that is no event */
};

static int left_ms(int64_t deadline_ns)
{
    int64_t left = (deadline_ns - stepaf_monotonic_ns()) / 1000000;

    return left < 1 ? 1 : left > INT32_MAX ? INT32_MAX : (int)left;
}

/* Begin as many calls as the limit permits. */
static void begin_some(struct stepaf_verbs *verbs, int64_t deadline_ns)
{
    struct stepaf_verbs_cm *cm = &verbs->cm;

    for (; cm->next < verbs->n_peers * verbs->n_paths && cm->n_asking < ASKING_MAX; cm->next++) {
        unsigned peer = (cm->first + cm->next / verbs->n_paths) % verbs->n_peers;
        struct stepaf_verbs_link *link = verbs->links[peer];
        unsigned path = cm->next % verbs->n_paths;
        if (link && link->calls && path < link->n_paths &&
            link->calls[path].state == STEPAF_VERBS_CALL_IDLE)
            stepaf_verbs_call_begin(&link->calls[path], left_ms(deadline_ns));
    }
}

static void watch_one(struct stepaf_verbs_call *call, int64_t now, int64_t deadline_ns)
{
    bool heard =
        (call->state == STEPAF_VERBS_CALL_UNHEARD || call->state == STEPAF_VERBS_CALL_GREETED) &&
        stepaf_verbs_call_is_heard(call);

    if (heard && call->state == STEPAF_VERBS_CALL_UNHEARD)
        stepaf_verbs_answer_heard(call);
    else if (heard)
        stepaf_verbs_call_up(call);
    else if (call->state == STEPAF_VERBS_CALL_GREETED)
        stepaf_verbs_call_repeat(call, now);
    else if (call->state == STEPAF_VERBS_CALL_PAUSED && now >= call->again_ns) {
        call->link->base.connects_again++;
        stepaf_verbs_call_begin(call, left_ms(deadline_ns));
    }
}

/* Check the calls that no event advances. */
static void watch_some(struct stepaf_verbs *verbs, int64_t deadline_ns)
{
    int64_t now = stepaf_monotonic_ns();

    for (unsigned p = 0; p < verbs->n_peers && verbs->cm.n_watched; p++) {
        struct stepaf_verbs_link *link = verbs->links[p];
        for (unsigned i = 0; link && link->calls && i < link->n_paths; i++)
            watch_one(&link->calls[i], now, deadline_ns);
    }
}

/* Handle the end of a connection that was up. Everything that arrived over it is taken in before
 * the peer is lost. */
static void call_ended(struct stepaf_verbs_call *call, const struct stepaf_verbs_cm_event *event)
{
    struct stepaf_verbs *verbs = stepaf_verbs_of(call->link);
    struct stepaf_verbs_path *path = stepaf_verbs_call_path(call);

    if (event->type != STEPAF_VERBS_CM_DISCONNECTED && event->type != STEPAF_VERBS_CM_REMOVED &&
        event->type != STEPAF_VERBS_CM_TIMEWAIT)
        return;
    if (event->type == STEPAF_VERBS_CM_DISCONNECTED)
        verbs->provider->cm->disconnect(call->id); /* it waits for an answer */
    /* What the peer has sent before is delivered; what others have sent is not, since it may be of
     * the next epoch. */
    stepaf_verbs_sends_note(verbs);
    stepaf_verbs_aside_take_of(call->link);
    stepaf_verbs_path_lost(call->link, path, "%s, status %d", event->text, event->status);
}

static void dispatch_event(struct stepaf_verbs *verbs, const struct stepaf_verbs_cm_event *event,
                           int64_t deadline_ns)
{
    struct stepaf_verbs_call *call = event->context;

    if (event->type == STEPAF_VERBS_CM_REQUEST)
        stepaf_verbs_cm_answer(verbs, event);
    else if (!call || call->state == STEPAF_VERBS_CALL_FAILED)
        return;
    else if (call->state == STEPAF_VERBS_CALL_UP)
        call_ended(call, event);
    else if (verbs->base.up->initiates)
        stepaf_verbs_call_advance(call, event, left_ms(deadline_ns));
    else
        stepaf_verbs_answer_advance(call, event);
}

bool stepaf_verbs_cm_step(struct stepaf_verbs *verbs, int64_t deadline_ns, int wait_ms)
{
    struct stepaf_verbs_cm_event event;

    if (verbs->base.up->initiates)
        begin_some(verbs, deadline_ns);
    watch_some(verbs, deadline_ns);
    if (!verbs->cm.n_open)
        return false;
    if (verbs->cm.n_watched && wait_ms > WATCH_MS)
        wait_ms = WATCH_MS;
    for (int i = 0; i < EVENTS; i++, wait_ms = 0) {
        if (!verbs->provider->cm->take_event(verbs->cm.channel, wait_ms, &event))
            break;
        dispatch_event(verbs, &event, deadline_ns);
    }
    return true;
}

/* Return some call that is open. */
static struct stepaf_verbs_call *find_open(const struct stepaf_verbs *verbs)
{
    for (unsigned p = 0; p < verbs->n_peers; p++) {
        struct stepaf_verbs_link *link = verbs->links[p];
        for (unsigned i = 0; link && link->calls && i < link->n_paths; i++)
            if (link->calls[i].state > STEPAF_VERBS_CALL_NONE &&
                link->calls[i].state < STEPAF_VERBS_CALL_UP)
                return &link->calls[i];
    }
    return NULL;
}

stepaf_status_t stepaf_verbs_finish_connects(struct stepaf_transport *transport,
                                             int64_t deadline_ns, int wait_ms, uint32_t *peer_p,
                                             char *reason)
{
    struct stepaf_verbs *verbs = (struct stepaf_verbs *)transport;
    bool late = stepaf_monotonic_ns() >= deadline_ns;
    struct stepaf_verbs_call *call;
    char what[STEPAF_REASON_MAX];

    if (!late)
        (void)stepaf_verbs_cm_step(verbs, deadline_ns, wait_ms);
    while ((call = find_open(verbs)) && late) {
        stepaf_verbs_call_say(call, what, sizeof(what));
        stepaf_verbs_call_fail(call, STEPAF_ERR_TIMEOUT, "not in time: %s", what);
    }
    if (verbs->cm.failed) {
        *peer_p = verbs->cm.failed_peer;
        snprintf(reason, STEPAF_REASON_MAX, "%s", verbs->cm.failed_why);
        return verbs->cm.failed;
    }
    if (!call)
        return STEPAF_OK;
    *peer_p = call->link->base.peer;
    stepaf_verbs_call_say(call, what, sizeof(what));
    snprintf(reason, STEPAF_REASON_MAX, "%.40s: %.140s", call->link->paths[call->index].rail->name,
             what);
    return STEPAF_INPROGRESS;
}

void stepaf_verbs_cm_watch(struct stepaf_verbs *verbs)
{
    struct stepaf_verbs_cm_event event;

    for (int i = 0; i < EVENTS; i++) {
        if (!verbs->provider->cm->take_event(verbs->cm.channel, 0, &event))
            return;
        dispatch_event(verbs, &event, 0);
    }
}
