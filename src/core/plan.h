/* SPDX-License-Identifier: Apache-2.0 */
/* Plans: the compiled form from which an attention rank's operations are started. */
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
    STEPAF_SMALL_BYTES = 4096 /* bytes of all push tensors to all peers */
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

/* Trace records of a start as planned: START, if it has a stamp of its own, then the tensors. The
 * last record also stands for NOTIFIED. */
struct stepaf_plan_stamps {
    /* posting takes little longer than a stamp: START shares the stamp of NOTIFIED */
    bool is_small;
    uint32_t n;
    struct {
        uint32_t bytes;
        uint64_t word; /* stepaf_trace_word */
    } at[STEPAF_MAX_TENSORS + 1];
};

/* State of a plan that carries a stream plan's tensors to peers through the host. */
struct stepaf_plan_proxied {
    bool is;
    bool *left_out;             /* peers not served by the plan; NULL: none */
    struct stepaf_proxy *proxy; /* the owning proxy; NULL: it has released the plan */
    /* n_push per peer: bytes sent ahead of the next START, if that is given tensors; NULL: never */
    const uint32_t *ahead;
};

struct stepaf_plan_obj {
    struct stepaf_ctx *ctx;
    uint32_t index; /* in ctx->tables.plans: the plan's number */
    struct {
        uint32_t name; /* the handle's half that holds the index */
        uint32_t generation;
    } handle;
    uint32_t seq; /* of the next operation */
    uint8_t depth;
    uint8_t n_push;
    uint8_t n_pull; /* per peer */
    bool scatter;
    bool on_streams;    /* stream is set */
    bool keeps_sources; /* on streams: sources stay unchanged until the operation is over */
    bool on_gpu;        /* not on streams, and some tensor is or was in GPU memory */
    struct {
        bool is;       /* made by stepaf_push_pull */
        uint32_t at;   /* in ctx->cache.plans */
        uint64_t used; /* ctx->cache.uses at the last use */
    } cached;
    uint32_t usable;     /* epoch in which it was announced to peers; 0: not yet */
    uint32_t imm;        /* START as planned in 32 bits, without the sequence */
    uint32_t n_waiting;  /* threads that wait for a slot */
    uint64_t push_bytes; /* to each peer, as planned */
    struct stepaf_push push[STEPAF_MAX_TENSORS];
    struct stepaf_plan_stamps stamps;
    struct stepaf_pull *pull; /* n_peers * n_pull, peer by peer */
    struct stepaf_op *ops;    /* depth */
    struct stepaf_op *next;   /* the op to start next */
    struct { /* starts that are not for all peers, or do not wait for all answers */
        uint32_t
            n_odd;     /* reasons against the fast path: skipped peers, owed parts, and n_answers */
        bool *skipped; /* peers that the last operation skipped */
        struct stepaf_post **posts; /* scratch */
        /* answers that complete an operation, unless its start says otherwise; 0: all */
        uint32_t n_answers;
        int64_t patience_us; /* how long an operation waits for the other answers */
        uint32_t n_owed;     /* parts owed by late peers, see core/late.h */
    } partial;
    struct stepaf_watch_plan watched;
    struct stepaf_stream *stream; /* made with STEPAF_PLAN_STREAM: stream state; else NULL */
    struct stepaf_plan_proxied proxied;
};

enum { STEPAF_PLAN_PROXY = 1 << 16 }; /* internal flag, not available to callers */
static inline bool stepaf_plan_leaves_out(const struct stepaf_plan_obj *plan, uint32_t p)
{
    return plan->proxied.left_out && plan->proxied.left_out[p];
}
/* Return where a tensor goes at peer @a p for a slot, as an offset in the peer's region. */
static inline uint64_t stepaf_push_offset(const struct stepaf_push *push, uint32_t p, uint32_t slot)
{
    return push->key->remote[p].offset + (uint64_t)slot * push->key->max_bytes;
}
void stepaf_plan_free(struct stepaf_plan_obj *plan);
stepaf_status_t stepaf_plan_make(struct stepaf_ctx *ctx, const stepaf_tensor_t *push, int n_push,
                                 const stepaf_tensor_t *pull, int n_pull, uint32_t flags,
                                 struct stepaf_plan_obj **plan_p);
/* Return how many plans were made before. Numbers are reused. */
static inline uint32_t stepaf_plan_age(const struct stepaf_plan_obj *plan)
{
    return plan->handle.generation - plan->ctx->tables.plans.not_ours;
}
/* Return whether a stream plan of this rank names the key: links must not touch its places then. */
static inline bool stepaf_key_on_streams(const struct stepaf_key *key)
{
    return key->stream_uses > 0;
}
/* Return how many tensors of the plan belong to the key. */
unsigned stepaf_plan_names(const struct stepaf_plan_obj *plan, const struct stepaf_key *key);
/* Add the plan to the cache of stepaf_push_pull, until it is freed. */
stepaf_status_t stepaf_plan_cache(struct stepaf_plan_obj *plan);
/* Return whether a part of @a op is not over, or its posts are still in flight. */
bool stepaf_op_busy(const struct stepaf_op *op);
/* Return the first peer that has not released one of the plan's slots; NULL: all have. */
const struct stepaf_peer *stepaf_plan_holder(const struct stepaf_plan_obj *plan);

#endif
