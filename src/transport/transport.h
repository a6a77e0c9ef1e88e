/* SPDX-License-Identifier: Apache-2.0 */
/* What the engine asks of a transport, and what a transport may ask of the engine.
 *
 * A transport is one const table of functions. The engine opens it once per context, gives its
 * address to the peers at commit, and gets one link per peer that it reaches. A link carries
 * posts: some writes into the peer's registered memory and then one message. A transport never
 * looks into an engine message, and the engine never asks which transport it talks to. */
#ifndef STEPAF_TRANSPORT_TRANSPORT_H
#define STEPAF_TRANSPORT_TRANSPORT_H

#include <stdbool.h>

#include "base/env.h"
#include "base/error.h"
#include "base/list.h"
#include "base/pack.h"
#include "topo/topo.h"

/* A message: what a notification says. The numbers are the wire's. */
enum stepaf_msg_type {
    STEPAF_MSG_START = 1,    /* attention: the tensors of an operation have landed */
    STEPAF_MSG_RESPONSE = 2, /* FFN: its answer has landed */
    STEPAF_MSG_RELEASE = 3,  /* FFN: the receive buffers are free again */
    STEPAF_MSG_CANCEL = 4,   /* attention: nobody waits for this operation any more */
    STEPAF_MSG_PLAN = 5,     /* attention: a plan begins; TENSORs follow */
    STEPAF_MSG_TENSOR = 6,   /* attention: one tensor of it */
    STEPAF_MSG_CLOSE = 7,    /* attention: a plan ends */
    STEPAF_MSG_READY = 8,    /* both: my side of the commit is done */
    STEPAF_MSG_PING = 9,     /* what time is it? */
    STEPAF_MSG_PONG = 10,
    STEPAF_MSG_SYNCED = 11,  /* I need no more pings */
    STEPAF_MSG_BYE = 12,     /* I finalize */
    STEPAF_MSG_SETTLED = 13, /* I have entered the commit, and nothing before it is to come */
    STEPAF_MSG_TYPE_END = 14,
    STEPAF_MSG_TRANSPORT = 128 /* from here on: a transport's own, never seen by the engine */
};

enum {
    STEPAF_MSG_RELEASED = 1 << 0,  /* RESPONSE: and the receive buffers are free */
    STEPAF_MSG_UNWANTED = 1 << 1,  /* RELEASE: the batch was not answered */
    STEPAF_MSG_PULL_SIDE = 1 << 2, /* TENSOR: an answer's destination */
    STEPAF_MSG_WORDS = 10
};

struct stepaf_msg {
    uint8_t type; /* from here to n: the head */
    uint8_t flags;
    uint16_t epoch;
    uint16_t plan;
    uint8_t slot;
    uint8_t n; /* tensors whose actual bytes follow; 0: all as planned */
    uint32_t seq;
    uint32_t n_words; /* how many of word[] mean anything; what others hold is left open */
    uint32_t word[STEPAF_MSG_WORDS] __attribute__((aligned(8)));
};

_Static_assert(sizeof(struct stepaf_msg) == 56 && offsetof(struct stepaf_msg, seq) == 8,
               "the head is one 64-bit word");
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "messages are little-endian");

/* Places in word[] of START and RESPONSE. */
enum {
    STEPAF_MSG_QUEUE = 0, /* RESPONSE: how long the batch lay before it was taken, ns; UINT32_MAX:
                           * not told */
    STEPAF_MSG_WORK = 1,  /* RESPONSE: and from then to the answer, ns; likewise */
    STEPAF_MSG_SIZES = 2  /* actual bytes of the n tensors */
};

/* Set the head by one store. A transport that loads it as one word soon after then need not wait
 * until the processor has put narrow stores together. */
static inline void stepaf_msg_head(struct stepaf_msg *msg, enum stepaf_msg_type type,
                                   uint32_t flags, uint32_t epoch, uint32_t plan, uint32_t slot,
                                   uint32_t n)
{
    uint64_t head = (uint64_t)type | (uint64_t)flags << 8 | (uint64_t)(epoch & 0xffff) << 16 |
                    (uint64_t)plan << 32 | (uint64_t)slot << 48 | (uint64_t)n << 56;

    __builtin_memcpy(msg, &head, sizeof(head));
}

/* The commonest messages as 32 bits, for a network whose writes can carry that much: code, plan,
 * and the low bits of sequence and epoch, from which a receiver that knows the plan's state has the
 * rest (host->expand). */
enum {
    STEPAF_IMM_START = 0,    /* all as planned */
    STEPAF_IMM_RESPONSE = 1, /* all as planned; the FFN's times are not told */
    STEPAF_IMM_RELEASED = 2, /* the same, and the receive buffers are free */
    STEPAF_IMM_OTHER = 3,    /* the transport's own */
    STEPAF_IMM_CODE_SHIFT = 30,
    STEPAF_IMM_PLAN_SHIFT = 14,
    STEPAF_IMM_SEQ_SHIFT = 4,
    STEPAF_IMM_SEQ_BITS = 10,
    STEPAF_IMM_SEQ_MASK = (1 << STEPAF_IMM_SEQ_BITS) - 1,
    STEPAF_IMM_EPOCH_BITS = 4,
    STEPAF_IMM_EPOCH_MASK = (1 << STEPAF_IMM_EPOCH_BITS) - 1,
    STEPAF_IMM_SAME_MASK = (1 << STEPAF_IMM_CODE_SHIFT) - 1 /* all but the code */
};

static inline uint32_t stepaf_imm_make(uint32_t code, uint32_t plan, uint32_t seq, uint32_t epoch)
{
    return code << STEPAF_IMM_CODE_SHIFT | plan << STEPAF_IMM_PLAN_SHIFT |
           (seq & STEPAF_IMM_SEQ_MASK) << STEPAF_IMM_SEQ_SHIFT | (epoch & STEPAF_IMM_EPOCH_MASK);
}

/* Say @a msg in 32 bits. False: it says more than they hold. */
static inline bool stepaf_msg_compact(const struct stepaf_msg *msg, uint32_t *imm_p)
{
    uint32_t code = STEPAF_IMM_START;

    if (msg->n)
        return false;
    if (msg->type == STEPAF_MSG_RESPONSE)
        code = msg->flags & STEPAF_MSG_RELEASED ? STEPAF_IMM_RELEASED : STEPAF_IMM_RESPONSE;
    else if (msg->type != STEPAF_MSG_START || msg->n_words)
        return false;
    *imm_p = stepaf_imm_make(code, msg->plan, msg->seq, msg->epoch);
    return true;
}

struct stepaf_gpu;

/* A piece of this process's memory. Owned by the engine. A transport sees host memory only, but for
 * one that has describe_gpu. */
struct stepaf_region {
    uint32_t id; /* never used again for another one within the context */
    uint8_t *base;
    size_t bytes;
    stepaf_mem_kind_t kind;
    int fd;         /* file that holds it from offset 0, or -1 */
    bool library;   /* from stepaf_alloc, or receive buffers; else pages of the caller's own */
    bool shareable; /* GPU memory: other processes can map it */
    struct stepaf_gpu *gpu; /* GPU memory: whose */
    bool target;            /* peers write to it: it is offered at commit */
    bool hidden;            /* it is offered to nobody (any more) */
    bool hosted;            /* GPU memory: plans without streams name it */
    bool stands_in;         /* it is the stage of another */
    bool pinned;            /* host memory that the GPU can use as well */
    bool unpin;             /* and this library has seen to that */
    unsigned uses;          /* by plans and receive registrations */
    uint32_t offered;       /* epoch in which peers learned of it, 0: not yet */
    uint32_t linked;        /* GPU memory: epoch from which on links can carry it, 0: they do not */
    struct stepaf_region *stage; /* GPU memory: host memory that stands for it, see stage.h */
    void *registration;          /* of the transport that has add_region; NULL: none */
};

/* A piece of a peer's memory. Made by a link's import; a transport puts its own after this. */
struct stepaf_rmem {
    uint32_t id;
    uint64_t bytes;
};

/* One write. The engine has checked the bounds on both sides. */
struct stepaf_xfer {
    const void *src;
    const struct stepaf_region *src_region;
    const struct stepaf_rmem *dst;
    uint64_t dst_offset;
    uint32_t bytes;
};

enum stepaf_post_state {
    STEPAF_POST_IDLE,   /* never posted */
    STEPAF_POST_QUEUED, /* the transport has no room: the engine will offer it again */
    STEPAF_POST_POSTED, /* with the transport, sources in use */
    STEPAF_POST_SENT    /* sources may be reused */
};

struct stepaf_link;

/* Writes and the message after them: all or nothing, in order among the posts of a link. The
 * receiver gets the message once all writes have landed. A post without writes is SENT or QUEUED
 * when the transport returns, never POSTED. What the peer sends in answer may come before the
 * transport has learned that its POSTED post is through: then the engine makes it forget the post. */
struct stepaf_post {
    struct stepaf_link *link;
    struct stepaf_list node; /* the engine's queue */
    struct stepaf_xfer *xfer;
    uint32_t at_offset; /* the transport's cursor while QUEUED: 0 at first */
    uint8_t at;
    uint8_t n_xfer;
    uint8_t state; /* stepaf_post_state; set by the transport */
    bool owned;    /* on the heap: the engine frees it when SENT */
    bool is_short; /* imm is what stepaf_msg_compact makes of the message */
    bool is_gated; /* the engine's: it waits in the queue for its sources, and form says for what */
    uint32_t imm;
    void
        *form; /* of this transport's prepare: it fits the writes, and is_short is set. Else NULL */
    struct stepaf_msg msg;
};

struct stepaf_transport_ops;

struct stepaf_transport {
    const struct stepaf_transport_ops *ops;
    struct stepaf_host *host;
};

enum { STEPAF_LINK_NAME = 32, STEPAF_LINK_ADDRESS = 48 };

struct stepaf_link {
    const struct stepaf_transport_ops *ops;
    struct stepaf_transport *transport;
    uint32_t peer;    /* rank within the other role's group */
    bool has_backlog; /* the engine keeps posts that found no room: later ones go behind them */
    bool dead;        /* the peer is lost: nothing is delivered, posts are SENT at once. Set by
                    * the engine, when lost is called among others */
    /* What the transport has really written for posts, counted where it writes and nowhere else:
     * the engine's own counters are compared with it. */
    uint64_t messages_sent;
    char name[STEPAF_LINK_NAME];       /* "shm;cma" */
    char address[STEPAF_LINK_ADDRESS]; /* this side's, where there is one: "10.0.0.1" */
    uint64_t bytes_sent;               /* as messages_sent, but of tensors */
};

/* What a transport may ask: implemented by the engine, or by a test. */
struct stepaf_host {
    /* A message of @a link's peer is here, its writes have landed. @a msg is a private copy. */
    void (*deliver)(struct stepaf_host *host, struct stepaf_link *link,
                    const struct stepaf_msg *msg);
    /* The peer will never answer again. */
    void (*lost)(struct stepaf_host *host, struct stepaf_link *link, const char *reason);
    /* Return the place of a range of a region that peers may write to, or NULL. */
    uint8_t *(*resolve)(struct stepaf_host *host, uint32_t region, uint64_t offset, uint32_t bytes);
    /* What the peer means by 32 bits that stepaf_msg_compact has made. False: nothing that makes
     * sense here; it is counted, and nothing is to be delivered. */
    bool (*expand)(struct stepaf_host *host, struct stepaf_link *link, uint32_t imm,
                   struct stepaf_msg *msg_p);
    /* expand, and deliver what comes of it: shorter. Polled says when it has come. */
    void (*deliver_imm)(struct stepaf_host *host, struct stepaf_link *link, uint32_t imm);
    const struct stepaf_env *env;
    const struct stepaf_topo *topo;
    bool initiates; /* where one side opens connections and one listens: this one opens */
    uint64_t dropped_malformed; /* what made no sense to a transport */
    uint64_t polled; /* when the last look was in vain, ticks; 0: it was not, or long ago */
};

/* Facts of a peer, from the bootstrap. */
struct stepaf_peer_facts {
    uint32_t peer; /* rank within the other role's group */
    uint32_t slot; /* this rank's index among the peer's peers, and so in its tables */
    int world_rank;
    uint64_t node_id;
    uint32_t pid;
};

struct stepaf_transport_ops {
    const char *name;
    /* What is sent before the peer has connected as well would be lost, or late: after the first
     * commit's connects, all ranks meet once more. */
    bool meets;

    /* Can it work on this machine at all? If not, @a reason says why. */
    bool (*probe)(const struct stepaf_env *env, char *reason);

    /* Open for @a n_peers peers. STEPAF_ERR_NO_TRANSPORT: it cannot be used here after all, which
     * is no error unless STEPAF_TRANSPORTS asks for it. */
    stepaf_status_t (*open)(struct stepaf_host *host, unsigned n_peers,
                            struct stepaf_transport **transport_p);
    /* Close, all links with it. */
    void (*close)(struct stepaf_transport *transport);

    /* Make memory ready to be written from and to; drop_region ends it. At most one transport has
     * these, and region->registration is its. NULL in those that need nothing. */
    stepaf_status_t (*add_region)(struct stepaf_transport *transport, struct stepaf_region *region);
    void (*drop_region)(struct stepaf_transport *transport, struct stepaf_region *region);
    /* Whether a peer has yet to acknowledge what was sent to it: until then a device may read it
     * again, though the peer has answered; or whether a lost peer, which may not know it, is still
     * writing, having begun before this call. *peer_p: which. @a begin: what was sent until now, else
     * until the call before. Links are looked after while one waits for it. NULL in a transport that
     * reads nothing after its post is over, and where a lost peer writes nothing. */
    bool (*unsettled)(struct stepaf_transport *transport, bool begin, uint32_t *peer_p);
    /* Say in words how GPU memory that was added is reached. NULL in a transport that takes none:
     * elsewhere a region that has no registration after add_region was not taken. */
    void (*describe_gpu)(const struct stepaf_transport *transport, char *text);
    /* Try it with some memory of @a gpu, beside any context, and say the same. NULL likewise. */
    void (*try_gpu)(const struct stepaf_env *env, struct stepaf_gpu *gpu, char *text);

    /* Write what a peer needs to connect, and to import a region. */
    void (*pack)(struct stepaf_transport *transport, struct stepaf_pack *pack);
    void (*pack_region)(struct stepaf_transport *transport, const struct stepaf_region *region,
                        struct stepaf_pack *pack);

    /* Connect to a peer by what its pack wrote. Not to be reached this way is no error:
     * *link_p is NULL then and @a reason says why. */
    stepaf_status_t (*connect)(struct stepaf_transport *transport,
                               const struct stepaf_peer_facts *facts, struct stepaf_unpack *unpack,
                               struct stepaf_link **link_p, char *reason);
    void (*disconnect)(struct stepaf_link *link);
    /* The engine has given the peer up, which may not know it: what it still writes is to go nowhere.
     * NULL in a transport where a dead link takes in nothing, or where that cannot be. */
    void (*sever)(struct stepaf_link *link);

    /* Bring to an end what connect has begun, for all peers at once; peers do the same. NULL if
     * connect leaves nothing to do that links could not do by themselves. A failure is the commit's:
     * *peer_p says whose and @a reason why, and other peers' links can be used. */
    stepaf_status_t (*join)(struct stepaf_transport *transport, int64_t deadline_ns,
                            uint32_t *peer_p, char *reason);

    /* The first commit is done: what was made ready for peers that others reach may go. NULL if
     * nothing was. */
    void (*trim)(struct stepaf_transport *transport);

    /* Make a peer's region writable; release ends it. */
    stepaf_status_t (*import)(struct stepaf_link *link, uint32_t id, uint64_t bytes,
                              struct stepaf_unpack *unpack, struct stepaf_rmem **rmem_p);
    void (*release)(struct stepaf_link *link, struct stepaf_rmem *rmem);

    /* Put together, once, what posts of an operation have in common with @a post, which will be
     * handed over again and again: whole writes of the same tensors. One piece of memory, which the
     * engine frees; *bytes_p: how much. Posts with the same form that are handed over together have
     * the same imm. At most one transport has this; NULL: it would gain nothing. */
    void *(*prepare)(const struct stepaf_post *post, size_t *bytes_p);

    /* Send posts of links of this transport: each its writes, then its message. Sets each state;
     * QUEUED where there is no room now. Returns how many are. Several posts may share sources. Hot.
     */
    unsigned (*post)(struct stepaf_post *const *posts, unsigned n);
    /* A POSTED post is of no interest any more: it is not touched from now on. NULL in a transport
     * that has no such posts. */
    void (*forget)(struct stepaf_post *post);
    /* Take in what has come; return how much. If there is nothing, look again up to @a polls times
     * in all, as a waiting thread would: in a loop so tight that, once something comes, the
     * processor has foreseen the rest of the way. Sets host->polled between looks. Hot. */
    unsigned (*progress)(struct stepaf_transport *transport, unsigned polls);
    /* A thread is about to sleep: have what comes from now on make descriptors readable, and name
     * them; what has come before is looked for once more. Returns how many, 0 if that cannot be. NULL
     * in a transport that never can. */
    unsigned (*arm)(struct stepaf_transport *transport, int *fds_p, unsigned capacity);
    /* Called about every millisecond by a thread that waits in vain, and a few times a second by one
     * that others keep busy, when there may be more to take in: look for dead peers. */
    void (*idle)(struct stepaf_transport *transport);

    /* Bytes held per link, and of staging in all. */
    void (*memory)(struct stepaf_transport *transport, size_t *per_link_p, size_t *staging_p);
};

/* All transports of this build, best first; ends with NULL. */
extern const struct stepaf_transport_ops *const stepaf_transports[];

/* Whether the setting STEPAF_TRANSPORTS admits @a name. */
bool stepaf_transport_admitted(const struct stepaf_env *env, const char *name);

/* Check that STEPAF_TRANSPORTS names only transports that this build has. */
stepaf_status_t stepaf_transport_check_names(const struct stepaf_env *env);

#endif
