/* SPDX-License-Identifier: Apache-2.0 */
/* The core's objects, and the two structures that hold all others: the context and the peer.
 *
 *   ctx      one per stepaf_context_h: role, groups, peers, keys, regions, plans
 *   peer     a rank of the other role in this rank's mesh, reached by one link
 *   plan     attention side: a compiled push_pull, with one op per slot
 *   op       one operation in flight; named by a stepaf_request_h
 *   remote plan   FFN side: what an attention rank announced of one of its plans; a batch per slot
 *   batch    one operation as it arrived; named by a stepaf_batch_h
 *
 * Two facts end an operation at a peer: its answer (RESPONSE) and the return of the receive
 * buffers (RELEASE). A slot is free again when both have arrived from every peer. Each is
 * counted; neither is inferred from the other. */
#ifndef STEPAF_CORE_CTX_H
#define STEPAF_CORE_CTX_H

#include <pthread.h>
#include <stdatomic.h>

#include <stepaf/stepaf.h>

#include "base/clock_filter.h"
#include "base/clock_history.h"
#include "base/error.h"
#include "base/list.h"
#include "base/time.h"
#include "boot/boot_room.h"
#include "core/lock.h"
#include "core/mesh.h"
#include "core/table.h"
#include "core/trace.h"
#include "transport/transport.h"

struct stepaf_batch_ahead;
struct stepaf_bounce_in;
struct stepaf_feature_ops;
struct stepaf_gpu;
struct stepaf_gpu_clock;
struct stepaf_key;
struct stepaf_map_devices;
struct stepaf_metrics;
struct stepaf_op;
struct stepaf_plan_obj;
struct stepaf_region;
struct stepaf_region_name;
struct stepaf_remote_plan;
struct stepaf_streams;
struct stepaf_member_net;
struct stepaf_watch;

enum { STEPAF_NS_SCALE_BITS = 24, STEPAF_MUTE_MAX = 160 };

struct stepaf_peer {
    struct stepaf_ctx *ctx;
    struct stepaf_link *link;
    struct stepaf_list queue;      /* posts waiting for transport space */
    struct stepaf_list queue_node; /* in ctx->net.queued while the queue is not empty */
    struct stepaf_list ready;      /* FFN: batches not yet handed to the caller */
    struct stepaf_who who;
    uint32_t index; /* in ctx->peers; differs from the peer's rank in a mesh of lanes */
    bool lost;
    bool is_out;                  /* lost, and the epoch continues without it */
    uint32_t ready_epoch;         /* of the peer's last READY */
    uint32_t quiesced;            /* number of the last commit that the peer has entered */
    stepaf_status_t ready_status; /* status in the peer's last READY */
    struct {
        bool synced;         /* needs no more pings in this commit */
        bool asked;          /* the answer to a ping is outstanding */
        uint32_t seq;        /* of the last ping */
        int64_t asked_ns;    /* CLOCK_MONOTONIC */
        uint32_t bound;      /* reported maximum error of the peer's clock; UINT32_MAX: unknown */
        int64_t bound_at_ns; /* when the peer reported the bound; 0: never */
    } clock;
    char reason[STEPAF_REASON_MAX]; /* why lost, or why not reached */
    /* better transports than the link's, each with the reason against it */
    char refused[STEPAF_REASON_MAX];
    uint64_t bytes_sent;     /* of tensors, handed to the transport for this peer */
    uint64_t bytes_received; /* of tensors, reported by the peer as landed */
    struct stepaf_histogram
        *times; /* STEPAF_TIMES histograms, by STEPAF_TIME_*; NULL: not measured */
    struct stepaf_remote_plan **remotes; /* FFN: by plan number */
    bool oom;                   /* FFN: no memory for a remote plan announced in a commit */
    uint32_t n_remotes;         /* capacity of remotes */
    struct stepaf_rmem **rmems; /* ascending by id */
    uint32_t n_rmems;
    struct stepaf_post ctrl_post; /* for messages without tensors, few of which wait for space */
    struct stepaf_link nowhere;   /* its link if it is lost and cannot be reached */
};

/* ---- context ---- */

enum stepaf_ctx_state {
    STEPAF_CTX_OPEN,
    STEPAF_CTX_COMMITTING,
    STEPAF_CTX_BROKEN, /* a commit failed halfway: only finalize is possible */
    STEPAF_CTX_LEFT    /* this rank has left the job: only finalize is possible */
};

/* Facts of a rank, from the exchange in init. */
struct stepaf_rank {
    uint8_t role;
    bool proxies;  /* its stream plans' tensors always travel through the host */
    uint32_t rank; /* within its role's group */
    uint32_t pid;
    uint64_t node_id;
};

/* A link's name, kept as long as the context: the link is freed when its rank is replaced. */
struct stepaf_kept_name {
    struct stepaf_kept_name *next;
    char name[STEPAF_LINK_NAME];
};

/* The open transports, which transfer data. */
struct stepaf_ctx_net {
    unsigned n_transports;
    struct stepaf_transport *transports[STEPAF_MAX_TRANSPORTS];
    const struct stepaf_transport_ops *only_ops; /* operations of all links; NULL: links differ */
    struct stepaf_list queued;                   /* peers with queued posts */
    /* the transports' operations, complete, by index in the registry */
    struct stepaf_transport_ops *ops;
    struct stepaf_kept_name *names; /* names that callers have received */
    /* The transports skipped before transports[i], and why. */
    char unopened[STEPAF_MAX_TRANSPORTS + 1][STEPAF_REASON_MAX];
};

/* How the threads of a context poll and wait. */
struct stepaf_ctx_polling {
    uint32_t at_once;      /* polls that a waiting thread makes in one call */
    uint64_t came;         /* when a poll last brought something, ticks */
    uint64_t vain_since;   /* about when vain polls began, if later than came; ticks */
    uint64_t look_at;      /* the first poll at or after this checks that peers are alive, ticks */
    uint64_t checked;      /* when the transports last looked for dead peers, ticks */
    uint64_t timed_out_at; /* when a wait last timed out, ticks */
    uint64_t idle_for; /* ticks that it had idled, and those that had timed out just before it */
    struct stepaf_op *hint_op;      /* operation of a waiting thread, likely the next to complete */
    struct stepaf_watch *watch;     /* of operations and polls; NULL: not watched */
    struct stepaf_metrics *metrics; /* what tools see, written between polls; NULL: off */
    bool oversubscribed;
    /* a thread sleeps until a transport wakes it; other threads must not consume wake-ups */
    bool asleep;
};

/* FFN: batches that have arrived and are not yet handed to the caller. */
struct stepaf_ctx_inbox {
    struct stepaf_list ready; /* batches of all peers, in order of arrival */
    uint32_t n_peers;         /* peers that have a batch ready */
    stepaf_batch_cb_t handler;
    void *handler_arg;
    _Atomic bool dispatching;
    _Atomic(pthread_t) dispatcher;     /* the thread in the handler, while dispatching */
    uint32_t n_dispatched;             /* handler calls that have returned */
    struct stepaf_batch_ahead **ahead; /* by batch index: sent before the answer, or NULL */
    uint32_t n_ahead;                  /* capacity of ahead */
};

/* Declared keys and memory. */
struct stepaf_ctx_memory {
    struct stepaf_key **keys; /* unordered, but see stepaf_keys_sort */
    uint32_t n_keys;
    uint32_t max_keys; /* capacity of keys */
    void *key_tree;    /* keys by id; a tsearch tree */
    uint32_t n_regions;
    uint32_t max_regions;
    struct stepaf_region **regions;   /* unordered */
    void *region_tree;                /* regions by address; a tsearch tree */
    struct stepaf_region_name *by_id; /* ascending; entries of dropped regions stay for a while */
    uint32_t n_named, n_dropped;
    uint32_t max_named;
    struct stepaf_region *last;   /* result of the last look-up in host memory */
    struct stepaf_region *named;  /* result of the last look-up of an id; NULL: none */
    uint32_t next_id;             /* id of the next region */
    struct stepaf_key *withdrawn; /* withdrawn since the last commit: peers still know these keys */
    void *withdrawn_tree;         /* withdrawn keys by id */
};

/* Cache of plans made by stepaf_push_pull. */
struct stepaf_ctx_cache {
    uint32_t at;   /* index of the last hit */
    uint32_t n;    /* plans */
    uint32_t max;  /* capacity of plans */
    uint64_t uses; /* look-ups, ever */
    struct stepaf_plan_obj **plans;
};

/* State that gpu/ keeps in a context. */
struct stepaf_ctx_gpu {
    struct stepaf_gpu *device; /* NULL: not needed yet */
    void *bounce_stream;       /* of the device, for copies to bounce buffers; NULL: none */
    struct stepaf_bounce_in *bounce_in; /* copies from bounce buffers; NULL: none yet */
    /* of the device, for timestamps; NULL: no timestamps are taken */
    struct stepaf_gpu_clock *clock;
    struct stepaf_streams *streams; /* of the last commit; NULL: no stream plan yet */
    /* stream plans with peers reached through the host, see gpu/proxy.h */
    struct stepaf_list proxies;
    bool proxies_still; /* a commit is about to end the proxies */
    bool asks;          /* this rank's advert asks who can write to the GPU's memory */
    bool answered;
    uint8_t *unreached;  /* by peer: 1: cannot write it; NULL: not asked */
    uint32_t n_requests; /* open requests of stream plans */
    uint32_t n_arriving; /* batches and answers in state ARRIVING */
};

/* What this rank wants of a commit. */
struct stepaf_commit_will {
    bool leaves_lost; /* continue without lost ranks */
    bool admits;      /* admit processes in the places of lost ranks */
    bool leaves;      /* leave the job: this is the rank's last commit */
};

/* The members of the epoch; see core/members.h. */
struct stepaf_ctx_members {
    /* the members' own connections; NULL: none beside the bootstrap */
    struct stepaf_member_net *net;
    char mute[STEPAF_MUTE_MAX]; /* why net is NULL */
    uint8_t *is;                /* by world rank: is a member */
    uint8_t *present;           /* by world rank: took part in the last exchange */
    uint8_t *can_return; /* by world rank: lost, and this rank can admit a process in its place */
    /* this commit's advert says that this rank can admit returning ranks that are no peers */
    bool takes_back;
    uint8_t *returned; /* by world rank: its place was taken by a process in the last commit */
    /* this process has taken a lost rank's place: names no lacking ranks until its links are up */
    bool is_on_trial;
    bool tests_returned; /* this commit waits less long for returned processes than for others */
    struct stepaf_commit_will will; /* wishes for the current commit */
    bool has_cards;                 /* the cards for returning processes are ready */
    bool is_guest;                  /* this process takes a lost rank's place */
    bool has_changed; /* ranks have left or returned: the bootstrap does not know all members */
    /* lost ranks and guests already reported by the file descriptor and the callback */
    uint32_t n_lost_known;
    uint64_t n_changes; /* of the member list, and of who is lost */
    int event_fd;       /* -1: not requested */
    stepaf_members_cb_t callback;
    void *callback_arg;
    _Atomic bool is_news; /* the callback has news to report */
};

/* The job, as found by init. */
struct stepaf_ctx_job {
    struct stepaf_ctx_members members;
    struct stepaf_mesh mesh;
    stepaf_boot_t boot;
    struct stepaf_boot_room room;
    int n_started; /* ranks that the bootstrap knows; the others arrive later */
    struct stepaf_topo topo;
    struct stepaf_map_devices *devices; /* for the map; NULL: not looked for */
    struct stepaf_rank *ranks;          /* by world rank */
    int *groups[3];                     /* world ranks of each group's members */
    int group_size[3];
    int rank[3]; /* this rank's number in each group; -1: not a member */
};

/* A line that any thread may read without the lock, see stepaf_clock_now. */
struct stepaf_clock_told {
    _Atomic uint32_t version; /* odd: being changed */
    _Atomic int64_t at_ns, offset_ns, slew_ns, slew_over_ns;
    _Atomic double rate;
};

/* The common clock, see clock.c and clock_keep.h. */
struct stepaf_ctx_clock {
    struct stepaf_clock own;
    uint64_t ns_scale; /* ns per tick, times 2^STEPAF_NS_SCALE_BITS */
    /* Ticks: a batch that took at least this long reports its times with its answer, at any cost.
     * 0 while times are measured, see metrics.h. */
    uint64_t told_from;
    struct stepaf_clock_history history;
    struct stepaf_clock_line line; /* offset from this node's clock to the common clock */
    struct stepaf_clock_told told; /* copy of line for readers without the lock */
    struct stepaf_clock_filter filter;
    int server;        /* index of the peer whose clock is followed; -1: this rank's own is right */
    int reference;     /* world rank of the lane's reference */
    uint32_t n_probes; /* probes answered */
    uint32_t turn;     /* the last peer probed for its bound */
    uint64_t probed;   /* time of the last probe, ticks */
    uint64_t probed_first; /* same, for the faster first probes */
    bool probes;           /* this rank sends probes */
    bool greets;           /* the next probes go to all peers */
    bool one_node;         /* all ranks are on one node and share its clock */
    bool is_zero;          /* the clock of the reference's node is the common clock unchanged */
    bool is_nodes;         /* and this rank is on that node */
    bool known;
};

enum stepaf_thread_state {
    STEPAF_THREAD_GOES,
    STEPAF_THREAD_STOPS, /* asked to stop */
    STEPAF_THREAD_OVER   /* stopped: about to end */
};

/* The calling threads, and the library's own. */
struct stepaf_ctx_threads {
    bool many;            /* several threads may call */
    uint64_t busy;        /* ticks of the progress thread's polls that found something */
    bool progress_wanted; /* the caller wants a progress thread */
    bool runs;
    _Atomic uint8_t state; /* of the progress thread: stepaf_thread_state */
    /* a thread finalizes: calls of other threads return as soon as they can */
    _Atomic bool closing;
    pthread_t progress;
};

struct stepaf_ctx {
    struct stepaf_upcalls up; /* first: transports pass it back */
    struct stepaf_lock lock;
    struct {
        uint32_t slot; /* in the process's table of contexts */
        uint32_t generation;
    } handle;
    uint8_t state; /* stepaf_ctx_state */
    stepaf_role_t role;
    uint32_t epoch; /* the last epoch entered, even if its commit failed */
    struct {
        uint32_t n;              /* entered, successful or not */
        _Atomic uint32_t n_done; /* successful; read without the lock */
        bool changed;            /* something was declared since the last commit */
        /* peers know that this rank has entered: no thread starts anything before the commit
         * ends */
        bool has_entered;
        bool exclusive;     /* a commit past its quiesce: it waits with the lock held */
        bool is_refused;    /* some peer has reported a failed commit at some time */
        uint32_t hears;     /* epoch of accepted operation messages, as messages encode it */
        uint32_t hears_imm; /* the same, as 32-bit messages encode it; see stepaf_core_hear */
        /* the members' earliest deadline, as told when ranks agreed on links to returned ranks */
        int64_t members_deadline_ns;
    } commit;
    uint32_t n_peers;
    uint32_t n_alive;          /* peers not lost */
    struct stepaf_peer *peers; /* ascending by rank */
    uint32_t n_polled;         /* objects that the feature must advance in each poll */
    const struct stepaf_feature_ops *feature;
    struct stepaf_ctx_polling polling;
    struct stepaf_ctx_net net;
    struct {
        struct stepaf_table plans;
        struct stepaf_table ops;
        struct stepaf_table batches;
    } tables;
    struct stepaf_ctx_inbox inbox;
    struct stepaf_ctx_memory memory;
    struct stepaf_ctx_cache cache;
    struct stepaf_ctx_gpu gpu;
    struct stepaf_ctx_clock clock;
    stepaf_counters_t counters; /* without bytes, which are kept by peer */
    struct stepaf_trace trace;
    struct stepaf_env env;
    struct stepaf_ctx_job job;
    struct stepaf_ctx_threads threads;
};

static inline bool stepaf_is_attention(const struct stepaf_ctx *ctx)
{
    return ctx->role == STEPAF_ATTENTION;
}

/* Name a peer in messages: "FFN rank 3 (world rank 7)". */
#define STEPAF_WHO_FORMAT "%s rank %d (world rank %d)"
#define STEPAF_WHO_ARGS(who_) \
    (who_).role == STEPAF_FFN ? "FFN" : "attention", (who_).rank, (who_).world_rank

static inline struct stepaf_who stepaf_who_is(const struct stepaf_ctx *ctx, int world_rank)
{
    const struct stepaf_rank *its = &ctx->job.ranks[world_rank];

    return (struct stepaf_who){its->role, (int)its->rank, world_rank};
}

void stepaf_ctx_free(struct stepaf_ctx *ctx);

/* Return the stamp of what is being received. A waiting thread has read the clock between two
 * polls, where the read costs nothing. That stamp is reused and is at most one poll early, so that
 * the path from a message's arrival to the caller does not read the clock again. A poll that takes
 * microseconds sets the stamp anew. */
static inline uint64_t stepaf_arrival_ticks(struct stepaf_ctx *ctx)
{
    if (__builtin_expect(!ctx->up.polled, 0))
        ctx->up.polled = stepaf_ticks();
    return ctx->up.polled;
}

#endif
