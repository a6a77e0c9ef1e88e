/* SPDX-License-Identifier: Apache-2.0 */
/* UCX: one worker, an endpoint for each peer. README.md says how. */
#ifndef STEPAF_TRANSPORT_UCX_UCX_H
#define STEPAF_TRANSPORT_UCX_UCX_H

#include "transport/fabric/link.h"
#include "transport/ucx/library.h"

enum {
    STEPAF_UCX_STAGE = 512,    /* bytes of tensors that a message carries as a copy */
    STEPAF_UCX_PLACES = 8,     /* of one message */
    STEPAF_UCX_OPS = 512,      /* pieces under way at most */
    STEPAF_UCX_COPIES = 64,    /* and copies; beyond that tensors go as they are */
    STEPAF_UCX_ADDRESS = 4096, /* the longest address, and the longest key */
    STEPAF_UCX_TEXT = 32,
    STEPAF_UCX_MESSAGE = 0 /* the number of our active messages */
};

/* Where a part of what comes is to lie. */
struct stepaf_ucx_place {
    uint64_t offset;
    uint32_t id, bytes; /* stepaf_mem */
};

/* An active message begins with this. Behind it are its places, and of a MESSAGE that is not short
 * as much of stepaf_msg as means anything; its data are the bytes for the places. Where they are
 * few they are behind all that, and there are no data: UCX has a shorter way for what has no more
 * than a header. */
struct stepaf_ucx_head {
    uint64_t token; /* the receiver's */
    uint32_t peer;  /* the sender's index among the receiver's peers */
    uint32_t number;
    uint32_t taken;
    uint32_t pieces;  /* MESSAGE: that belong to it */
    uint8_t kind;     /* stepaf_fabric_kind */
    uint8_t is_short; /* MESSAGE: imm says all of it, by stepaf_msg_to_imm */
    uint16_t n_places;
    uint32_t imm;
};

_Static_assert(sizeof(struct stepaf_ucx_head) == 32 && sizeof(struct stepaf_ucx_place) == 16,
               "heads have no padding");

/* The commonest message begins with this instead; its bytes are behind it: see quick.c. */
struct stepaf_ucx_quick {
    uint64_t token;
    uint32_t whose;  /* stepaf_ucx_is_quick, the id of the bytes' memory, the sender's index */
    uint32_t offset; /* in that memory */
    uint32_t imm;
    uint16_t number, taken;
};

enum {
    STEPAF_UCX_ID_SHIFT = 14,
    STEPAF_UCX_QUICK_IDS = 1 << 17 /* memory with a larger number has no room in whose */
};

static const uint32_t stepaf_ucx_is_quick = 1u << 31; /* in whose; no peer has it */

_Static_assert(sizeof(struct stepaf_ucx_quick) == 24 &&
                   offsetof(struct stepaf_ucx_quick, whose) ==
                       offsetof(struct stepaf_ucx_head, peer) &&
                   1 << STEPAF_UCX_ID_SHIFT == STEPAF_FABRIC_PEERS,
               "whose is told from peer");

enum {
    STEPAF_UCX_HEAD_USUAL = sizeof(struct stepaf_ucx_head) + sizeof(struct stepaf_ucx_place) +
                            sizeof(struct stepaf_msg),
    STEPAF_UCX_HEAD_MAX = sizeof(struct stepaf_ucx_head) +
                          STEPAF_UCX_PLACES * sizeof(struct stepaf_ucx_place) +
                          sizeof(struct stepaf_msg) + STEPAF_UCX_STAGE
};

/* A header with a copy of tensors. */
struct stepaf_ucx_copy {
    struct stepaf_ucx_copy *next; /* while it is free */
    uint8_t head[STEPAF_UCX_HEAD_MAX];
};

/* A send under way. */
struct stepaf_ucx_op {
    struct stepaf_fabric_flight *flight;
    struct stepaf_ucx_op *next;   /* while it is free */
    struct stepaf_ucx_copy *copy; /* NULL: none */
    bool pooled;                  /* else it is a message's own */
    uint8_t head[sizeof(struct stepaf_ucx_head) + sizeof(struct stepaf_ucx_place)];
};

/* The message of a flight. */
struct stepaf_ucx_out {
    struct stepaf_ucx_op op;
    uint8_t head[STEPAF_UCX_HEAD_USUAL];
    uint32_t head_bytes;
    bool waits, due; /* for all its pieces to be in place; they are */
};

/* A message that comes in pieces which UCX fetches. */
struct stepaf_ucx_in {
    struct stepaf_ucx_link *link;
    uint32_t place;
};

struct stepaf_ucx_link {
    struct stepaf_fabric_link shared;
    ucp_ep_h ep;
    struct stepaf_ucx_link *next_news;
    bool has_news, has_puts;
    bool can_force; /* close, whatever is under way */
    ucs_status_t failed;
    const char *fault; /* of what the peer has sent */
    uint32_t n_due;    /* of out */
    struct stepaf_ucx_out out[STEPAF_FABRIC_RING];
    struct stepaf_ucx_in in[STEPAF_FABRIC_RING];
    uint8_t slots[STEPAF_FABRIC_RING][STEPAF_FABRIC_SLOT];
};

struct stepaf_ucx_registration {
    ucp_mem_h memh;
    struct stepaf_ucx_registration *next, **back;
};

struct stepaf_ucx_rmem {
    struct stepaf_rmem base;
    uint64_t address;
    ucp_rkey_h rkey; /* NULL: it cannot be written to straight */
};

struct stepaf_ucx {
    struct stepaf_fabric shared;
    const struct stepaf_ucx_library *calls;
    ucp_context_h context;
    ucp_worker_h worker;
    ucp_address_t *address;
    size_t address_bytes;
    struct stepaf_ucx_link *links; /* shared.links */
    struct stepaf_ucx_op *ops, *free_op;
    struct stepaf_ucx_copy *copies, *free_copy;
    struct stepaf_ucx_link *news; /* links that something is to be done for outside of UCX */
    struct stepaf_ucx_registration *registrations;
    unsigned counted;  /* sends that have ended, and links of which something new was seen to */
    unsigned n_ending; /* flushes and closes of endpoints */
    bool connects;     /* the first commit is not done: see end_connects */
    char version[STEPAF_UCX_TEXT];
};

static inline struct stepaf_ucx *stepaf_ucx_of(const struct stepaf_ucx_link *link)
{
    return (struct stepaf_ucx *)link->shared.base.transport;
}

extern const struct stepaf_transport_ops stepaf_ucx_ops;

/* memory.c */
stepaf_status_t stepaf_ucx_reg_mem(struct stepaf_transport *transport, struct stepaf_mem *mem);
void stepaf_ucx_dereg_mem(struct stepaf_transport *transport, struct stepaf_mem *mem);
void stepaf_ucx_unregister(struct stepaf_ucx *ucx, struct stepaf_ucx_registration *registration);
void stepaf_ucx_pack_mem(struct stepaf_transport *transport, const struct stepaf_mem *mem,
                         struct stepaf_pack *pack);
stepaf_status_t stepaf_ucx_import_mem(struct stepaf_link *link, uint32_t id, uint64_t bytes,
                                      struct stepaf_unpack *unpack, struct stepaf_rmem **rmem_p);
void stepaf_ucx_release_mem(struct stepaf_link *link, struct stepaf_rmem *rmem);

/* link_info.c: what UCX can carry links by, ", transports a,b, devices c"; what it carries one
 * by. */
void stepaf_ucx_resources_text(const struct stepaf_ucx *ucx, char *text, size_t room);
void stepaf_ucx_look_at(struct stepaf_fabric_link *link);

/* connect.c */
void stepaf_ucx_pack_address(struct stepaf_transport *transport, struct stepaf_pack *pack);
stepaf_status_t stepaf_ucx_connect(struct stepaf_transport *transport,
                                   const struct stepaf_peer_facts *facts,
                                   struct stepaf_unpack *unpack, struct stepaf_link **link_p,
                                   char *reason);
void stepaf_ucx_disconnect(struct stepaf_link *link);
/* Begin to push what UCX holds back to a live peer; n_ending says when that is done. */
void stepaf_ucx_flush(struct stepaf_ucx_link *link);

/* op.c. Noted: something is to be done for the link once UCX has returned. */
void stepaf_ucx_note(struct stepaf_ucx_link *link);
/* The peer has sent what can lie nowhere: the operation cannot be completed any more. */
void stepaf_ucx_has_no_place(struct stepaf_ucx_link *link);
/* One of the pool; NULL: all are under way. */
struct stepaf_ucx_op *stepaf_ucx_take_op(struct stepaf_ucx *ucx,
                                         struct stepaf_fabric_flight *flight);
/* It is at its end: what it had of pools goes back. */
void stepaf_ucx_free_op(struct stepaf_ucx_op *op);
void stepaf_ucx_end_op(struct stepaf_ucx_op *op, ucs_status_t status);
/* What UCX calls at the end of a send. */
void stepaf_ucx_has_been_sent(void *request, ucs_status_t status, void *user_data);
/* Take what UCX has answered to a send: it goes on, or it is done. False: it has failed. */
bool stepaf_ucx_answer(struct stepaf_ucx_op *op, ucs_status_ptr_t request);
/* Send an active message; false: it has failed. */
bool stepaf_ucx_send_am(struct stepaf_ucx_op *op, const void *head, size_t head_bytes,
                        const void *source, size_t bytes);

/* quick.c. Send a post that is one of the commonest; false: it is not, or there is no room now. */
bool stepaf_ucx_post_quick(struct stepaf_ucx_link *link, const struct stepaf_post *post);
/* Take in what one of them has sent. False: it makes no sense. */
bool stepaf_ucx_take_quick(struct stepaf_ucx *ucx, const uint8_t *header, size_t bytes);

/* send.c */
unsigned stepaf_ucx_post(struct stepaf_post *const *posts, unsigned n);
bool stepaf_ucx_control(struct stepaf_fabric_link *link, enum stepaf_fabric_kind kind);
/* Send the messages whose pieces are in place now. */
void stepaf_ucx_send_due(struct stepaf_ucx_link *link);

/* receive.c */
void stepaf_ucx_set_aside(struct stepaf_fabric *fabric);
ucs_status_t stepaf_ucx_take(void *arg, const void *header, size_t header_bytes, void *data,
                             size_t bytes, const ucp_am_recv_param_t *param);
unsigned stepaf_ucx_progress(struct stepaf_transport *transport, unsigned polls);

#endif
