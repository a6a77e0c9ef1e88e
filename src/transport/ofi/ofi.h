/* SPDX-License-Identifier: Apache-2.0 */
/* The libfabric transport: reliable datagram endpoints, one per rail, to which peers write.
 * README.md describes the design. */
#ifndef STEPAF_TRANSPORT_OFI_OFI_H
#define STEPAF_TRANSPORT_OFI_OFI_H

#include "transport/fabric/link.h"
#include "transport/ofi/fabric.h"

enum {
    STEPAF_OFI_PLACES = STEPAF_FABRIC_RING + 1, /* slots of a peer; the last is for credits */
    STEPAF_OFI_ADDRESS = 256,                   /* the longest address of a provider */
    STEPAF_OFI_PROVIDER = 64,
    STEPAF_OFI_OPS = 512,     /* most writes in flight */
    STEPAF_OFI_RESERVE = 128, /* more: for credits; half also for links with fewer than FEW */
    STEPAF_OFI_FEW = 8,
    STEPAF_OFI_MORE_MAX = 16, /* writes for one doorbell */
    STEPAF_OFI_SHARE_MIN = 64 << 10,
    STEPAF_OFI_SHARE_ALIGN = 64
};

/* The data of a write: kind (stepaf_fabric_kind), the sender number, a message's number. If the provider transfers 64 bits, the data of a MESSAGE have 32 more in the upper half:
 * either the result of stepaf_msg_to_imm, with the number replaced by its low 8 bits, above which
 * is the count of pieces besides this write; or stepaf_ofi_in_slot. */
enum {
    STEPAF_OFI_KIND_SHIFT = 30,
    STEPAF_OFI_SENDER_SHIFT = 16,
    STEPAF_OFI_IMM_SHIFT = 32,
    STEPAF_OFI_PIECES_SHIFT = 8,
    STEPAF_OFI_PIECES_MAX = 15, /* of 255 that fit: more is a stranger's guess */
    STEPAF_OFI_PIECES_MASK = 255,
    STEPAF_OFI_LOW_NUMBER = 255
};

static const uint64_t stepaf_ofi_in_slot = ((uint64_t)STEPAF_IMM_OTHER << STEPAF_IMM_CODE_SHIFT)
                                           << STEPAF_OFI_IMM_SHIFT;

/* Mask the data of a write with the receiver's token, as many bits of it as there are: libfabric
 * does not say who has written, and data from a stranger that does not know the token mean
 * something only by chance. The function is its own inverse. */
static inline uint64_t stepaf_ofi_hide(uint64_t data, uint64_t token, bool is_wide)
{
    return is_wide ? data ^ token : (uint32_t)(data ^ token);
}

struct stepaf_ofi_op {
    struct fi_context2 context; /* the provider's: must be first */
    struct stepaf_fabric_flight *flight;
    struct stepaf_ofi_op *next; /* while the op is free */
};

/* Writes in flight to lost peers may never complete: other peers get as many ops again. */
struct stepaf_ofi_more_ops {
    struct stepaf_ofi_more_ops *next;
    struct stepaf_ofi_op ops[STEPAF_OFI_OPS];
};

struct stepaf_ofi_pool {
    struct stepaf_ofi_op *ops; /* STEPAF_OFI_OPS, then STEPAF_OFI_RESERVE */
    struct stepaf_ofi_op *reserve;
    unsigned n_reserve;
    struct stepaf_ofi_more_ops *more;
    uint32_t n_more; /* ops in them */
};

/* A rail to a peer: from an endpoint of this rank to the peer's endpoint with the same number. */
struct stepaf_ofi_path {
    fi_addr_t to;
    uint64_t ring_key; /* of the peer's slots for this rank */
    uint64_t bytes_sent;
};

/* When the pieces of a message, and the message, have arrived. */
struct stepaf_ofi_came {
    uint64_t last, before; /* ticks: the last arrival; the last by another rail, 0: none */
    uint32_t number;       /* the message's */
    uint8_t rail;          /* of the last arrival */
};

/* Slots of several links, with sender numbers in a row. */
struct stepaf_ofi_slots {
    struct stepaf_ofi_slots *next;
    uint32_t first, n;     /* sender numbers */
    struct stepaf_mem mem; /* n times STEPAF_OFI_PLACES for input, as many for output */
};

struct stepaf_ofi_link {
    struct stepaf_fabric_link shared;
    struct stepaf_ofi_slots *slots;
    struct stepaf_ofi_path paths[STEPAF_OFI_RAILS];
    unsigned n_paths;
    uint64_t ring; /* the peer's slots for this rank */
    unsigned turn; /* the path of the next credit */
    uint8_t said;  /* bits of paths over which the HELLO in progress has been sent */
    /* Bits of paths over which the peer's first, and second, have arrived. */
    uint8_t hellos, farewells;
    struct stepaf_ofi_came came[STEPAF_FABRIC_RING]; /* by number; where held_up is set */
    bool says_end, is_over; /* nothing more is written: by this side; by the peer. See end.c */
};

_Static_assert((int)STEPAF_OFI_RAILS <= 8 && (int)STEPAF_OFI_RAILS <= (int)STEPAF_LINK_RAILS,
               "a bit, and a count, for each path");

static inline uint8_t stepaf_ofi_all_paths(const struct stepaf_ofi_link *link)
{
    return (uint8_t)((1u << link->n_paths) - 1);
}

/* A rail's registration of a memory. */
struct stepaf_ofi_mr {
    struct fid_mr *mr;
    uint64_t key;
};

/* The second half of the rails is for former registrations, which peers use until the end of the
 * commit in progress: see stepaf_ofi_register_anew. */
struct stepaf_ofi_registration {
    const struct stepaf_mem *mem;
    uint64_t base;
    struct stepaf_ofi_registration *next, **back;
    unsigned n, n_former;
    bool is_fixed; /* the keys never change */
    struct stepaf_ofi_mr rails[];
};

struct stepaf_ofi_rmem {
    struct stepaf_rmem base;
    uint64_t address;
    uint64_t keys[]; /* by path */
};

/* What libfabric has opened of a domain. */
struct stepaf_ofi_rail {
    struct fi_info *info;
    struct fid_fabric *fabric;
    struct fid_domain *domain;
    struct fid_av *av;
    struct fid_cq *cq;
    struct fid_eq *eq; /* NULL: this provider needs none */
    struct fid_ep *ep;
    const struct fi_ops_rma *rma; /* how to write: writemsg */
    uint8_t address[STEPAF_OFI_ADDRESS];
    size_t address_bytes;
    unsigned more_run;   /* writes since the last one without FI_MORE */
    bool makes_no_calls; /* to the GPU's library: see gpu.c */
};

enum stepaf_ofi_gpu_way { STEPAF_OFI_GPU_UNKNOWN, STEPAF_OFI_GPU_DIRECT, STEPAF_OFI_GPU_STAGED };

/* A socket of libfabric's, as long as the file descriptor has this inode. */
struct stepaf_ofi_socket {
    int fd;
    bool cut;
    uint64_t inode;
};

struct stepaf_ofi {
    struct stepaf_fabric shared;
    const struct stepaf_ofi_library *calls;
    struct stepaf_ofi_rail rails[STEPAF_OFI_RAILS]; /* alike except for domains and addresses */
    unsigned n_rails;
    struct stepaf_ofi_op *free_op;
    struct stepaf_ofi_pool pool;
    struct stepaf_ofi_slots *slots; /* of all links, those of the first peers last */
    struct stepaf_ofi_registration *registrations;
    struct {
        enum stepaf_ofi_gpu_way way;   /* of the memory that was offered last */
        bool promises;                 /* the provider makes no CUDA calls */
        char never[STEPAF_REASON_MAX]; /* why no GPU memory is accepted, known since opening; "" */
        char why[STEPAF_REASON_MAX];   /* why GPU memory is staged */
    } gpu;
    uint64_t piece_max;  /* bytes of one write */
    unsigned more_max;   /* writes in a row with FI_MORE, after which one rings */
    uint64_t share_min;  /* tensors of twice as many bytes, or more, use several rails */
    int64_t end_said_ns; /* end.c: when this side last sent its end; 0: never */
    bool is_open;        /* all rails */
    bool is_wide;        /* data of a write are 64 bits */
    bool ends_together;  /* see end.c */
    bool settled;        /* links that a commit has made are proven: libfabric has connected */
    bool is_due;         /* progress does more than read; always until settled */
    bool has_aside;      /* what a poll has set aside is to be delivered */
    struct stepaf_ofi_socket *sockets;
    unsigned n_sockets;
};

/* Return the link in use of a peer. */
static inline struct stepaf_ofi_link *stepaf_ofi_link(const struct stepaf_ofi *ofi, uint32_t peer)
{
    return (struct stepaf_ofi_link *)ofi->shared.links[peer];
}

/* Return the link of a sender number. */
static inline struct stepaf_ofi_link *stepaf_ofi_sender(const struct stepaf_ofi *ofi,
                                                        uint32_t sender)
{
    return (struct stepaf_ofi_link *)ofi->shared.senders[sender];
}

static inline struct stepaf_fabric_slot *stepaf_ofi_slot(const struct stepaf_ofi_link *link,
                                                         bool out, uint32_t place)
{
    const struct stepaf_ofi_slots *slots = link->slots;
    size_t row = (size_t)out * slots->n + (link->shared.sender - slots->first);
    return (struct stepaf_fabric_slot *)(void *)((uint8_t *)slots->mem.base +
                                                 (row * STEPAF_OFI_PLACES + place) *
                                                     STEPAF_FABRIC_SLOT);
}

extern const struct stepaf_transport_ops stepaf_ofi_ops;

/* memory.c. Returns NULL without an error for GPU memory that is not accepted; ofi->gpu.why says
 * why. */
struct stepaf_ofi_registration *stepaf_ofi_register(struct stepaf_ofi *ofi,
                                                    const struct stepaf_mem *mem, int *error_p);
void stepaf_ofi_unregister(struct stepaf_ofi *ofi, struct stepaf_ofi_registration *registration);
/* Register all memory except slots again, so that its keys are others. The former keys remain valid
 * until stepaf_ofi_end_former. Called again before that, only the keys that no peer has imported
 * change. No write whose source a device reads may be in flight. Returns an error; then some keys
 * have changed, and all former ones are valid. *same_p: the provider has given memory the key that
 * it had. */
int stepaf_ofi_register_anew(struct stepaf_ofi *ofi, bool *same_p);
void stepaf_ofi_end_former(struct stepaf_ofi *ofi);
stepaf_status_t stepaf_ofi_reg_mem(struct stepaf_transport *transport, struct stepaf_mem *mem);
void stepaf_ofi_dereg_mem(struct stepaf_transport *transport, struct stepaf_mem *mem);
void stepaf_ofi_pack_mem(struct stepaf_transport *transport, const struct stepaf_mem *mem,
                         struct stepaf_pack *pack);
stepaf_status_t stepaf_ofi_import_mem(struct stepaf_link *base, uint32_t id, uint64_t bytes,
                                      struct stepaf_unpack *unpack, struct stepaf_rmem **rmem_p);
void stepaf_ofi_release_mem(struct stepaf_link *link, struct stepaf_rmem *rmem);

/* gpu.c. Return why no provider is to be asked for GPU memory; NULL: one is. */
const char *stepaf_ofi_no_gpu(const struct stepaf_upcalls *up);
/* Make the endpoint, which is not enabled yet, promise what it can. */
void stepaf_ofi_prepare_gpu(struct stepaf_ofi_rail *rail);
/* Decide whether to keep the rails, once all that were asked for GPU memory are open. Returns false
 * if they are to be reopened without. */
bool stepaf_ofi_keep_gpu(struct stepaf_ofi *ofi);
/* Fill in the attributes for registering GPU memory. Returns false if registration is not to be
 * tried. */
bool stepaf_ofi_gpu_attr(struct stepaf_ofi *ofi, const struct stepaf_mem *mem,
                         struct fi_mr_attr *attr_p);
/* Note whether GPU memory was registered. If not, the memory is transferred another way; returns an
 * error if the settings require this one. */
stepaf_status_t stepaf_ofi_note_gpu(struct stepaf_ofi *ofi, const struct stepaf_mem *mem,
                                    bool is_taken);
void stepaf_ofi_describe_gpu(const struct stepaf_transport *transport, char *text);

/* rail.c. Return whether only fi_writedata writes with data, as with provider cxi. */
bool stepaf_ofi_has_writedata_only(const struct fi_info *info);
/* Open all of a rail except memory. Returns an error; the rail is to be closed in any case. */
int stepaf_ofi_open_rail(const struct stepaf_ofi *ofi, struct stepaf_ofi_rail *rail);
/* Close the endpoint; then, without the rail's memory, the rest. */
void stepaf_ofi_close_endpoint(struct stepaf_ofi_rail *rail);
void stepaf_ofi_close_rail(const struct stepaf_ofi *ofi, struct stepaf_ofi_rail *rail);
/* Count the errors of the provider that belong to no operation, and log the first of them. */
void stepaf_ofi_read_events(struct stepaf_ofi *ofi);

/* connect.c. Write the first endpoint's address, of STEPAF_LINK_ADDRESS characters; "": not
 * known. */
void stepaf_ofi_address_text(const struct stepaf_ofi *ofi, char *text);
void stepaf_ofi_pack_address(struct stepaf_transport *transport, struct stepaf_pack *pack);
stepaf_status_t stepaf_ofi_connect(struct stepaf_transport *transport,
                                   const struct stepaf_peer_facts *facts,
                                   struct stepaf_unpack *unpack, struct stepaf_link **link_p,
                                   char *reason);
void stepaf_ofi_disconnect(struct stepaf_link *link);

/* reopen.c. Add slots, which are not registered yet, for @a n sender numbers. NULL: no memory. */
struct stepaf_ofi_slots *stepaf_ofi_add_slots(struct stepaf_ofi *ofi, uint32_t first, uint32_t n);
/* Register the slots that were added last. Returns an error. */
int stepaf_ofi_register_slots(struct stepaf_ofi *ofi);
/* Free the slots that were added last. */
void stepaf_ofi_drop_slots(struct stepaf_ofi *ofi);
stepaf_status_t stepaf_ofi_reopen(struct stepaf_transport *transport);
/* Forget lost peers whose links have been replaced and disconnected, once no writes to them are in
 * flight. */
void stepaf_ofi_forget_replaced(struct stepaf_ofi *ofi);

/* sockets.c. Return whether addresses are those of sockets: the provider connects. */
bool stepaf_ofi_has_sockets(const struct stepaf_ofi *ofi);
/* Find what libfabric has opened since the last call. */
void stepaf_ofi_sockets_find(struct stepaf_ofi *ofi);
void stepaf_ofi_sockets_forget(struct stepaf_ofi *ofi);
void stepaf_ofi_sockets_cut(struct stepaf_ofi *ofi);
bool stepaf_ofi_sockets_are_open(const struct stepaf_ofi *ofi);

/* room.c. The ops for writes in flight: their number is bounded, for all peers together. */
bool stepaf_ofi_open_room(struct stepaf_ofi *ofi);
void stepaf_ofi_close_room(struct stepaf_ofi *ofi);
/* If there is no free_op, put one of the reserve in its place. Returns false if there is a free_op,
 * or none for this link. After the write, stepaf_ofi_take_back returns the op if the write was
 * rejected. */
bool stepaf_ofi_lend(struct stepaf_ofi *ofi, const struct stepaf_fabric_link *link,
                     bool for_control);
void stepaf_ofi_take_back(struct stepaf_ofi *ofi);
void stepaf_ofi_free_op(struct stepaf_ofi *ofi, struct stepaf_ofi_op *op);
/* Return whether @a context is one of the first STEPAF_OFI_OPS ops. */
static inline bool stepaf_ofi_is_usual_op(const struct stepaf_ofi *ofi, const void *context)
{
    return (uintptr_t)context - (uintptr_t)ofi->pool.ops < STEPAF_OFI_OPS * sizeof(*ofi->pool.ops);
}
bool stepaf_ofi_is_op(const struct stepaf_ofi *ofi, const void *context);
/* Check peers, and replace the ops that lost peers hold, if other peers need them. Read events. */
void stepaf_ofi_check_peers(struct stepaf_transport *transport);

/* send.c */
unsigned stepaf_ofi_post(struct stepaf_post *const *posts, unsigned n);
bool stepaf_ofi_control(struct stepaf_fabric_link *link, enum stepaf_fabric_kind kind);
/* Ring the doorbell for writes that carried FI_MORE and were followed by none. Returns false if
 * there is no space. */
bool stepaf_ofi_ring(struct stepaf_ofi *ofi);

/* end.c. Return whether this provider needs both sides to agree on the end; agree on it, and wait
 * for the peers: links are disconnected then. */
bool stepaf_ofi_ends_together(const struct fi_info *info);
/* Mark the link as proven for the peer's side, if the HELLOs that have arrived suffice. */
void stepaf_ofi_note_hellos(struct stepaf_ofi_link *link);
/* Take a HELLO of the peer: the first or, if the peer writes nothing more, the second over this
 * path. Returns false if there is no such path. */
bool stepaf_ofi_take_hello(struct stepaf_ofi_link *link, uint32_t path);
void stepaf_ofi_end(struct stepaf_ofi *ofi);

/* receive.c */
void stepaf_ofi_tell_last_rail(struct stepaf_fabric_link *shared, uint32_t number,
                               const struct stepaf_msg *msg, uint32_t imm);
void stepaf_ofi_set_aside(struct stepaf_fabric *fabric);
unsigned stepaf_ofi_progress(struct stepaf_transport *transport, unsigned polls);

#endif
