/* SPDX-License-Identifier: Apache-2.0 */
/* Connections by librdmacm: iWARP devices have no others, RoCE and InfiniBand may.
 *
 * FFN ranks listen at one port of each rail, which is in what they announce; attention ranks
 * resolve address and route and connect, all queue pairs of all peers side by side, driven by one
 * channel of events. The queue pairs are the same that are connected otherwise, made when the
 * transport opens. A request, and its answer, ends with a proof that the sender knows both sides'
 * secrets, which the bootstrap has brought and which never go over the wire (transport/claim.h):
 * whoever does not is rejected, and changes nothing. An answer is of the request's number. The
 * listener has drawn none before the request: one that somebody has seen and says again is for a
 * queue pair that is not awaited any more, unless he is first. Then it is the true one that is
 * rejected, which is said.
 *
 * On iWARP the side that has connected has to send first: it writes one word as soon as it can, and
 * the other side is ready when it has seen that word, and writes one in answer. Until that is here,
 * the first one is repeated: soft-iWARP answers a request before it begins to look at what comes
 * over the connection (Linux, siw_accept: the reply is sent, then the socket's callbacks are
 * changed), and what came in between lies there until the next packet. */
#ifndef STEPAF_TRANSPORT_VERBS_CM_H
#define STEPAF_TRANSPORT_VERBS_CM_H

#include "transport/verbs/verbs.h"

enum stepaf_verbs_call_state {
    STEPAF_VERBS_CALL_NONE,     /* the path is connected without */
    STEPAF_VERBS_CALL_IDLE,     /* to be begun, or awaited */
    STEPAF_VERBS_CALL_PAUSED,   /* to be begun again: the peer had no room for it */
    STEPAF_VERBS_CALL_ADDRESS,  /* being resolved */
    STEPAF_VERBS_CALL_ROUTE,    /* being resolved */
    STEPAF_VERBS_CALL_CONNECT,  /* asked for */
    STEPAF_VERBS_CALL_ACCEPTED, /* by this side */
    STEPAF_VERBS_CALL_UNHEARD,  /* established, but the peer's first word is not here */
    STEPAF_VERBS_CALL_GREETED,  /* the peer was written to, but its answer is not here */
    STEPAF_VERBS_CALL_UP,
    STEPAF_VERBS_CALL_FAILED
};

/* A queue pair's connection. Its id's context. */
struct stepaf_verbs_call {
    struct rdma_cm_id *id; /* NULL: none yet */
    struct stepaf_verbs_link *link;
    union ibv_gid address; /* the peer's */
    uint16_t port;
    uint8_t index; /* of the path */
    uint8_t state; /* stepaf_verbs_call_state */
    uint8_t tries;
    bool prepared;    /* the queue pair has its receives */
    int64_t again_ns; /* when a paused one is begun again, or the first word is repeated */
    uint64_t nonce[STEPAF_CLAIM_NONCE_WORDS]; /* of its request */
};

/* What a request carries, and an answer: in this order of bytes. */
struct stepaf_verbs_request {
    uint32_t magic;
    uint32_t place; /* of the caller among the listener's peers, times 256, and the path's number */
    uint64_t nonce[STEPAF_CLAIM_NONCE_WORDS]; /* drawn for it */
    uint8_t proof[STEPAF_PROOF_BYTES];
};

struct stepaf_verbs_answer {
    uint32_t magic;
    uint32_t why; /* of a rejection: stepaf_verbs_refusal; the rest of one is zero */
    uint64_t nonce[STEPAF_CLAIM_NONCE_WORDS];
    uint8_t proof[STEPAF_PROOF_BYTES];
};

enum {
    STEPAF_VERBS_REQUEST_MAGIC = 0x71666173, /* "safq" */
    STEPAF_VERBS_ANSWER_MAGIC = 0x61666173   /* "safa" */
};

enum stepaf_verbs_refusal {
    STEPAF_VERBS_REFUSAL_STRANGER = 1, /* it is no peer that knows both secrets */
    STEPAF_VERBS_REFUSAL_UNEXPECTED,   /* no such queue pair is awaited, or not any more */
    STEPAF_VERBS_REFUSAL_TROUBLE       /* it cannot make its own queue pair ready */
};

_Static_assert(sizeof(struct stepaf_verbs_request) <= STEPAF_VERBS_CM_DATA &&
                   sizeof(struct stepaf_verbs_answer) <= STEPAF_VERBS_CM_DATA,
               "what is said fits");

/* cm.c */
/* Have the rail connected by librdmacm: find its address. */
stepaf_status_t stepaf_verbs_cm_rail(struct stepaf_verbs *verbs, struct stepaf_verbs_rail *rail);
/* Listen on all rails, where peers are those who connect. */
stepaf_status_t stepaf_verbs_cm_listen(struct stepaf_verbs *verbs);
void stepaf_verbs_cm_unlisten(struct stepaf_verbs *verbs);
/* No link may have calls any more. */
void stepaf_verbs_cm_close(struct stepaf_verbs *verbs);
/* Await or begin, in finish_connects, the connection of a path. */
void stepaf_verbs_cm_expect(struct stepaf_verbs_link *link, unsigned path,
                            const union ibv_gid *address, uint16_t port);
/* End the calls of a link: before its queue pairs are destroyed, and after. */
void stepaf_verbs_cm_hang_up(struct stepaf_verbs_link *link);
void stepaf_verbs_cm_forget(struct stepaf_verbs_link *link);

/* cm_call.c */
void stepaf_verbs_call_move(struct stepaf_verbs_call *call, enum stepaf_verbs_call_state state);
/* Note the first failure of all, with rail and queue pair. */
void stepaf_verbs_call_fail(struct stepaf_verbs_call *call, stepaf_status_t status,
                            const char *format, ...) __attribute__((format(printf, 3, 4)));
/* What the call is about in its state, in words. */
void stepaf_verbs_call_say(const struct stepaf_verbs_call *call, char *text_p, size_t capacity);
/* Bring the call's queue pair to where receives can be posted, and post them. 0 or errno. */
int stepaf_verbs_call_prepare(struct stepaf_verbs_call *call);
/* And to where it can send. */
int stepaf_verbs_call_ready(struct stepaf_verbs_call *call);
/* Both ends are ready. */
void stepaf_verbs_call_up(struct stepaf_verbs_call *call);
/* Write a word to the peer, by which it learns that this end is there; if that cannot be, fail. */
void stepaf_verbs_call_greet(struct stepaf_verbs_call *call);
/* From here on, the peer's word is awaited: is it here? */
void stepaf_verbs_call_await(const struct stepaf_verbs_call *call);
bool stepaf_verbs_call_is_heard(const struct stepaf_verbs_call *call);

/* cm_ask.c */
/* Begin calling. */
void stepaf_verbs_call_begin(struct stepaf_verbs_call *call, int timeout_ms);
/* Go on with a call that this side has begun. */
void stepaf_verbs_call_advance(struct stepaf_verbs_call *call,
                               const struct stepaf_verbs_cm_event *event, int timeout_ms);
/* Go on with one whose peer has not answered the first word. */
void stepaf_verbs_call_repeat(struct stepaf_verbs_call *call, int64_t now_ns);

/* cm_answer.c */
/* Answer a request, whoever it is from. */
void stepaf_verbs_cm_answer(struct stepaf_verbs *verbs, const struct stepaf_verbs_cm_event *event);
/* Go on with a call that this side has answered. */
void stepaf_verbs_answer_advance(struct stepaf_verbs_call *call,
                                 const struct stepaf_verbs_cm_event *event);
/* Its first word is here: until then, this side of a path may not send. */
void stepaf_verbs_answer_heard(struct stepaf_verbs_call *call);

/* cm_join.c */
/* Go a step on, waiting up to @a wait_ms. False: there is nothing left to do. */
bool stepaf_verbs_cm_step(struct stepaf_verbs *verbs, int64_t deadline_ns, int wait_ms);
stepaf_status_t stepaf_verbs_finish_connects(struct stepaf_transport *transport,
                                             int64_t deadline_ns, int wait_ms, uint32_t *peer_p,
                                             char *reason);
/* Once connected: connections that end. */
void stepaf_verbs_cm_watch(struct stepaf_verbs *verbs);

static inline struct stepaf_verbs_path *stepaf_verbs_call_path(const struct stepaf_verbs_call *call)
{
    return &call->link->paths[call->index];
}

/* What is proven of a request, and with it of its answer. */
static inline struct stepaf_claim stepaf_verbs_claim(uint32_t kind, uint32_t place,
                                                     const uint64_t *opener)
{
    return (struct stepaf_claim){
        .kind = kind, .slot = place >> 8, .part = place & 0xff, .opener = {opener[0], opener[1]}};
}

#endif
