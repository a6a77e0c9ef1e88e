/* SPDX-License-Identifier: Apache-2.0 */
/* Remote plans: what an FFN rank knows of an attention rank's plans. */
#ifndef STEPAF_CORE_REMOTE_PLAN_H
#define STEPAF_CORE_REMOTE_PLAN_H

#include "transport/mem.h"
#include "transport/transport.h"

struct stepaf_batch_obj;
struct stepaf_key;
struct stepaf_peer;
struct stepaf_proxy;

struct stepaf_remote_plan_push {
    struct stepaf_key *key;
    uint8_t *data; /* receive buffer of slot 0 */
    uint32_t bytes;
};

struct stepaf_remote_plan_pull {
    uint64_t key_id;
    struct stepaf_key *key; /* NULL: not declared here; the key then has no shape */
    const struct stepaf_rmem *rmem;
    uint64_t offset; /* of slot 0 */
    uint32_t stride; /* from slot to slot */
    uint32_t bytes;
};

struct stepaf_remote_plan {
    struct stepaf_peer *peer;
    uint8_t depth;
    uint8_t n_push;
    uint8_t n_pull;
    uint8_t n_known;     /* TENSORs that have arrived; complete at n_push + n_pull */
    uint8_t slot;        /* of the next operation */
    uint8_t known_pulls; /* bit i: pull[i] has arrived */
    bool on_gpu;         /* some key is received in GPU memory */
    bool unbound;        /* complete, but its pushes land where no stream plan looks */
    union {
        struct {
            uint16_t number;
            uint16_t rank; /* the peer's, as recorded in the trace */
        };
        uint32_t stamp; /* both, as encoded in a stepaf_trace_word */
    };
    uint32_t seq;               /* of the next operation */
    struct stepaf_proxy *proxy; /* a stream plan takes its batches; NULL: the caller does */
    const uint32_t
        *ahead; /* n_pull entries: bytes that have gone ahead of the next RESPONSE; NULL: none */
    struct stepaf_remote_plan_push *push;
    struct stepaf_remote_plan_pull *pull;
    struct stepaf_batch_obj *batches; /* depth */
};

/* Return where a tensor of an answer goes for a slot, as an offset in the peer's region. */
static inline uint64_t stepaf_pull_offset(const struct stepaf_remote_plan_pull *pull, uint32_t slot)
{
    return pull->offset + (uint64_t)slot * pull->stride;
}
void stepaf_remote_plan_open(struct stepaf_peer *peer, const struct stepaf_msg *msg);
void stepaf_remote_plan_tensor(struct stepaf_peer *peer, const struct stepaf_msg *msg);
void stepaf_remote_plan_close(struct stepaf_peer *peer, const struct stepaf_msg *msg);
void stepaf_remote_plans_free(struct stepaf_peer *peer);

#endif
