/* SPDX-License-Identifier: Apache-2.0 */
/* RDMA over reliable connections of libibverbs.
 *
 * A rail is a port of a device. Two ranks have on each rail some queue pairs: the link's paths. All
 * messages go over one of them, the lead, so that they stay in order; the others carry pieces of
 * large tensors. When the lead's rail dies, another path leads (failover.h).
 * The tensors of a post are written straight to their place by a chain of work requests, handed
 * over by one call; the last write notifies the peer by 32 bits, from which it has the message
 * (up->deliver_imm), or which say that the message is in its ring. Where the network has no such bits,
 * the message is sent after the writes, into the same ring.
 *
 * Nothing is inferred from the order of what goes over different queue pairs: a message says how
 * many pieces every other path has carried so far, and waits until as many have been notified.
 *
 * Each notification takes a receive of the peer's. The peer says how many it has consumed by
 * writing a word into this rank's memory now and then, so neither its receives nor its ring can run
 * out. What finds no room stays with the core, as QUEUED. */
#ifndef STEPAF_TRANSPORT_VERBS_VERBS_H
#define STEPAF_TRANSPORT_VERBS_VERBS_H

#include <stdatomic.h>

#include <stepaf/plan.h>

#include "device/gpu.h"
#include "topo/nics.h"
#include "transport/claim.h"
#include "transport/registry.h"
#include "transport/transport.h"
#include "transport/verbs/provider.h"
#include "transport/verbs/rail_state.h"

enum {
    STEPAF_VERBS_RAILS_MAX = 4,
    STEPAF_VERBS_QPS_MAX = 4,
    STEPAF_VERBS_PATHS_MAX = STEPAF_VERBS_RAILS_MAX * STEPAF_VERBS_QPS_MAX,
    STEPAF_VERBS_HELD_POSTS = 32, /* of a link, whose tensors the device may still read */
    STEPAF_VERBS_RESERVED =
        2, /* work requests that a post leaves free, for what is told of receives */
    STEPAF_VERBS_REFILL = 32, /* receives that are posted by one call */
    STEPAF_VERBS_LINE = 64,
    /* Larger writes are cut. Their pieces are acknowledged one by one, so that the time until one
     * is does not depend on how large a tensor is (STEPAF_VERBS_PEER_TIMEOUT_US). */
    STEPAF_VERBS_MAX_WRITE = 16 << 20,
    STEPAF_VERBS_RNR_RETRY = 7, /* without end: receives do come */
    STEPAF_VERBS_ACCESS = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE
};

/* A message in the ring. Sent as far as there are words. */
struct stepaf_verbs_slot {
    uint32_t number; /* of the notification on its path, from 1 */
    uint32_t parts;  /* PARTs on every other path so far; wraps */
    struct stepaf_msg msg;
};

_Static_assert(sizeof(struct stepaf_verbs_slot) == STEPAF_VERBS_LINE, "a slot is a cache line");

struct stepaf_verbs_path {
    struct ibv_qp *qp;
    struct stepaf_verbs_rail *rail;
    uint64_t wr_id;                 /* what its work requests are called by, without a count */
    struct stepaf_verbs_slot *ring; /* that the peer writes, on a rail's first path; else NULL */
    struct stepaf_verbs_slot *send_ring; /* messages that no work request holds; NULL: all do */
    uint64_t ring_at;                    /* the peer's, that this rank writes */
    uint32_t peer_control_key;           /* of the peer's control memory on this rail */
    uint8_t rail_index;
    bool closed;    /* its rail is dead: nothing is sent, and what fails is no news */
    bool out;       /* nor is anything expected of it any more */
    bool was_asked; /* when it was last looked at, something that would tell was under way */
    struct {
        uint32_t posted;
        uint32_t done;        /* known to be through */
        uint32_t asked;       /* the last that will tell so */
        uint32_t quiet_done;  /* done when it was last looked at */
        uint64_t quiet_since; /* and since when it has been that, ticks; 0: not looked at yet */
    } wr;                     /* work requests, ever */
    uint32_t settle;          /* wr.posted, when memory was last about to go */
    struct {
        uint32_t next;
        uint32_t read; /* that the peer is known to have consumed */
        uint32_t room; /* for so many requests nothing has to be looked at: neither whether there is
                        * room, nor a receive for each, nor whether one is to be signalled */
    } tx;              /* notifications to the peer, ever */
    uint64_t bytes_sent; /* of tensors, again as well; of an only path they are the link's */
    struct {
        uint32_t next;              /* consumed */
        uint32_t refilled;          /* receives given back */
        uint32_t told;              /* of those, the peer knows of */
        uint32_t parts_from;        /* next when PARTs began to be counted anew */
        uint32_t flushed;           /* receives that a dead rail has returned unused */
        uint64_t came;              /* ticks: its last PART; only where held_up is asked for */
    } rx;                           /* from the peer */
    const _Atomic uint32_t *tx_ack; /* where the peer tells */
    uint32_t *rx_ack;               /* what this rank tells, */
    uint64_t rx_ack_at;             /* and where, in the peer's memory */
};

struct stepaf_verbs_call;

/* What keeps a link's posts back. */
enum stepaf_verbs_halt {
    STEPAF_VERBS_RUNS,
    STEPAF_VERBS_REWINDS, /* nothing, but the next one is to be sent from its beginning */
    STEPAF_VERBS_RESENDS, /* earlier ones, which are being sent again */
    STEPAF_VERBS_HALTED   /* a rail is dead, and what the peer has is not known yet */
};

/* Whether something gets through, see prove.c. */
enum stepaf_verbs_proof {
    STEPAF_VERBS_UNPROVEN,
    STEPAF_VERBS_ASKED,   /* a word is on its way */
    STEPAF_VERBS_REFUTED, /* the device has given it up */
    STEPAF_VERBS_PROVEN
};

struct stepaf_verbs_link {
    struct stepaf_link base;
    uint8_t halt;      /* stepaf_verbs_halt */
    uint8_t proof;     /* stepaf_verbs_proof */
    bool is_bare;      /* dead, without queue pairs: those of its peer are for the next one */
    uint64_t asked_at; /* ticks; since when it is STEPAF_VERBS_ASKED */
    unsigned n_paths;
    bool quick;                                 /* posts may go by stepaf_verbs_post_quick */
    uint64_t wr_id;                             /* of path 0, without the count */
    struct stepaf_verbs_call *calls;            /* n_paths; NULL: none is connected by librdmacm */
    uint64_t secret[STEPAF_CLAIM_SECRET_WORDS]; /* the peer's */
    uint32_t slot;                              /* this rank's among the peer's peers */
    uint32_t held_from; /* bytes from which on a tensor is read after its post was handed over */
    struct stepaf_verbs_path *lead;         /* has the messages */
    struct stepaf_verbs_failover *failover; /* NULL: there is but one rail */
    uint32_t rx_arrived;                    /* notifications on the lead */
    uint32_t *imms;                         /* of those that are not consumed yet */
    uint32_t rx_parts;                      /* that the last message had, on each other path */
    uint64_t waits_since; /* ticks: the next one for its PARTs; 0: it does not. As rx.came */
    uint32_t tx_parts;    /* PARTs on every other path, the current post's included */
    uint32_t tx_parts_told;
    unsigned first_held;
    unsigned n_held;
    struct stepaf_post *held[STEPAF_VERBS_HELD_POSTS]; /* a ring; NULL: forgotten */
    uint32_t *held_upto;                               /* for each, on each path: done by then */
    struct stepaf_verbs_path paths[];                  /* n_paths */
};

/* Registered memory. */
struct stepaf_verbs_memory {
    struct stepaf_list node;
    struct stepaf_mem *mem;
    struct ibv_mr *mr[STEPAF_VERBS_RAILS_MAX];
    bool on_gpu; /* the processor cannot read it: nothing of it goes inline */
};

struct stepaf_verbs_rmem {
    struct stepaf_rmem base;
    uint64_t address;
    uint32_t key[STEPAF_VERBS_RAILS_MAX];
};

/* Where things are in the control memory, peer by peer. */
struct stepaf_verbs_layout {
    uint32_t acks_in;
    uint32_t acks_out;
    uint32_t ring;
    uint32_t send_ring;
    uint32_t stride; /* from peer to peer */
};

/* The work requests of a post of whole tensors over the only path: all but where they go, what they
 * are called, and the 32 bits of the last one. */
struct stepaf_verbs_template {
    uint64_t bytes; /* of all pieces */
    uint32_t n;
    uint32_t flags; /* of the last request, if none is to be signalled only now and then */
    bool held;      /* the device reads some piece later: it is signalled always */
    struct stepaf_verbs_work {
        struct ibv_send_wr write;
        struct ibv_sge piece;
    } request[];
};

/* Receives that are filled in anew for each use: what never changes is set when the transport
 * opens. */
struct stepaf_verbs_receives {
    struct ibv_recv_wr receive[STEPAF_VERBS_REFILL]; /* each with a place, the next one behind it */
    struct ibv_sge place[STEPAF_VERBS_REFILL];
};

/* Receives that have left the completion queues before their turn, in order (aside.c). */
struct stepaf_verbs_aside {
    struct ibv_wc *wc; /* NULL: there is no room */
    unsigned n, room;
};

/* What is connected by librdmacm (cm.h). */
struct stepaf_verbs_cm {
    struct rdma_event_channel *channel; /* NULL: nothing is */
    unsigned n_open;                    /* calls that are neither up nor failed */
    unsigned n_asking;                  /* of those, begun by this side */
    unsigned n_watched;                 /* of those, that no event brings on */
    unsigned first;                     /* peer to begin with */
    unsigned next;                      /* call to begin next, counted from there */
    stepaf_status_t failed;             /* the first failure; STEPAF_OK: none */
    uint32_t failed_peer;
    char failed_why[STEPAF_REASON_MAX];
};

struct stepaf_verbs {
    struct stepaf_transport base;
    const struct stepaf_verbs_provider *provider;
    uint64_t secret[STEPAF_CLAIM_SECRET_WORDS]; /* whoever connects has to know it */
    unsigned n_peers;
    unsigned n_rails;
    const struct stepaf_verbs_rail *rails_end;
    unsigned n_qps;   /* on a rail */
    unsigned n_paths; /* n_rails * n_qps */
    unsigned n_links;
    struct {
        uint32_t receives;    /* a power of two */
        uint32_t refill_from; /* are posted anew when so many are used up */
        uint32_t credits;     /* of those, for posts: the rest is for what is said when rails die */
        uint32_t depth;       /* work requests */
        uint32_t max_write;   /* bytes of one, on any rail; whole lines */
        uint32_t psn;
        uint8_t ack_timeout; /* of a device, its exponent */
    } qp;                    /* what each queue pair has */
    uint64_t ticks_per_us;
    uint64_t looked; /* at what peers acknowledge, ticks */
    bool closing;
    bool quick;                       /* some link's posts may go by the short way */
    bool due;                         /* progress is to do more than poll (do_due) */
    struct stepaf_verbs_link **links; /* by peer; NULL: none */
    struct ibv_qp **qps;              /* by peer, n_paths each */
    struct {
        struct stepaf_verbs_layout layout;
        uint8_t *base;
        size_t bytes;
    } control; /* memory that peers write */
    struct stepaf_list memories;
    struct stepaf_verbs_template *scratch; /* for posts without a form */
    struct stepaf_verbs_receives forms;
    struct stepaf_verbs_aside aside;
    struct stepaf_verbs_cm cm;
    struct {
        char why[STEPAF_TOPO_WHY]; /* these, in words; "": they are named, or the only ones */
        const char *how;           /* the same in a word or two */
    } choice;                      /* of rails */
    struct stepaf_verbs_rail rails[STEPAF_VERBS_RAILS_MAX];
};

extern const struct stepaf_transport_ops stepaf_verbs_ops;

/* An imm of code OTHER: the message is in the path's ring, and this is its number. Without the bit:
 * a PART. */
enum {
    STEPAF_VERBS_IN_RING = 1 << (STEPAF_IMM_CODE_SHIFT - 1),
    STEPAF_VERBS_NUMBER_MASK = STEPAF_VERBS_IN_RING - 1
};

static inline uint32_t stepaf_verbs_ring_imm(uint32_t number)
{
    return (uint32_t)STEPAF_IMM_OTHER << STEPAF_IMM_CODE_SHIFT | STEPAF_VERBS_IN_RING |
           (number & STEPAF_VERBS_NUMBER_MASK);
}

/* What a work request is called by: who, which path, and for a send the path's count after it. */
enum { STEPAF_VERBS_PATH_SHIFT = 32, STEPAF_VERBS_PEER_SHIFT = 40 };
static const uint64_t stepaf_verbs_is_receive = 1ull << 63;

static inline uint64_t stepaf_verbs_wr_id(uint32_t peer, unsigned path, uint32_t count)
{
    return (uint64_t)peer << STEPAF_VERBS_PEER_SHIFT | (uint64_t)path << STEPAF_VERBS_PATH_SHIFT |
           count;
}

static inline struct stepaf_verbs *stepaf_verbs_of(const struct stepaf_verbs_link *link)
{
    return (struct stepaf_verbs *)link->base.transport;
}

/* choose.c */
bool stepaf_verbs_probe(const struct stepaf_env *env, char *reason);
/* Open the rails that the settings name, or the nearest ones. */
stepaf_status_t stepaf_verbs_rails_open(struct stepaf_verbs *verbs);
void stepaf_verbs_rails_close(struct stepaf_verbs *verbs);
void stepaf_verbs_describe(const struct stepaf_transport *transport, char *text);

/* qp.c */
stepaf_status_t stepaf_verbs_qps_create(struct stepaf_verbs *verbs);
/* Create one peer's anew. False: errno says why, and there are none. */
bool stepaf_verbs_qps_renew(struct stepaf_verbs *verbs, uint32_t peer);
/* Whether there is one for each path to the peer. */
bool stepaf_verbs_qps_are_there(const struct stepaf_verbs *verbs, uint32_t peer);
void stepaf_verbs_qps_destroy(struct stepaf_verbs *verbs, uint32_t peer);
/* The peer's end of a queue pair. */
struct stepaf_verbs_far {
    uint32_t qpn;
    uint32_t psn;
    uint16_t lid;
    uint8_t mtu;
    bool global;
    union ibv_gid gid;
};
/* Make a queue pair take receives. 0 or errno. */
int stepaf_verbs_qp_prepare(struct stepaf_verbs *verbs, const struct stepaf_verbs_path *path);
/* Make it ready to send and receive. 0 or errno; *step_p: what has failed. */
int stepaf_verbs_qp_connect(struct stepaf_verbs *verbs, struct stepaf_verbs_path *path,
                            const struct stepaf_verbs_far *far, const char **step_p);
/* Put what librdmacm says for this state and what the settings say together. 0 or errno. */
int stepaf_verbs_qp_follow(struct stepaf_verbs *verbs, const struct stepaf_verbs_path *path,
                           struct rdma_cm_id *id, enum ibv_qp_state state);

/* reopen.c: operations of the table */
stepaf_status_t stepaf_verbs_reopen(struct stepaf_transport *transport);
void stepaf_verbs_shrink(struct stepaf_transport *transport);

/* lag.c */
/* Take from the setting what a bond's ports are used for on this rail, if it is one. */
stepaf_status_t stepaf_verbs_lag_choose(const struct stepaf_verbs *verbs,
                                        struct stepaf_verbs_rail *rail);
/* Put a queue pair that is ready on its port. 0 or errno. */
int stepaf_verbs_lag_apply(const struct stepaf_verbs *verbs, const struct stepaf_verbs_link *link,
                           unsigned path);

/* memory.c */
stepaf_status_t stepaf_verbs_control_make(struct stepaf_verbs *verbs);
void stepaf_verbs_control_free(struct stepaf_verbs *verbs);
/* Say why a device does not take memory; what to do where that is known. */
stepaf_status_t stepaf_verbs_refuse(stepaf_status_t status, const struct stepaf_verbs_rail *rail,
                                    size_t bytes, int error);
void stepaf_verbs_pack_mem(struct stepaf_transport *transport, const struct stepaf_mem *mem,
                           struct stepaf_pack *pack);
stepaf_status_t stepaf_verbs_import_mem(struct stepaf_link *link, uint32_t id, uint64_t bytes,
                                        struct stepaf_unpack *unpack, struct stepaf_rmem **rmem_p);
void stepaf_verbs_release_mem(struct stepaf_link *link, struct stepaf_rmem *rmem);

/* region.c */
stepaf_status_t stepaf_verbs_reg_mem(struct stepaf_transport *transport, struct stepaf_mem *mem);
void stepaf_verbs_dereg_mem(struct stepaf_transport *transport, struct stepaf_mem *mem);
void stepaf_verbs_describe_gpu(const struct stepaf_transport *transport, char *text);

/* flush.c */
/* Make the rail able to flush what it writes to a GPU with two ways to its memory, unless it is
 * already. 0 or errno. */
int stepaf_verbs_flush_make(const struct stepaf_verbs *verbs, struct stepaf_verbs_rail *rail);
void stepaf_verbs_flush_end(const struct stepaf_verbs *verbs, struct stepaf_verbs_rail *rail);
stepaf_status_t stepaf_verbs_flush_gpu(struct stepaf_link *link);

/* connect.c */
void stepaf_verbs_pack_address(struct stepaf_transport *transport, struct stepaf_pack *pack);
stepaf_status_t stepaf_verbs_connect(struct stepaf_transport *transport,
                                     const struct stepaf_peer_facts *facts,
                                     struct stepaf_unpack *unpack, struct stepaf_link **link_p,
                                     char *reason);
void stepaf_verbs_disconnect(struct stepaf_link *link);

/* send.c */
/* Send any post. False: it is QUEUED. */
bool stepaf_verbs_post_long(struct stepaf_post *post);
/* Tell the peer what has been consumed on a path; @a asking: to hear that it is there. False if
 * there is no room. */
bool stepaf_verbs_tell(struct stepaf_verbs_link *link, struct stepaf_verbs_path *path, bool asking);

/* quick.c */
/* Room for the largest form; NULL: no memory. */
struct stepaf_verbs_template *stepaf_verbs_template_make(void);
void *stepaf_verbs_make_template(const struct stepaf_post *post, size_t *bytes_p);
unsigned stepaf_verbs_post(struct stepaf_post *const *posts, unsigned n);

/* hold.c */
void stepaf_verbs_hold(struct stepaf_verbs_link *link, struct stepaf_post *post);
/* The first of the held posts is SENT. Return how many: 0 if the core has forgotten it. */
unsigned stepaf_verbs_release_first(struct stepaf_verbs_link *link);
/* Posts whose work requests are through are SENT; return how many. */
unsigned stepaf_verbs_let_go(struct stepaf_verbs_link *link, bool all);
void stepaf_verbs_retire(struct stepaf_post *post);

/* loss.c */
void stepaf_verbs_fence(struct stepaf_link *link);
/* Tell the core, once, that the link is of no use any more. */
void stepaf_verbs_lost(struct stepaf_verbs_link *link, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* A path is of no use any more: if there is another rail, that is all; else the link is lost. */
void stepaf_verbs_path_lost(struct stepaf_verbs_link *link, struct stepaf_verbs_path *path,
                            const char *format, ...) __attribute__((format(printf, 3, 4)));

/* refill.c */
void stepaf_verbs_receives_make(struct stepaf_verbs *verbs);
/* Post @a n receives of a path, the next ones of its ring. 0 or errno. */
int stepaf_verbs_refill(struct stepaf_verbs_link *link, const struct stepaf_verbs_path *path,
                        uint32_t n);
/* Give receives back once half are used up, and tell the peer. */
void stepaf_verbs_give_back(struct stepaf_verbs_link *link, struct stepaf_verbs_path *path);

/* receive.c */
void stepaf_verbs_arrived(struct stepaf_verbs_link *link, struct stepaf_verbs_path *path,
                          const struct ibv_wc *wc);

/* aside.c */
/* Take note of what has been sent. What has been received is set aside, for the next progress. */
void stepaf_verbs_sends_note(struct stepaf_verbs *verbs);
/* Take those; return how much happened. */
unsigned stepaf_verbs_aside_take(struct stepaf_verbs *verbs);

/* take.c */
/* Take a completion, whatever it is; return how much happened. */
unsigned stepaf_verbs_take(struct stepaf_verbs *verbs, const struct ibv_wc *wc);

/* progress.c */
unsigned stepaf_verbs_progress(struct stepaf_transport *transport, unsigned polls);
/* Take all that completion queues have, until they are empty. */
void stepaf_verbs_queues_empty(struct stepaf_verbs *verbs);
/* Take note of what has been sent, and of nothing else: the core does not listen any more. */
void stepaf_verbs_sends_poll(struct stepaf_verbs *verbs);

/* prove.c: an operation of the table. */
stepaf_status_t stepaf_verbs_prove_links(struct stepaf_transport *transport, bool begin,
                                         uint32_t *peer_p, char *reason);
/* Have completions make descriptors readable: one for each rail, or none. */
unsigned stepaf_verbs_arm(struct stepaf_transport *transport, int *fds_p, unsigned capacity);

/* watch.c */
void stepaf_verbs_check_peers(struct stepaf_transport *transport);
bool stepaf_verbs_is_quiet(struct stepaf_transport *transport, bool begin, uint32_t *peer_p);
/* Wait a moment for what has been sent to arrive. */
void stepaf_verbs_drain(struct stepaf_verbs *verbs, int64_t timeout_us);

#endif
