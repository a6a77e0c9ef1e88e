/* SPDX-License-Identifier: Apache-2.0 */
/* The core's objects, and the two that all others belong to.
 *
 *   ctx      one per stepaf_context_h: role, groups, peers, keys, regions, plans
 *   peer     a rank of the other role in this one's mesh, reached by one link
 *   plan     attention side: a compiled push_pull, with one op per slot
 *   op       one operation in flight; what a stepaf_request_h names
 *   remote plan   FFN side: what an attention rank has said of one of its plans, a batch per slot
 *   batch    one operation as it arrived; what a stepaf_batch_h names
 *
 * Two facts complete an operation at a peer: its answer (RESPONSE) and the return of the receive
 * buffers (RELEASE). A slot is free again when both have arrived from every peer. Each is counted,
 * none is inferred.
 */
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
    struct stepaf_list queue;      /* posts that found no space */
    struct stepaf_list queue_node; /* in ctx->net.queued while there are any */
    struct stepaf_list ready;      /* FFN: batches not yet handed to the caller */
    struct stepaf_who who;
    uint32_t index; /* in ctx->peers; with lanes its rank is another number */
    bool lost;
    bool is_out;                  /* and the epoch continues without it */
    uint32_t ready_epoch;         /* of its last READY */
    uint32_t quiesced;            /* number of the last commit that it has entered */
    stepaf_status_t ready_status; /* and what it said */
    struct {
        bool synced;         /* needs no more pings in this commit */
        bool asked;          /* the answer to a ping is still to come */
        uint32_t seq;        /* of the last ping */
        int64_t asked_ns;    /* of CLOCK_MONOTONIC */
        uint32_t bound;      /* largest error of its clock, as it reports; UINT32_MAX: not known */
        int64_t bound_at_ns; /* when; 0: it has reported none */
    } clock;
    char reason[STEPAF_REASON_MAX];  /* why lost, or why not reached */
    char refused[STEPAF_REASON_MAX]; /* better transports than its link's, each with the reason */
    uint64_t bytes_sent;             /* of tensors, handed to the transport for it */
    uint64_t bytes_received;         /* of tensors that have landed, as it has said */
    struct stepaf_histogram
        *times; /* STEPAF_TIMES, by STEPAF_TIME_*; NULL: they are not measured */
    struct stepaf_remote_plan **remotes; /* FFN: by plan number */
    bool oom;                            /* FFN: out of memory for one that it sent in a commit */
    uint32_t n_remotes;                  /* entries of remotes */
    struct stepaf_rmem **rmems;          /* ascending by id */
    uint32_t n_rmems;
    struct stepaf_post ctrl_post; /* for a message without tensors: few of these wait for space */
    struct stepaf_link nowhere;   /* its link, if it cannot be reached, and is lost */
};

/* ---- context ---- */

enum stepaf_ctx_state {
    STEPAF_CTX_OPEN,
    STEPAF_CTX_COMMITTING,
    STEPAF_CTX_BROKEN, /* a commit failed halfway: only finalize is left */
    STEPAF_CTX_LEFT    /* this rank has left the job: likewise */
};

/* Facts of a rank, from init's exchange. */
struct stepaf_rank {
    uint8_t role;
    bool proxies;  /* its stream plans' tensors always go through the host */
    uint32_t rank; /* within its role's group */
    uint32_t pid;
    uint64_t node_id;
};

/* A link's name, kept as long as the context: the link goes when its rank is replaced. */
struct stepaf_kept_name {
    struct stepaf_kept_name *next;
    char name[STEPAF_LINK_NAME];
};

/* The open transports. */
struct stepaf_ctx_net {
    unsigned n_transports;
    struct stepaf_transport *transports[STEPAF_MAX_TRANSPORTS];
    const struct stepaf_transport_ops *only_ops; /* of all links; NULL: they differ */
    struct stepaf_list queued;                   /* peers with queued posts */
    struct stepaf_transport_ops *ops;            /* theirs, complete, by index in the registry */
    struct stepaf_kept_name *names;              /* that callers have received */
    /* Transports that were left out before transports[i], and why. */
    char unopened[STEPAF_MAX_TRANSPORTS + 1][STEPAF_REASON_MAX];
};

/* How the context's threads poll and wait. */
struct stepaf_ctx_polling {
    uint32_t at_once;           /* polls that a waiting thread makes in one call */
    uint64_t came;              /* when a poll last found something, ticks */
    uint64_t vain_since;        /* about when polls began to be in vain, if that is later; ticks */
    uint64_t look_at;           /* the first poll from then on checks whether peers live, ticks */
    uint64_t checked;           /* when the transports last looked for dead peers, ticks */
    struct stepaf_op *hint_op;  /* of a thread that waits: likely the next to complete */
    struct stepaf_watch *watch; /* of operations and polls; NULL: none */
    struct stepaf_metrics *metrics; /* what tools see, updated between polls; NULL: nothing */
    bool oversubscribed;
    bool asleep; /* a thread sleeps until transports wake it: others must not consume the wake-up */
};

/* FFN: batches that have arrived and are not yet handed to the caller. */
struct stepaf_ctx_inbox {
    struct stepaf_list ready; /* batches of all peers in order of arrival */
    uint32_t n_peers;         /* that have a batch ready */
    stepaf_batch_cb_t handler;
    void *handler_arg;
    _Atomic bool dispatching;
    _Atomic(pthread_t) dispatcher;     /* the thread that calls the handler, while dispatching */
    uint32_t n_dispatched;             /* calls that have returned */
    struct stepaf_batch_ahead **ahead; /* by number of the batch: sent before its answer, or NULL */
    uint32_t n_ahead;                  /* entries of ahead */
};

/* Keys and memory that were declared. */
struct stepaf_ctx_memory {
    struct stepaf_key **keys; /* in no order, but see stepaf_keys_sort */
    uint32_t n_keys;
    uint32_t max_keys; /* entries of keys */
    void *key_tree;    /* the same, by id; of tsearch */
    uint32_t n_regions;
    uint32_t max_regions;
    struct stepaf_region **regions;   /* in no order */
    void *region_tree;                /* the same, by address */
    struct stepaf_region_name *by_id; /* ascending; those of dropped regions stay for a while */
    uint32_t n_named, n_dropped;
    uint32_t max_named;
    struct stepaf_region *last;   /* of the last look-up in host memory */
    struct stepaf_region *named;  /* of the last look-up of an id; NULL: none */
    uint32_t next_id;             /* of regions */
    struct stepaf_key *withdrawn; /* since the last commit: peers still know them */
    void *withdrawn_tree;         /* the same, by id */
};

/* Plans that stepaf_push_pull has made. */
struct stepaf_ctx_cache {
    uint32_t at;   /* where the last one was found */
    uint32_t n;    /* plans */
    uint32_t max;  /* entries of plans */
    uint64_t uses; /* look-ups, ever */
    struct stepaf_plan_obj **plans;
};

/* What gpu/ keeps in a context. */
struct stepaf_ctx_gpu {
    struct stepaf_gpu *device;          /* NULL: none was needed yet */
    void *bounce_stream;                /* the device's, for copies to bounce buffers; NULL: none */
    struct stepaf_bounce_in *bounce_in; /* and from there; NULL: none yet */
    struct stepaf_gpu_clock *clock;     /* the device's, for timestamps; NULL: none are taken */
    struct stepaf_streams *streams;     /* of the last commit; NULL: there was no stream plan yet */
    struct stepaf_list proxies;         /* stream plans with proxied peers, see gpu/proxy.h */
    bool proxies_still;                 /* a commit is about to end them */
    bool asks;                          /* in its advert: who can write to the GPU's memory? */
    bool answered;
    uint8_t *unreached;  /* by peer: 1: it cannot; NULL: no peer was asked */
    uint32_t n_requests; /* open ones, of stream plans */
    uint32_t n_arriving; /* batches and answers */
};

/* What this rank wants of a commit. */
struct stepaf_commit_will {
    bool leaves_lost; /* to continue without lost ranks */
    bool admits;      /* and to admit processes in their places */
    bool leaves;      /* the commit is this rank's last */
};

/* Who is in the epoch; see core/members.h. */
struct stepaf_ctx_members {
    struct stepaf_member_net *net; /* NULL: members have nothing but the bootstrap */
    char mute[STEPAF_MUTE_MAX];    /* why not */
    uint8_t *is;                   /* by world rank: a member */
    uint8_t *present;              /* by world rank: its words were in the last exchange */
    uint8_t *can_return; /* by world rank: lost, and this rank can take a process in its place */
    bool takes_back;     /* this commit's advert says that this rank can take back ranks that are no
                          * peers */
    uint8_t *returned;   /* by world rank: a process has taken its place in the last commit */
    bool is_on_trial;    /* so has this process: until its links are up it reports no losses */
    int64_t patience_ns; /* until when members wait for it; 0: as long as for others */
    struct stepaf_commit_will will; /* in a commit */
    bool has_cards;                 /* the cards for such processes are there */
    bool is_guest;                  /* this process is a guest */
    bool has_changed; /* ranks have left or returned: the bootstrap does not know all members */
    uint32_t n_lost_known; /* and guests: that file descriptor and callback have reported */
    uint64_t n_changes;    /* of the list, and of who is lost */
    int event_fd;          /* -1: it was never asked for */
    stepaf_members_cb_t callback;
    void *callback_arg;
    _Atomic bool is_news; /* for the callback */
};

/* The job, as init found it. */
struct stepaf_ctx_job {
    struct stepaf_ctx_members members;
    struct stepaf_mesh mesh;
    stepaf_boot_t boot;
    struct stepaf_boot_room room;
    int n_started; /* ranks that the bootstrap knows: the others join later */
    struct stepaf_topo topo;
    struct stepaf_map_devices *devices; /* for the map; NULL: not looked for */
    struct stepaf_rank *ranks;          /* of the world */
    int *groups[3];                     /* world ranks of each group's members */
    int group_size[3];
    int rank[3]; /* of this rank in each group; -1: not a member */
};

/* A line that any thread may read without the lock, see stepaf_clock_now. */
struct stepaf_clock_told {
    _Atomic uint32_t version; /* odd: it is being changed */
    _Atomic int64_t at_ns, offset_ns, slew_ns, slew_over_ns;
    _Atomic double rate;
};

/* The common clock, see clock.c and clock_keep.h. */
struct stepaf_ctx_clock {
    struct stepaf_clock own;
    uint64_t ns_scale; /* ns a tick, times 2^STEPAF_NS_SCALE_BITS */
    /* Ticks: an answer to an operation that took as long or longer has its times at any cost. 0
     * while times are measured, see metrics.h. */
    uint64_t told_from;
    struct stepaf_clock_history history;
    struct stepaf_clock_line line; /* to be added to this node's clock for the common one */
    struct stepaf_clock_told told; /* the same */
    struct stepaf_clock_filter filter;
    int server;        /* index of the peer whose clock is followed; -1: this rank's own is right */
    int reference;     /* world rank of the lane's reference */
    uint32_t n_probes; /* its answers */
    uint32_t turn;     /* the last peer that was probed for its bound */
    uint64_t probed;   /* ticks */
    uint64_t probed_first; /* the same, of the faster probes at the beginning */
    bool probes;           /* this rank must send probes */
    bool greets;           /* the next probes go to all peers */
    bool one_node;         /* all ranks are on one node: they share its clock */
    bool is_zero;          /* the clock of the reference's node is the common one, with no offset */
    bool is_nodes;         /* and that is this rank's node */
    bool known;
};

enum stepaf_thread_state {
    STEPAF_THREAD_GOES,
    STEPAF_THREAD_STOPS, /* it has been asked to */
    STEPAF_THREAD_OVER   /* it is about to end */
};

/* The threads that call, and the library's own. */
struct stepaf_ctx_threads {
    bool many;            /* several threads may call */
    uint64_t busy;        /* ticks of the progress thread's polls that were not in vain */
    bool progress_wanted; /* a progress thread is asked for */
    bool runs;
    _Atomic uint8_t state; /* of the progress thread: stepaf_thread_state */
    _Atomic bool closing;  /* a thread finalizes: calls of others return as soon as they can */
    pthread_t progress;
};

struct stepaf_ctx {
    struct stepaf_upcalls up; /* first: transports hand it back */
    struct stepaf_lock lock;
    struct {
        uint32_t slot; /* in the process's table of contexts */
        uint32_t generation;
    } handle;
    uint8_t state; /* stepaf_ctx_state */
    stepaf_role_t role;
    uint32_t epoch; /* the last that was entered, though its commit may have failed */
    struct {
        uint32_t n;              /* entered, successful or not */
        _Atomic uint32_t n_done; /* successful; read without the lock */
        bool changed;            /* something was declared since the last one */
        bool has_entered;   /* peers have been notified: no thread starts anything before its end */
        bool exclusive;     /* a commit is past its step 1: it waits with the lock */
        bool is_refused;    /* some peer has said that its commit failed */
        uint32_t hears;     /* epoch of the operations that are accepted, as messages say it */
        uint32_t hears_imm; /* the same, as 32 bits say it; see stepaf_core_hear */
    } commit;
    uint32_t n_peers;
    uint32_t n_alive;          /* peers not lost */
    struct stepaf_peer *peers; /* ascending by rank */
    uint32_t n_polled;         /* things that the feature must handle in each poll */
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
    stepaf_counters_t counters; /* except bytes: those are kept by peer */
    struct stepaf_trace trace;
    struct stepaf_env env;
    struct stepaf_ctx_job job;
    struct stepaf_ctx_threads threads;
};

static inline bool stepaf_is_attention(const struct stepaf_ctx *ctx)
{
    return ctx->role == STEPAF_ATTENTION;
}

/* "FFN rank 3 (world rank 7)": names a peer in sentences. */
#define STEPAF_WHO_FORMAT "%s rank %d (world rank %d)"
#define STEPAF_WHO_ARGS(who_) \
    (who_).role == STEPAF_FFN ? "FFN" : "attention", (who_).rank, (who_).world_rank

static inline struct stepaf_who stepaf_who_is(const struct stepaf_ctx *ctx, int world_rank)
{
    const struct stepaf_rank *its = &ctx->job.ranks[world_rank];

    return (struct stepaf_who){its->role, (int)its->rank, world_rank};
}

void stepaf_ctx_free(struct stepaf_ctx *ctx);

/* The stamp of what is being taken in. A waiting thread has just read the clock, between two polls,
 * where that cost nothing. That reading is used, at most one poll early, so that the path from a
 * message's arrival to the caller need not read the clock again. A poll that takes microseconds
 * sets it again. */
static inline uint64_t stepaf_arrival_ticks(struct stepaf_ctx *ctx)
{
    if (__builtin_expect(!ctx->up.polled, 0))
        ctx->up.polled = stepaf_ticks();
    return ctx->up.polled;
}

#endif
