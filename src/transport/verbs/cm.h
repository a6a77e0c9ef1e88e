/* SPDX-License-Identifier: Apache-2.0 */
/* Connections through librdmacm: required on iWARP devices, optional on RoCE and InfiniBand.
 *
 * FFN ranks listen on one port of each rail and advertise that port. Attention ranks resolve
 * address and route, and connect the queue pairs of all peers in parallel, driven by one event
 * channel. The queue pairs are the same as for other connections, created when the transport opens.
 * A request and its answer each end with a proof that the sender knows the secrets of both sides.
 * The bootstrap exchanges the secrets; they never go over the wire (transport/claim.h). A caller
 * without the secrets is rejected and changes nothing. An answer belongs to the nonce of its
 * request. The listener draws no nonce before the request. A replayed request therefore names a
 * queue pair that is no longer awaited, unless the replay arrives first: then the true request is
 * rejected, and the rejection is reported.
 *
 * On iWARP the connecting side must send first: it writes one word as soon as possible. The other
 * side is ready when that word arrives, and writes one word in answer. The first word is repeated
 * until the answer arrives: soft-iWARP answers a request before it starts to read from the
 * connection (Linux, siw_accept: the reply is sent, then the socket's callbacks are changed), and
 * data that arrives in between stays unread until the next packet. */
#ifndef STEPAF_TRANSPORT_VERBS_CM_H
#define STEPAF_TRANSPORT_VERBS_CM_H

#include "transport/verbs/verbs.h"

enum stepaf_verbs_call_state {
    STEPAF_VERBS_CALL_NONE,     /* the path is connected without librdmacm */
    STEPAF_VERBS_CALL_IDLE,     /* to be begun, or awaited */
    STEPAF_VERBS_CALL_PAUSED,   /* to be begun again: the peer had no space for it */
    STEPAF_VERBS_CALL_ADDRESS,  /* address being resolved */
    STEPAF_VERBS_CALL_ROUTE,    /* route being resolved */
    STEPAF_VERBS_CALL_CONNECT,  /* connection requested */
    STEPAF_VERBS_CALL_ACCEPTED, /* accepted by this side */
    STEPAF_VERBS_CALL_UNHEARD,  /* established, but the peer's first word has not arrived */
    STEPAF_VERBS_CALL_GREETED,  /* written to the peer, whose answer has not arrived */
    STEPAF_VERBS_CALL_UP,
    STEPAF_VERBS_CALL_FAILED
};

/* Connection of a queue pair; the context of its id. */
struct stepaf_verbs_call {
    struct rdma_cm_id *id; /* NULL: none yet */
    struct stepaf_verbs_link *link;
    union ibv_gid address; /* of the peer */
    uint16_t port;
    uint8_t index; /* of the path */
    uint8_t state; /* stepaf_verbs_call_state */
    uint8_t tries;
    bool prepared;    /* the queue pair has its receives */
    int64_t again_ns; /* time to begin a paused call again, or to repeat the first word */
    uint64_t nonce[STEPAF_CLAIM_NONCE_WORDS]; /* of the call's request */
};

/* Private data of a request and of an answer: these bytes in this order. */
struct stepaf_verbs_request {
    uint32_t magic;
    uint32_t place; /* index among the listener's peers, times 256, plus the path's number */
    uint64_t nonce[STEPAF_CLAIM_NONCE_WORDS]; /* drawn for this request */
    uint8_t proof[STEPAF_PROOF_BYTES];
};

struct stepaf_verbs_answer {
    uint32_t magic;
    uint32_t why; /* of a rejection: stepaf_verbs_refusal; the rest of a rejection is zero */
    uint64_t nonce[STEPAF_CLAIM_NONCE_WORDS];
    uint8_t proof[STEPAF_PROOF_BYTES];
};

enum {
    STEPAF_VERBS_REQUEST_MAGIC = 0x71666173, /* "safq" */
    STEPAF_VERBS_ANSWER_MAGIC = 0x61666173   /* "safa" */
};

enum stepaf_verbs_refusal {
    STEPAF_VERBS_REFUSAL_STRANGER = 1, /* the caller is no peer that knows both secrets */
    STEPAF_VERBS_REFUSAL_UNEXPECTED,   /* no such queue pair is awaited, or no longer */
    STEPAF_VERBS_REFUSAL_TROUBLE       /* the listener cannot make its own queue pair ready */
};

_Static_assert(sizeof(struct stepaf_verbs_request) <= STEPAF_VERBS_CM_DATA &&
                   sizeof(struct stepaf_verbs_answer) <= STEPAF_VERBS_CM_DATA,
               "what is said fits");

/* cm.c */
/* Have the rail connected by librdmacm: find its address. */
stepaf_status_t stepaf_verbs_cm_rail(struct stepaf_verbs *verbs, struct stepaf_verbs_rail *rail);
/* Listen on all rails, if the peers are the ones that connect. */
stepaf_status_t stepaf_verbs_cm_listen(struct stepaf_verbs *verbs);
void stepaf_verbs_cm_unlisten(struct stepaf_verbs *verbs);
/* Close the event channel. No link may have calls any more. */
void stepaf_verbs_cm_close(struct stepaf_verbs *verbs);
/* Register the connection of a path, which finish_connects begins or awaits. */
void stepaf_verbs_cm_expect(struct stepaf_verbs_link *link, unsigned path,
                            const union ibv_gid *address, uint16_t port);
/* End the calls of a link: hang_up before its queue pairs are destroyed, forget afterwards. */
void stepaf_verbs_cm_hang_up(struct stepaf_verbs_link *link);
void stepaf_verbs_cm_forget(struct stepaf_verbs_link *link);

/* cm_call.c */
void stepaf_verbs_call_move(struct stepaf_verbs_call *call, enum stepaf_verbs_call_state state);
/* Record a failure, with rail and queue pair; only the first one of the transport is kept. */
void stepaf_verbs_call_fail(struct stepaf_verbs_call *call, stepaf_status_t status,
                            const char *format, ...) __attribute__((format(printf, 3, 4)));
/* Describe, as text, what the call is doing in its state. */
void stepaf_verbs_call_say(const struct stepaf_verbs_call *call, char *text_p, size_t capacity);
/* Bring the call's queue pair to the state in which receives can be posted, and post them. Return 0
 * or errno. */
int stepaf_verbs_call_prepare(struct stepaf_verbs_call *call);
/* Bring the call's queue pair to the state in which it can send. Return 0 or errno. */
int stepaf_verbs_call_ready(struct stepaf_verbs_call *call);
/* Mark the call as up: both ends are ready. */
void stepaf_verbs_call_up(struct stepaf_verbs_call *call);
/* Write a word to the peer, which shows the peer that this end is ready; fail the call if the write
 * cannot be posted. */
void stepaf_verbs_call_greet(struct stepaf_verbs_call *call);
/* Start to await the peer's word; is_heard returns whether the word has arrived. */
void stepaf_verbs_call_await(const struct stepaf_verbs_call *call);
bool stepaf_verbs_call_is_heard(const struct stepaf_verbs_call *call);

/* cm_ask.c */
/* Begin a call. */
void stepaf_verbs_call_begin(struct stepaf_verbs_call *call, int timeout_ms);
/* Advance a call that this side has begun. */
void stepaf_verbs_call_advance(struct stepaf_verbs_call *call,
                               const struct stepaf_verbs_cm_event *event, int timeout_ms);
/* Repeat the first word of a call whose peer has not answered it. */
void stepaf_verbs_call_repeat(struct stepaf_verbs_call *call, int64_t now_ns);

/* cm_answer.c */
/* Answer a request from any sender. */
void stepaf_verbs_cm_answer(struct stepaf_verbs *verbs, const struct stepaf_verbs_cm_event *event);
/* Advance a call that this side has answered. */
void stepaf_verbs_answer_advance(struct stepaf_verbs_call *call,
                                 const struct stepaf_verbs_cm_event *event);
/* Handle the arrival of the peer's first word: until then, this side of a path may not send. */
void stepaf_verbs_answer_heard(struct stepaf_verbs_call *call);

/* cm_join.c */
/* Advance the calls by one step, waiting up to @a wait_ms. Returns false if nothing is left to
 * do. */
bool stepaf_verbs_cm_step(struct stepaf_verbs *verbs, int64_t deadline_ns, int wait_ms);
stepaf_status_t stepaf_verbs_finish_connects(struct stepaf_transport *transport,
                                             int64_t deadline_ns, int wait_ms, uint32_t *peer_p,
                                             char *reason);
/* Once connected: look for connections that have ended. */
void stepaf_verbs_cm_watch(struct stepaf_verbs *verbs);

static inline struct stepaf_verbs_path *stepaf_verbs_call_path(const struct stepaf_verbs_call *call)
{
    return &call->link->paths[call->index];
}

/* The claim that a request proves, and its answer with it. */
static inline struct stepaf_claim stepaf_verbs_claim(uint32_t kind, uint32_t place,
                                                     const uint64_t *opener)
{
    return (struct stepaf_claim){
        .kind = kind, .slot = place >> 8, .part = place & 0xff, .opener = {opener[0], opener[1]}};
}

#endif
