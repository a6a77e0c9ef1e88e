/* SPDX-License-Identifier: Apache-2.0 */
/* Threads that share the kernel's copies with the one that calls: sends and reads of several
 * sockets at the same time. By fork and join: the caller offers copies, does one itself, and joins,
 * and nothing goes on behind it. What no thread has begun by then the caller does as well, so that
 * a thread that is slow to wake holds up nobody. */
#ifndef STEPAF_TRANSPORT_TCP_COPIERS_H
#define STEPAF_TRANSPORT_TCP_COPIERS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

enum {
    STEPAF_TCP_COPIERS_MAX = 7,
    STEPAF_TCP_COPIES = 7,            /* that are offered at a time */
    STEPAF_TCP_READ_BYTES = 128 << 10 /* at once: the sender hears of the room after each */
};

/* One socket's share. Nothing of it blocks. */
struct stepaf_tcp_copy {
    int fd;
    bool receives;
    unsigned n_iov;    /* one, where it receives */
    struct iovec *iov; /* the caller's, until the join */
    /* What has come of it. */
    size_t bytes; /* sent or received */
    int error;    /* errno of the call that ended it; 0: none failed */
    bool over;    /* nothing more will come: the peer has closed */
};

struct stepaf_tcp_copiers;

/* Make @a n threads, or as many as there can be, which the log says. NULL: none. */
struct stepaf_tcp_copiers *stepaf_tcp_copiers_start(unsigned n, uint64_t ticks_per_us);
/* End them. In a child of fork(), which has none of them, only the memory is freed. */
void stepaf_tcp_copiers_end(struct stepaf_tcp_copiers *copiers);
/* Let a thread do @a copy, which is taken over. By one caller at a time; STEPAF_TCP_COPIES at most
 * until they are joined. What is returned says what came of it, from the join to the next offer. */
const struct stepaf_tcp_copy *stepaf_tcp_copiers_offer(struct stepaf_tcp_copiers *copiers,
                                                       const struct stepaf_tcp_copy *copy);
/* See that all that was offered is done. */
void stepaf_tcp_copiers_join(struct stepaf_tcp_copiers *copiers);
/* Do a copy in this thread. */
void stepaf_tcp_copy_run(struct stepaf_tcp_copy *copy);

#endif
