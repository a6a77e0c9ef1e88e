/* SPDX-License-Identifier: Apache-2.0 */
/* What the core asks of a transport, and what a transport may ask of the core.
 *
 * A transport is one const table of functions. The core opens it once per context, gives its
 * address to the peers at commit, and gets one link per peer that it reaches. A link carries posts:
 * some writes into the peer's registered memory and then one message. A transport never looks into
 * a message of the core's, and the core never asks which transport it talks to. Several transports
 * are open side by side, each with registrations and templates of its own. */
#ifndef STEPAF_TRANSPORT_TRANSPORT_H
#define STEPAF_TRANSPORT_TRANSPORT_H

#include "base/error.h"
#include "base/pack.h"
#include "settings/settings.h"
#include "topo/topo.h"
#include "transport/mem.h"
#include "transport/post.h"

struct stepaf_transport_ops;

struct stepaf_transport {
    const struct stepaf_transport_ops *ops;
    struct stepaf_upcalls *up;
    unsigned index; /* of its registrations and templates; set by the core after open */
};

enum { STEPAF_LINK_NAME = 32, STEPAF_LINK_ADDRESS = 48, STEPAF_LINK_RAILS = 8 };

struct stepaf_link {
    const struct stepaf_transport_ops *ops;
    struct stepaf_transport *transport;
    uint32_t peer;    /* the peer's index, as in the facts given to connect */
    bool has_backlog; /* the core keeps posts that found no room: later ones go behind them */
    bool dead;        /* the peer is lost: nothing is delivered, posts are SENT at once. Set by
                       * the core, when lost is called among others */
    /* What the transport has really written for posts, counted where it writes and nowhere else:
     * the core's own counters are compared with it. */
    uint64_t messages_sent;
    char name[STEPAF_LINK_NAME];       /* "shm;cma" */
    char address[STEPAF_LINK_ADDRESS]; /* this side's, where there is one: "10.0.0.1" */
    uint64_t bytes_sent;               /* as messages_sent, but of tensors */
    /* What the transport has done once more; none of it is in the two above. */
    uint32_t connects_again; /* calls of the peer behind the first of each connection */
    uint32_t messages_again; /* that went, or whose writes did, by other rails since one was lost */
};

/* One of a link's rails: a port of a device, or a connection. */
struct stepaf_rail_count {
    uint64_t bytes_sent; /* of tensors, handed to it; what was sent again counts again */
    const char *name;    /* of its device; "": it has none */
    bool is_up;          /* false: it is given up for this peer */
};

/* What a transport may ask: implemented by the core, or by a test. */
struct stepaf_upcalls {
    /* A message of @a link's peer is here, its writes have landed. @a msg is a private copy. */
    void (*deliver)(struct stepaf_upcalls *up, struct stepaf_link *link,
                    const struct stepaf_msg *msg);
    /* A message in the 32 bits that stepaf_msg_to_imm makes of it. What makes no sense here is
     * counted. Polled says when it has come. */
    void (*deliver_imm)(struct stepaf_upcalls *up, struct stepaf_link *link, uint32_t imm);
    /* The peer will never answer again. */
    void (*lost)(struct stepaf_upcalls *up, struct stepaf_link *link, const char *reason);
    /* The rest of a post cannot be sent, since this rank's own memory that it names cannot be read.
     * It is SENT, and the peer hears nothing of it. */
    void (*refused)(struct stepaf_upcalls *up, struct stepaf_post *post);
    /* Find a range of memory that peers may write to. @a id: stepaf_mem. */
    struct stepaf_target (*resolve)(struct stepaf_upcalls *up, uint32_t id, uint64_t offset,
                                    uint32_t bytes);
    /* A message whose writes came by several rails is about to be delivered, @a msg or, if that is
     * NULL, the 32 bits @a imm: @a rail was the last, and had the others wait for @a ticks. NULL,
     * which it is unless verdicts are on: nobody wants to know, and it is not found out. */
    void (*held_up)(struct stepaf_upcalls *up, struct stepaf_link *link,
                    const struct stepaf_msg *msg, uint32_t imm, unsigned rail, uint64_t ticks);
    const struct stepaf_env *env;
    const struct stepaf_topo *topo;
    const char *gpu; /* PCI address of the rank's GPU; NULL: none is known */
    bool initiates;  /* where one side opens connections and one listens: this one opens */
    uint64_t dropped_malformed; /* what made no sense to a transport */
    uint64_t
        polled; /* when the last poll found nothing, or what is being delivered had come, ticks; 0: it
                   found something, or long ago */
};

/* Facts of a peer, from the bootstrap. */
struct stepaf_peer_facts {
    uint32_t peer;          /* its index among this rank's peers */
    uint32_t index_at_peer; /* this rank's index among the peer's peers, and so in its tables */
    int world_rank;
    uint64_t node_id;
    uint32_t pid;
};

/* What a transport is capable of. */
enum {
    /* reg_mem takes GPU memory as well; what it has not taken has no registration afterwards. */
    STEPAF_TRANSPORT_GPU = 1 << 0,
    /* It reaches peers of the same node only. */
    STEPAF_TRANSPORT_LOCAL = 1 << 1,
    /* It can connect to the process that takes a lost peer's place, in the middle of a job. */
    STEPAF_TRANSPORT_RETURNS = 1 << 2,
    /* It is only used if STEPAF_TRANSPORTS lists it. */
    STEPAF_TRANSPORT_ASKED = 1 << 3
};

/* Those marked required are there in every transport. The others may be NULL, and then do nothing:
 * the core calls what stepaf_transport_complete has put in their place. */
struct stepaf_transport_ops {
    const char *name; /* required */
    unsigned caps;    /* STEPAF_TRANSPORT_* */

    /* Required. Can it work on this machine at all? If not, @a reason says why. */
    bool (*probe)(const struct stepaf_env *env, char *reason);

    /* Required. Open for @a n_peers peers. STEPAF_ERR_NO_TRANSPORT: it cannot be used here after
     * all, which is no error unless STEPAF_TRANSPORTS asks for it. */
    stepaf_status_t (*open)(struct stepaf_upcalls *up, unsigned n_peers,
                            struct stepaf_transport **transport_p);
    /* Required. Close, all links with it, and end what is registered still. */
    void (*close)(struct stepaf_transport *transport);

    /* Say which devices it uses, and by which rule they were chosen, as "mlx5_0:1 (NUMA node)".
     * NULL: it has none of its own. */
    void (*describe)(const struct stepaf_transport *transport, char *text);

    /* Make memory ready to be written from and to, and set mem->registration[transport->index];
     * dereg_mem ends it, and is called for memory without a registration as well. */
    stepaf_status_t (*reg_mem)(struct stepaf_transport *transport, struct stepaf_mem *mem);
    void (*dereg_mem)(struct stepaf_transport *transport, struct stepaf_mem *mem);
    /* Whether every peer has acknowledged what was sent to it, and no lost peer, which may not know
     * it, goes on with a write that it had begun before this call. Until then a device may read the
     * sources again, though the peer has answered. False: *peer_p says who. @a begin: what was sent
     * until now, else until the call before. Links are looked after meanwhile. */
    bool (*is_quiet)(struct stepaf_transport *transport, bool begin, uint32_t *peer_p);
    /* STEPAF_TRANSPORT_GPU, of a GPU with two ways to its memory: wait until it sees all that
     * devices have written to it for this link. */
    stepaf_status_t (*flush_gpu)(struct stepaf_link *link);
    /* STEPAF_TRANSPORT_GPU: say in words how GPU memory that was registered is reached. */
    void (*describe_gpu)(const struct stepaf_transport *transport, char *text);
    /* STEPAF_TRANSPORT_GPU: try with some memory of @a gpu how it is reached, beside any context,
     * and say it. */
    void (*probe_gpu)(const struct stepaf_env *env, struct stepaf_gpu *gpu, char *text);

    /* Required, both. Write what a peer needs to connect, and to import a piece of memory. */
    void (*pack_address)(struct stepaf_transport *transport, struct stepaf_pack *pack);
    void (*pack_mem)(struct stepaf_transport *transport, const struct stepaf_mem *mem,
                     struct stepaf_pack *pack);

    /* Required. Connect to a peer by what its pack_address wrote, or begin to where that takes both
     * ends; never wait for the peer. That it cannot be reached this way is no error: *link_p is
     * NULL then and @a reason, "" on entry, says why. It may also say what a link lacks, for the
     * map. The peer may find that it cannot reach this rank; then the link is disconnected again,
     * and both take another transport. */
    stepaf_status_t (*connect)(struct stepaf_transport *transport,
                               const struct stepaf_peer_facts *facts, struct stepaf_unpack *unpack,
                               struct stepaf_link **link_p, char *reason);
    /* Required. */
    void (*disconnect)(struct stepaf_link *link);
    /* The core has given the peer up, which may not know it: what it still writes is to go nowhere.
     * NULL in a transport where a dead link takes in nothing, or where that cannot be. */
    void (*fence)(struct stepaf_link *link);

    /* STEPAF_TRANSPORT_RETURNS: a commit after the first may bring peers that are to be connected
     * to, as in the first: before pack_address. shrink ends it. */
    stepaf_status_t (*reopen)(struct stepaf_transport *transport);
    /* STEPAF_TRANSPORT_RETURNS: whether the process at the other end of a dead link can write
     * nothing here any more. */
    bool (*is_over)(struct stepaf_link *link);

    /* Go on with what connect has begun, for all peers at once; peers do the same, but not all the
     * time. Called again and again until all links are up. Wait for news @a wait_ms at most.
     * STEPAF_INPROGRESS: *peer_p says whose link is not up, and @a reason what it waits for. A
     * failure is the commit's: *peer_p says whose and @a reason why. A peer that cannot be reached
     * may also be lost. Before all ranks have found that all links are up, nobody sends. */
    stepaf_status_t (*finish_connects)(struct stepaf_transport *transport, int64_t deadline_ns,
                                       int wait_ms, uint32_t *peer_p, char *reason);

    /* Only in the first commit, behind finish_connects: see that something gets through over each
     * link, where connecting does not show that. Called again and again; never waits. Before @a
     * begin, not all ranks have connected: then only whether there is something to see.
     * STEPAF_INPROGRESS: there is. STEPAF_ERR_NO_TRANSPORT: nothing gets through to *peer_p, and @a
     * reason why. That link is disconnected then, and both ends take another transport. */
    stepaf_status_t (*prove_links)(struct stepaf_transport *transport, bool begin, uint32_t *peer_p,
                                   char *reason);

    /* The first commit is done: what was made ready for peers that others reach may go. Until then,
     * connect may be called for them. */
    void (*shrink)(struct stepaf_transport *transport);

    /* Required, both. Make a peer's memory writable; release_mem ends it. */
    stepaf_status_t (*import_mem)(struct stepaf_link *link, uint32_t id, uint64_t bytes,
                                  struct stepaf_unpack *unpack, struct stepaf_rmem **rmem_p);
    void (*release_mem)(struct stepaf_link *link, struct stepaf_rmem *rmem);

    /* Put together, once, what posts of an operation over links of this transport have in common
     * with
     * @a post, which will be handed over again and again: whole writes of the same tensors. One
     * piece of memory, which the core frees; *bytes_p: how much. Posts with the same template that
     * are handed over together have the same imm. NULL: it would gain nothing. */
    void *(*make_template)(const struct stepaf_post *post, size_t *bytes_p);

    /* Required. Send posts of links of this transport: each its writes, then its message. Sets each
     * state; QUEUED where there is no room now. Returns how many are. Several posts may share
     * sources. Hot. */
    unsigned (*post)(struct stepaf_post *const *posts, unsigned n);
    /* A POSTED post is of no interest any more: it is not touched from now on. NULL in a transport
     * that has no such posts. */
    void (*retire)(struct stepaf_post *post);
    /* Required. Take in what has come; return how much. If there is nothing, poll again up to @a
     * polls times in all, as a waiting thread would: in a loop so tight that, once something comes,
     * the processor has foreseen the rest of the way. Sets up->polled between polls. Hot. */
    unsigned (*progress)(struct stepaf_transport *transport, unsigned polls);
    /* A thread is about to sleep: have what comes from now on make descriptors readable, and name
     * them; what has come before is polled for once more. Returns how many, 0 if that cannot be. */
    unsigned (*arm)(struct stepaf_transport *transport, int *fds_p, unsigned capacity);
    /* Required. Find dead peers. Called about every millisecond by a thread that waits in vain, and
     * a few times a second by one that others keep busy, when there may be more to take in. */
    void (*check_peers)(struct stepaf_transport *transport);

    /* Say what each rail of a link has sent, by the numbers that up->held_up has; returns how many
     * there are. NULL in a transport that knows of none. */
    unsigned (*count_rails)(const struct stepaf_link *link,
                            struct stepaf_rail_count rails_p[STEPAF_LINK_RAILS]);

    /* Required. Bytes held per link, and of bounce buffers in all. */
    void (*query_memory)(struct stepaf_transport *transport, size_t *per_link_p, size_t *bounce_p);
};

/* All transports of this build, best first; ends with NULL. */
extern const struct stepaf_transport_ops *const stepaf_transports[];

/* Return @a ops with something that does nothing in the place of each operation that it leaves
 * out. */
struct stepaf_transport_ops stepaf_transport_complete(const struct stepaf_transport_ops *ops);
/* The name of a required operation that @a ops lacks; NULL: none. */
const char *stepaf_transport_lacks(const struct stepaf_transport_ops *ops);

/* Whether the setting STEPAF_TRANSPORTS admits @a name. */
bool stepaf_transport_admitted(const struct stepaf_env *env,
                               const struct stepaf_transport_ops *ops);

/* Check that STEPAF_TRANSPORTS names only transports that this build has. */
stepaf_status_t stepaf_transport_check_names(const struct stepaf_env *env);

#endif
