/* SPDX-License-Identifier: Apache-2.0 */
/* Shared memory between the processes of one node.
 *
 * Each rank owns one control segment, an anonymous file that peers open through /proc; nothing has
 * a name that could be left behind. For every peer the segment holds an inbox: a ring of 64-byte
 * slots that the peer writes and this rank reads, and a line of words. After the inboxes the
 * segment has space for one fragment per slot, untouched and therefore without memory unless
 * needed.
 *
 * A write goes directly into the peer's memory: as a copy if the region is a shared file, else by
 * cross-memory attach, else as fragments through the inbox. Pages written by cross-memory attach
 * belong to the user, who may reuse them when this rank is done with them. Before that, a rank
 * closes them to peers that it has declared lost, or to all. */
#ifndef STEPAF_TRANSPORT_SHM_SHM_H
#define STEPAF_TRANSPORT_SHM_SHM_H

#include <stdatomic.h>
#include <string.h>
#include <sys/types.h>

#include "device/device.h"
#include "transport/transport.h"

/* One message in a line of its own. The reader polls that line, so it requests the line back the
 * moment the writer has claimed it; if the writer's stores are still in flight then, the line
 * crosses once more. Therefore the writer uses as few stores as possible: two for a message without
 * words. The second one makes the message valid. */
struct stepaf_shm_slot {
    _Atomic uint64_t ready; /* low half: number of the message, from 1; high half: its seq */
    uint64_t head;
    uint64_t pair[STEPAF_MSG_WORDS / 2];
    uint64_t spare;
};

_Static_assert(sizeof(struct stepaf_shm_slot) == 64, "a slot is a cache line");

enum {
    STEPAF_SHM_LINE = 64,
    STEPAF_SHM_PAIR = 128, /* lines are prefetched in pairs: inboxes do not share a pair */
    STEPAF_SHM_TOKEN_WORDS = 2
};

/* First line of a control segment. */
struct stepaf_shm_head {
    uint64_t token[STEPAF_SHM_TOKEN_WORDS]; /* so that a reused process id is noticed */
};

/* Words after an inbox. Both processes write here; what the peer writes is untrusted. */
struct stepaf_shm_words {
    _Atomic uint32_t read;    /* by the peer: number of this rank's messages that it has read */
    _Atomic uint32_t writing; /* by the peer: it is writing to pages of this rank */
    /* by this rank: the peer must not begin to write; stepaf_shm_closed_to */
    _Atomic uint32_t closed;
};

enum stepaf_shm_closed {
    STEPAF_SHM_OPEN,
    STEPAF_SHM_GIVEN_UP,
    STEPAF_SHM_UNWRITABLE,    /* this rank has declared the peer lost: memory there cannot be
                               * written */
    STEPAF_SHM_OWN_UNWRITABLE /* memory of this rank cannot be written */
};

/* Encode which process the pages are closed to, as well: the next process in the same place may
 * read the word before this rank has cleared the inbox for it. A process id has 22 bits at most. */
static inline uint32_t stepaf_shm_closed_to(pid_t pid, enum stepaf_shm_closed why)
{
    return (uint32_t)pid << 2 | (uint32_t)why;
}

_Static_assert(sizeof(struct stepaf_shm_words) <= STEPAF_SHM_LINE, "the words are in one line");

/* Return why the peer has closed its pages to this process. */
static inline enum stepaf_shm_closed stepaf_shm_closed_for(const struct stepaf_shm_words *words,
                                                           pid_t own)
{
    uint32_t closed = atomic_load(&words->closed);

    return closed >> 2 == (uint32_t)own ? (enum stepaf_shm_closed)(closed & 3) : STEPAF_SHM_OPEN;
}

/* Offsets within the control segment of a rank with a given number of peers. */
struct stepaf_shm_layout {
    uint32_t slots;          /* of an inbox; a power of two */
    uint32_t fragment_bytes; /* of a slot's space for a fragment */
    size_t inbox_bytes;      /* slots, then the line of words */
    size_t staging_at;       /* where the fragments begin */
    size_t bytes;
};

struct stepaf_shm_link {
    struct stepaf_link base;
    /* incoming: inbox in this rank's segment */
    struct stepaf_shm_slot *rx;
    uint32_t rx_next; /* messages read */
    uint32_t rx_told; /* of those, known to the peer */
    struct stepaf_shm_words *rx_words;
    uint8_t *rx_staging;
    /* outgoing: inbox in the peer's segment */
    struct stepaf_shm_slot *tx;
    uint32_t tx_next; /* messages written */
    uint32_t tx_read; /* of those, known to be read by the peer */
    struct stepaf_shm_words *tx_words;
    uint8_t *tx_staging;
    uint32_t mask; /* slots - 1 */
    uint32_t fragment_bytes;
    bool cma;    /* the kernel lets this rank write to the peer's pages */
    bool staged; /* fragments have been used */
    bool shut;   /* the peer has closed its pages: its messages still count, then it is lost */
    pid_t pid, own_pid;
    int pidfd;           /* -1: the kernel has none */
    int control_fd;      /* of the peer's control segment, at the peer */
    bool control_closed; /* at the last check */
    ino_t control_inode; /* 0: it cannot be checked */
    void *map;           /* mapping of the peer's segment */
    size_t map_bytes;
};

/* The process that had a peer's place before, with an inbox that this process may still write
 * to. */
struct stepaf_shm_predecessor {
    pid_t pid; /* 0: none, or it has ended */
    int pidfd; /* -1: the kernel has none */
};

struct stepaf_shm {
    struct stepaf_transport base;
    struct stepaf_device_mem control;
    struct stepaf_shm_layout layout;
    uint64_t token[STEPAF_SHM_TOKEN_WORDS];
    struct stepaf_shm_link **links; /* the connected ones, packed */
    unsigned n_links;
    unsigned n_peers;
    struct stepaf_shm_predecessor *predecessors; /* by peer */
    size_t shared_copy_bytes; /* from this size on, copies of one source to several peers
                               * interleave */
    int ptrace_scope;         /* 0: no Yama */
    bool attach_allowed;      /* by this context, and must be undone */
    size_t uncached_bytes;    /* from this size on, copies bypass the cache */
    bool kernel_copies;       /* copying a caller's memory that is unmapped raises no SIGSEGV */
    int epoll_fd;             /* over the peers' pidfds */
    unsigned n_unwatched;     /* links without a pidfd */
    int64_t same_program_ns;  /* when peers' programs are checked again */
};

struct stepaf_shm_rmem {
    struct stepaf_rmem base;
    uint8_t *map;     /* NULL: the peer's own pages */
    uint64_t address; /* in the peer's address space */
};

extern const struct stepaf_transport_ops stepaf_shm_ops;

/* connect.c */
struct stepaf_shm_layout stepaf_shm_layout(const struct stepaf_env *env, unsigned n_peers);
void stepaf_shm_pack_address(struct stepaf_transport *transport, struct stepaf_pack *pack);
stepaf_status_t stepaf_shm_connect(struct stepaf_transport *transport,
                                   const struct stepaf_peer_facts *facts,
                                   struct stepaf_unpack *unpack, struct stepaf_link **link_p,
                                   char *reason);
void stepaf_shm_disconnect(struct stepaf_link *link);

/* region.c */
void stepaf_shm_pack_mem(struct stepaf_transport *transport, const struct stepaf_mem *mem,
                         struct stepaf_pack *pack);
stepaf_status_t stepaf_shm_import_mem(struct stepaf_link *link, uint32_t id, uint64_t bytes,
                                      struct stepaf_unpack *unpack, struct stepaf_rmem **rmem_p);
void stepaf_shm_release_mem(struct stepaf_link *link, struct stepaf_rmem *rmem);

/* post.c */
unsigned stepaf_shm_post(struct stepaf_post *const *posts, unsigned n);

/* progress.c */
unsigned stepaf_shm_progress(struct stepaf_transport *transport, unsigned polls);
/* Take the messages that a peer has written, at most one lap of the ring; return how many. */
unsigned stepaf_shm_drain(struct stepaf_shm_link *link);

/* watch.c */
/* Begin to watch the peer's process. False, with @a reason, if it is gone. */
bool stepaf_shm_watch(struct stepaf_shm *shm, struct stepaf_shm_link *link, char *reason);
void stepaf_shm_unwatch(struct stepaf_shm *shm, struct stepaf_shm_link *link);
/* Start to watch the peer's process. Returns false, with @a reason, if it has ended. */
void stepaf_shm_vacate(struct stepaf_shm *shm, struct stepaf_shm_link *link);
/* Return whether no other process writes to the peer's inbox. Returns false, with @a reason, if the
 * process that had the place is alive. */
bool stepaf_shm_is_vacant(struct stepaf_shm *shm, uint32_t peer, pid_t pid, char *reason);
/* Forget the processes that had the places. */
void stepaf_shm_forget(struct stepaf_shm *shm);
/* Record by which program the peer was announced: @a fd is that of its control segment. */
void stepaf_shm_identify(struct stepaf_shm_link *link, int fd);
/* Return whether the peer's process has ended; is_over is the transport's operation. */
bool stepaf_shm_is_over(struct stepaf_link *link);
bool stepaf_shm_has_ended(const struct stepaf_shm_link *link);
void stepaf_shm_check_peers(struct stepaf_transport *transport);
/* Forbid a lost peer to begin to write to this rank's pages. */
void stepaf_shm_fence(struct stepaf_link *link);
/* Keep lost peers from beginning to write to this rank's pages; return whether none whose process
 * lives is still writing. close_pages does the same for all peers, until none is writing or the
 * time is over. */
bool stepaf_shm_is_quiet(struct stepaf_transport *transport, bool begin, uint32_t *peer_p);
void stepaf_shm_close_pages(struct stepaf_shm *shm, int64_t timeout_us);

/* close.c */
/* Close this rank's pages to the peer, which can read why. A reason that is already set stays. */
void stepaf_shm_close(struct stepaf_shm_link *link, enum stepaf_shm_closed why);
/* Close the pages, and declare the peer lost. */
void stepaf_shm_give_up(struct stepaf_shm_link *link, enum stepaf_shm_closed why,
                        const char *reason);

/* write.c: the three ways to write to a peer */
/* Copy one source to several places, reading the source from memory once; bypass the cache from @a
 * uncached bytes on. */
void stepaf_shm_copy_many(uint8_t *const *dst, unsigned n, const uint8_t *src, size_t bytes,
                          size_t uncached);
enum stepaf_shm_written {
    STEPAF_SHM_WRITTEN,   /* or the link is, or has been, shut */
    STEPAF_SHM_FORBIDDEN, /* the kernel no longer lets this rank write there; the peer is alive */
    STEPAF_SHM_NO_SOURCE, /* this rank's own memory cannot be read */
    STEPAF_SHM_NO_PLACE,  /* the peer's memory cannot be written */
    STEPAF_SHM_NO_ROOM,   /* in the ring, for the rest */
    STEPAF_SHM_GONE       /* the peer's process has ended */
};
/* Write post->xfer[post->at] to the peer's own pages, from post->at_offset on, which is advanced by
 * the bytes written. */
enum stepaf_shm_written stepaf_shm_write_pages(struct stepaf_shm_link *link,
                                               struct stepaf_post *post);
/* Send fragments of post->xfer[post->at] from post->at_offset on, while there are free slots.
 * Return WRITTEN when the tensor is complete; NO_ROOM; or NO_SOURCE, if the kernel copies. */
enum stepaf_shm_written stepaf_shm_write_fragments(struct stepaf_shm_link *link,
                                                   struct stepaf_post *post);

/* the rings */
static inline bool stepaf_shm_has_message(const struct stepaf_shm_link *link)
{
    const struct stepaf_shm_slot *slot = &link->rx[link->rx_next & link->mask];

    return (uint32_t)atomic_load_explicit(&slot->ready, memory_order_acquire) == link->rx_next + 1;
}

/* Copy the message that has arrived. */
static inline void stepaf_shm_slot_read(const struct stepaf_shm_link *link,
                                        struct stepaf_msg *msg_p)
{
    const struct stepaf_shm_slot *slot = &link->rx[link->rx_next & link->mask];

    memcpy(msg_p, &slot->head, sizeof(slot->head));
    msg_p->seq = (uint32_t)(atomic_load_explicit(&slot->ready, memory_order_relaxed) >> 32);
    msg_p->n_words = STEPAF_MSG_WORDS;
    memcpy(msg_p->word, slot->pair, sizeof(slot->pair));
}

static inline bool stepaf_shm_slot_free(struct stepaf_shm_link *link)
{
    if (__builtin_expect(link->tx_next - link->tx_read <= link->mask, 1))
        return true;
    uint32_t read = atomic_load_explicit(&link->rx_words->read, memory_order_acquire);
    /* Untrusted input: ignore a number that was never possible. */
    if (read - link->tx_read <= link->tx_next - link->tx_read)
        link->tx_read = read;
    return link->tx_next - link->tx_read <= link->mask;
}

static inline void stepaf_shm_slot_write(struct stepaf_shm_link *link, const struct stepaf_msg *msg)
{
    struct stepaf_shm_slot *slot = &link->tx[link->tx_next & link->mask];

    link->tx_next++;
    for (uint32_t i = 0; 2 * i < msg->n_words; i++)
        memcpy(&slot->pair[i], &msg->word[2 * i], sizeof(slot->pair[i]));
    memcpy(&slot->head, msg, sizeof(slot->head));
    atomic_store_explicit(&slot->ready, link->tx_next | (uint64_t)msg->seq << 32,
                          memory_order_release);
}

#endif
