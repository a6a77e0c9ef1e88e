/* SPDX-License-Identifier: Apache-2.0 */
/* What the host tells the kernels: shared by C and CUDA C++.
 *
 * A tensor travels to a *mailbox*: a place in the receiver's GPU memory that its sender has mapped, or
 * in host memory that both have mapped and pinned.
 * Heads, and tensors that go by LL, are written in *pieces*: 16 bytes that one thread stores, and
 * one loads, at once. Mailboxes are filled with 0 at first.
 *
 * A mailbox begins with a head of 128 bytes, eight pieces:
 *
 *   pieces 0-6  the tensor itself, if it is no larger (STEPAF_PROTO_INLINE): 12 bytes of it, and the
 *               stamp's lower half with the highest bit set, so that it is not 0
 *   piece 7     bytes of the tensor; stamp: epoch of the commit << 32 | number of the operation in this
 *               slot, from 1, in 31 bits
 *
 * A stream can also store the head of a tensor that a copy engine has written. It cannot count, so
 * the last 8 bytes are all that it writes: bytes << 32, and a mark in the lower half: TOLD; or
 * TOLD_ALL, if all that copy engines write for this peer is there, as many bytes as planned. Each word
 * takes the stream most of a microsecond. The receiver clears it.
 *
 * Pieces 0-6 of other heads are not written, nor looked at. It goes on as the way asks:
 *
 *   INLINE nothing follows.
 *   LL     groups of 64 pieces, 1,024 bytes, which a warp writes at once, and reads so. 63 pieces are
 *          1,008 bytes of the tensor, but for the highest bit of each piece, which is set: it says
 *          that the piece is there. What the tensor has in its place is in the 64th piece: bit i of
 *          its first word is piece i's; its second word is 0 but for its own highest bit. The receiver
 *          waits for all 64, and fills them with 0. No fence, no flag, no order: the fastest way for up
 *          to some megabytes, at the price of a copy by the receiver. The head comes first.
 *   ZCOPY  written straight to its place in the receiver's tensor, by a kernel or a copy engine,
 *          then the head.
 *   BCOPY  the same, but into the mailbox, and copied by the receiver: for tensors that cannot be
 *          mapped by others.
 *   RDMA   sent by the host, which has a network card read the source: the sender writes the head
 *          alone, and in its piece 6 where the source is. Whether it is to be told when the source has
 *          been read is the highest bit of that; then a gate of its own waits for TOLD.
 *   CHUNKS through a mailbox in host memory, in chunks of 1 to 4 KiB, which a warp each stores, and
 *          takes. Behind each chunk is its flag: 16 bytes, of which the second word is the stamp. A
 *          fence is between the two, and the receiver has to see the flag before it loads the chunk.
 *          So both PCIe links are busy at once, and nothing has to be cleared. The head comes first.
 *   PARTS  between a GPU and the host of its own process, which carries the tensor on: whole, but with
 *          flags of its parts, of 1 to 16 KiB, behind the head. A part is sent and taken as a chunk is,
 *          so that the host, which has the head first, can send what is there of a tensor, and the
 *          stream takes what has come of it, while the rest is still under way.
 *
 * Nothing but a piece is taken to be whole (as it is on the GPUs there are, though PTX does not say so).
 * Larger things are not: NVLink brings the bytes of a 128-byte store in ascending order (which NCCL's
 * LL128 relies on: github.com/NVIDIA/nccl, issue 786), but eight threads that load them may see some as
 * they were before the others; over PCIe nothing is known of the order.
 *
 * The number of an operation is counted on the GPU, so that a captured graph can be replayed. */
#ifndef STEPAF_DEVICE_KERNELS_H
#define STEPAF_DEVICE_KERNELS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    STEPAF_HEAD_BYTES = 128,
    STEPAF_HEAD_PIECE = 12,      /* of a tensor in a piece of a head */
    STEPAF_HEAD_DATA = 84,       /* of a tensor in a head */
    STEPAF_HEAD_SOURCE = 96,     /* RDMA: where its last piece but one is */
    STEPAF_HEAD_TELLS = 112,     /* where its last piece is */
    STEPAF_GROUP_BYTES = 1024,   /* of 64 pieces */
    STEPAF_GROUP_DATA = 1008,    /* of a tensor in them */
    STEPAF_KERNEL_TENSORS = 64,  /* tensors in one launch: of whole peers */
    STEPAF_ARGS_FEW = 4,         /* with no more, a launch has fewer parameters to carry */
    STEPAF_LAUNCH_BLOCKS = 1056, /* blocks of one launch, at most */
    STEPAF_WARP = 32,
    STEPAF_GATE_GROUPS = 16,   /* that the gate takes itself, a warp each */
    STEPAF_CHUNK_LEAST = 1024, /* bytes of a chunk */
    STEPAF_CHUNK_MOST = 4096,
    STEPAF_CHUNK_TELLS = 128, /* behind a chunk: its flag, in lines that nobody else polls */
    STEPAF_CHUNK_SENDERS =
        128, /* blocks that send chunks at once, at most, so that the first are there
                                 * while the last are not yet sent */
    STEPAF_CHUNK_TAKERS = 256,   /* and that take them: host memory is a microsecond away */
    STEPAF_PART_MOST = 16 << 10, /* bytes of a part */
    STEPAF_PART_TOLD =
        16, /* from flag to flag: of what is sent, since the host looks at them all */
    STEPAF_PART_TELLS = 128,  /* of what is taken, in lines of their own, as with chunks */
    STEPAF_PART_SENDERS = 32, /* blocks that send parts: enough for PCIe, the first soon there */
    STEPAF_PART_TAKERS = 64,  /* and that take them */
    STEPAF_ANY_TENSORS = 8    /* of one peer, each way: STEPAF_MAX_TENSORS */
};

/* Lower halves of stamps that count nothing. */
#define STEPAF_TOLD UINT32_C(0xffffffff)
#define STEPAF_TOLD_ALL UINT32_C(0xfffffffe)

/* Operations are counted in 31 bits, so that no stamp looks like these. */
#define STEPAF_COUNT_MASK UINT32_C(0x7fffffff)

/* The stamp of operation @a n, as the host makes it; kernels_common.cuh has the kernels' own. */
static inline uint64_t stepaf_stamp(uint32_t epoch, uint32_t n)
{
    return (uint64_t)epoch << 32 | (n & STEPAF_COUNT_MASK);
}

#define STEPAF_HEAD_MARK UINT32_C(0x80000000) /* in the stamps of a head's pieces */

#define STEPAF_SOURCE_GUARDED (UINT64_C(1) << 63) /* with the place of a source */

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

/* Whether a tensor goes by CHUNKS or PARTS: kernels of their own. */
static inline bool stepaf_proto_has_chunks(uint8_t proto)
{
    return proto == STEPAF_PROTO_CHUNKS || proto == STEPAF_PROTO_PARTS;
}

/* Bytes of a chunk of a tensor that is no larger than @a most, and of its mailbox behind the
 * head. */
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

/* Bytes of a part of a tensor that is no larger than @a most; and how many there are of @a
 * bytes. */
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
    STEPAF_KERNEL_UNPACK, /* one warp a block: bring pieces and mailboxes to their tensors */
    /* SEND and UNPACK where some tensors go by CHUNKS or PARTS, or are sent by RDMA. The unpacking
     * counts then as sending does. */
    STEPAF_KERNEL_SEND_CHUNKS,
    STEPAF_KERNEL_UNPACK_CHUNKS,
    /* Kernels for plans of which some answers are enough: see the end. */
    STEPAF_KERNEL_SEND_SOME,
    STEPAF_KERNEL_GATE_SOME,
    STEPAF_KERNEL_UNPACK_SOME,
    STEPAF_KERNEL_SEND_SOME_CHUNKS,
    STEPAF_KERNEL_UNPACK_SOME_CHUNKS,
    STEPAF_KERNEL_SETTLE, /* one block: wait for those who are late in the slot, or give them up */
    STEPAF_KERNEL_COUNT
};

/* Kernels for plans that take the batch of any one peer: their args are stepaf_any_args. */
enum stepaf_any_kernel {
    STEPAF_KERNEL_SEND_ANY,
    STEPAF_KERNEL_GATE_ANY,
    STEPAF_KERNEL_UNPACK_ANY,
    STEPAF_KERNEL_SEND_ANY_CHUNKS,
    STEPAF_KERNEL_UNPACK_ANY_CHUNKS,
    STEPAF_ANY_KERNEL_COUNT
};

/* Why a wait ended without what was waited for. */
enum stepaf_fault { STEPAF_FAULT_NONE, STEPAF_FAULT_TIMEOUT, STEPAF_FAULT_ABORTED };

/* One tensor from or to one peer. */
struct stepaf_kernel_tensor {
    uint8_t *head; /* of the mailbox */
    uint8_t *
        body; /* LL, BCOPY, CHUNKS: after the head; ZCOPY: the tensor's place at the receiver; BCOPY
                * and PARTS of the proxy: its buffer */
    uint8_t *data;  /* sender: source; receiver: destination */
    uint32_t bytes; /* sender: of this operation; receiver: what it has room for */
    union {
        uint32_t planned; /* receiver: bytes of it where TOLD_ALL tells of it */
        uint32_t chunk;   /* CHUNKS, PARTS: bytes of each, a multiple of 512 */
        uint32_t guarded; /* RDMA: 1, the sender is to be told when the source has been read */
    };
    uint16_t first; /* block of this one's first */
    uint16_t n;     /* how many blocks share it; 0: none of this kernel's */
    uint8_t proto;  /* stepaf_proto */
    uint8_t copied; /* a copy engine writes it: 1 + the tensor where TOLD_ALL comes to; else 0 */
    uint16_t peer;  /* index, for faults */
};

#define STEPAF_WATCH_ANY UINT32_C(0x80000000) /* with a peer: any would have done, it was next */

enum { STEPAF_SOME_SLOTS = 32 }; /* STEPAF_MAX_DEPTH */

/* In pinned host memory, one for each plan. */
struct stepaf_gpu_watch {
    uint32_t abort; /* the host asks all waits of this plan to end */
    uint32_t fault; /* stepaf_fault: the first that a wait has met */
    uint32_t peer;  /* index of the peer that was waited for */
    uint32_t slot;
    /* Of plans of which some answers are enough, a bit a peer. */
    uint64_t lost; /* the host's word: they are lost, and not waited for */
    struct {
        uint64_t mask, given_up; /* of the slot's last operation, as in stepaf_some_slot */
    } answers[STEPAF_SOME_SLOTS];
};

/* All that a launch has to know. It goes as the kernel's parameter, so that nothing but the
 * operation's number has to be fetched from memory. */
struct stepaf_kernel_args {
    uint32_t *counts; /* operations so far: [0] of the gate, or [1 + b] of the sending block b */
    union {
        uint32_t *done; /* sender, ZCOPY and BCOPY: blocks that are through, one a tensor */
        struct stepaf_some *awaited; /* receiver, of some: what is known of the peers */
    };
    uint32_t *failed; /* GPU memory, two a plan: nothing is to be done any more; being noted */
    union {
        uint32_t *landed;          /* receiver: actual bytes, one a tensor */
        struct stepaf_some *asked; /* sender, of some: the same as awaited */
    };
    struct stepaf_gpu_watch *watch; /* pinned */
    uint64_t timeout_ns;
    uint32_t epoch; /* of the commit */
    uint16_t n_tensors;
    uint8_t slot;
    uint8_t aligned;    /* all places are multiples of 16 bytes */
    uint8_t gate_takes; /* pieces are the gate's: they are few */
    uint8_t gate_ends;  /* no unpacking follows the gate */
    struct stepaf_kernel_tensor tensors[STEPAF_KERNEL_TENSORS];
};

/* Receiving: tensors that do not come, with no head, look where another one of the launch does, and
 * take nothing of it. So the gate, which looks at all heads at once, need not know of them. Without
 * another one there is none. */
static inline void stepaf_kernel_tensors_fill(struct stepaf_kernel_args *args)
{
    const struct stepaf_kernel_tensor *told = NULL;

    for (uint32_t i = 0; i < args->n_tensors && !told; i++) /* by its own head, in any case */
        if (args->tensors[i].head && (!args->tensors[i].copied || args->tensors[i].copied == i + 1))
            told = &args->tensors[i];
    for (uint32_t i = 0; i < args->n_tensors && told; i++) {
        struct stepaf_kernel_tensor *tensor = &args->tensors[i];
        if (tensor->head)
            continue;
        tensor->head = told->head;
        tensor->body = told->body;
        tensor->peer = told->peer;
        tensor->proto = STEPAF_PROTO_ZCOPY; /* nothing is left to do when its head is there */
        if (told->proto == STEPAF_PROTO_INLINE)
            tensor->proto = STEPAF_PROTO_INLINE; /* the gate may look for such heads alone */
    }
    if (!told)
        args->n_tensors = 0;
}

/* The beginning of kernel args with few tensors, as a parameter of its own. */
struct stepaf_kernel_args_few {
    uint64_t
        words[offsetof(struct stepaf_kernel_args, tensors[STEPAF_ARGS_FEW]) / sizeof(uint64_t)];
};

/* ---- some: operations that are complete before all peers have answered ----
 *
 * The gate ends when enough peers have all their tensors there. Whoever has not is late in that
 * slot. What is late is taken by the next start in the slot, before anything is sent, or its peer
 * is given up: nothing is sent to it, and nothing taken of it, until the next commit. So whoever is
 * asked has given back the slot, and all count as ever. All tensors of the operation are in one
 * launch, so that bits do for the peers. */

/* Of a slot. The first three words are stepaf_answers_t. */
struct stepaf_some_slot {
    uint64_t mask;     /* whose tensors were there when the wait ended */
    uint64_t given_up; /* who was not waited for any more: also those that are lost */
    uint64_t late;     /* answers of the plan that a start has waited for, until then */
    uint64_t missing;  /* who is late */
    uint64_t now;      /* whose tensors the unpacking that comes next takes */
};

/* Of a plan, in GPU memory. */
struct stepaf_some {
    uint64_t gone; /* who has been given up, or is lost */
    uint64_t late;
    uint64_t patience_ns; /* for so long a gate waits for all */
    uint32_t need;        /* answers, then */
    uint32_t n_each;      /* tensors of a peer that come in */
    struct stepaf_some_slot slots[STEPAF_SOME_SLOTS];
};

/* ---- any: one batch of whichever peer has sent one ----
 *
 * The GPU finds which peer and slot it is, so that all that depends on them lies in GPU memory: the
 * tensors of all peers, and a ring of the batches that were taken, where the kernels that follow
 * look it up. Each block counts for itself how many batches it has seen; that is the ring's
 * index. */

/* A tensor in slot 0, and the way to the same in the next. */
struct stepaf_any_tensor {
    struct stepaf_kernel_tensor tensor;
    uint32_t head_stride;
    uint32_t body_stride;
    uint32_t data_stride;
};

/* The next batch of a peer. One more at the end: slot is the peer that the search begins with. */
struct stepaf_any_next {
    uint32_t rounds; /* operations that its slot has seen */
    uint32_t slot;
};

/* A batch in the ring: stored and loaded whole, as a head's last 16 bytes are. */
struct stepaf_any_entry {
    uint64_t batch; /* operation in its slot << 32 | peer << 8 | slot */
    uint64_t stamp; /* epoch << 32 | how many-th batch it is, from 1 */
};

/* How a tensor of one peer is shared out, whichever peer it is; and what a launch changes. */
struct stepaf_any_share {
    uint8_t *data;  /* sender: source; NULL: as the kernel tensor has it */
    uint32_t bytes; /* sender; UINT32_MAX: as the kernel tensor has it */
    uint16_t first; /* block */
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
    uint32_t *origin; /* peer and slot of the batch that was taken last, for the user */
    uint32_t epoch;
    uint32_t ring_mask;
    uint32_t landed_stride; /* words from slot to slot */
    uint16_t n_peers;
    uint8_t n_each; /* tensors of a peer */
    uint8_t depth;
    uint8_t slot; /* for faults: not known, 0 */
    uint8_t aligned;
    uint8_t gate_takes;
    uint8_t gate_ends;
    struct stepaf_any_share shares[STEPAF_ANY_TENSORS];
};

/* ---- timestamps: when a stream came to a point of an operation ----
 *
 * Kernels of their own, so that those above are the same without them. A timestamp is 16 bytes, stored at
 * once, in a ring in pinned memory, which the host reads when it likes: it takes those whose number is the
 * next one, and sees by the number if it was overtaken. The number counts the timestamps of the ring.
 * Operations are counted as well, in GPU memory, by kind and slot, since streams keep the operations of a
 * slot in order, and no others: so a captured graph can be replayed. There are none of a plan that is over. */

enum stepaf_timestamp_kind {
    STEPAF_TIMESTAMP_SEND_BEGAN = 1,
    STEPAF_TIMESTAMP_NAME, /* with another one: a word in place of a time */
    STEPAF_TIMESTAMP_SEND_OVER,
    STEPAF_TIMESTAMP_WAIT_BEGAN,
    STEPAF_TIMESTAMP_ARRIVED,   /* what a peer has sent was told of, while the stream waited */
    STEPAF_TIMESTAMP_WAS_THERE, /* and before it did: found when it began to wait */
    STEPAF_TIMESTAMP_WAIT_OVER,
    STEPAF_TIMESTAMP_KINDS
};

/* Of what a timestamp says, bits:
 *
 *   time  0-47 nanoseconds of the GPU's clock; 48-59 the operation's upper 12. NAME: a word, all of it
 *   what  0-23 number, from 1; 24-43 the operation's lower 20, from 0; 44-47 kind; 48-63 peer. 0: none yet */
enum {
    STEPAF_TIMESTAMP_NUMBERS = 1 << 24, /* then they begin again */
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
    const uint8_t *leader; /* another one, where TOLD_ALL tells of it too; NULL: none */
};

struct stepaf_timestamp_args {
    struct stepaf_timestamp *ring;
    uint32_t *n_timestamps; /* GPU memory: of the ring, ever */
    uint32_t *n_ops;        /* GPU memory: operations of this kind and slot, ever */
    uint32_t mask;          /* of the ring */
    uint32_t name;          /* the host's word */
    uint8_t kind;
    uint8_t named; /* NAME follows: with the host's word, or the batch's */
    uint8_t slot;
    uint8_t depth; /* of the plan: operation is slot + depth times how many the slot had before */
    /* Behind a gate that takes any peer's batch: the ring of batches, and how many there were. NULL: it is
     * none. */
    const struct stepaf_any_entry *batches;
    const uint32_t *n_batches;
    uint32_t batch_mask;
    /* ARRIVALS, the rest: a thread for each peer that is waited for, up to 64. The first launch of an
     * operation notes WAIT_BEGAN as well, and counts it in n_ops; the others look there. */
    uint8_t begins;
    uint16_t n_peers;
    uint16_t n_each; /* heads of a peer */
    uint32_t epoch;
    const struct stepaf_timestamp_head *heads; /* GPU memory, peer by peer */
    const uint16_t *peers;                     /* GPU memory: their indices */
    const uint32_t *counts;                    /* of the gate that comes next */
    uint32_t *failed;                          /* this and the rest as in stepaf_kernel_args */
    struct stepaf_gpu_watch *watch;
    uint64_t timeout_ns;
};

enum stepaf_times_kernel {
    STEPAF_KERNEL_TIMESTAMP, /* one thread: note the time when all that the stream holds is done */
    STEPAF_KERNEL_ARRIVALS,  /* one block: wait as a gate does, and note the time of each peer */
    STEPAF_TIMES_KERNEL_COUNT
};

#define STEPAF_CLOCK_STOP UINT32_MAX

/* One thread that tells the host what time it is, as often as the host asks. */
struct stepaf_clock_args {
    const uint32_t *asked;           /* pinned: another number, it asks; STOP, no more */
    struct stepaf_timestamp *answer; /* pinned: time, and that number; at last STOP */
    uint32_t before;                 /* the number that is there already, and the first answer */
    uint64_t timeout_ns;             /* then it stops by itself */
};

#endif
