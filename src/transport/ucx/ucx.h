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
    STEPAF_UCX_RESERVE = 64,   /* and more of credits */
    STEPAF_UCX_COPIES = 64,    /* and copies; beyond that tensors go as they are */
    STEPAF_UCX_ADDRESS = 4096, /* the longest address, and the longest key */
    STEPAF_UCX_TEXT = 32,
    STEPAF_UCX_MESSAGE = 0, /* the numbers of our active messages */
    STEPAF_UCX_QUICK = 1
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

/* The commonest message has a number of its own, and begins with this; its bytes are behind it: see
 * quick.c. */
struct stepaf_ucx_quick {
    uint32_t token;  /* the upper half of the receiver's */
    uint32_t whose;  /* the id of the bytes' memory, the sender's index */
    uint32_t offset; /* in that memory */
    uint32_t imm;
    uint16_t number, taken;
};

enum {
    STEPAF_UCX_ID_SHIFT = 14,
    STEPAF_UCX_QUICK_IDS = 1 << 18 /* memory with a larger number has no room in whose */
};

_Static_assert(sizeof(struct stepaf_ucx_quick) == 20 &&
                   1 << STEPAF_UCX_ID_SHIFT == STEPAF_FABRIC_PEERS,
               "it has no padding");

enum {
    STEPAF_UCX_HEAD_USUAL = sizeof(struct stepaf_ucx_head) + sizeof(struct stepaf_ucx_place) +
                            sizeof(struct stepaf_msg),
    STEPAF_UCX_HEAD_MAX = sizeof(struct stepaf_ucx_head) +
                          STEPAF_UCX_PLACES * sizeof(struct stepaf_ucx_place) +
                          sizeof(struct stepaf_msg) + STEPAF_UCX_STAGE
};

/* A header with a copy of tensors. */
struct stepaf_ucx_copy {
    _Alignas(STEPAF_FABRIC_LINE) uint8_t head[STEPAF_UCX_HEAD_MAX];
    struct stepaf_ucx_copy *next; /* while it is free */
};

enum { /* where a quick message is put in one: its tensor begins a line, as it is copied fastest */
       STEPAF_UCX_COPY_AT = STEPAF_FABRIC_LINE - sizeof(struct stepaf_ucx_quick)
};

_Static_assert(STEPAF_FABRIC_LINE + STEPAF_UCX_STAGE <= STEPAF_UCX_HEAD_MAX,
               "there is room for it");

/* A send under way. */
struct stepaf_ucx_op {
    struct stepaf_fabric_flight *flight;
    struct stepaf_ucx_op *next;   /* while it is free */
    struct stepaf_ucx_copy *copy; /* NULL: none */
    struct stepaf_ucx_op **pool;  /* where it goes back to; NULL: it is a message's own */
    uint8_t head[sizeof(struct stepaf_ucx_head) + sizeof(struct stepaf_ucx_place)];
};

/* The message of a flight. A quick one of 44 bytes at most is in one line of the cache. */
struct stepaf_ucx_out {
    _Alignas(STEPAF_FABRIC_LINE) uint8_t head[STEPAF_UCX_HEAD_USUAL];
    struct stepaf_ucx_op op;
    uint32_t head_bytes;
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
    bool has_news;
    bool by_card;       /* among what carries it is a network card that writes to memory */
    bool has_gpu;       /* some GPU memory of this rank's, or the peer's, is registered */
    bool can_force;     /* close, whatever is under way */
    bool is_left;       /* it could not be closed so: what is under way ends with the worker */
    unsigned n_closing; /* by force */
    unsigned n_fetches; /* under way */
    ucs_status_t failed;
    const char *fault; /* of what the peer has sent */
    struct stepaf_ucx_out out[STEPAF_FABRIC_RING];
    struct stepaf_ucx_in in[STEPAF_FABRIC_RING];
    uint8_t slots[STEPAF_FABRIC_RING][STEPAF_FABRIC_SLOT];
};

struct stepaf_ucx_registration {
    ucp_mem_h memh;
    struct stepaf_gpu *gpu; /* whose memory; NULL: the host's */
    ucs_memory_type_t type; /* of a GPU's */
    struct stepaf_ucx_registration *next, **back;
};

struct stepaf_ucx_rmem {
    struct stepaf_rmem base;
    bool is_gpu; /* the peer fetches what is for it */
};

enum stepaf_ucx_gpu_way { STEPAF_UCX_GPU_UNKNOWN, STEPAF_UCX_GPU_DIRECT, STEPAF_UCX_GPU_STAGED };

struct stepaf_ucx_gpu {
    /* Why UCX's progress is to be in the GPU's context: sends from its memory, and fetches, that are
     * under way; and n_always more, 1 where UCX needs the context whenever it begins something. */
    unsigned n_inside, n_always;
    bool is_gone;                /* the context: UCX is not called any more */
    bool needs_context;          /* UCX, while it makes progress: it enters none by itself */
    struct stepaf_gpu *device;   /* whose memory is registered; NULL: none is, or was */
    enum stepaf_ucx_gpu_way way; /* of the memory that was offered last */
    bool has_rdma, takes_dmabuf; /* UCX; where it has CUDA */
    const char *never;           /* why none is taken, as is known since UCX was opened; "" */
    char why[STEPAF_REASON_MAX]; /* staged */
};

struct stepaf_ucx {
    struct stepaf_fabric shared;
    const struct stepaf_ucx_library *calls;
    ucp_context_h context;
    ucp_worker_h worker;
    ucp_address_t *address;
    size_t address_bytes;
    struct stepaf_ucx_link *links; /* shared.links */
    struct stepaf_ucx_op *ops, *free_op, *free_reserve;
    struct stepaf_ucx_copy *copies, *free_copy;
    struct stepaf_ucx_link *news; /* links that something is to be done for outside of UCX */
    struct stepaf_ucx_registration *registrations;
    unsigned counted;  /* sends that have ended, and links of which something new was seen to */
    unsigned n_ending; /* flushes and closes of endpoints */
    bool connects;     /* the first commit is not done: see end_connects */
    struct stepaf_ucx_gpu gpu;
    char version[STEPAF_UCX_TEXT];
};

static inline struct stepaf_ucx *stepaf_ucx_of(const struct stepaf_ucx_link *link)
{
    return (struct stepaf_ucx *)link->shared.base.transport;
}

/* What this rank has registered of GPU memory that a peer names; NULL: it is none, or is staged. */
static inline const struct stepaf_ucx_registration *stepaf_ucx_gpu_named(
    const struct stepaf_ucx_link *link, const struct stepaf_target *target)
{
    return target->mem && target->mem->kind != STEPAF_MEM_HOST
               ? target->mem->registration[link->shared.base.transport->index]
               : NULL;
}

/* Whether UCX is moving GPU memory, or fetches. */
static inline bool stepaf_ucx_moves_gpu(const struct stepaf_ucx *ucx)
{
    return ucx->gpu.n_inside > ucx->gpu.n_always;
}

extern const struct stepaf_transport_ops stepaf_ucx_ops;

/* memory.c */
stepaf_status_t stepaf_ucx_reg_mem(struct stepaf_transport *transport, struct stepaf_mem *mem);
void stepaf_ucx_dereg_mem(struct stepaf_transport *transport, struct stepaf_mem *mem);
/* @a unmap: else the memory is left to UCX. */
void stepaf_ucx_unregister(struct stepaf_ucx *ucx, struct stepaf_ucx_registration *registration,
                           bool unmap);
void stepaf_ucx_pack_mem(struct stepaf_transport *transport, const struct stepaf_mem *mem,
                         struct stepaf_pack *pack);
stepaf_status_t stepaf_ucx_import_mem(struct stepaf_link *link, uint32_t id, uint64_t bytes,
                                      struct stepaf_unpack *unpack, struct stepaf_rmem **rmem_p);
void stepaf_ucx_release_mem(struct stepaf_link *link, struct stepaf_rmem *rmem);

/* gpu.c. Find out whether GPU memory may be registered. */
void stepaf_ucx_open_gpu(struct stepaf_ucx *ucx);
/* Have UCX register GPU memory. False: it does not, and ucx->gpu.why says why. */
bool stepaf_ucx_map_gpu(struct stepaf_ucx *ucx, const struct stepaf_mem *mem,
                        struct stepaf_ucx_registration *registration);
void stepaf_ucx_unmap_gpu(struct stepaf_ucx *ucx, struct stepaf_gpu *gpu, ucp_mem_h memh);
/* GPU memory was registered, or was not: then it goes another way, but where this one was asked
 * for. */
stepaf_status_t stepaf_ucx_note_gpu(struct stepaf_ucx *ucx, const struct stepaf_mem *mem,
                                    bool is_taken);
void stepaf_ucx_describe_gpu(const struct stepaf_transport *transport, char *text);

/* gpu_move.c. UCX's progress, in the GPU's context. */
unsigned stepaf_ucx_turn_inside(struct stepaf_ucx *ucx);
static inline unsigned stepaf_ucx_turn(struct stepaf_ucx *ucx)
{
    if (__builtin_expect(ucx->gpu.n_inside, 0))
        return stepaf_ucx_turn_inside(ucx);
    return ucx->calls->worker_progress(ucx->worker);
}
/* Send an active message with a tensor that the peer is to fetch; the caller is in the GPU's context
 * where the tensor is in GPU memory. False: it has failed. */
bool stepaf_ucx_send_fetched(struct stepaf_ucx_op *op, const void *head, size_t head_bytes,
                             const struct stepaf_xfer *xfer);
/* Fetch @a data, which UCX has only told of, in the GPU's context. @a own: to GPU memory; NULL: to
 * the host's. What UCX is to be answered is returned. */
ucs_status_t stepaf_ucx_fetch_inside(struct stepaf_ucx_link *link, uint32_t place, void *data,
                                     const struct stepaf_ucx_registration *own, void *to,
                                     size_t bytes);

/* link_info.c: what UCX can carry links by, ", transports a,b, devices c"; whether there is one
 * among these that reads and writes a peer's memory by a network card; what it carries a link
 * by. */
void stepaf_ucx_resources_text(const struct stepaf_ucx *ucx, char *text, size_t room);
bool stepaf_ucx_has_rdma(const struct stepaf_ucx *ucx);
void stepaf_ucx_look_at(struct stepaf_fabric_link *link);

/* connect.c */
void stepaf_ucx_pack_address(struct stepaf_transport *transport, struct stepaf_pack *pack);
stepaf_status_t stepaf_ucx_connect(struct stepaf_transport *transport,
                                   const struct stepaf_peer_facts *facts,
                                   struct stepaf_unpack *unpack, struct stepaf_link **link_p,
                                   char *reason);
void stepaf_ucx_disconnect(struct stepaf_link *link);
/* What is under way to lost peers, and from them, comes to an end now, in UCX's progress. */
void stepaf_ucx_end_lost(struct stepaf_ucx *ucx);
/* Whether that has yet to come, or the end of what was disconnected. */
bool stepaf_ucx_is_ending(const struct stepaf_ucx_link *link);
/* Begin to push what UCX holds back to a live peer; n_ending says when that is done. */
void stepaf_ucx_flush(struct stepaf_ucx_link *link);

/* Noted: something is to be done for the link once UCX has returned. */
static inline void stepaf_ucx_note(struct stepaf_ucx_link *link)
{
    struct stepaf_ucx *ucx = stepaf_ucx_of(link);

    if (link->has_news)
        return;
    link->has_news = true;
    link->next_news = ucx->news;
    ucx->news = link;
}

/* op.c */
/* The peer has sent what can lie nowhere: the operation cannot be completed any more. */
void stepaf_ucx_has_no_place(struct stepaf_ucx_link *link);
/* This rank's own memory, which it names, cannot be written to: nor can it. */
void stepaf_ucx_cannot_write(struct stepaf_ucx_link *link);
/* A piece that was fetched for the message in @a place has come, or has failed to. */
void stepaf_ucx_has_come(struct stepaf_ucx_link *link, uint32_t place, ucs_status_t status);
/* One of the pool, for a piece; NULL: all are under way. */
struct stepaf_ucx_op *stepaf_ucx_take_op(struct stepaf_ucx *ucx,
                                         struct stepaf_fabric_flight *flight);
/* The same for a credit, which has more of them. */
struct stepaf_ucx_op *stepaf_ucx_take_control(struct stepaf_ucx *ucx,
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

/* quick.c */
unsigned stepaf_ucx_post(struct stepaf_post *const *posts, unsigned n);
/* Take in what one of the commonest posts has sent. */
ucs_status_t stepaf_ucx_take_quick(void *arg, const void *header, size_t header_bytes, void *data,
                                   size_t bytes, const ucp_am_recv_param_t *param);

/* send.c. Send any post. False: there is no room now, or the link is lost. */
bool stepaf_ucx_send_post(struct stepaf_ucx_link *link, struct stepaf_post *post);
/* Whether a tensor of the post is in GPU memory, or goes to it; and send such a post, all of it by
 * pieces that the peer fetches. False: as above. */
bool stepaf_ucx_touches_gpu(const struct stepaf_post *post);
bool stepaf_ucx_send_gpu_post(struct stepaf_ucx_link *link, struct stepaf_post *post);
bool stepaf_ucx_control(struct stepaf_fabric_link *link, enum stepaf_fabric_kind kind);

/* receive.c */
void stepaf_ucx_set_aside(struct stepaf_fabric *fabric);
ucs_status_t stepaf_ucx_take(void *arg, const void *header, size_t header_bytes, void *data,
                             size_t bytes, const ucp_am_recv_param_t *param);
unsigned stepaf_ucx_progress(struct stepaf_transport *transport, unsigned polls);

/* end.c */
void stepaf_ucx_check_peers(struct stepaf_transport *transport);
bool stepaf_ucx_is_quiet(struct stepaf_transport *transport, bool begin, uint32_t *peer_p);
/* What live peers are still to get goes first. False: UCX does not come to an end. */
bool stepaf_ucx_close_links(struct stepaf_ucx *ucx);

#endif
