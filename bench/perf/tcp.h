/* SPDX-License-Identifier: Apache-2.0 */
/* The floor of TCP: the cost of the same pattern with plain sockets between the same processes,
 * one connection for each pair of ranks. Messages have no headers, as both ends know their order
 * and sizes: a message is the tensors that one rank has for the other, or one byte where there
 * is none, sent and received in place by as few system calls as the socket's buffers allow. No
 * queues, no checks, no deadlines, no lost peers. */
#ifndef PERF_TCP_H
#define PERF_TCP_H

#include "buffers.h"
#include "case.h"
#include "contender.h"
#include "job.h"
#include "parts.h"
#include "place.h"

/* How an idle rank waits: polling its sockets, or asleep in the kernel; and the congestion
 * control: the system's, or Reno, read in pieces. Which is faster depends on size, cores,
 * network and machine. */
enum perf_tcp_way {
    PERF_TCP_SPIN,
    PERF_TCP_BLOCK,
    PERF_TCP_SPIN_RENO,
    PERF_TCP_BLOCK_RENO,
    PERF_TCP_WAYS
};

/* The state of one direction of a connection in the endless sequence of messages, in which each
 * stage of each turn has one message for each place. */
struct perf_tcp_flow {
    uint64_t due, done; /* messages, total */
    size_t at;          /* bytes of the next one transferred */
    unsigned place;     /* of the next one */
    int stage;
    const struct perf_parts *parts;  /* by place */
    int with_parts[PERF_MAX_STAGES]; /* else one byte */
};

enum { PERF_TCP_PIECE = 128 << 10 }; /* of one receive, with Reno */

struct perf_tcp_conn {
    int fd;
    uint64_t left; /* FFN: messages outstanding in this block */
    struct perf_tcp_flow in, out;
};

struct perf_tcp {
    const struct perf_case *c;
    const struct perf_place *place;
    const struct perf_buffers *buffers;
    int recv_each;
    enum perf_tcp_way way;
    char congestion[16]; /* the system's own */
    unsigned spins;      /* polls before a spinning rank yields */
    int n_conns;
    int n_used; /* conns[0..n_used-1] take part: all but FFN ranks without a slice */
    struct perf_tcp_conn *conns;
    struct perf_parts *parts; /* of all connections, places and directions */
    struct pollfd *polls;
    unsigned backlog; /* connections that have something to send */
};

/* Connect, and determine the faster way of waiting for this case. Tensors are sent from and
 * received in @a buffers. Collective; -1 with a sentence on every rank. */
int perf_tcp_open(struct perf_job *job, const struct perf_options *options,
                  const struct perf_case *c, const struct perf_place *place,
                  const struct perf_buffers *buffers, struct perf_tcp *tcp_p);

void perf_tcp_close(struct perf_tcp *tcp);

/* "spin", "block", "spin-reno", "block-reno". */
const char *perf_tcp_way_name(enum perf_tcp_way way);

static inline int perf_tcp_spins(enum perf_tcp_way way)
{
    return way == PERF_TCP_SPIN || way == PERF_TCP_SPIN_RENO;
}

static inline int perf_tcp_is_reno(enum perf_tcp_way way)
{
    return way >= PERF_TCP_SPIN_RENO;
}

/* perf_contender's run. */
int perf_tcp_run(void *self, struct perf_block *block);

#endif
