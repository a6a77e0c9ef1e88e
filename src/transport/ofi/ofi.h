/* SPDX-License-Identifier: Apache-2.0 */
/* libfabric: one reliable datagram endpoint, to which peers write. README.md says how. */
#ifndef STEPAF_TRANSPORT_OFI_OFI_H
#define STEPAF_TRANSPORT_OFI_OFI_H

#include "transport/ofi/fabric.h"
#include "transport/transport.h"

enum {
    STEPAF_OFI_RING = 16,                    /* messages that a peer may be behind */
    STEPAF_OFI_SLOT = 128,                   /* bytes of one */
    STEPAF_OFI_PLACES = STEPAF_OFI_RING + 1, /* slots of a peer; the last is of credits */
    STEPAF_OFI_ADDRESS = 256,                /* the longest address of a provider */
    STEPAF_OFI_PROVIDER = 64,
    STEPAF_OFI_OPS = 512,     /* writes under way at most */
    STEPAF_OFI_MORE_MAX = 16, /* writes of one doorbell */
    STEPAF_OFI_PEERS = 1 << 14
};

/* The 32 bits of a write: kind, the sender's index among the receiver's peers, a number. */
enum stepaf_ofi_kind {
    STEPAF_OFI_PIECE = 0,   /* the number of the message that it belongs to */
    STEPAF_OFI_MESSAGE = 1, /* its own number */
    STEPAF_OFI_CREDIT = 2,  /* how many messages have been taken */
    STEPAF_OFI_HELLO = 3    /* the link carries writes */
};

enum { STEPAF_OFI_KIND_SHIFT = 30, STEPAF_OFI_PEER_SHIFT = 16, STEPAF_OFI_NUMBER = 0xffff };

/* What a message's slot holds. */
struct stepaf_ofi_slot {
    uint64_t token; /* the receiver's, which it has told its peers only */
    uint32_t seq;
    uint32_t taken;  /* credit for the receiver of this */
    uint32_t pieces; /* writes that belong to it */
    uint32_t zero;
    struct stepaf_msg msg;
};

_Static_assert(sizeof(struct stepaf_ofi_slot) <= STEPAF_OFI_SLOT, "a message fits its slot");

struct stepaf_ofi_link;

/* A message under way with its writes, until this side has heard of the end of each. */
struct stepaf_ofi_flight {
    struct stepaf_ofi_link *link;
    struct stepaf_post *post; /* POSTED and not retired */
    uint32_t pending;
    uint32_t pieces;
};

struct stepaf_ofi_op {
    struct fi_context2 context; /* the provider's: first */
    struct stepaf_ofi_flight *flight;
    struct stepaf_ofi_op *next; /* while it is free */
};

/* Whether anything gets through: see prove.c. */
enum stepaf_ofi_proof_state { STEPAF_OFI_UNPROVEN, STEPAF_OFI_PROVEN, STEPAF_OFI_REFUTED };

struct stepaf_ofi_proof {
    enum stepaf_ofi_proof_state state;
    bool sent, here;  /* the own hello; the peer's */
    int error;        /* libfabric's, if it is refuted */
    int64_t since_ns; /* when it was begun; 0: not yet */
};

struct stepaf_ofi_link {
    struct stepaf_link base;
    fi_addr_t to;
    uint64_t ring, ring_key; /* the peer's slots for this rank */
    uint64_t token;          /* the peer's */
    uint32_t index_at_peer;
    uint32_t sent, credit; /* messages; how many of them the peer has taken */
    uint32_t taken, told;  /* the peer's messages; how many of them it knows to be taken */
    uint32_t landed[STEPAF_OFI_RING];
    bool here[STEPAF_OFI_RING];
    bool used, is_local;
    struct stepaf_ofi_proof proof;
    struct stepaf_ofi_flight flight[STEPAF_OFI_RING];
    struct stepaf_ofi_flight *open;   /* its post is QUEUED, and begun */
    struct stepaf_ofi_flight control; /* credits */
    int pidfd;                        /* of a peer of the same node; or -1 */
    int64_t heard_ns;                 /* when something of it was last noticed */
    uint32_t heard, noticed;          /* signs of life; as many at the last look */
};

struct stepaf_ofi_registration {
    struct fid_mr *mr;
    uint64_t base, key;
    struct stepaf_ofi_registration *next, **back;
};

struct stepaf_ofi_rmem {
    struct stepaf_rmem base;
    uint64_t address, key;
};

/* What libfabric has opened. */
struct stepaf_ofi_fabric {
    const struct stepaf_ofi_library *calls;
    struct fi_info *info;
    struct fid_fabric *fabric;
    struct fid_domain *domain;
    struct fid_av *av;
    struct fid_cq *cq;
    struct fid_ep *ep;
    char refused[STEPAF_REASON_MAX];
    uint8_t address[STEPAF_OFI_ADDRESS];
    size_t address_bytes;
};

/* One of libfabric's, as long as the number is that of this inode. */
struct stepaf_ofi_socket {
    int fd;
    bool cut;
    uint64_t inode;
};

struct stepaf_ofi {
    struct stepaf_transport base;
    struct stepaf_ofi_fabric f;
    uint32_t n_peers;
    struct stepaf_ofi_link *links;
    struct stepaf_ofi_op *ops, *free_op;
    uint8_t *slots; /* n_peers times STEPAF_OFI_PLACES in, as many out */
    struct stepaf_mem slots_mem;
    struct stepaf_ofi_registration *registrations;
    uint64_t token;
    uint64_t pids;      /* the namespace of process numbers */
    uint64_t piece_max; /* of one write */
    int64_t looked_ns;
    bool settled;      /* the first commit is done: libfabric has opened what it needs */
    unsigned more_run; /* writes since the last that was no FI_MORE */
    struct stepaf_ofi_socket *sockets;
    unsigned n_sockets;
};

static inline struct stepaf_ofi_slot *stepaf_ofi_slot(struct stepaf_ofi *ofi, bool out,
                                                      uint32_t peer, uint32_t place)
{
    size_t at = ((size_t)out * ofi->n_peers + peer) * STEPAF_OFI_PLACES + place;
    return (struct stepaf_ofi_slot *)(void *)(ofi->slots + at * STEPAF_OFI_SLOT);
}

extern const struct stepaf_transport_ops stepaf_ofi_ops;

/* memory.c */
struct stepaf_ofi_registration *stepaf_ofi_register(struct stepaf_ofi *ofi, void *base,
                                                    size_t bytes, int *error_p);
void stepaf_ofi_unregister(struct stepaf_ofi_registration *registration);
stepaf_status_t stepaf_ofi_reg_mem(struct stepaf_transport *transport, struct stepaf_mem *mem);
void stepaf_ofi_dereg_mem(struct stepaf_transport *transport, struct stepaf_mem *mem);
void stepaf_ofi_pack_mem(struct stepaf_transport *transport, const struct stepaf_mem *mem,
                         struct stepaf_pack *pack);
stepaf_status_t stepaf_ofi_import_mem(struct stepaf_link *link, uint32_t id, uint64_t bytes,
                                      struct stepaf_unpack *unpack, struct stepaf_rmem **rmem_p);
void stepaf_ofi_release_mem(struct stepaf_link *link, struct stepaf_rmem *rmem);

/* connect.c */
void stepaf_ofi_pack_address(struct stepaf_transport *transport, struct stepaf_pack *pack);
stepaf_status_t stepaf_ofi_connect(struct stepaf_transport *transport,
                                   const struct stepaf_peer_facts *facts,
                                   struct stepaf_unpack *unpack, struct stepaf_link **link_p,
                                   char *reason);
void stepaf_ofi_disconnect(struct stepaf_link *link);

/* prove.c */
stepaf_status_t stepaf_ofi_finish_connects(struct stepaf_transport *transport, int64_t deadline_ns,
                                           int wait_ms, uint32_t *peer_p, char *reason);
stepaf_status_t stepaf_ofi_prove_links(struct stepaf_transport *transport, bool begin,
                                       uint32_t *peer_p, char *reason);

/* sockets.c */
void stepaf_ofi_sockets_find(struct stepaf_ofi *ofi);
void stepaf_ofi_sockets_forget(struct stepaf_ofi *ofi);
void stepaf_ofi_sockets_cut(struct stepaf_ofi *ofi);
bool stepaf_ofi_sockets_are_open(const struct stepaf_ofi *ofi);

/* send.c. Control: of the kinds CREDIT and HELLO; false: no room. */
unsigned stepaf_ofi_post(struct stepaf_post *const *posts, unsigned n);
void stepaf_ofi_retire(struct stepaf_post *post);
bool stepaf_ofi_control(struct stepaf_ofi_link *link, enum stepaf_ofi_kind kind);
/* It is lost; or refuted, if it is not proven yet. */
void stepaf_ofi_lose(struct stepaf_ofi_link *link, int error);

/* receive.c */
unsigned stepaf_ofi_progress(struct stepaf_transport *transport, unsigned polls);

/* watch.c */
void stepaf_ofi_watch(struct stepaf_ofi_link *link, uint32_t pid);
void stepaf_ofi_check_peers(struct stepaf_transport *transport);
bool stepaf_ofi_is_quiet(struct stepaf_transport *transport, bool begin, uint32_t *peer_p);

#endif
