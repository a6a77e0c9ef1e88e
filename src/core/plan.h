/* SPDX-License-Identifier: Apache-2.0 */
/* Plans: an attention rank's operations are compiled from them. */
#ifndef STEPAF_CORE_PLAN_H
#define STEPAF_CORE_PLAN_H

#include <stepaf/stepaf.h>

#include "core/ctx.h"
#include "core/key.h"
#include "core/op.h"
#include "core/watch.h"

struct stepaf_proxy;
struct stepaf_region;
struct stepaf_stream;

enum {
    STEPAF_MAX_PLANS = 65535,
    STEPAF_SMALL_BYTES = 4096 /* of all push tensors to all peers */
};

struct stepaf_push {
    struct stepaf_key *key;
    void *data;
    struct stepaf_region *region;
    uint32_t bytes;
};

struct stepaf_pull {
    struct stepaf_key *key;
    uint8_t *data; /* of slot 0 */
    struct stepaf_region *region;
    uint32_t bytes;
};

/* What the trace records of a start as planned: START, if it has a stamp of its own, then the
 * tensors. The last one also says NOTIFIED. */
struct stepaf_plan_stamps {
    bool is_small; /* posting takes little longer than a stamp: START has that of NOTIFIED */
    uint32_t n;
    struct {
        uint32_t bytes;
        uint64_t word; /* stepaf_trace_word */
    } at[STEPAF_MAX_TENSORS + 1];
};

/* Of a plan that transfers a stream plan's tensors to peers through the host. */
struct stepaf_plan_proxied {
    bool is;
    bool *left_out;             /* peers that it is not for; NULL: none */
    struct stepaf_proxy *proxy; /* that it belongs to; NULL: released */
    const uint32_t *ahead; /* peer by peer, n_push: bytes that have gone ahead of the next START,
                                 * if that is started with tensors; NULL: none ever do */
};

struct stepaf_plan_obj {
    struct stepaf_ctx *ctx;
    uint32_t index; /* in ctx->tables.plans: the plan's number */
    struct {
        uint32_t name; /* half of it */
        uint32_t generation;
    } handle;
    uint32_t seq; /* of the next operation */
    uint8_t depth;
    uint8_t n_push;
    uint8_t n_pull; /* per peer */
    bool scatter;
    bool on_streams;    /* then stream describes it */
    bool keeps_sources; /* on streams: sources do not change before the operation is over */
    bool on_gpu;        /* not on streams, and some tensor is, or has been, in GPU memory */
    struct {
        bool is;       /* made by stepaf_push_pull */
        uint32_t at;   /* in ctx->cache.plans */
        uint64_t used; /* last: ctx->cache.uses */
    } cached;
    uint32_t usable;     /* epoch in which it was announced to peers, 0: not yet */
    uint32_t imm;        /* of a START as planned, without the sequence */
    uint32_t n_waiting;  /* threads that wait for a slot */
    uint64_t push_bytes; /* to each peer, as planned */
    struct stepaf_push push[STEPAF_MAX_TENSORS];
    struct stepaf_plan_stamps stamps;
    struct stepaf_pull *pull; /* n_peers * n_pull, peer by peer */
    struct stepaf_op *ops;    /* depth */
    struct stepaf_op *next;   /* of these, the one to start next */
    struct {                  /* of starts that are not for all peers, or do not wait for all */
        uint32_t
            n_odd; /* why the next one is none of the usual: peers that the last one was not for,
                         * parts that are owed, and n_answers */
        bool *skipped;              /* peers that the last operation was not for */
        struct stepaf_post **posts; /* scratch */
        uint32_t n_answers;         /* that complete an operation, unless its start says; 0: all */
        int64_t patience_us;        /* how long it waits for the others nevertheless */
        uint32_t n_owed;            /* parts that late peers owe, see core/late.h */
    } partial;
    struct stepaf_watch_plan watched;
    struct stepaf_stream *stream; /* made with STEPAF_PLAN_STREAM; else NULL */
    struct stepaf_plan_proxied proxied;
};

enum { STEPAF_PLAN_PROXY = 1 << 16 }; /* a flag of plans that the caller does not know of */
static inline bool stepaf_plan_leaves_out(const struct stepaf_plan_obj *plan, uint32_t p)
{
    return plan->proxied.left_out && plan->proxied.left_out[p];
}
/* Where a slot of a tensor goes at peer @a p, in the peer's region. */
static inline uint64_t stepaf_push_offset(const struct stepaf_push *push, uint32_t p, uint32_t slot)
{
    return push->key->remote[p].offset + (uint64_t)slot * push->key->max_bytes;
}
void stepaf_plan_free(struct stepaf_plan_obj *plan);
stepaf_status_t stepaf_plan_make(struct stepaf_ctx *ctx, const stepaf_tensor_t *push, int n_push,
                                 const stepaf_tensor_t *pull, int n_pull, uint32_t flags,
                                 struct stepaf_plan_obj **plan_p);
/* How many plans were made before: numbers are reused. */
static inline uint32_t stepaf_plan_age(const struct stepaf_plan_obj *plan)
{
    return plan->handle.generation - plan->ctx->tables.plans.not_ours;
}
/* Whether a stream plan of this rank names the key: then links must not touch its buffers. */
static inline bool stepaf_key_on_streams(const struct stepaf_key *key)
{
    return key->stream_uses > 0;
}
/* How many tensors of the plan belong to the key. */
unsigned stepaf_plan_names(const struct stepaf_plan_obj *plan, const struct stepaf_key *key);
/* Let stepaf_push_pull find the plan, until it is freed. */
stepaf_status_t stepaf_plan_cache(struct stepaf_plan_obj *plan);
/* Whether a part of @a op is not over, or its posts are still in flight. */
bool stepaf_op_busy(const struct stepaf_op *op);
/* The first peer that has not released one of the plan's slots; NULL: all have. */
const struct stepaf_peer *stepaf_plan_holder(const struct stepaf_plan_obj *plan);

#endif
