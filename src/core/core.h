/* SPDX-License-Identifier: Apache-2.0 */
/* The core's objects.
 *
 *   ctx      one per stepaf_context_h: role, groups, peers, keys, regions, plans
 *   peer     a rank of the other role in this one's mesh, reached by one link
 *   plan     attention side: a compiled push_pull, with one op per slot
 *   op       one operation in flight; what a stepaf_request_h names
 *   remote plan   FFN side: what an attention rank has told of one of its plans, a batch per slot
 *   batch    one operation as it arrived; what a stepaf_batch_h names
 *
 * Two facts end an operation at a peer: its answer (RESPONSE) and the return of the receive
 * buffers (RELEASE). A slot is free again when both have come from every peer. Each is counted,
 * none is inferred. */
#ifndef STEPAF_CORE_CORE_H
#define STEPAF_CORE_CORE_H

#include <pthread.h>
#include <stdatomic.h>

#include <stepaf/stepaf.h>

#include "base/error.h"
#include "base/time.h"
#include "core/feature.h"
#include "core/flight.h"
#include "core/key.h"
#include "core/lock.h"
#include "core/mesh.h"
#include "core/region.h"
#include "core/table.h"
#include "core/trace.h"
#include "core/wait.h"
#include "transport/transport.h"

enum {
    STEPAF_MAX_PLANS = 65535,
    STEPAF_MAX_KEYS = 65536,
    STEPAF_NS_SCALE_BITS = 24,
    STEPAF_SMALL_BYTES = 4096 /* of all push tensors to all peers */
};

struct stepaf_ctx;
struct stepaf_streams;

struct stepaf_peer {
    struct stepaf_ctx *ctx;
    struct stepaf_link *link;
    struct stepaf_list queue;      /* posts that found no room */
    struct stepaf_list queue_node; /* in ctx->net.queued while there are any */
    struct stepaf_list ready;      /* FFN: batches not yet given to the caller */
    struct stepaf_who who;
    uint32_t index; /* in ctx->peers; its rank is another number where there are lanes */
    bool lost;
    uint32_t ready_epoch;            /* of its last READY */
    uint32_t quiesced;               /* number of the last commit that it has entered */
    stepaf_status_t ready_status;    /* and what it said */
    bool synced;                     /* needs no more pings */
    char reason[STEPAF_REASON_MAX];  /* why lost, or why not reached */
    char refused[STEPAF_REASON_MAX]; /* better transports than its link's, each with the reason */
    uint64_t bytes_sent;             /* of tensors, handed to the transport for it */
    uint64_t bytes_received;         /* of tensors, that it has said have landed */
    struct stepaf_remote_plan **remotes; /* FFN: by plan number */
    bool oom; /* FFN: there was no memory for one that it told in a commit */
    uint32_t n_remotes;
    struct stepaf_rmem **rmems; /* ascending by id */
    uint32_t n_rmems;
    struct stepaf_post ctrl_post; /* for a message without tensors: of those, few wait for room */
};

/* ---- context ---- */

enum stepaf_ctx_state {
    STEPAF_CTX_OPEN,
    STEPAF_CTX_COMMITTING,
    STEPAF_CTX_BROKEN /* a commit failed halfway: only finalize is left */
};

/* Facts of a rank, from init's exchange. */
struct stepaf_rank {
    uint8_t role;
    bool proxies;  /* its stream plans' tensors go by way of the host in any case */
    uint32_t rank; /* within its role's group */
    uint32_t pid;
    uint64_t node_id;
};

/* What carries data: the open transports. */
struct stepaf_ctx_net {
    unsigned n_transports;
    struct stepaf_transport *transports[STEPAF_MAX_TRANSPORTS];
    const struct stepaf_transport_ops *only_ops; /* of all links; NULL: they differ */
    struct stepaf_list queued;                   /* peers with queued posts */
    struct stepaf_transport_ops *ops;            /* theirs, complete, by index in the registry */
    /* What was left out before transports[i], and why. */
    char unopened[STEPAF_MAX_TRANSPORTS + 1][STEPAF_REASON_MAX];
};

/* How its threads poll and wait. */
struct stepaf_ctx_polling {
    uint32_t polls;      /* ever */
    uint32_t at_once;    /* that a waiting thread makes in one go */
    uint64_t vain_since; /* about when polls began to be in vain, ticks; 0: the last was not */
    uint64_t checked;    /* when the transports last looked for dead peers, ticks */
    struct stepaf_op *hint_op; /* of a thread that waits: it is likely what comes next */
    bool oversubscribed;
    bool asleep; /* a thread sleeps until transports wake it: another one may not take what does */
};

/* FFN: what has come and is not yet given to the caller. */
struct stepaf_ctx_inbox {
    struct stepaf_list ready; /* batches of all peers in order of arrival */
    uint32_t n_peers;         /* that have a batch ready */
    stepaf_batch_cb_t handler;
    void *handler_arg;
    bool dispatching;
    pthread_t dispatcher;  /* who calls the handler, while dispatching */
    uint32_t n_dispatched; /* calls that have returned */
};

/* Keys and memory that were declared. */
struct stepaf_ctx_memory {
    struct stepaf_key **keys; /* ascending by id */
    uint32_t n_keys;
    uint32_t n_regions;
    struct stepaf_region **regions; /* ascending by address */
    struct stepaf_region **by_id;   /* the same, ascending by id */
    struct stepaf_region *last;     /* of the last look-up in host memory */
    uint32_t next_id;               /* of regions */
    struct stepaf_key *withdrawn;   /* since the last commit: peers know them still */
};

/* Plans that stepaf_push_pull has made. */
struct stepaf_ctx_cache {
    uint32_t at;   /* where the last one was found */
    uint32_t n;    /* plans */
    uint64_t uses; /* look-ups, ever */
};

/* What gpu/ keeps in a context. */
struct stepaf_ctx_gpu {
    struct stepaf_gpu *device;      /* NULL: none was needed yet */
    void *bounce_stream;            /* the device's, for copies to bounce buffers; NULL: none */
    struct stepaf_streams *streams; /* of the last commit; NULL: there was no stream plan yet */
    struct stepaf_list proxies; /* stream plans that have peers through the host, see gpu/proxy.h */
    bool proxies_still;         /* a commit is about to end them */
    uint32_t n_requests;        /* open ones, of stream plans */
};

/* The job, as init has found it. */
struct stepaf_ctx_job {
    struct stepaf_mesh mesh;
    stepaf_boot_t boot;
    struct stepaf_topo topo;
    struct stepaf_map_devices *devices; /* for the map; NULL: not looked for */
    struct stepaf_rank *ranks;          /* of the world */
    int *groups[3];                     /* world ranks of each group's members */
    int group_size[3];
    int rank[3]; /* of this rank in each group; -1: not a member */
};

/* The common clock of traces, see clock.c. */
struct stepaf_ctx_clock {
    struct stepaf_clock own;
    uint64_t ns_scale;      /* ns a tick, times 2^STEPAF_NS_SCALE_BITS */
    int64_t offset_ns;      /* what to add to this node's clock for the common one */
    int64_t pong_offset_ns; /* best of the last pings */
    uint64_t pong_best;     /* its round trip, ticks */
    uint32_t pong_seq;
    bool one_node; /* all ranks are on one: they share its clock */
    bool known;
};

/* The threads that call, and the library's own. */
struct stepaf_ctx_threads {
    bool many;            /* several threads may call */
    bool progress_wanted; /* one of the library's own is asked for */
    bool runs;
    _Atomic bool stop;
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
    uint32_t epoch;
    struct {
        uint32_t n;     /* entered, successful or not */
        bool changed;   /* something was declared since the last one */
        bool exclusive; /* one has found what it goes by: it waits with the lock */
    } commit;
    uint32_t n_peers;
    uint32_t n_alive;          /* peers not lost */
    struct stepaf_peer *peers; /* ascending by rank */
    uint32_t n_polled;         /* things that the feature has to look after in each poll */
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
    stepaf_counters_t counters; /* but for bytes: those are kept by peer */
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

/* ctx.c */
/* The counters with those that peers and transports keep. */
stepaf_counters_t stepaf_core_counters(const struct stepaf_ctx *ctx);
void stepaf_ctx_free(struct stepaf_ctx *ctx);

/* The stamp of what is being taken in. A waiting thread has just read the clock, between two polls,
 * where it cost nothing: that is taken, at most one poll early, so that the way from a message's
 * arrival to the caller need not read it again. */
static inline uint64_t stepaf_arrival_ticks(struct stepaf_ctx *ctx)
{
    if (__builtin_expect(!ctx->up.polled, 0))
        ctx->up.polled = stepaf_ticks();
    return ctx->up.polled;
}

/* progress.c: advance everything; return how much happened. The lock is held. Looks up to @a polls
 * times, _many: where there is more than one transport to look at. */
enum { STEPAF_POLLS_MASK = 255 }; /* so often the clock is looked at */
unsigned stepaf_core_progress_many(struct stepaf_ctx *ctx, unsigned polls);
/* wait.c: look for dead peers, if it is time to. */
void stepaf_core_check_liveness(struct stepaf_ctx *ctx) __attribute__((cold));
static inline unsigned stepaf_core_progress_polls(struct stepaf_ctx *ctx, unsigned polls)
{
    struct stepaf_transport *transport = ctx->net.transports[0];
    unsigned n;

    if (__builtin_expect(
            ctx->net.n_transports == 1 && stepaf_list_empty(&ctx->net.queued) && !ctx->n_polled, 1))
        n = transport->ops->progress(transport, polls);
    else
        n = stepaf_core_progress_many(ctx, polls);
    if (n)
        ctx->polling.vain_since = 0;
    if (__builtin_expect((++ctx->polling.polls & STEPAF_POLLS_MASK) == 0, 0))
        stepaf_core_check_liveness(ctx);
    ctx->up.polled = 0;
    return n;
}
/* Once. */
static inline unsigned stepaf_core_progress(struct stepaf_ctx *ctx)
{
    return stepaf_core_progress_polls(ctx, 1);
}
/* The same for a thread that has nothing else to do: look for a few microseconds, if this context
 * and its core are this thread's alone. */
static inline unsigned stepaf_core_progress_waiting(struct stepaf_ctx *ctx)
{
    return stepaf_core_progress_polls(ctx, ctx->polling.at_once);
}
/* The same for set-up, which may idle. False when @a deadline_ns has passed. */
bool stepaf_core_advance(struct stepaf_ctx *ctx, struct stepaf_waiter *waiter, int64_t deadline_ns);
/* Send what is queued, as far as peers take it in time. */
void stepaf_core_flush(struct stepaf_ctx *ctx, int64_t timeout_us);
/* Call the handler for what is ready; the lock is not held. */
void stepaf_core_dispatch(struct stepaf_ctx *ctx);
/* Whether another thread does. */
bool stepaf_core_is_dispatching(const struct stepaf_ctx *ctx);
/* Send posts, or queue what transports have no room for; _mixed: of several transports, or behind
 * others that wait already. _keep: queue those of @a posts that a transport has left QUEUED. */
void stepaf_core_post_mixed(struct stepaf_ctx *ctx, struct stepaf_post *const *posts, unsigned n);
void stepaf_core_keep(struct stepaf_ctx *ctx, struct stepaf_post *const *posts, unsigned n);
static inline void stepaf_core_post(struct stepaf_ctx *ctx, struct stepaf_post *const *posts,
                                    unsigned n)
{
    if (__builtin_expect(!ctx->net.only_ops || !stepaf_list_empty(&ctx->net.queued), 0))
        stepaf_core_post_mixed(ctx, posts, n);
    else if (__builtin_expect(ctx->net.only_ops->post(posts, n) > 0, 0))
        stepaf_core_keep(ctx, posts, n);
}
static inline void stepaf_core_post_one(struct stepaf_ctx *ctx, struct stepaf_post *post)
{
    stepaf_core_post(ctx, &post, 1);
}
/* Send a message without tensors (not on the hot path). False: it would have to wait for room behind
 * another one, and there is no memory for that. */
bool stepaf_core_send(struct stepaf_peer *peer, const struct stepaf_msg *msg);
/* The same, if there is a link that is not lost; a peer that cannot be told is given up. */
void stepaf_core_tell(struct stepaf_peer *peer, const struct stepaf_msg *msg);
/* Whether @a post is on its way: it and its sources are in use. */
static inline bool stepaf_post_in_flight(const struct stepaf_post *post)
{
    return post->state == STEPAF_POST_QUEUED || post->state == STEPAF_POST_POSTED;
}
/* The peer has told that all of @a post is there, or the post goes: its sources are free, even if the
 * transport does not know yet. */
static inline void stepaf_post_complete(struct stepaf_post *post)
{
    if (__builtin_expect(post->state != STEPAF_POST_POSTED, 1))
        return;
    post->link->ops->retire(post);
    post->state = STEPAF_POST_SENT;
}
/* Start and stop the progress thread. */
stepaf_status_t stepaf_core_thread_start(struct stepaf_ctx *ctx);
void stepaf_core_thread_stop(struct stepaf_ctx *ctx);

/* deliver.c: what transports call */
void stepaf_core_deliver(struct stepaf_upcalls *up, struct stepaf_link *link,
                         const struct stepaf_msg *msg);
void stepaf_core_lost(struct stepaf_upcalls *up, struct stepaf_link *link, const char *reason);
/* The same by this rank's own decision: the peer may be there, and writing. */
void stepaf_peer_fail(struct stepaf_peer *peer, const char *reason);
/* imm.c */
bool stepaf_imm_decode(struct stepaf_upcalls *up, struct stepaf_link *link, uint32_t imm,
                       struct stepaf_msg *msg_p);
/* op.c */
void stepaf_core_deliver_imm(struct stepaf_upcalls *up, struct stepaf_link *link, uint32_t imm);

static inline bool stepaf_region_is_linked(const struct stepaf_ctx *ctx,
                                           const struct stepaf_region *region)
{
    return region->mem.kind == STEPAF_MEM_HOST || (region->linked && region->linked <= ctx->epoch);
}

/* Whether links of a transport carry a region of GPU memory as it is. */
static inline bool stepaf_is_taken(const struct stepaf_transport *transport,
                                   const struct stepaf_region *region)
{
    return region->mem.registration[transport->index];
}

/* What links of a transport use in the place of @a region. */
static inline const struct stepaf_mem *stepaf_reach(const struct stepaf_transport *transport,
                                                    const struct stepaf_region *region)
{
    if (__builtin_expect(region->mem.kind == STEPAF_MEM_HOST, 1) ||
        stepaf_is_taken(transport, region))
        return &region->mem;
    return &region->bounce->mem;
}

/* Set where a write of @a link comes from. @a region: NULL if nothing is written. */
static inline void stepaf_xfer_from(struct stepaf_xfer *xfer, const struct stepaf_link *link,
                                    const struct stepaf_region *region, const void *data)
{
    xfer->src = data;
    xfer->src_mem = region ? &region->mem : NULL;
    if (__builtin_expect(!region || region->mem.kind == STEPAF_MEM_HOST, 1))
        return;
    xfer->src_mem = stepaf_reach(link->transport, region);
    xfer->src = xfer->src_mem->base + ((const uint8_t *)data - region->mem.base);
}

/* attention side: plan.c, start.c, op.c */
enum { STEPAF_PLAN_PROXY = 1 << 16 }; /* a flag of plans that the caller does not know of */
static inline bool stepaf_plan_leaves_out(const struct stepaf_plan_obj *plan, uint32_t p)
{
    return plan->proxied.left_out && plan->proxied.left_out[p];
}
void stepaf_plan_free(struct stepaf_plan_obj *plan);
stepaf_status_t stepaf_plan_make(struct stepaf_ctx *ctx, const stepaf_tensor_t *push, int n_push,
                                 const stepaf_tensor_t *pull, int n_pull, uint32_t flags,
                                 struct stepaf_plan_obj **plan_p);
/* Tell all peers of a plan whose keys and memory they know. */
stepaf_status_t stepaf_plan_announce(struct stepaf_plan_obj *plan);
/* Tell them of all such plans, in the order of making: stream plans of proxied peers take what comes in
 * its order. */
stepaf_status_t stepaf_plans_announce(struct stepaf_ctx *ctx);
/* How many plans were made before: numbers are given out again. */
static inline uint32_t stepaf_plan_age(const struct stepaf_plan_obj *plan)
{
    return plan->generation - plan->ctx->tables.plans.not_ours;
}
/* Tell the first @a n of them that it ends. */
void stepaf_plan_announce_end(const struct stepaf_plan_obj *plan, uint32_t n);
bool stepaf_plan_ready(const struct stepaf_plan_obj *plan);
/* Whether a stream plan of this rank names the key: then links must not touch its places. */
bool stepaf_key_on_streams(const struct stepaf_ctx *ctx, const struct stepaf_key *key);
bool stepaf_plan_names(const struct stepaf_plan_obj *plan, const struct stepaf_key *key);
/* Whether a part of @a op is not over, or its posts are still on their way. */
bool stepaf_op_busy(const struct stepaf_op *op);
/* Whether nothing of a plan is in flight; STEPAF_ERR_STATE: something is. Then it can end. */
stepaf_status_t stepaf_plan_idle(const struct stepaf_plan_obj *plan);
stepaf_status_t stepaf_plan_end(struct stepaf_plan_obj *plan);
/* End what stepaf_push_pull has made and nobody needs: all that use @a region, if nothing else does;
 * the one that was used longest ago. */
enum { STEPAF_MAX_CACHED = 1024 };
void stepaf_plans_uncache(struct stepaf_ctx *ctx, const struct stepaf_region *region);
void stepaf_plans_uncache_oldest(struct stepaf_ctx *ctx);
/* The first peer that has not released one of the plan's slots; NULL: all have. */
const struct stepaf_peer *stepaf_plan_holder(const struct stepaf_plan_obj *plan);
stepaf_status_t stepaf_plan_start(struct stepaf_plan_obj *plan, const stepaf_start_params_t *params,
                                  stepaf_request_h *request_p);
static inline stepaf_request_h stepaf_op_handle(const struct stepaf_op *op)
{
    return stepaf_handle_of(op->name, op->generation);
}
/* start_check.c: everything that could refuse a start, or have it wait; whether it leaves peer @a p out. */
stepaf_status_t stepaf_start_check(struct stepaf_plan_obj *plan,
                                   const stepaf_start_params_t *params);
bool stepaf_start_skips(const struct stepaf_plan_obj *plan, const stepaf_start_params_t *params,
                        uint32_t p);
/* Free what transports have put together for an operation's posts. */
void stepaf_op_drop_templates(struct stepaf_op *op);
/* Fill the posts of an operation as planned: set-up, and after a start with other tensors. */
void stepaf_op_compile(struct stepaf_op *op);
/* Whether the plan's next slot is free. */
bool stepaf_plan_slot_free(const struct stepaf_plan_obj *plan);
void stepaf_op_response(struct stepaf_peer *peer, const struct stepaf_msg *msg);
void stepaf_op_release(struct stepaf_peer *peer, const struct stepaf_msg *msg);
void stepaf_op_peer_lost(struct stepaf_peer *peer);
/* All parts of an operation on a stream are over. @a peer: index of who has failed, or -1. */
void stepaf_op_end(struct stepaf_op *op, stepaf_status_t status, int peer);
stepaf_status_t stepaf_op_cancel(struct stepaf_op *op);
/* The operation's result as a status with its detail set. */
stepaf_status_t stepaf_op_result(struct stepaf_op *op);

/* FFN side: remote_plan.c, batch.c */
void stepaf_remote_plan_open(struct stepaf_peer *peer, const struct stepaf_msg *msg);
void stepaf_remote_plan_tensor(struct stepaf_peer *peer, const struct stepaf_msg *msg);
void stepaf_remote_plan_close(struct stepaf_peer *peer, const struct stepaf_msg *msg);
void stepaf_remote_plans_free(struct stepaf_peer *peer);
/* Whether @a batch is not released, or what says so has not left. What is POSTED is the transport's
 * affair: the peer may have it already. */
bool stepaf_batch_busy(const struct stepaf_batch_obj *batch);
void stepaf_batch_start(struct stepaf_peer *peer, const struct stepaf_msg *msg);
void stepaf_batch_cancel(struct stepaf_peer *peer, const struct stepaf_msg *msg);
/* An FFN rank keeps the batches that have come; of answers nobody hears any more. */
void stepaf_batches_peer_lost(struct stepaf_peer *peer);
/* Take the next batch of any peer, or of @a peer; NULL: none. @a now: a stamp from the end of the
 * last vain poll or later; what arrived after it counts as taken at once. */
struct stepaf_batch_obj *stepaf_batch_take(struct stepaf_ctx *ctx, struct stepaf_peer *peer,
                                           uint64_t now);
stepaf_status_t stepaf_batch_respond(struct stepaf_batch_obj *batch, const stepaf_tensor_t *tensors,
                                     int n, uint32_t flags);
void stepaf_batch_finish(struct stepaf_batch_obj *batch);

/* init.c, commit.c, connect.c, clock.c: set-up with others, who are told of @a own, a failure */
stepaf_status_t stepaf_ctx_init(const stepaf_boot_t *boot, const stepaf_params_t *params,
                                const struct stepaf_feature_ops *feature, stepaf_status_t own,
                                struct stepaf_ctx **ctx_p);
stepaf_status_t stepaf_core_commit(struct stepaf_ctx *ctx);
stepaf_status_t stepaf_clock_sync(struct stepaf_ctx *ctx, int64_t deadline_ns);
void stepaf_clock_ping(struct stepaf_peer *peer, const struct stepaf_msg *msg);
void stepaf_clock_pong(struct stepaf_peer *peer, const struct stepaf_msg *msg);

#endif
