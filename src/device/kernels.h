/* SPDX-License-Identifier: Apache-2.0 */
/* What the host tells the kernels: mailboxes, protocols and kernel args, shared by C and CUDA C++.
 *
 * A tensor travels to a *mailbox*: space in the receiver's GPU memory that its sender has mapped,
 * or in host memory that both have mapped and pinned. Heads, and tensors that go by LL, are written
 * in *pieces*: 16 bytes that one thread stores at once, and one thread loads at once. Mailboxes are
 * initially filled with 0.
 *
 * A mailbox begins with a head of 128 bytes, eight pieces:
 *
 *   pieces 0-6  the tensor itself, if it fits (STEPAF_PROTO_INLINE): 12 bytes of it each, and the
 *               stamp's lower half with the highest bit set, so that it is not 0
 *   piece 7     bytes of the tensor; stamp: epoch of the commit << 32 | number of the operation in
 *               this slot, from 1, in 31 bits
 *
 * A stream can also store the head of a tensor that a copy engine has written. It cannot count, so
 * it writes only the last 8 bytes: bytes << 32, and a mark in the lower half. The mark is TOLD, or
 * TOLD_ALL if everything that copy engines write for this peer is there, with as many bytes as
 * planned. The receiver clears the mark. Each word takes the stream most of a microsecond.
 *
 * Pieces 0-6 of other heads are neither written nor read. What follows the head depends on the
 * protocol:
 *
 *   INLINE Nothing follows.
 *   LL     Groups of 64 pieces, 1,024 bytes, which a warp writes at once, and reads at once. 63
 *          pieces hold 1,008 bytes of the tensor, except the highest bit of each piece. That bit
 *          is set: the piece is there. The displaced bits of the tensor are in the 64th piece: bit
 *          i of its first word is piece i's; its second word is 0 except its own highest bit. The
 *          receiver waits for all 64 pieces, and fills them with 0. No fence, no flag, no order:
 *          the fastest protocol up to some megabytes, at the price of a copy by the receiver. The
 *          head comes first.
 *   ZCOPY  The tensor is written directly to its place in the receiver's tensor, by a kernel or a
 *          copy engine; then the head.
 *   BCOPY  As ZCOPY, but written into the mailbox and copied by the receiver: for tensors that
 *          others cannot map.
 *   RDMA   Sent by the host, which has a NIC read the source. The sender writes only the head,
 *          with the address of the source in piece 6. The highest bit of that address says whether
 *          the sender is to be told when the source has been read; then a gate of its own waits
 *          for TOLD.
 *   CHUNKS Through a mailbox in host memory, in chunks of 1 to 4 KiB. One warp stores a chunk, and
 *          one warp takes it. Behind each chunk is its flag: 16 bytes, of which the second word is
 *          the stamp. A fence separates chunk and flag, and the receiver must see the flag before
 *          it loads the chunk. So both PCIe links are busy at once, and nothing must be cleared.
 *          The head comes first.
 *   PARTS  Between a GPU and the host of its own process, which transfers the tensor. The tensor
 *          is whole, with flags of its parts, of 1 to 16 KiB, behind the head. Parts are sent and
 *          taken as chunks are. The host, which has the head first, can send what is there of a
 *          tensor, and the stream takes what has arrived of it, while the rest is still in flight.
 *
 * Only a piece is assumed to arrive whole (as it does on existing GPUs, though PTX does not say
 * so). Larger units are not: NVLink delivers the bytes of a 128-byte store in ascending order
 * (NCCL's LL128 relies on this: github.com/NVIDIA/nccl, issue 786), but eight threads that load
 * them may see some bytes as they were before the others. Over PCIe nothing is known of the order.
 *
 * The GPU counts operations, so a captured graph can be replayed. */
#ifndef STEPAF_DEVICE_KERNELS_H
#define STEPAF_DEVICE_KERNELS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    STEPAF_HEAD_BYTES = 128,
    STEPAF_HEAD_PIECE = 12,      /* bytes of a tensor in a piece of a head */
    STEPAF_HEAD_DATA = 84,       /* bytes of a tensor in a head */
    STEPAF_HEAD_SOURCE = 96,     /* RDMA: offset of the last piece but one */
    STEPAF_HEAD_TELLS = 112,     /* offset of the last piece */
    STEPAF_GROUP_BYTES = 1024,   /* 64 pieces */
    STEPAF_GROUP_DATA = 1008,    /* bytes of a tensor in a group */
    STEPAF_KERNEL_TENSORS = 64,  /* tensors in one launch, of whole peers */
    STEPAF_ARGS_FEW = 4,         /* with no more tensors, a launch has fewer parameters */
    STEPAF_LAUNCH_BLOCKS = 1056, /* maximum blocks of one launch */
    STEPAF_WARP = 32,
    STEPAF_GATE_GROUPS = 16,   /* groups that the gate takes itself, a warp each */
    STEPAF_CHUNK_LEAST = 1024, /* bytes of a chunk */
    STEPAF_CHUNK_MOST = 4096,
    STEPAF_CHUNK_TELLS = 128, /* behind a chunk: its flag, in lines that nobody else polls */
    STEPAF_CHUNK_SENDERS =
        128, /* maximum blocks that send chunks at once, so that the first chunks are there
              * while the last are not yet sent */
    STEPAF_CHUNK_TAKERS = 256,   /* blocks that take chunks: host memory is a microsecond away */
    STEPAF_PART_MOST = 16 << 10, /* bytes of a part */
    STEPAF_PART_TOLD =
        16, /* from flag to flag, of parts that are sent: the host looks at all flags */
    STEPAF_PART_TELLS = 128,  /* of parts that are taken: in lines of their own, as with chunks */
    STEPAF_PART_SENDERS = 32, /* blocks that send parts: enough for PCIe, the first soon there */
    STEPAF_PART_TAKERS = 64,  /* blocks that take parts */
    STEPAF_ANY_TENSORS = 8    /* of one peer, each way: STEPAF_MAX_TENSORS */
};

/* Marks: lower halves of stamps that count nothing. */
#define STEPAF_TOLD UINT32_C(0xffffffff)
#define STEPAF_TOLD_ALL UINT32_C(0xfffffffe)

/* Operations are counted in 31 bits, so no stamp equals a mark. */
#define STEPAF_COUNT_MASK UINT32_C(0x7fffffff)

/* Return the stamp of operation @a n for the host; kernels_common.cuh has the kernels' function. */
static inline uint64_t stepaf_stamp(uint32_t epoch, uint32_t n)
{
    return (uint64_t)epoch << 32 | (n & STEPAF_COUNT_MASK);
}

#define STEPAF_HEAD_MARK UINT32_C(0x80000000) /* in the stamps of a head's pieces */

#define STEPAF_SOURCE_GUARDED (UINT64_C(1) << 63) /* in the address of a source */

enum stepaf_proto {
    STEPAF_PROTO_INLINE,
    STEPAF_PROTO_LL,
    STEPAF_PROTO_ZCOPY,
    STEPAF_PROTO_BCOPY,
    STEPAF_PROTO_CHUNKS,
    STEPAF_PROTO_RDMA,
    STEPAF_PROTO_PARTS,
    STEPAF_PROTO_COUNT
};

/* Return whether a tensor goes by CHUNKS or PARTS, which have kernels of their own. */
static inline bool stepaf_proto_has_chunks(uint8_t proto)
{
    return proto == STEPAF_PROTO_CHUNKS || proto == STEPAF_PROTO_PARTS;
}

/* For a tensor of at most @a most bytes: return the bytes of a chunk, and the bytes of the mailbox
 * behind the head. */
static inline uint32_t stepaf_chunk_bytes(uint32_t most)
{
    uint32_t bytes = STEPAF_CHUNK_LEAST;

    while (bytes < STEPAF_CHUNK_MOST && bytes < most / STEPAF_CHUNK_SENDERS)
        bytes *= 2;
    return bytes;
}

static inline uint64_t stepaf_chunks_room(uint32_t most)
{
    uint64_t each = stepaf_chunk_bytes(most);

    return (most + each - 1) / each * (each + STEPAF_CHUNK_TELLS);
}

/* Return the bytes of a part, for a tensor of at most @a most bytes; and how many parts @a bytes
 * are. */
static inline uint32_t stepaf_part_bytes(uint32_t most)
{
    uint32_t bytes = STEPAF_CHUNK_LEAST;

    while (bytes < STEPAF_PART_MOST && bytes < most / STEPAF_CHUNK_SENDERS)
        bytes *= 2;
    return bytes;
}

static inline uint32_t stepaf_parts(uint32_t bytes, uint32_t part)
{
    return (uint32_t)(((uint64_t)bytes + part - 1) / part);
}

enum stepaf_kernel {
    STEPAF_KERNEL_SEND,   /* one warp a block: write tensors and heads */
    STEPAF_KERNEL_GATE,   /* one block: wait for all heads, and take pieces if they are few */
    STEPAF_KERNEL_UNPACK, /* one warp a block: copy from pieces and mailboxes to the tensors */
    /* SEND and UNPACK if some tensors go by CHUNKS or PARTS, or are sent by RDMA. The unpacking
     * then counts operations, as sending does. */
    STEPAF_KERNEL_SEND_CHUNKS,
    STEPAF_KERNEL_UNPACK_CHUNKS,
    /* Kernels for plans that need only some answers: see the end of this file. */
    STEPAF_KERNEL_SEND_SOME,
    STEPAF_KERNEL_GATE_SOME,
    STEPAF_KERNEL_UNPACK_SOME,
    STEPAF_KERNEL_SEND_SOME_CHUNKS,
    STEPAF_KERNEL_UNPACK_SOME_CHUNKS,
    STEPAF_KERNEL_SETTLE, /* one block: wait for the slot's late peers, or give them up */
    STEPAF_KERNEL_COUNT
};

/* Kernels for plans that take the batch of any one peer. Their args are stepaf_any_args. */
enum stepaf_any_kernel {
    STEPAF_KERNEL_SEND_ANY,
    STEPAF_KERNEL_GATE_ANY,
    STEPAF_KERNEL_UNPACK_ANY,
    STEPAF_KERNEL_SEND_ANY_CHUNKS,
    STEPAF_KERNEL_UNPACK_ANY_CHUNKS,
    STEPAF_ANY_KERNEL_COUNT
};

/* Why a wait ended without what it waited for. */
enum stepaf_fault { STEPAF_FAULT_NONE, STEPAF_FAULT_TIMEOUT, STEPAF_FAULT_ABORTED };

/* One tensor from or to one peer. */
struct stepaf_kernel_tensor {
    uint8_t *head; /* of the mailbox */
    uint8_t *
        body; /* LL, BCOPY, CHUNKS: after the head; ZCOPY: the tensor's place at the receiver; BCOPY
               * and PARTS of the proxy: the proxy's buffer */
    uint8_t *data;  /* sender: source; receiver: destination */
    uint32_t bytes; /* sender: of this operation; receiver: space for it */
    union {
        uint32_t planned; /* receiver: bytes of the tensor if TOLD_ALL announces it */
        uint32_t chunk;   /* CHUNKS, PARTS: bytes of each, a multiple of 512 */
        uint32_t guarded; /* RDMA: 1: tell the sender when the source has been read */
    };
    uint16_t first; /* first block that works for the tensor */
    uint16_t n;     /* number of such blocks; 0: none in this kernel */
    uint8_t proto;  /* stepaf_proto */
    uint8_t copied; /* a copy engine writes it: 1 + the tensor that gets TOLD_ALL; else 0 */
    uint16_t peer;  /* index, for faults */
};

#define STEPAF_WATCH_ANY UINT32_C(0x80000000) /* with a peer: any would do, it was next */

enum { STEPAF_SOME_SLOTS = 32 }; /* STEPAF_MAX_DEPTH */

/* In pinned host memory, one for each plan. */
struct stepaf_gpu_watch {
    uint32_t abort; /* the host asks all waits of this plan to end */
    uint32_t fault; /* stepaf_fault: the first that a wait met */
    uint32_t peer;  /* index of the peer that the wait was for */
    uint32_t slot;
    /* Of plans that need only some answers: one bit per peer. */
    uint64_t lost; /* set by the host: peers that are lost, and not waited for */
    struct {
        uint64_t mask, given_up; /* of the slot's last operation, as in stepaf_some_slot */
    } answers[STEPAF_SOME_SLOTS];
};

/* Everything that a launch needs to know. It is passed as the kernel's parameter, so that only the
 * operation's number must be fetched from memory. */
struct stepaf_kernel_args {
    uint32_t *counts; /* operations so far: [0] of the gate, or [1 + b] of the sending block b */
    union {
        uint32_t *done;              /* sender, ZCOPY and BCOPY: finished blocks, per tensor */
        struct stepaf_some *awaited; /* receiver, of some: state of the peers */
    };
    uint32_t *failed; /* GPU memory, two per plan: the plan is over; being noted */
    union {
        uint32_t *landed;          /* receiver: actual bytes, per tensor */
        struct stepaf_some *asked; /* sender, of some: the same as awaited */
    };
    struct stepaf_gpu_watch *watch; /* pinned */
    uint64_t timeout_ns;
    uint32_t epoch; /* of the commit */
    uint16_t n_tensors;
    uint8_t slot;
    uint8_t aligned;    /* all addresses are multiples of 16 bytes */
    uint8_t gate_takes; /* the gate takes the pieces, as they are few */
    uint8_t gate_ends;  /* no unpacking follows the gate */
    struct stepaf_kernel_tensor tensors[STEPAF_KERNEL_TENSORS];
};

/* Receiving: give tensors without a head, which do not arrive, the head of another tensor of the
 * launch, and take nothing from it. So the gate, which looks at all heads at once, need not know of
 * such tensors. Without another tensor, the launch has no tensors. */
static inline void stepaf_kernel_tensors_fill(struct stepaf_kernel_args *args)
{
    const struct stepaf_kernel_tensor *told = NULL;

    for (uint32_t i = 0; i < args->n_tensors && !told; i++) /* announced by its own head */
        if (args->tensors[i].head && (!args->tensors[i].copied || args->tensors[i].copied == i + 1))
            told = &args->tensors[i];
    for (uint32_t i = 0; i < args->n_tensors && told; i++) {
        struct stepaf_kernel_tensor *tensor = &args->tensors[i];
        if (tensor->head)
            continue;
        tensor->head = told->head;
        tensor->body = told->body;
        tensor->peer = told->peer;
        tensor->proto = STEPAF_PROTO_ZCOPY; /* nothing is left to do once its head is there */
        if (told->proto == STEPAF_PROTO_INLINE)
            tensor->proto = STEPAF_PROTO_INLINE; /* the gate may look for inline heads alone */
    }
    if (!told)
        args->n_tensors = 0;
}

/* The beginning of kernel args with few tensors, as a parameter of its own. */
struct stepaf_kernel_args_few {
    uint64_t
        words[offsetof(struct stepaf_kernel_args, tensors[STEPAF_ARGS_FEW]) / sizeof(uint64_t)];
};

/* ---- some: operations that complete before all peers have answered ----
 *
 * The gate ends when enough peers have all their tensors there. The other peers are late in that
 * slot. The next start in the slot takes what is late before it sends anything, or gives the peer
 * up: nothing is sent to that peer, and nothing taken from it, until the next commit. So every peer
 * that is sent to has given back the slot, and all counts stay valid. All tensors of the operation
 * are in one launch, so one bit per peer is enough. */

/* State of a slot. The first three words are stepaf_answers_t. */
struct stepaf_some_slot {
    uint64_t mask;     /* peers whose tensors were there when the wait ended */
    uint64_t given_up; /* peers no longer waited for, including lost ones */
    uint64_t late;     /* late answers of the plan that a start had waited for until then */
    uint64_t missing;  /* late peers */
    uint64_t now;      /* peers whose tensors the next unpacking takes */
};

/* State of a plan, in GPU memory. */
struct stepaf_some {
    uint64_t gone; /* peers that were given up, or are lost */
    uint64_t late;
    uint64_t patience_ns; /* how long a gate waits for all answers */
    uint32_t need;        /* answers needed after that */
    uint32_t n_each;      /* incoming tensors per peer */
    struct stepaf_some_slot slots[STEPAF_SOME_SLOTS];
};

/* ---- any: one batch, of whichever peer has sent one ----
 *
 * The GPU finds the peer and the slot, so everything that depends on them lies in GPU memory: the
 * tensors of all peers, and a ring of the batches that were taken, where the next kernels look the
 * batch up. Each block counts for itself how many batches it has seen; this count is the index in
 * the ring. */

/* A tensor in slot 0, and the strides to the next slots. */
struct stepaf_any_tensor {
    struct stepaf_kernel_tensor tensor;
    uint32_t head_stride;
    uint32_t body_stride;
    uint32_t data_stride;
};

/* The next batch of a peer. A last entry has in slot the peer that the search begins with. */
struct stepaf_any_next {
    uint32_t rounds; /* operations that its slot has seen */
    uint32_t slot;
};

/* A batch in the ring. Stored and loaded whole, like a head's last 16 bytes. */
struct stepaf_any_entry {
    uint64_t batch; /* operation in its slot << 32 | peer << 8 | slot */
    uint64_t stamp; /* epoch << 32 | number of the batch, from 1 */
};

/* How blocks share a tensor of one peer, the same for any peer; and what a launch changes. */
struct stepaf_any_share {
    uint8_t *data;  /* sender: source; NULL: as the kernel tensor has it */
    uint32_t bytes; /* sender; UINT32_MAX: as the kernel tensor has it */
    uint16_t first; /* first block */
    uint16_t n;     /* 0: the gate takes its pieces, if it has any */
};

struct stepaf_any_args {
    uint32_t *counts; /* as in stepaf_kernel_args: batches so far */
    uint32_t *done;
    uint32_t *failed;
    uint32_t *landed; /* of slot 0 */
    struct stepaf_gpu_watch *watch;
    uint64_t timeout_ns;
    const struct stepaf_any_tensor *tensors; /* peer by peer */
    struct stepaf_any_entry *ring;
    struct stepaf_any_next *next;
    uint32_t *origin; /* peer and slot of the last batch taken, for the user */
    uint32_t epoch;
    uint32_t ring_mask;
    uint32_t landed_stride; /* words from slot to slot */
    uint16_t n_peers;
    uint8_t n_each; /* tensors per peer */
    uint8_t depth;
    uint8_t slot; /* for faults: not known, 0 */
    uint8_t aligned;
    uint8_t gate_takes;
    uint8_t gate_ends;
    struct stepaf_any_share shares[STEPAF_ANY_TENSORS];
};

/* ---- timestamps: when a stream reached a point of an operation ----
 *
 * These are separate kernels, so that those above are the same without them. A timestamp is 16
 * bytes, stored at once, in a ring in pinned memory. The host reads the ring when it likes: it
 * takes the timestamps with the next number, and the number shows if it was overtaken. The number
 * counts the timestamps of the ring. Operations are counted as well, in GPU memory, by kind and
 * slot, since streams keep the operations of a slot in order, and only those; so a captured graph
 * can be replayed. A plan that is over leaves no timestamps. */

enum stepaf_timestamp_kind {
    STEPAF_TIMESTAMP_SEND_BEGAN = 1,
    STEPAF_TIMESTAMP_NAME, /* follows another timestamp: a word instead of a time */
    STEPAF_TIMESTAMP_SEND_OVER,
    STEPAF_TIMESTAMP_WAIT_BEGAN,
    STEPAF_TIMESTAMP_ARRIVED,   /* a peer's data was announced while the stream waited */
    STEPAF_TIMESTAMP_WAS_THERE, /* it was announced before: found when the wait began */
    STEPAF_TIMESTAMP_WAIT_OVER,
    STEPAF_TIMESTAMP_KINDS
};

/* Bits of a timestamp:
 *
 *   time  0-47 nanoseconds of the GPU's clock; 48-59 the operation's upper 12. NAME: a word, all
 *         of it
 *   what  0-23 number, from 1; 24-43 the operation's lower 20, from 0; 44-47 kind; 48-63 peer. 0:
 *         none yet */
enum {
    STEPAF_TIMESTAMP_NUMBERS = 1 << 24, /* then numbers begin again */
    STEPAF_TIMESTAMP_OP = 24,
    STEPAF_TIMESTAMP_OPS = 1 << 20,
    STEPAF_TIMESTAMP_KIND = 44,
    STEPAF_TIMESTAMP_PEER = 48,
    STEPAF_TIMESTAMP_TIME_BITS = 48
};

struct stepaf_timestamp {
    uint64_t time;
    uint64_t what;
};

/* A head that is waited for. */
struct stepaf_timestamp_head {
    const uint8_t *head;
    const uint8_t *leader; /* another head, if TOLD_ALL there announces this one too; NULL: none */
};

struct stepaf_timestamp_args {
    struct stepaf_timestamp *ring;
    uint32_t *n_timestamps; /* GPU memory: timestamps of the ring, ever */
    uint32_t *n_ops;        /* GPU memory: operations of this kind and slot, ever */
    uint32_t mask;          /* index mask of the ring */
    uint32_t name;          /* word of the host */
    uint8_t kind;
    uint8_t named; /* NAME follows, with the host's word or the batch's */
    uint8_t slot;
    uint8_t depth; /* of the plan: operation is slot + depth times the slot's earlier ones */
    /* Behind a gate that takes any peer's batch: the ring of batches, and their count. NULL: no
     * such gate. */
    const struct stepaf_any_entry *batches;
    const uint32_t *n_batches;
    uint32_t batch_mask;
    /* The rest is for ARRIVALS: one thread for each peer that is waited for, up to 64. The first
     * launch of an operation also notes WAIT_BEGAN, and counts it in n_ops; the other launches look
     * there. */
    uint8_t begins;
    uint16_t n_peers;
    uint16_t n_each; /* heads per peer */
    uint32_t epoch;
    const struct stepaf_timestamp_head *heads; /* GPU memory, peer by peer */
    const uint16_t *peers;                     /* GPU memory: the peers' indices */
    const uint32_t *counts;                    /* of the next gate */
    uint32_t *failed;                          /* this and the rest: as in stepaf_kernel_args */
    struct stepaf_gpu_watch *watch;
    uint64_t timeout_ns;
};

enum stepaf_times_kernel {
    STEPAF_KERNEL_TIMESTAMP, /* one thread: note the time when earlier work of the stream is done */
    STEPAF_KERNEL_ARRIVALS,  /* one block: wait as a gate does, and note the time of each peer */
    STEPAF_TIMES_KERNEL_COUNT
};

#define STEPAF_CLOCK_STOP UINT32_MAX

/* Args of a kernel of one thread that tells the host the time, as often as the host asks. */
struct stepaf_clock_args {
    const uint32_t *asked; /* pinned: a new number asks for the time; STOP ends the kernel */
    struct stepaf_timestamp *answer; /* pinned: time, and that number; STOP at the end */
    uint32_t before;                 /* the number already there, and the first answer */
    uint64_t timeout_ns;             /* after which the kernel stops by itself */
};

#endif
