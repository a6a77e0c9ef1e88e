/* SPDX-License-Identifier: Apache-2.0 */
/* Threads that share the kernel's copies with the calling thread: sends and reads of several
 * sockets at the same time. The scheme is fork and join: the caller offers copies, does one itself,
 * and joins; nothing continues after the join. The caller also does the copies that no thread has
 * begun by then, so that a thread that is slow to wake delays nothing. */
#ifndef STEPAF_TRANSPORT_TCP_COPIERS_H
#define STEPAF_TRANSPORT_TCP_COPIERS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

enum {
    STEPAF_TCP_COPIERS_MAX = 7,
    STEPAF_TCP_COPIES = 7,            /* maximum offered at a time */
    STEPAF_TCP_READ_BYTES = 128 << 10 /* per read: the sender is notified of the space after each */
};

/* One socket's share of the copies. Never blocks. */
struct stepaf_tcp_copy {
    int fd;
    bool receives;
    unsigned n_iov;    /* one, if it receives */
    struct iovec *iov; /* the caller's, until the join */
    /* The result. */
    size_t bytes; /* sent or received */
    int error;    /* errno of the call that ended it; 0: none failed */
    bool over;    /* the peer has closed: nothing more will arrive */
};

struct stepaf_tcp_copiers;

/* Start @a n threads, or as many as possible; the log reports fewer. Return NULL if there are
 * none. */
struct stepaf_tcp_copiers *stepaf_tcp_copiers_start(unsigned n, uint64_t ticks_per_us);
/* End the threads. In a child of fork(), which has no such threads, only free the memory. */
void stepaf_tcp_copiers_end(struct stepaf_tcp_copiers *copiers);
/* Let a thread do @a copy, which is copied. One caller at a time, with at most STEPAF_TCP_COPIES
 * offers before the join. The returned copy holds the result, from the join to the next offer. */
const struct stepaf_tcp_copy *stepaf_tcp_copiers_offer(struct stepaf_tcp_copiers *copiers,
                                                       const struct stepaf_tcp_copy *copy);
/* Return once all offered copies are done. */
void stepaf_tcp_copiers_join(struct stepaf_tcp_copiers *copiers);
/* Do a copy in this thread. */
void stepaf_tcp_copy_run(struct stepaf_tcp_copy *copy);

#endif
