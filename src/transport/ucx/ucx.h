/* SPDX-License-Identifier: Apache-2.0 */
/* The UCX transport: one worker, and one endpoint per peer. README.md describes the design. */
#ifndef STEPAF_TRANSPORT_UCX_UCX_H
#define STEPAF_TRANSPORT_UCX_UCX_H

#include "transport/fabric/link.h"
#include "transport/ucx/library.h"

enum {
    STEPAF_UCX_STAGE = 512,    /* most bytes of tensors that a message carries as a copy, if UCX's
                                  headers have room for them: see stage */
    STEPAF_UCX_PLACES = 8,     /* most places of one message */
    STEPAF_UCX_OPS = 512,      /* most sends of pieces in flight */
    STEPAF_UCX_RESERVE = 64,   /* more: for credits */
    STEPAF_UCX_COPIES = 64,    /* most copies in flight; tensors beyond that are not copied */
    STEPAF_UCX_ADDRESS = 4096, /* bytes of the longest address */
    STEPAF_UCX_TEXT = 32,
    STEPAF_UCX_MESSAGE = 0, /* ids of this transport's active messages */
    STEPAF_UCX_QUICK = 1
};

/* Where the receiver stores a part of the data: an offset in one of its memories. */
struct stepaf_ucx_place {
    uint64_t offset;
    uint32_t id, bytes; /* id: of the stepaf_mem */
};

/* The beginning of an active message's header. The places follow and then, for a MESSAGE that is
 * not short, the used part of stepaf_msg. The bytes for the places are the data of the active
 * message. If there are few bytes, they are at the end of the header instead, and there are no
 * data: UCX has a shorter path for messages that are only a header. */
struct stepaf_ucx_head {
    uint64_t token; /* the receiver's */
    uint32_t peer;  /* the sender's index among the receiver's peers */
    uint32_t number;
    uint32_t taken;   /* credit: the peer's messages taken */
    uint32_t pieces;  /* MESSAGE: how many belong to it */
    uint8_t kind;     /* stepaf_fabric_kind */
    uint8_t is_short; /* MESSAGE: imm is the whole message, by stepaf_msg_to_imm */
    uint16_t n_places;
    uint32_t imm;
};

_Static_assert(sizeof(struct stepaf_ucx_head) == 32 && sizeof(struct stepaf_ucx_place) == 16,
               "heads have no padding");

/* The whole header of a quick message, the most frequent kind, which has an id of its own. The
 * bytes of the tensor follow: see quick.c. */
struct stepaf_ucx_quick {
    uint32_t token;  /* the upper half of the receiver's */
    uint32_t whose;  /* the id of the memory that the bytes are for, and the sender's index */
    uint32_t offset; /* in that memory */
    uint32_t imm;
    uint16_t number, taken;
};

enum {
    STEPAF_UCX_ID_SHIFT = 14,
    STEPAF_UCX_QUICK_IDS = 1 << 18 /* ids from this one on do not fit in whose */
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

/* Space for a header that includes a copy of tensors. */
struct stepaf_ucx_copy {
    _Alignas(STEPAF_FABRIC_LINE) uint8_t head[STEPAF_UCX_HEAD_MAX];
    struct stepaf_ucx_copy *next; /* while the copy is free */
};

enum { /* where a quick message begins in a copy: its tensor is then at the beginning of a cache
          line, which is copied fastest */
       STEPAF_UCX_COPY_AT = STEPAF_FABRIC_LINE - sizeof(struct stepaf_ucx_quick)
};

_Static_assert(STEPAF_FABRIC_LINE + STEPAF_UCX_STAGE <= STEPAF_UCX_HEAD_MAX,
               "there is room for it");

/* A send in flight. */
struct stepaf_ucx_op {
    struct stepaf_fabric_flight *flight;
    struct stepaf_ucx_op *next;   /* while the op is free */
    struct stepaf_ucx_copy *copy; /* NULL: none */
    struct stepaf_ucx_op **pool;  /* the free list to return the op to; NULL: op of a message */
    uint8_t head[sizeof(struct stepaf_ucx_head) + sizeof(struct stepaf_ucx_place)];
};

/* The message of a flight. A quick message with at most 44 bytes of tensor fits one cache line. */
struct stepaf_ucx_out {
    _Alignas(STEPAF_FABRIC_LINE) uint8_t head[STEPAF_UCX_HEAD_USUAL];
    struct stepaf_ucx_op op;
    uint32_t head_bytes;
};

/* The argument of fetches: a link, and the place in its ring of the message that the fetched bytes
 * belong to. */
struct stepaf_ucx_in {
    struct stepaf_ucx_link *link;
    uint32_t place;
};

struct stepaf_ucx_link {
    struct stepaf_fabric_link shared;
    ucp_ep_h ep;
    struct stepaf_ucx_link *next_news;
    bool has_news;
    bool by_card;       /* at least one lane is RDMA by a NIC */
    bool has_gpu;       /* GPU memory of this rank or of the peer is registered */
    bool can_force;     /* the endpoint can be closed whatever is in flight */
    bool is_left;       /* not closed, as force was not possible: sends end with the worker */
    unsigned n_closing; /* forced closes in progress */
    unsigned n_fetches; /* in flight */
    ucs_status_t failed;
    const char *fault; /* why the link is to be lost, if UCX has reported no error; else NULL */
    struct stepaf_ucx_out out[STEPAF_FABRIC_RING];
    struct stepaf_ucx_in in[STEPAF_FABRIC_RING];
    uint8_t slots[STEPAF_FABRIC_RING][STEPAF_FABRIC_SLOT];
};

struct stepaf_ucx_registration {
    ucp_mem_h memh;
    struct stepaf_gpu *gpu; /* the GPU that has the memory; NULL: host memory */
    ucs_memory_type_t type; /* of GPU memory */
    struct stepaf_ucx_registration *next, **back;
};

struct stepaf_ucx_rmem {
    struct stepaf_rmem base;
    bool is_gpu; /* GPU memory: the peer fetches the data for it */
};

enum stepaf_ucx_gpu_way { STEPAF_UCX_GPU_UNKNOWN, STEPAF_UCX_GPU_DIRECT, STEPAF_UCX_GPU_STAGED };

struct stepaf_ucx_gpu {
    /* Progress runs in the GPU's context while n_inside is not 0. n_inside counts the sends from GPU
     * memory and the fetches in flight, plus n_always, which is 1 if this UCX always needs the
     * context for progress. */
    unsigned n_inside, n_always;
    bool is_gone;                /* the context is gone: UCX is not called any more */
    bool needs_context;          /* this UCX does not enter the context by itself */
    struct stepaf_gpu *device;   /* the GPU whose memory is, or was, registered; NULL: none */
    enum stepaf_ucx_gpu_way way; /* of the memory that was offered last */
    bool has_rdma, takes_dmabuf; /* UCX has RDMA, accepts dma-bufs; valid if it has CUDA */
    const char *never;           /* why no GPU memory is accepted, known since opening; "" */
    char why[STEPAF_REASON_MAX]; /* why GPU memory is staged */
};

struct stepaf_ucx {
    struct stepaf_fabric shared;
    const struct stepaf_ucx_library *calls;
    ucp_context_h context;
    ucp_worker_h worker;
    ucp_address_t *address;
    size_t address_bytes;
    struct stepaf_ucx_link *links; /* shared.first */
    struct stepaf_ucx_op *ops, *free_op, *free_reserve;
    struct stepaf_ucx_copy *copies, *free_copy;
    uint32_t stage; /* most bytes that this rank copies into a message: at most STEPAF_UCX_STAGE */
    struct stepaf_ucx_link *news; /* links to handle after UCX's progress: stepaf_ucx_note */
    struct stepaf_ucx_registration *registrations;
    unsigned counted;  /* sends completed, and links with news handled */
    unsigned n_ending; /* flushes and closes of endpoints in progress */
    bool connects;     /* the first commit is not complete: see end_connects */
    struct stepaf_ucx_gpu gpu;
    char version[STEPAF_UCX_TEXT];
};

static inline struct stepaf_ucx *stepaf_ucx_of(const struct stepaf_ucx_link *link)
{
    return (struct stepaf_ucx *)link->shared.base.transport;
}

/* Return this rank's registration of the GPU memory that a peer names; NULL: the memory is not GPU
 * memory, or is staged. */
static inline const struct stepaf_ucx_registration *stepaf_ucx_gpu_named(
    const struct stepaf_ucx_link *link, const struct stepaf_target *target)
{
    return target->mem && target->mem->kind != STEPAF_MEM_HOST
               ? target->mem->registration[link->shared.base.transport->index]
               : NULL;
}

/* Return whether UCX is moving GPU memory, or fetching where this rank has GPU memory. */
static inline bool stepaf_ucx_moves_gpu(const struct stepaf_ucx *ucx)
{
    return ucx->gpu.n_inside > ucx->gpu.n_always;
}

extern const struct stepaf_transport_ops stepaf_ucx_ops;

/* memory.c */
stepaf_status_t stepaf_ucx_reg_mem(struct stepaf_transport *transport, struct stepaf_mem *mem);
void stepaf_ucx_dereg_mem(struct stepaf_transport *transport, struct stepaf_mem *mem);
/* Without @a unmap, UCX keeps the handle of the memory. */
void stepaf_ucx_unregister(struct stepaf_ucx *ucx, struct stepaf_ucx_registration *registration,
                           bool unmap);
void stepaf_ucx_pack_mem(struct stepaf_transport *transport, const struct stepaf_mem *mem,
                         struct stepaf_pack *pack);
stepaf_status_t stepaf_ucx_import_mem(struct stepaf_link *link, uint32_t id, uint64_t bytes,
                                      struct stepaf_unpack *unpack, struct stepaf_rmem **rmem_p);
void stepaf_ucx_release_mem(struct stepaf_link *link, struct stepaf_rmem *rmem);

/* gpu.c. Find out whether GPU memory may be registered. */
void stepaf_ucx_open_gpu(struct stepaf_ucx *ucx);
/* Register GPU memory with UCX. Returns false if it is not registered; ucx->gpu.why says why. */
bool stepaf_ucx_map_gpu(struct stepaf_ucx *ucx, const struct stepaf_mem *mem,
                        struct stepaf_ucx_registration *registration);
void stepaf_ucx_unmap_gpu(struct stepaf_ucx *ucx, struct stepaf_gpu *gpu, ucp_mem_h memh);
/* Note whether GPU memory was registered. If not, the memory is transferred another way; returns an
 * error if the settings require this one. */
stepaf_status_t stepaf_ucx_note_gpu(struct stepaf_ucx *ucx, const struct stepaf_mem *mem,
                                    bool is_taken);
void stepaf_ucx_describe_gpu(const struct stepaf_transport *transport, char *text);

/* gpu_move.c. Call UCX's progress in the GPU's context. */
unsigned stepaf_ucx_turn_inside(struct stepaf_ucx *ucx);
static inline unsigned stepaf_ucx_turn(struct stepaf_ucx *ucx)
{
    if (__builtin_expect(ucx->gpu.n_inside, 0))
        return stepaf_ucx_turn_inside(ucx);
    return ucx->calls->worker_progress(ucx->worker);
}
/* Send an active message with a tensor that the peer is to fetch. If the tensor is in GPU memory, the
 * caller is in the GPU's context. Returns false if the send has failed. */
bool stepaf_ucx_send_fetched(struct stepaf_ucx_op *op, const void *head, size_t head_bytes,
                             const struct stepaf_xfer *xfer);
/* Fetch @a data, which UCX has only announced, in the GPU's context: into the GPU memory of @a own,
 * or into host memory if @a own is NULL. Returns the status to return to UCX. */
ucs_status_t stepaf_ucx_fetch_inside(struct stepaf_ucx_link *link, uint32_t place, void *data,
                                     const struct stepaf_ucx_registration *own, void *to,
                                     size_t bytes);

/* link_info.c. Write the transports and devices that UCX can use: ", transports a,b, devices c". */
void stepaf_ucx_resources_text(const struct stepaf_ucx *ucx, char *text, size_t room);
/* Return whether one of these transports reads and writes a peer's memory by a NIC. */
bool stepaf_ucx_has_rdma(const struct stepaf_ucx *ucx);
/* Set the link's name and address from the transports and devices that UCX uses for it. */
void stepaf_ucx_look_at(struct stepaf_fabric_link *link);

/* connect.c */
void stepaf_ucx_pack_address(struct stepaf_transport *transport, struct stepaf_pack *pack);
stepaf_status_t stepaf_ucx_connect(struct stepaf_transport *transport,
                                   const struct stepaf_peer_facts *facts,
                                   struct stepaf_unpack *unpack, struct stepaf_link **link_p,
                                   char *reason);
void stepaf_ucx_disconnect(struct stepaf_link *link);
/* Close the endpoints of lost peers. Sends to these peers, and fetches from them, then end within
 * UCX's progress. */
void stepaf_ucx_end_lost(struct stepaf_ucx *ucx);
/* Return whether something of a lost or disconnected peer has yet to end: the close, a send or a
 * fetch. */
bool stepaf_ucx_is_ending(const struct stepaf_ucx_link *link);
/* Begin to flush the sends to a live peer. n_ending counts the flush until it is complete. */
void stepaf_ucx_flush(struct stepaf_ucx_link *link);

/* Note that the link is to be handled after UCX's progress has returned. */
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
/* Note that the peer has sent data for a place that does not exist. The link is lost, since the
 * operation cannot complete any more. */
void stepaf_ucx_has_no_place(struct stepaf_ucx_link *link);
/* Note that this rank's memory, which the peer has named, cannot be written to. The link is lost,
 * for the same reason. */
void stepaf_ucx_cannot_write(struct stepaf_ucx_link *link);
/* Note that the fetch for the message in @a place has completed, with @a status. */
void stepaf_ucx_has_come(struct stepaf_ucx_link *link, uint32_t place, ucs_status_t status);
/* Take an op for a piece; NULL: all are in flight. */
struct stepaf_ucx_op *stepaf_ucx_take_op(struct stepaf_ucx *ucx,
                                         struct stepaf_fabric_flight *flight);
/* Take an op for a credit or a hello, also from the reserve; NULL: all are in flight. */
struct stepaf_ucx_op *stepaf_ucx_take_control(struct stepaf_ucx *ucx,
                                              struct stepaf_fabric_flight *flight);
/* Return the op and its copy to their pools. */
void stepaf_ucx_free_op(struct stepaf_ucx_op *op);
/* Complete a send that was in flight. */
void stepaf_ucx_end_op(struct stepaf_ucx_op *op, ucs_status_t status);
/* The callback of UCX for the completion of a send. */
void stepaf_ucx_has_been_sent(void *request, ucs_status_t status, void *user_data);
/* Handle what a send call of UCX has returned: the send is in flight, or complete. Returns false if
 * the send has failed. */
bool stepaf_ucx_answer(struct stepaf_ucx_op *op, ucs_status_ptr_t request);
/* Send an active message. Returns false if the send has failed. */
bool stepaf_ucx_send_am(struct stepaf_ucx_op *op, const void *head, size_t head_bytes,
                        const void *source, size_t bytes);

/* quick.c */
unsigned stepaf_ucx_post(struct stepaf_post *const *posts, unsigned n);
/* The receive callback for quick messages. */
ucs_status_t stepaf_ucx_take_quick(void *arg, const void *header, size_t header_bytes, void *data,
                                   size_t bytes, const ucp_am_recv_param_t *param);

/* send.c. Send any post. Returns false if there is no space now, or the link is lost. */
bool stepaf_ucx_send_post(struct stepaf_ucx_link *link, struct stepaf_post *post);
/* Return whether a tensor of the post is in GPU memory, or is for GPU memory. */
bool stepaf_ucx_touches_gpu(const struct stepaf_post *post);
/* Send such a post: the peer fetches each tensor. Returns false as above. */
bool stepaf_ucx_send_gpu_post(struct stepaf_ucx_link *link, struct stepaf_post *post);
bool stepaf_ucx_control(struct stepaf_fabric_link *link, enum stepaf_fabric_kind kind);

/* receive.c */
void stepaf_ucx_set_aside(struct stepaf_fabric *fabric);
/* The receive callback for all other messages. */
ucs_status_t stepaf_ucx_take(void *arg, const void *header, size_t header_bytes, void *data,
                             size_t bytes, const ucp_am_recv_param_t *param);
unsigned stepaf_ucx_progress(struct stepaf_transport *transport, unsigned polls);

/* end.c */
void stepaf_ucx_check_peers(struct stepaf_transport *transport);
bool stepaf_ucx_is_quiet(struct stepaf_transport *transport, bool begin, uint32_t *peer_p);
/* Close all links, after the sends to live peers have completed. Returns false if UCX has not
 * finished: the worker must not be destroyed. */
bool stepaf_ucx_close_links(struct stepaf_ucx *ucx);

#endif
