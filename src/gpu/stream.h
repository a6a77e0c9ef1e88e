/* SPDX-License-Identifier: Apache-2.0 */
/* Plans on CUDA streams.
 *
 * To the core both sides of a stream plan are the same thing: tensors go out from sources, others
 * come in to destinations. An attention rank's pushes go out and its pulls come in, at an FFN rank
 * it is the other way round. What comes in has a mailbox each (device/kernels.h), for each peer and
 * slot, in one piece of GPU memory of the rank; or, from peers whose GPUs do not reach that, in a
 * piece of host memory for each of them. Commit tells the peers where: then each side makes the
 * kernel args that its kernels are launched with, and nothing is left to do for an operation but to
 * launch them. */
#ifndef STEPAF_GPU_STREAM_H
#define STEPAF_GPU_STREAM_H

#include "device/device.h"
#include "device/gpu.h"
#include "wireup/advert.h"

/* Larger tensors are written in place. Alone, pieces are the faster way up to 8 MiB; of several
 * plans at once, far beyond that. */
enum { STEPAF_PIECES_MAX = 8 << 20 };

/* A tensor that comes from a peer. */
struct stepaf_mailbox {
    uint64_t
        offset; /* of slot 0 in the rank's mailbox memory, or that for the peer in host memory */
    uint32_t stride; /* from slot to slot */
    uint32_t bytes;  /* of a tensor, at most */
    uint8_t *data;   /* where it goes, of slot 0 */
    struct stepaf_region *region;
    uint32_t pitch;   /* from slot to slot of data */
    uint32_t planned; /* what the peer sends, if it does not say otherwise */
    uint8_t proto;    /* stepaf_proto */
    bool copied;      /* the peer's copy engine may write it */
    bool proxied;     /* the peer is: offset and stride mean nothing */
    bool in_host;     /* it lies in host memory */
};

/* What one launch of kernels takes of an operation: the tensors of as many peers as kernel args
 * have room for. */
struct stepaf_launch {
    struct stepaf_kernel_args args;
    uint32_t blocks;  /* of the kernel that sends, or unpacks; 0: it is not needed */
    uint32_t threads; /* receiving: of the gate */
    bool copies;      /* sending: copy engines do some */
    bool chunks;      /* some tensors go by CHUNKS, or are sent by RDMA */
    /* Sending: what each tensor comes from, and the start of the allocation that it goes to. */
    const struct stepaf_region *sources[STEPAF_KERNEL_TENSORS];
    const void *places[STEPAF_KERNEL_TENSORS];
};

/* Which kernels the launches are of; [1] where there are chunks. */
struct stepaf_stream_kernels {
    enum stepaf_kernel send[2];
    enum stepaf_kernel gate;
    enum stepaf_kernel unpack[2];
};

struct stepaf_proxy_recv;
struct stepaf_proxy;
struct stepaf_any;
struct stepaf_times;

struct stepaf_stream {
    struct stepaf_plan_obj *plan;
    struct stepaf_proxy *proxy; /* NULL: all peers are reached directly */
    struct stepaf_any *any;     /* STEPAF_PLAN_ANY, see stream_any.h; NULL: all peers at once */
    struct stepaf_some *some; /* GPU memory, see stream_some.h; NULL: all answers are waited for */
    uint32_t need;            /* then: so many of them are enough */
    struct stepaf_times *times; /* see times.h; NULL: no timestamps are taken */
    uint16_t *times_numbers;    /* of each peer, for these: the plan's at the attention rank */
    uint8_t n_in;               /* per peer */
    uint8_t n_out;
    uint32_t epoch;                   /* in which the kernel args were made; 0: never */
    struct stepaf_mailbox *mailboxes; /* peer by peer: n_in */
    struct {
        uint32_t n_send; /* of an operation */
        uint32_t n_receive;
        struct stepaf_launch *send;    /* slot by slot */
        struct stepaf_launch *receive; /* slot by slot */
        struct stepaf_launch *changed; /* n_send: of an operation that is not as planned */
        uint32_t n_guard;              /* that wait until sources have been read */
        struct stepaf_launch *guard;   /* slot by slot */
        bool guarded;                  /* behind the sends of an operation as planned */
        bool sees_graphs;              /* a wait asks whether it is captured */
        bool counts;                   /* unpacking does: see STEPAF_KERNEL_UNPACK_CHUNKS */
        const struct stepaf_stream_kernels *kernels;
    } launches;
    struct stepaf_gpu_watch *watch;
    uint64_t n_sent; /* operations enqueued */
    uint64_t n_received;
    uint32_t requests; /* bit s: the operation in slot s has a request and is not complete */
    uint32_t awaited;  /* bit s: the event in arrived[s] is recorded */
    uint32_t claimed;  /* bit s: behind a wait of the library's own, which may not be over */
    bool enqueueing;   /* a thread is at it without the lock: the plan is its own */
    void **sent;       /* events, one a slot; NULL: not needed yet */
    void **arrived;
    stepaf_status_t failure; /* the plan is over: PEER_LOST, TIMEOUT, CANCELED, PROTOCOL; or as CUDA
                              * has refused a part of an operation */
    int failed_peer;         /* index; -1: none is to blame */
};

/* Host memory with the mailboxes between this rank and one peer: see stream_host.c. */
struct stepaf_host_mailboxes {
    uint64_t bytes;               /* of what comes from the peer; 0: that lies in GPU memory */
    struct stepaf_device_mem mem; /* of that */
    bool made, pinned;
    uint8_t *its; /* where what goes to the peer comes to, mapped; NULL: its GPU memory */
    uint64_t its_bytes;
    bool its_pinned;
};

/* What the stream plans of a context share, made anew at each commit. */
struct stepaf_streams {
    uint8_t *mailboxes; /* GPU memory */
    uint64_t mailbox_bytes;
    struct stepaf_host_mailboxes *host; /* peer by peer */
    bool captured;    /* a graph may look into them for ever: before it sees that it is of old */
    bool sees_graphs; /* each wait of its plans asks whether it is captured: so that is known */
    uint8_t *reach;   /* what is told of peers whose memory cannot be mapped */
    uint8_t *control; /* GPU memory: counts, flags */
    uint64_t control_bytes;
    struct stepaf_gpu_watch *watches; /* pinned, one a plan number */
    uint32_t n_watches;
    struct {
        struct stepaf_timestamp
            *rings; /* pinned: one for each plan that takes timestamps; or NULL */
        uint32_t n; /* of these that are given out */
    } times;
    struct stepaf_pack stream_advert; /* what peers are told of it all */
    uint32_t **failed;                /* in control, one a plan: nothing is to be done any more */
    uint32_t n_failed;
    void **imports; /* pieces of peers' memory */
    uint32_t n_imports;
    struct stepaf_region
        *proxy_recv; /* what comes from proxied peers; this and the rest: see gpu/proxy.h */
    struct stepaf_region *proxy_send; /* what goes to them */
    uint8_t *heads;                   /* pinned: of both */
    struct stepaf_proxy_recv *proxy_recvs;
    struct stepaf_proxy **proxies; /* by plan number, until they are in force */
    uint32_t n_proxies;
    void *stream; /* for waits that the host asks for; NULL: not needed yet */
    bool joined;  /* the commit that it was laid out for was not refused */
    struct stepaf_streams
        *before; /* of earlier commits: control and watches are left, and mailboxes
                                    * that were captured */
};

/* Peers of a launch, with @a n_each tensors for each; launches for @a n_peers. */
static inline uint32_t stepaf_launch_peers(uint32_t n_each)
{
    return STEPAF_KERNEL_TENSORS / n_each;
}

static inline uint32_t stepaf_launches(uint32_t n_peers, uint32_t n_each)
{
    return (n_peers + stepaf_launch_peers(n_each) - 1) / stepaf_launch_peers(n_each);
}

/* Where tensor @a i of peer @a p is: in which of all @a launches of an operation, and as which
 * kernel tensor of it. */
static inline struct stepaf_launch *stepaf_launch_of(struct stepaf_launch *launches,
                                                     uint32_t n_each, uint32_t p, uint32_t i,
                                                     uint32_t *index_p)
{
    uint32_t n = stepaf_launch_peers(n_each);

    *index_p = p % n * n_each + i;
    return &launches[p / n];
}

static inline struct stepaf_kernel_tensor *stepaf_launch_tensor(struct stepaf_launch *launches,
                                                                uint32_t n_each, uint32_t p,
                                                                uint32_t i)
{
    uint32_t tensor;
    struct stepaf_launch *launch = stepaf_launch_of(launches, n_each, p, i, &tensor);

    return &launch->args.tensors[tensor];
}

/* Groups of pieces that a tensor fills; the last may be in part empty. */
static inline uint64_t stepaf_piece_groups(uint32_t bytes)
{
    return ((uint64_t)bytes + STEPAF_GROUP_DATA - 1) / STEPAF_GROUP_DATA;
}

/* Give @a plan, made with STEPAF_PLAN_STREAM, its stream part. */
stepaf_status_t stepaf_stream_make(struct stepaf_plan_obj *plan);
void stepaf_stream_free(struct stepaf_stream *stream);
/* The stream plan that was made next after @a before, or first of all if that is NULL; NULL: there
 * is none. Peers come to the same order, while numbers are given out again. */
struct stepaf_stream *stepaf_stream_after(const struct stepaf_ctx *ctx,
                                          const struct stepaf_stream *before);
/* Whether an operation is enqueued only by half, or its request is open. */
bool stepaf_stream_busy(const struct stepaf_stream *stream);

/* Commit: lay out the mailboxes, and put together what is to be told of them; tell the peers; join
 * what they tell; let go of what was before. */
stepaf_status_t stepaf_streams_prepare(struct stepaf_ctx *ctx);
stepaf_status_t stepaf_streams_advertise(struct stepaf_ctx *ctx); /* where there are plans */
void stepaf_streams_pack(const struct stepaf_ctx *ctx, struct stepaf_pack *pack);
stepaf_status_t stepaf_streams_join(struct stepaf_ctx *ctx, const struct stepaf_advert *adverts);
void stepaf_streams_retire(struct stepaf_ctx *ctx);
/* The commit was refused: what was in force stays so. */
void stepaf_streams_undo(struct stepaf_ctx *ctx);
void stepaf_streams_free(struct stepaf_ctx *ctx);

/* Whether peer @a p is to write to host memory: decided by this rank. */
bool stepaf_stream_in_host(const struct stepaf_ctx *ctx, uint32_t p);
/* Make the host memory that streams->host has been told the bytes of. */
stepaf_status_t stepaf_streams_make_host(struct stepaf_ctx *ctx, struct stepaf_streams *streams);
/* Map what the peer has made: descriptor @a fd of its process. */
stepaf_status_t stepaf_streams_map_host(struct stepaf_peer *peer, int fd, uint64_t bytes);
/* Find out who cannot write to whose GPU memory: the feature's agree_reach (stream_reach.c).
 * Prepared before the adverts are told. What ranks tell each other then begins with a word of its
 * own. */
#define STEPAF_REACH_MAGIC UINT32_C(0x68636572)
stepaf_status_t stepaf_streams_prepare_reach(struct stepaf_ctx *ctx);
stepaf_status_t stepaf_streams_agree_reach(struct stepaf_ctx *ctx,
                                           const struct stepaf_advert *adverts, size_t *offsets,
                                           int64_t timeout_us, bool *again_p);
/* Let go of the peers' memory; then of this rank's own. */
void stepaf_streams_unmap_host(struct stepaf_ctx *ctx, struct stepaf_streams *streams);
void stepaf_streams_free_host(struct stepaf_ctx *ctx, struct stepaf_streams *streams);

/* Make the kernel args of a plan from its mailboxes and, peer by peer, those of its peers. */
struct stepaf_stream_dst {
    uint8_t *mailbox;       /* the peer's, of slot 0, as this process sees it */
    uint8_t *place;         /* where the bytes go; NULL: behind the mailbox's head */
    const void *allocation; /* that they go to */
    uint32_t stride, pitch, bytes;
    uint8_t proto;
};
void stepaf_stream_compile(struct stepaf_stream *stream, const struct stepaf_stream_dst *dsts,
                           uint8_t *control);
/* Bytes of GPU memory that compile wants for @a stream. */
uint64_t stepaf_stream_control_bytes(const struct stepaf_stream *stream);

/* ---- stream_guard.c: sources that are read in place ---- */

uint64_t stepaf_stream_guard_bytes(
    const struct stepaf_stream *stream); /* of GPU memory, for counts */
/* Make a slot's waits of what all its launches have in common; returns @a counts behind theirs. */
uint8_t *stepaf_stream_guard_compile(struct stepaf_stream *stream,
                                     const struct stepaf_kernel_args *common, uint8_t *counts);
/* Whether an operation as planned has to be guarded. */
bool stepaf_stream_is_guarded(const struct stepaf_stream *stream);
/* What a tensor that goes by RDMA tells the proxy. */
void stepaf_stream_guard_tensor(struct stepaf_kernel_tensor *tensor, bool guarded);
/* Set what all RDMA tensors of an operation that is not as planned tell; returns whether it is
 * guarded. */
bool stepaf_stream_guard_change(const struct stepaf_stream *stream,
                                const struct stepaf_launch *planned,
                                struct stepaf_launch *launches);
/* Enqueue the wait. */
stepaf_status_t stepaf_stream_guard_launch(const struct stepaf_stream *stream, uint8_t slot,
                                           void *cuda_stream);

/* Whether a copy engine can bring a tensor from @a source to peer @a p. From host memory to host
 * memory the driver copies with this thread, when the stream has come there: not while others wait
 * for the lock that it holds. */
bool stepaf_stream_copies(const struct stepaf_ctx *ctx, uint32_t p,
                          const struct stepaf_region *source);

/* Whether a rank with STEPAF_CUDA_ENGINE=@a engine has a copy engine write what is planned to be so
 * large and goes this way. Both ends ask; a plan that takes any batch sends without them. */
bool stepaf_stream_is_copied(uint32_t engine, uint8_t proto, uint32_t planned);

/* Blocks that a launch of one of the context's stream plans has at most. */
uint32_t stepaf_stream_blocks(const struct stepaf_ctx *ctx);
/* Decide what the gate takes, if it takes pieces at all; return its threads. Then share out the
 * blocks: return how many. */
uint32_t stepaf_stream_set_gate(struct stepaf_kernel_args *args, bool takes);
uint32_t stepaf_stream_distribute(struct stepaf_kernel_args *args, bool sending, uint32_t limit);

/* After sources in kernel args have changed. */
void stepaf_stream_touch(struct stepaf_kernel_args *args);

/* Hot: whether the plan can be used at all. */
stepaf_status_t stepaf_stream_check(struct stepaf_stream *stream);
/* Hot: enqueue. @a tensors: NULL, or n_out (broadcast) or peers * n_out, no larger than planned. */
stepaf_status_t stepaf_stream_send(struct stepaf_stream *stream, const stepaf_tensor_t *tensors,
                                   int n_tensors, void *cuda_stream, struct stepaf_op **op_p);
/* @a behind: NULL, or two events, of which the second may be NULL: it is the library's own wait. */
stepaf_status_t stepaf_stream_receive(struct stepaf_stream *stream, void *cuda_stream,
                                      void *const *behind);

/* Requests, which send makes: enqueue the wait for @a op if nobody has (STEPAF_INPROGRESS: another
 * thread has been enqueueing for so long, or this has become another operation); look which are
 * complete. */
stepaf_status_t stepaf_stream_enqueue_wait(struct stepaf_op *op, int64_t *timeout_us);
/* Whether the library's own wait for what was in the next slot, if it was that, is over: the user's
 * streams do not come behind it by themselves. */
bool stepaf_stream_slot_is_free(struct stepaf_stream *stream);
unsigned stepaf_streams_progress(struct stepaf_ctx *ctx);
/* Whether the sources of @a op may be overwritten. */
stepaf_status_t stepaf_stream_sent(struct stepaf_op *op);

/* The plan is over because of peer number @a peer: end all its waits. */
void stepaf_stream_fail(struct stepaf_stream *stream, stepaf_status_t status, int peer);
/* A part of an operation is enqueued, and CUDA has refused the rest with @a status, which is
 * returned: the plan is over. STEPAF_OK changes nothing. */
stepaf_status_t stepaf_stream_break(struct stepaf_stream *stream, stepaf_status_t status);
/* A peer is lost: end all waits that need it. */
void stepaf_streams_peer_lost(struct stepaf_peer *peer);
/* STEPAF_OK, or why the plan is over, with the detail set. */
stepaf_status_t stepaf_stream_status(struct stepaf_stream *stream);

#endif
