/* SPDX-License-Identifier: Apache-2.0 */
/* The interface between the core and a transport, in both directions.
 *
 * A transport is one const table of functions. The core opens it once per context, gives its
 * address to the peers at commit, and gets one link per peer that the transport reaches. A link
 * transfers posts: some writes into the peer's registered memory and then one message. A transport
 * never looks into a message of the core's, and the core never asks which transport it talks to.
 * Several transports are open side by side, each with registrations and templates of its own. */
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
    unsigned index; /* for registrations and templates; the core sets it after open */
};

enum { STEPAF_LINK_NAME = 32, STEPAF_LINK_ADDRESS = 48, STEPAF_LINK_RAILS = 8 };

struct stepaf_link {
    const struct stepaf_transport_ops *ops;
    struct stepaf_transport *transport;
    uint32_t peer;    /* the peer's index, as in the facts given to connect */
    bool has_backlog; /* the core keeps posts that found no space: later ones go behind them */
    bool dead;        /* the peer is lost: nothing is delivered, posts are SENT immediately. The
                       * core sets it, among others when lost is called */
    /* What the transport has written for posts, counted only where it writes. The core compares its
     * own counters with it. */
    uint64_t messages_sent;
    char name[STEPAF_LINK_NAME];       /* "shm;cma" */
    char address[STEPAF_LINK_ADDRESS]; /* of this side, if it has one: "10.0.0.1" */
    uint64_t bytes_sent;               /* like messages_sent, but of tensors */
    /* What the transport has repeated. Neither counter above includes it. */
    uint32_t connects_again; /* calls of the peer after the first of each connection */
    uint32_t messages_again; /* sent again over other rails, or their writes, since one was lost */
};

/* One of a link's rails: a port of a device, or a connection. */
struct stepaf_rail_count {
    uint64_t bytes_sent; /* of tensors, handed to the rail; resent bytes count again */
    const char *name;    /* of its device; "": none */
    bool is_up;          /* false: it is no longer used for this peer */
};

/* What a transport may call. The core implements it, or a test. */
struct stepaf_upcalls {
    /* A message of @a link's peer has arrived, and so have its writes. @a msg is a private copy. */
    void (*deliver)(struct stepaf_upcalls *up, struct stepaf_link *link,
                    const struct stepaf_msg *msg);
    /* The same for a message encoded in 32 bits by stepaf_msg_to_imm. A malformed message is
     * counted. polled says when the message arrived. */
    void (*deliver_imm)(struct stepaf_upcalls *up, struct stepaf_link *link, uint32_t imm);
    /* The peer will never answer again. */
    void (*lost)(struct stepaf_upcalls *up, struct stepaf_link *link, const char *reason);
    /* The rest of a post cannot be sent, since this rank's own memory that the post names cannot be
     * read. The post is SENT, and the peer receives nothing of it. */
    void (*refused)(struct stepaf_upcalls *up, struct stepaf_post *post);
    /* Find a range of memory that peers may write to. @a id: that of the stepaf_mem. */
    struct stepaf_target (*resolve)(struct stepaf_upcalls *up, uint32_t id, uint64_t offset,
                                    uint32_t bytes);
    /* A message whose writes arrived over several rails is about to be delivered: @a msg or, if
     * that is NULL, the 32 bits @a imm. @a rail was the last, and the others waited for it for @a
     * ticks. The pointer is NULL unless verdicts are on: then do not compute these values. */
    void (*held_up)(struct stepaf_upcalls *up, struct stepaf_link *link,
                    const struct stepaf_msg *msg, uint32_t imm, unsigned rail, uint64_t ticks);
    const struct stepaf_env *env;
    const struct stepaf_topo *topo;
    const char *gpu; /* PCI address of the rank's GPU; NULL: unknown */
    bool initiates;  /* this side opens connections and the other listens, where the sides differ */
    uint64_t dropped_malformed; /* malformed input of transports */
    uint64_t
        polled; /* ticks: when the last poll found nothing, or when what is being delivered arrived;
                   0: that poll found something, or was long ago */
};

/* What the bootstrap provides about a peer. */
struct stepaf_peer_facts {
    uint32_t peer;          /* its index among this rank's peers */
    uint32_t index_at_peer; /* this rank's index among the peer's peers, hence in its tables */
    int world_rank;
    uint64_t node_id;
    uint32_t pid;
};

/* What a transport is capable of. */
enum {
    /* reg_mem accepts GPU memory too; memory that it rejects has no registration afterwards. */
    STEPAF_TRANSPORT_GPU = 1 << 0,
    /* The transport reaches only peers of the same node. */
    STEPAF_TRANSPORT_LOCAL = 1 << 1,
    /* The transport can connect, during a job, to the process that takes a lost peer's place. */
    STEPAF_TRANSPORT_RETURNS = 1 << 2,
    /* The transport is used only if STEPAF_TRANSPORTS lists it. */
    STEPAF_TRANSPORT_ASKED = 1 << 3
};

/* Every transport has the operations marked required. The others may be NULL, and then do nothing:
 * the core calls the default that stepaf_transport_complete puts in their place. */
struct stepaf_transport_ops {
    const char *name; /* required */
    unsigned caps;    /* STEPAF_TRANSPORT_* */

    /* Required. Return whether the transport can work on this machine at all. If not, @a reason
     * says why. */
    bool (*probe)(const struct stepaf_env *env, char *reason);

    /* Required. Open for @a n_peers peers. STEPAF_ERR_NO_TRANSPORT: the transport cannot be used
     * here after all. That is an error only if STEPAF_TRANSPORTS lists it. */
    stepaf_status_t (*open)(struct stepaf_upcalls *up, unsigned n_peers,
                            struct stepaf_transport **transport_p);
    /* Required. Close the transport with all its links, and end the remaining registrations. */
    void (*close)(struct stepaf_transport *transport);

    /* Say which devices the transport uses, and by which rule they were chosen, such as "mlx5_0:1
     * (NUMA node)". NULL: it has no devices of its own. */
    void (*describe)(const struct stepaf_transport *transport, char *text);

    /* Prepare memory to be written from and to, and set mem->registration[transport->index].
     * dereg_mem ends the registration. It is also called for memory without one. */
    stepaf_status_t (*reg_mem)(struct stepaf_transport *transport, struct stepaf_mem *mem);
    void (*dereg_mem)(struct stepaf_transport *transport, struct stepaf_mem *mem);
    /* Return whether every peer has acknowledged what was sent to it, and no lost peer, which may
     * not know that it is lost, continues a write that it had begun before this call. Until then a
     * device may read the sources again, even after the peer has answered. False: *peer_p names the
     * peer. @a begin: check what was sent until now, else until the call before. Polls links
     * meanwhile. */
    bool (*is_quiet)(struct stepaf_transport *transport, bool begin, uint32_t *peer_p);
    /* STEPAF_TRANSPORT_GPU, for a GPU with two ways to its memory: wait until the GPU sees
     * everything that devices have written to it for this link. */
    stepaf_status_t (*flush_gpu)(struct stepaf_link *link);
    /* STEPAF_TRANSPORT_GPU: say, as text, how registered GPU memory is reached. */
    void (*describe_gpu)(const struct stepaf_transport *transport, char *text);
    /* STEPAF_TRANSPORT_GPU: test with some memory of @a gpu how it is reached, outside of any
     * context, and report the result. */
    void (*probe_gpu)(const struct stepaf_env *env, struct stepaf_gpu *gpu, char *text);

    /* Required, both. Write the data that a peer needs to connect, or to import a piece of
     * memory. */
    void (*pack_address)(struct stepaf_transport *transport, struct stepaf_pack *pack);
    void (*pack_mem)(struct stepaf_transport *transport, const struct stepaf_mem *mem,
                     struct stepaf_pack *pack);

    /* Required. Connect to a peer with what its pack_address wrote, or begin to connect where that
     * requires both ends. Never wait for the peer. A peer that cannot be reached this way is no
     * error: then *link_p is NULL and @a reason, "" on entry, says why. @a reason may also say what
     * a link lacks, for the map. If the peer finds that it cannot reach this rank, the link is
     * disconnected again, and both take another transport. */
    stepaf_status_t (*connect)(struct stepaf_transport *transport,
                               const struct stepaf_peer_facts *facts, struct stepaf_unpack *unpack,
                               struct stepaf_link **link_p, char *reason);
    /* Required. */
    void (*disconnect)(struct stepaf_link *link);
    /* The core has declared the peer lost, and the peer may not know that: discard what it still
     * writes. NULL in a transport where a dead link takes in nothing, or where discarding is not
     * possible. */
    void (*fence)(struct stepaf_link *link);

    /* STEPAF_TRANSPORT_RETURNS: a commit after the first may bring peers to connect to, as in the
     * first. Called before pack_address; shrink ends it. */
    stepaf_status_t (*reopen)(struct stepaf_transport *transport);
    /* STEPAF_TRANSPORT_RETURNS: return whether the process at the other end of a dead link can no
     * longer write here. */
    bool (*is_over)(struct stepaf_link *link);

    /* Continue what connect has begun, for all peers together. Peers do the same, but not all the
     * time. Called repeatedly until all links are up. Wait for news @a wait_ms at most.
     * STEPAF_INPROGRESS: *peer_p says whose link is not up, and @a reason what it waits for. A
     * failure fails the commit: *peer_p says whose link and @a reason why. A peer that cannot be
     * reached may also be lost. No rank sends before all ranks have found that all links are up. */
    stepaf_status_t (*finish_connects)(struct stepaf_transport *transport, int64_t deadline_ns,
                                       int wait_ms, uint32_t *peer_p, char *reason);

    /* In a commit that has made links, after finish_connects: check that data gets through over each
     * of them, where connecting does not show that. Called repeatedly; never waits. Before @a begin,
     * not all ranks have connected: then say only whether there is something to check. Every other
     * status than STEPAF_OK comes with *peer_p. STEPAF_INPROGRESS: there is something to check.
     * STEPAF_ERR_NO_TRANSPORT: nothing gets through to the peer; @a reason says why. That link is
     * disconnected then, and both ends take another transport. If there is none, a peer that has
     * just returned is lost. Both happen to such a peer also when its time is over. */
    stepaf_status_t (*prove_links)(struct stepaf_transport *transport, bool begin, uint32_t *peer_p,
                                   char *reason);

    /* In every commit, once all ranks have agreed on their links: release what was prepared for
     * peers that other transports reach, for which connect may be called until then. Until this
     * rank has told a peer that it is READY, which it does later, the peer writes no tensors; then
     * it knows what this commit has announced. */
    void (*shrink)(struct stepaf_transport *transport);

    /* Required, both. Make a peer's memory writable; release_mem ends that. */
    stepaf_status_t (*import_mem)(struct stepaf_link *link, uint32_t id, uint64_t bytes,
                                  struct stepaf_unpack *unpack, struct stepaf_rmem **rmem_p);
    void (*release_mem)(struct stepaf_link *link, struct stepaf_rmem *rmem);

    /* Build, once, what posts of an operation over links of this transport have in common with @a
     * post, which will be posted repeatedly: whole writes of the same tensors. Return one piece of
     * memory, which the core frees; *bytes_p: its size. Posts with the same template that are
     * posted together have the same imm. NULL: a template would gain nothing. */
    void *(*make_template)(const struct stepaf_post *post, size_t *bytes_p);

    /* Required. Send posts of links of this transport: of each its writes, then its message. Set
     * each state; QUEUED where there is no space now. Return how many are QUEUED. Several posts may
     * share sources. Hot. */
    unsigned (*post)(struct stepaf_post *const *posts, unsigned n);
    /* The core is done with a POSTED post: do not touch it from now on. NULL in a transport without
     * such posts. */
    void (*retire)(struct stepaf_post *post);
    /* Required. Take in what has arrived; return how much. If there is nothing, poll again up to @a
     * polls times in all, as a waiting thread would: in a loop so tight that, once something
     * arrives, the CPU has predicted the rest of the path. Set up->polled between polls. Hot. */
    unsigned (*progress)(struct stepaf_transport *transport, unsigned polls);
    /* A thread is about to sleep: from now on arriving data must make file descriptors readable;
     * return these. What has arrived before is polled for once more. Returns how many there are,
     * 0 if that is not possible. */
    unsigned (*arm)(struct stepaf_transport *transport, int *fds_p, unsigned capacity);
    /* Required. Find dead peers. Called about every millisecond by a thread that waits without
     * success, and a few times a second by a thread that others keep busy, when more may have
     * arrived. */
    void (*check_peers)(struct stepaf_transport *transport);

    /* Say what each rail of a link has sent, with the rail numbers of up->held_up; return how many
     * rails there are. NULL in a transport without rails. */
    unsigned (*count_rails)(const struct stepaf_link *link,
                            struct stepaf_rail_count rails_p[STEPAF_LINK_RAILS]);

    /* Required. Return the bytes held per link, and the bytes of all bounce buffers. */
    void (*query_memory)(struct stepaf_transport *transport, size_t *per_link_p, size_t *bounce_p);
};

/* All transports of this build, best first; ends with NULL. */
extern const struct stepaf_transport_ops *const stepaf_transports[];

/* Return @a ops with a default that does nothing in place of each missing operation. */
struct stepaf_transport_ops stepaf_transport_complete(const struct stepaf_transport_ops *ops);
/* Return the name of a required operation that @a ops lacks; NULL if it lacks none. */
const char *stepaf_transport_lacks(const struct stepaf_transport_ops *ops);

/* Return whether the setting STEPAF_TRANSPORTS admits @a ops. */
bool stepaf_transport_admitted(const struct stepaf_env *env,
                               const struct stepaf_transport_ops *ops);

/* Check that STEPAF_TRANSPORTS names only transports that this build has. */
stepaf_status_t stepaf_transport_check_names(const struct stepaf_env *env);

#endif
