/* SPDX-License-Identifier: Apache-2.0 */
/* Plans on CUDA streams.
 *
 * To the core both sides of a stream plan are the same: tensors go out from sources, and others
 * come in to destinations. An attention rank's pushes go out and its pulls come in; at an FFN rank
 * it is the other way round. Each incoming tensor has a mailbox (device/kernels.h) for each peer
 * and slot. All mailboxes lie in one piece of GPU memory of the rank; those for peers whose GPUs do
 * not reach this memory lie in a piece of host memory per peer. The commit tells the peers where
 * the mailboxes are. Then each side makes the kernel args for its launches, so that an operation
 * only has to launch the kernels. */
#ifndef STEPAF_GPU_STREAM_H
#define STEPAF_GPU_STREAM_H

#include "device/device.h"
#include "device/gpu.h"
#include "wireup/advert.h"

/* Larger tensors are written in place. With one plan, pieces are faster up to 8 MiB; with several
 * plans at once, up to sizes far beyond that. */
enum { STEPAF_PIECES_MAX = 8 << 20 };

/* The mailbox of a tensor that comes from a peer. */
struct stepaf_mailbox {
    uint64_t
        offset; /* of slot 0 in the rank's mailbox memory, or that for the peer in host memory */
    uint32_t stride; /* from slot to slot */
    uint32_t bytes;  /* maximum size of the tensor */
    uint8_t *data;   /* destination, of slot 0 */
    struct stepaf_region *region;
    uint32_t pitch;   /* from slot to slot of data */
    uint32_t planned; /* size that the peer sends unless it says otherwise */
    uint8_t proto;    /* stepaf_proto */
    bool copied;      /* the peer's copy engine may write the tensor */
    bool proxied;     /* the peer is proxied: offset and stride mean nothing */
    bool in_host;     /* the mailbox lies in host memory */
};

/* The part of an operation in one launch of kernels: the tensors of as many peers as fit in kernel
 * args. */
struct stepaf_launch {
    struct stepaf_kernel_args args;
    uint32_t blocks;  /* of the kernel that sends or unpacks; 0: the kernel is not needed */
    uint32_t threads; /* receiving: threads of the gate */
    bool copies;      /* sending: copy engines send some tensors, */
    bool told_each;   /* and each is announced by its own word, since TOLD_ALL would be misread */
    bool chunks;      /* some tensors go by CHUNKS, or are sent by RDMA */
    /* Sending: source of each tensor, and the start of the allocation of its destination. */
    const struct stepaf_region *sources[STEPAF_KERNEL_TENSORS];
    const void *places[STEPAF_KERNEL_TENSORS];
};

/* Which kernels the launches use; [1] if there are chunks. */
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
    struct stepaf_some *some;   /* GPU memory, see stream_some.h; NULL: waits for all answers */
    uint32_t need;              /* with some: number of answers that are enough */
    struct stepaf_times *times; /* see times.h; NULL: no timestamps are taken */
    uint16_t *times_numbers;    /* of each peer, for times: the plan number at the attention rank */
    uint8_t n_in;               /* per peer */
    uint8_t n_out;
    uint32_t epoch;                   /* epoch in which the kernel args were made; 0: never */
    struct stepaf_mailbox *mailboxes; /* peer by peer, n_in each */
    struct {
        uint32_t n_send; /* launches of an operation */
        uint32_t n_receive;
        struct stepaf_launch *send;    /* slot by slot */
        struct stepaf_launch *receive; /* slot by slot */
        struct stepaf_launch *changed; /* n_send: for an operation that is not as planned */
        uint32_t n_guard;              /* launches that wait until sources have been read */
        struct stepaf_launch *guard;   /* slot by slot */
        bool guarded;                  /* operations as planned have a guard behind the sends */
        bool sees_graphs;              /* each wait asks whether it is being captured */
        bool counts; /* the unpacking counts operations: see STEPAF_KERNEL_UNPACK_CHUNKS */
        const struct stepaf_stream_kernels *kernels;
    } launches;
    struct stepaf_gpu_watch *watch;
    uint64_t n_sent; /* operations enqueued */
    uint64_t n_received;
    uint32_t requests; /* bit s: the operation in slot s has a request and is not complete */
    uint32_t awaited;  /* bit s: the event in arrived[s] is recorded */
    uint32_t claimed;  /* bit s: the slot is behind the library's own wait, maybe not over */
    bool enqueueing;   /* a thread is enqueueing without the lock and owns the plan */
    void **sent;       /* events, one per slot; NULL: not needed yet */
    void **arrived;
    stepaf_status_t failure; /* the plan is over: PEER_LOST, TIMEOUT, CANCELED, PROTOCOL; the
                              * status with which CUDA refused a part of an operation; or why's */
    int failed_peer;         /* index; -1: no peer is to blame */
    stepaf_error_t why;      /* the error that ended the plan; status STEPAF_OK: no more is known */
};

/* Host memory with the mailboxes between this rank and one peer (stream_host.c). */
struct stepaf_host_mailboxes {
    uint64_t bytes; /* for what comes from the peer; 0: its mailboxes lie in GPU memory */
    struct stepaf_device_mem mem; /* memory of these bytes */
    bool made, pinned;
    uint8_t *its; /* the peer's, mapped, for what goes to it; NULL: its GPU memory */
    uint64_t its_bytes;
    bool its_pinned;
};

/* What the stream plans of a context share. Made for each commit. */
struct stepaf_streams {
    uint8_t *mailboxes; /* GPU memory */
    uint64_t mailbox_bytes;
    struct stepaf_host_mailboxes *host; /* peer by peer */
    bool captured;    /* a graph may look into them for ever, until it sees that it is old */
    bool sees_graphs; /* each wait of its plans asks for captures, so these are known */
    uint8_t *reach;   /* what is told about peers whose memory cannot be mapped */
    uint8_t *control; /* GPU memory: counts, flags */
    uint64_t control_bytes;
    struct stepaf_gpu_watch *watches; /* pinned, one per plan number */
    uint32_t n_watches;
    struct {
        struct stepaf_timestamp
            *rings; /* pinned: one for each plan that takes timestamps; or NULL */
        uint32_t n; /* rings that are given out */
    } times;
    struct stepaf_pack stream_advert; /* what peers are told of all this */
    uint32_t **failed;                /* in control, one per plan: nothing is to be done any more */
    uint32_t n_failed;
    void **imports; /* pieces of peers' memory that are mapped */
    uint32_t n_imports;
    struct stepaf_region
        *proxy_recv; /* what comes from proxied peers; this and the rest: see gpu/proxy.h */
    struct stepaf_region *proxy_send; /* what goes to proxied peers */
    uint8_t *heads;                   /* pinned: heads of both */
    struct stepaf_proxy_recv *proxy_recvs;
    struct stepaf_proxy **proxies; /* by plan number, until they are in force */
    uint32_t n_proxies;
    void *stream; /* for waits that the host asks for; NULL: not needed yet */
    bool joined;  /* the commit that this was laid out for was not refused */
    struct stepaf_streams
        *before; /* of earlier commits: control and watches are left, and mailboxes
                                    * that were captured */
};

/* peers: Return how many peers with @a n_each tensors each fit in a launch. launches: Return how
 * many launches @a n_peers need. */
static inline uint32_t stepaf_launch_peers(uint32_t n_each)
{
    return STEPAF_KERNEL_TENSORS / n_each;
}

static inline uint32_t stepaf_launches(uint32_t n_peers, uint32_t n_each)
{
    return (n_peers + stepaf_launch_peers(n_each) - 1) / stepaf_launch_peers(n_each);
}

/* Return the launch, of all @a launches of an operation, with tensor @a i of peer @a p, and the
 * index of its kernel tensor; or that kernel tensor itself. */
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

/* Return how many groups of pieces a tensor fills; the last may be partly empty. */
static inline uint64_t stepaf_piece_groups(uint32_t bytes)
{
    return ((uint64_t)bytes + STEPAF_GROUP_DATA - 1) / STEPAF_GROUP_DATA;
}

/* Make the stream part of @a plan, which has STEPAF_PLAN_STREAM. */
stepaf_status_t stepaf_stream_make(struct stepaf_plan_obj *plan);
void stepaf_stream_free(struct stepaf_stream *stream);
/* Return the stream plan that was made next after @a before, or the first if that is NULL; NULL if
 * there is none. All ranks come to the same order, although plan numbers are reused. */
struct stepaf_stream *stepaf_stream_after(const struct stepaf_ctx *ctx,
                                          const struct stepaf_stream *before);
/* Return whether an operation is only partly enqueued, and the plan is not over; or whether its
 * request is open. */
bool stepaf_stream_busy(struct stepaf_stream *stream);

/* The commit, in order. prepare: lay out the mailboxes and pack what peers are told. advertise,
 * pack: tell the peers. join: use what the peers tell. retire: release what was in force before. */
stepaf_status_t stepaf_streams_prepare(struct stepaf_ctx *ctx);
stepaf_status_t stepaf_streams_advertise(struct stepaf_ctx *ctx); /* where there are stream plans */
void stepaf_streams_pack(const struct stepaf_ctx *ctx, struct stepaf_pack *pack);
stepaf_status_t stepaf_streams_join(struct stepaf_ctx *ctx, const struct stepaf_advert *adverts);
void stepaf_streams_retire(struct stepaf_ctx *ctx);
/* The commit was refused: undo prepare; what was in force stays in force. */
void stepaf_streams_undo(struct stepaf_ctx *ctx);
void stepaf_streams_free(struct stepaf_ctx *ctx);

/* Return whether peer @a p must write to host memory. This rank decides. */
bool stepaf_stream_in_host(const struct stepaf_ctx *ctx, uint32_t p);
/* Make the host memory whose sizes are set in streams->host. */
stepaf_status_t stepaf_streams_make_host(struct stepaf_ctx *ctx, struct stepaf_streams *streams);
/* Map the memory that the peer has made: file descriptor @a fd of its process. */
stepaf_status_t stepaf_streams_map_host(struct stepaf_peer *peer, int fd, uint64_t bytes);
/* Find out which ranks cannot write to which GPU memory: the feature's agree_reach
 * (stream_reach.c). prepare_reach is called before the adverts are sent. What ranks then tell each
 * other begins with a magic word of its own. */
#define STEPAF_REACH_MAGIC UINT32_C(0x68636572)
stepaf_status_t stepaf_streams_prepare_reach(struct stepaf_ctx *ctx);
stepaf_status_t stepaf_streams_agree_reach(struct stepaf_ctx *ctx,
                                           const struct stepaf_advert *adverts, size_t *offsets,
                                           int64_t timeout_us, bool *again_p);
/* Map a piece of the peer's GPU memory. */
stepaf_status_t stepaf_stream_import(const struct stepaf_peer *peer,
                                     const struct stepaf_gpu_export *exported, void **ptr_p);
/* unmap: Release the peers' memory. free: Free this rank's own. */
void stepaf_streams_unmap_host(struct stepaf_ctx *ctx, struct stepaf_streams *streams);
void stepaf_streams_free_host(struct stepaf_ctx *ctx, struct stepaf_streams *streams);

/* Make the kernel args of a plan from its mailboxes and, peer by peer, the peers' mailboxes. */
struct stepaf_stream_dst {
    uint8_t *mailbox;       /* the peer's, of slot 0, as mapped in this process */
    uint8_t *place;         /* destination of the bytes; NULL: behind the mailbox's head */
    const void *allocation; /* allocation of the destination */
    uint32_t stride, pitch, bytes;
    uint8_t proto;
};
void stepaf_stream_compile(struct stepaf_stream *stream, const struct stepaf_stream_dst *dsts,
                           uint8_t *control);
/* Return the bytes of GPU memory that compile needs for @a stream. */
uint64_t stepaf_stream_control_bytes(const struct stepaf_stream *stream);

/* ---- stream_guard.c: sources that are read in place ---- */

uint64_t stepaf_stream_guard_bytes(
    const struct stepaf_stream *stream); /* of GPU memory, for counts */
/* Make a slot's guards from what all its launches have in common. Returns the address behind
 * @a counts that the guards do not use. */
uint8_t *stepaf_stream_guard_compile(struct stepaf_stream *stream,
                                     const struct stepaf_kernel_args *common, uint8_t *counts);
/* Return whether an operation as planned must be guarded. */
bool stepaf_stream_is_guarded(const struct stepaf_stream *stream);
/* Set what a tensor that goes by RDMA tells the proxy. */
void stepaf_stream_guard_tensor(struct stepaf_kernel_tensor *tensor, bool guarded);
/* Set what all RDMA tensors of an operation that is not as planned tell the proxy. Returns whether
 * the operation is guarded. */
bool stepaf_stream_guard_change(const struct stepaf_stream *stream,
                                const struct stepaf_launch *planned,
                                struct stepaf_launch *launches);
/* Enqueue the guard. */
stepaf_status_t stepaf_stream_guard_launch(const struct stepaf_stream *stream, uint8_t slot,
                                           void *cuda_stream);

/* Return whether a copy engine can copy a tensor from @a source to peer @a p. Between host memory
 * and host memory the driver would copy with this thread, once the stream has come there; others
 * would wait meanwhile for the lock that the thread holds. */
bool stepaf_stream_copies(const struct stepaf_ctx *ctx, uint32_t p,
                          const struct stepaf_region *source);

/* Return whether a rank with STEPAF_CUDA_ENGINE=@a engine has a copy engine send a tensor of size
 * @a planned by @a proto. Both ends ask. Plans that take any batch send without copy engines. */
bool stepaf_stream_is_copied(uint32_t engine, uint8_t proto, uint32_t planned);

/* Return the maximum number of blocks in a launch of one of the context's stream plans. */
uint32_t stepaf_stream_blocks(const struct stepaf_ctx *ctx);
/* set_gate: Decide what the gate takes, if it takes pieces at all; return its threads. distribute,
 * called next: Share out the blocks; return how many there are. */
uint32_t stepaf_stream_set_gate(struct stepaf_kernel_args *args, bool takes);
uint32_t stepaf_stream_distribute(struct stepaf_kernel_args *args, bool sending, uint32_t limit);

/* Update kernel args after their sources have changed. */
void stepaf_stream_touch(struct stepaf_kernel_args *args);

/* Hot: return whether the plan can be used at all. */
stepaf_status_t stepaf_stream_check(struct stepaf_stream *stream);
/* Hot: take the plan from other threads and release the lock, before a launch; and the reverse. */
void stepaf_stream_take_out(struct stepaf_stream *stream);
void stepaf_stream_put_back(struct stepaf_stream *stream);
/* Return whether a thread is enqueueing to some plan. */
bool stepaf_streams_enqueueing(const struct stepaf_ctx *ctx);
/* Hot: enqueue a send. @a tensors: NULL, or n_out (broadcast) or peers * n_out, no larger than
 * planned. */
stepaf_status_t stepaf_stream_send(struct stepaf_stream *stream, const stepaf_tensor_t *tensors,
                                   int n_tensors, void *cuda_stream, struct stepaf_op **op_p);
/* Hot: enqueue a receive. @a behind: NULL; for a wait of the library's own two events, of which the
 * second may be NULL. */
stepaf_status_t stepaf_stream_receive(struct stepaf_stream *stream, void *cuda_stream,
                                      void *const *behind);

/* Requests, which send makes: enqueue the wait for @a op if nobody has. Returns STEPAF_INPROGRESS
 * if another thread was enqueueing for the whole time, or @a op has become another operation. */
stepaf_status_t stepaf_stream_enqueue_wait(struct stepaf_op *op, int64_t *timeout_us);
/* slot_is_free: Return whether the library's own wait for the former operation of the next slot, if
 * there was such a wait, is over. The user's streams do not wait for it by themselves. progress:
 * Find out which requests are complete. */
bool stepaf_stream_slot_is_free(struct stepaf_stream *stream);
unsigned stepaf_streams_progress(struct stepaf_ctx *ctx);
/* Return whether the sources of @a op may be overwritten. */
stepaf_status_t stepaf_stream_sent(struct stepaf_op *op);

/* End the plan because of peer number @a peer, and end all its waits. fail_as: @a status is that of
 * the calling thread's last failure, which stepaf_stream_status then reports. @a peer: -1: the peer
 * that this failure names, or none. */
void stepaf_stream_fail(struct stepaf_stream *stream, stepaf_status_t status, int peer);
void stepaf_stream_fail_as(struct stepaf_stream *stream, stepaf_status_t status, int peer);
/* End the plan: a part of an operation is enqueued, and CUDA has refused the rest with @a status.
 * Returns @a status. STEPAF_OK changes nothing. */
stepaf_status_t stepaf_stream_break(struct stepaf_stream *stream, stepaf_status_t status);
/* A peer is lost: end all waits that need this peer. */
void stepaf_streams_peer_lost(struct stepaf_peer *peer);
/* Return STEPAF_OK, or why the plan is over, with the detail set. */
stepaf_status_t stepaf_stream_status(struct stepaf_stream *stream);

#endif
