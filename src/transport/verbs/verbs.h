/* SPDX-License-Identifier: Apache-2.0 */
/* RDMA over reliable connections of libibverbs.
 *
 * A rail is a port of a device. Two ranks have some queue pairs on each rail: the paths of the
 * link. All messages go over one path, the lead, so that they stay in order. The other paths
 * transfer pieces of large tensors. When the lead's rail dies, another path becomes the lead
 * (failover.h).
 * The tensors of a post are written directly to their place by a chain of work requests, posted
 * with one call. The last write notifies the peer with 32 bits of immediate data. These bits either
 * are the message (up->deliver_imm) or say that the message is in the peer's ring. On a network
 * without immediate data, the message is sent after the writes, into the same ring.
 *
 * Nothing is inferred from the order of traffic on different queue pairs: a message states how many
 * pieces every other path has transferred so far, and waits until as many notifications have
 * arrived.
 *
 * Each notification consumes a receive of the peer. The peer reports how many it has consumed by
 * occasionally writing a word into this rank's memory, so neither its receives nor its ring can run
 * out. A post without space stays with the core, as QUEUED. */
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
        2, /* work requests that a post leaves free, to report consumed receives */
    STEPAF_VERBS_REFILL = 32, /* receives posted with one call */
    STEPAF_VERBS_LINE = 64,
    /* Larger writes are split. Their pieces are acknowledged one by one, so that the time until an
     * acknowledgement does not depend on the size of a tensor (STEPAF_VERBS_PEER_TIMEOUT_US). */
    STEPAF_VERBS_MAX_WRITE = 16 << 20,
    STEPAF_VERBS_RNR_RETRY = 7, /* unlimited: the receives do arrive */
    STEPAF_VERBS_ACCESS = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE
};

/* A message in the ring. Only the words in use are sent. */
struct stepaf_verbs_slot {
    uint32_t number; /* of the notification on its path, from 1 */
    uint32_t parts;  /* PARTs on every other path so far; wraps */
    struct stepaf_msg msg;
};

_Static_assert(sizeof(struct stepaf_verbs_slot) == STEPAF_VERBS_LINE, "a slot is a cache line");

struct stepaf_verbs_path {
    struct ibv_qp *qp;
    struct stepaf_verbs_rail *rail;
    uint64_t wr_id;                 /* wr_id of its work requests, without a count */
    struct stepaf_verbs_slot *ring; /* written by the peer, on a rail's first path; else NULL */
    struct stepaf_verbs_slot *send_ring; /* source of messages; NULL: work requests hold them
                                          * inline */
    uint64_t ring_at;                    /* address of the peer's ring, which this rank writes */
    uint32_t peer_control_key;           /* rkey of the peer's control memory on this rail */
    uint8_t rail_index;
    bool closed;    /* its rail is dead: nothing is sent, failures are ignored */
    bool out;       /* closed, and nothing more is expected from it */
    bool was_asked; /* at the last check, a signaled request was in flight */
    struct {
        uint32_t posted;
        uint32_t done;        /* known to be complete */
        uint32_t asked;       /* the last one that reports completion */
        uint32_t quiet_done;  /* done at the last check */
        uint64_t quiet_since; /* since when done has that value, ticks; 0: not checked yet */
    } wr;                     /* work requests, ever */
    uint32_t settle;          /* wr.posted when memory was last about to be released */
    struct {
        uint32_t next;
        uint32_t read;   /* known to be consumed by the peer */
        uint32_t room;   /* requests for which no check is needed: for space, for a receive for
                        * each, or whether to signal one */
    } tx;                /* notifications to the peer, ever */
    uint64_t bytes_sent; /* of tensors, including resent ones; of an only path: those of the link */
    struct {
        uint32_t next;              /* consumed */
        uint32_t refilled;          /* receives given back */
        uint32_t told;              /* of those, known to the peer */
        uint32_t parts_from;        /* value of next when the count of PARTs restarted */
        uint32_t flushed;           /* receives that a dead rail has returned unused */
        uint64_t came;              /* ticks: its last PART; only if held_up is set */
    } rx;                           /* from the peer */
    const _Atomic uint32_t *tx_ack; /* where the peer reports */
    uint32_t *rx_ack;               /* what this rank reports, */
    uint64_t rx_ack_at;             /* and its address in the peer's memory */
};

struct stepaf_verbs_call;

/* What holds back the posts of a link. */
enum stepaf_verbs_halt {
    STEPAF_VERBS_RUNS,
    STEPAF_VERBS_REWINDS, /* nothing, but the next one must be sent from its beginning */
    STEPAF_VERBS_RESENDS, /* earlier posts, which are being resent */
    STEPAF_VERBS_HALTED   /* a rail is dead, and what the peer has is still unknown */
};

/* Whether data gets through, see prove.c. */
enum stepaf_verbs_proof {
    STEPAF_VERBS_UNPROVEN,
    STEPAF_VERBS_ASKED,   /* a word is in flight */
    STEPAF_VERBS_REFUTED, /* the device has given up */
    STEPAF_VERBS_PROVEN
};

struct stepaf_verbs_link {
    struct stepaf_link base;
    uint8_t halt;      /* stepaf_verbs_halt */
    uint8_t proof;     /* stepaf_verbs_proof */
    bool is_bare;      /* dead, without queue pairs: its peer's are for the next link */
    uint64_t asked_at; /* ticks; start of STEPAF_VERBS_ASKED */
    unsigned n_paths;
    bool quick;                                 /* posts may use stepaf_verbs_post_quick */
    uint64_t wr_id;                             /* of path 0, without the count */
    struct stepaf_verbs_call *calls;            /* n_paths; NULL: librdmacm connects none */
    uint64_t secret[STEPAF_CLAIM_SECRET_WORDS]; /* of the peer */
    uint32_t slot;                              /* this rank's index among the peer's peers */
    uint32_t held_from; /* bytes from which on a tensor is read after its post was handed over */
    struct stepaf_verbs_path *lead;         /* transfers the messages */
    struct stepaf_verbs_failover *failover; /* NULL: there is only one rail */
    uint32_t rx_arrived;                    /* notifications on the lead */
    uint32_t *imms;                         /* of the notifications not yet consumed */
    uint32_t rx_parts;    /* PARTs that the last message had, on each other path */
    uint64_t waits_since; /* ticks: the next one waits for PARTs; 0: it does not; see rx.came */
    uint32_t tx_parts;    /* PARTs on every other path, including the current post's */
    uint32_t tx_parts_told;
    unsigned first_held;
    unsigned n_held;
    struct stepaf_post *held[STEPAF_VERBS_HELD_POSTS]; /* a ring; NULL: forgotten */
    uint32_t *held_upto; /* for each, on each path: value of wr.done that releases it */
    struct stepaf_verbs_path paths[]; /* n_paths */
};

/* Registered memory. */
struct stepaf_verbs_memory {
    struct stepaf_list node;
    struct stepaf_mem *mem;
    struct ibv_mr *mr[STEPAF_VERBS_RAILS_MAX];
    bool on_gpu; /* the CPU cannot read it: nothing of it goes inline */
};

struct stepaf_verbs_rmem {
    struct stepaf_rmem base;
    uint64_t address;
    uint32_t key[STEPAF_VERBS_RAILS_MAX];
};

/* Offsets in the control memory of each peer. */
struct stepaf_verbs_layout {
    uint32_t acks_in;
    uint32_t acks_out;
    uint32_t ring;
    uint32_t send_ring;
    uint32_t stride; /* from peer to peer */
};

/* The work requests of a post of whole tensors over the only path, except for their targets, their
 * wr_id and the 32 bits of the last one. */
struct stepaf_verbs_template {
    uint64_t bytes; /* of all pieces */
    uint32_t n;
    uint32_t flags; /* of the last request, if one is signaled only now and then */
    bool held;      /* the device reads some piece later: always signaled */
    struct stepaf_verbs_work {
        struct ibv_send_wr write;
        struct ibv_sge piece;
    } request[];
};

/* Receives that are filled in for each use: constant fields are set when the transport opens. */
struct stepaf_verbs_receives {
    struct ibv_recv_wr receive[STEPAF_VERBS_REFILL]; /* each with a place, linked to the next one */
    struct ibv_sge place[STEPAF_VERBS_REFILL];
};

/* Receive completions taken from the completion queues before their turn, in order (aside.c). */
struct stepaf_verbs_aside {
    struct ibv_wc *wc; /* NULL: there is no space */
    unsigned n, room;
};

/* State of the connections through librdmacm (cm.h). */
struct stepaf_verbs_cm {
    struct rdma_event_channel *channel; /* NULL: there are none */
    unsigned n_open;                    /* calls that are neither up nor failed */
    unsigned n_asking;                  /* of those, begun by this side */
    unsigned n_watched;                 /* of those, that no event advances */
    unsigned first;                     /* peer to begin with */
    unsigned next;                      /* call to begin next, counted from there */
    stepaf_status_t failed;             /* the first failure; STEPAF_OK: none */
    uint32_t failed_peer;
    char failed_why[STEPAF_REASON_MAX];
};

struct stepaf_verbs {
    struct stepaf_transport base;
    const struct stepaf_verbs_provider *provider;
    uint64_t secret[STEPAF_CLAIM_SECRET_WORDS]; /* a connecting peer must know it */
    unsigned n_peers;
    unsigned n_rails;
    const struct stepaf_verbs_rail *rails_end;
    unsigned n_qps;   /* on a rail */
    unsigned n_paths; /* n_rails * n_qps */
    unsigned n_links;
    struct {
        uint32_t receives;    /* a power of two */
        uint32_t refill_from; /* receives used up before they are posted again */
        uint32_t credits;     /* of the receives, for posts: the rest is for failover messages */
        uint32_t depth;       /* work requests */
        uint32_t max_write;   /* bytes of one, on any rail; whole lines */
        uint32_t psn;
        uint8_t ack_timeout; /* of a device, as an exponent */
    } qp;                    /* of each queue pair */
    uint64_t ticks_per_us;
    uint64_t looked; /* last check of what peers acknowledge, ticks */
    bool closing;
    bool quick;                       /* posts of some link may use the short way */
    bool due;                         /* progress must do more than poll (do_due) */
    struct stepaf_verbs_link **links; /* by peer; NULL: none */
    struct ibv_qp **qps;              /* by peer, n_paths each */
    struct {
        struct stepaf_verbs_layout layout;
        uint8_t *base;
        size_t bytes;
    } control; /* memory that peers write */
    struct stepaf_list memories;
    struct stepaf_verbs_template *scratch; /* for posts without a template */
    struct stepaf_verbs_receives forms;
    struct stepaf_verbs_aside aside;
    struct stepaf_verbs_cm cm;
    struct {
        /* of this choice, as text; "": rails are named, or the only ones */
        char why[STEPAF_TOPO_WHY];
        const char *how; /* the same in a word or two */
    } choice;            /* of rails */
    struct stepaf_verbs_rail rails[STEPAF_VERBS_RAILS_MAX];
};

extern const struct stepaf_transport_ops stepaf_verbs_ops;

/* An imm of code OTHER. With the bit IN_RING, the message is in the path's ring, and the rest is
 * its number. Without the bit: a PART. */
enum {
    STEPAF_VERBS_IN_RING = 1 << (STEPAF_IMM_CODE_SHIFT - 1),
    STEPAF_VERBS_NUMBER_MASK = STEPAF_VERBS_IN_RING - 1
};

static inline uint32_t stepaf_verbs_ring_imm(uint32_t number)
{
    return (uint32_t)STEPAF_IMM_OTHER << STEPAF_IMM_CODE_SHIFT | STEPAF_VERBS_IN_RING |
           (number & STEPAF_VERBS_NUMBER_MASK);
}

/* Parts of a wr_id: the peer, the path, and for a send the path's count. */
enum { STEPAF_VERBS_PATH_SHIFT = 32, STEPAF_VERBS_PEER_SHIFT = 40 };
static const uint64_t stepaf_verbs_is_receive = 1ull << 63;

static inline uint64_t stepaf_verbs_wr_id(uint32_t peer, unsigned path, uint32_t count)
{
    return (uint64_t)peer << STEPAF_VERBS_PEER_SHIFT | (uint64_t)path << STEPAF_VERBS_PATH_SHIFT |
           count;
}

static inline uint64_t stepaf_verbs_peer_of(uint64_t wr_id)
{
    return (wr_id & ~stepaf_verbs_is_receive) >> STEPAF_VERBS_PEER_SHIFT;
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
/* Recreate the queue pairs of one peer. Returns false if that fails: errno says why, and the peer
 * has none. */
bool stepaf_verbs_qps_renew(struct stepaf_verbs *verbs, uint32_t peer);
/* Return whether each path to the peer has a queue pair. */
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
/* Make a queue pair accept receives. Return 0 or errno. */
int stepaf_verbs_qp_prepare(struct stepaf_verbs *verbs, const struct stepaf_verbs_path *path);
/* Make a queue pair ready to send and receive. Return 0 or errno; *step_p: the step that failed. */
int stepaf_verbs_qp_connect(struct stepaf_verbs *verbs, struct stepaf_verbs_path *path,
                            const struct stepaf_verbs_far *far, const char **step_p);
/* Bring a queue pair into a state with the attributes of librdmacm and those of the settings.
 * Return 0 or errno. */
int stepaf_verbs_qp_follow(struct stepaf_verbs *verbs, const struct stepaf_verbs_path *path,
                           struct rdma_cm_id *id, enum ibv_qp_state state);

/* reopen.c: operations of the table */
stepaf_status_t stepaf_verbs_reopen(struct stepaf_transport *transport);
void stepaf_verbs_shrink(struct stepaf_transport *transport);

/* lag.c */
/* Take from the setting how this rail uses the ports of its bond, if it has one. */
stepaf_status_t stepaf_verbs_lag_choose(const struct stepaf_verbs *verbs,
                                        struct stepaf_verbs_rail *rail);
/* Assign a queue pair that is ready to its port. Return 0 or errno. */
int stepaf_verbs_lag_apply(const struct stepaf_verbs *verbs, const struct stepaf_verbs_link *link,
                           unsigned path);

/* memory.c */
stepaf_status_t stepaf_verbs_control_make(struct stepaf_verbs *verbs);
void stepaf_verbs_control_free(struct stepaf_verbs *verbs);
/* Describe, as text, the limit of locked memory, if that may be the reason of @a error; else "". */
enum { STEPAF_VERBS_HINT = 120 };
void stepaf_verbs_hint_at_limit(int error, char hint[STEPAF_VERBS_HINT]);
/* Report why a device does not register memory, and the remedy where it is known. */
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
/* Make the rail able to flush its writes to a GPU with two ways to its memory, unless it already
 * is. Return 0 or errno. */
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
/* Send any post. Returns false if it is QUEUED. */
bool stepaf_verbs_post_long(struct stepaf_post *post);
/* Report to the peer what has been consumed on a path; @a asking: confirm that the report arrived.
 * Returns false if there is no space. */
bool stepaf_verbs_tell(struct stepaf_verbs_link *link, struct stepaf_verbs_path *path, bool asking);

/* quick.c */
/* Allocate space for the largest template; NULL if out of memory. */
struct stepaf_verbs_template *stepaf_verbs_template_make(void);
void *stepaf_verbs_make_template(const struct stepaf_post *post, size_t *bytes_p);
unsigned stepaf_verbs_post(struct stepaf_post *const *posts, unsigned n);

/* hold.c */
void stepaf_verbs_hold(struct stepaf_verbs_link *link, struct stepaf_post *post);
/* Set the first held post to SENT. Return how many posts that is: 0 if the core has forgotten
 * it. */
unsigned stepaf_verbs_release_first(struct stepaf_verbs_link *link);
/* Set posts whose work requests are complete to SENT; return how many. */
unsigned stepaf_verbs_let_go(struct stepaf_verbs_link *link, bool all);
void stepaf_verbs_retire(struct stepaf_post *post);

/* loss.c */
void stepaf_verbs_fence(struct stepaf_link *link);
/* Tell the core, once, that the link is unusable. */
void stepaf_verbs_lost(struct stepaf_verbs_link *link, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* Give up a path: if there is another rail, only the path is lost; else the link. */
void stepaf_verbs_path_lost(struct stepaf_verbs_link *link, struct stepaf_verbs_path *path,
                            const char *format, ...) __attribute__((format(printf, 3, 4)));

/* refill.c */
void stepaf_verbs_receives_make(struct stepaf_verbs *verbs);
/* Post @a n receives of a path, the next ones of its ring. Return 0 or errno. */
int stepaf_verbs_refill(struct stepaf_verbs_link *link, const struct stepaf_verbs_path *path,
                        uint32_t n);
/* Give receives back once half are used up, and report that to the peer. */
void stepaf_verbs_give_back(struct stepaf_verbs_link *link, struct stepaf_verbs_path *path);

/* receive.c */
void stepaf_verbs_arrived(struct stepaf_verbs_link *link, struct stepaf_verbs_path *path,
                          const struct ibv_wc *wc);

/* aside.c */
/* Process send completions. Set receive completions aside, for the next progress. */
void stepaf_verbs_sends_note(struct stepaf_verbs *verbs);
/* Process the completions set aside; return how many events there were. */
unsigned stepaf_verbs_aside_take(struct stepaf_verbs *verbs);
/* The same for those of one link; the others stay, in order. */
void stepaf_verbs_aside_take_of(struct stepaf_verbs_link *link);

/* take.c */
/* Process any completion; return how many events there were. */
unsigned stepaf_verbs_take(struct stepaf_verbs *verbs, const struct ibv_wc *wc);

/* progress.c */
unsigned stepaf_verbs_progress(struct stepaf_transport *transport, unsigned polls);
/* Process all completions until the completion queues are empty. */
void stepaf_verbs_queues_empty(struct stepaf_verbs *verbs);
/* Process send completions only: the core takes in nothing any more. */
void stepaf_verbs_sends_poll(struct stepaf_verbs *verbs);

/* prove.c: an operation of the table */
stepaf_status_t stepaf_verbs_prove_links(struct stepaf_transport *transport, bool begin,
                                         uint32_t *peer_p, char *reason);
/* Make completions wake file descriptors: return one for each rail, or none. */
unsigned stepaf_verbs_arm(struct stepaf_transport *transport, int *fds_p, unsigned capacity);

/* watch.c */
void stepaf_verbs_check_peers(struct stepaf_transport *transport);
bool stepaf_verbs_is_quiet(struct stepaf_transport *transport, bool begin, uint32_t *peer_p);
/* Wait briefly for sent data to arrive. */
void stepaf_verbs_drain(struct stepaf_verbs *verbs, int64_t timeout_us);

#endif
