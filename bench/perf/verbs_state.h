/* SPDX-License-Identifier: Apache-2.0 */
/* Internals of the floor of RDMA: shared by verbs.c, which plans messages and connects,
 * verbs_device.c, which handles devices and queue pairs, and verbs_run.c, the loops. */
#ifndef PERF_VERBS_STATE_H
#define PERF_VERBS_STATE_H

#include <infiniband/verbs.h>

#include "parts.h"
#include "verbs.h"

/* The work requests for one place of the window. */
struct perf_verbs_message {
    struct ibv_send_wr wr[PERF_MAX_PUSH];
    struct ibv_sge sge[PERF_MAX_PUSH];
    unsigned n;
    int signalled; /* not inline: the device reads the tensors later */
};

/* A queue pair, connected to one rank of the other role. */
struct perf_verbs_conn {
    struct ibv_qp *qp;
    uint32_t index;
    uint32_t posted, done, asked; /* work requests, total; asked: the signalled ones */
    uint64_t arrived, taken;      /* messages of the peer, total; taken: answered, or waited for */
    unsigned consumed;            /* receives consumed since the last were posted */
    struct perf_verbs_message *messages; /* by place */
    struct perf_verbs_message empty;
    int with_parts[PERF_MAX_STAGES]; /* else the empty one */
    unsigned place;                  /* FFN: of the next answer */
    int stage;
    uint64_t left; /* FFN: messages outstanding in this block */
};

struct perf_verbs {
    const struct perf_case *c;
    const struct perf_place *place;
    const struct perf_buffers *buffers;
    int recv_each;
    unsigned spins; /* polls before a rank yields */
    struct ibv_context *context;
    struct ibv_pd *pd;
    struct ibv_cq *cq;
    struct ibv_mr *mr;
    uint8_t port;
    uint8_t gid_index;
    struct ibv_port_attr port_attr;
    union ibv_gid gid;
    uint32_t inline_bytes;
    unsigned depth, receives;   /* of a queue pair */
    struct ibv_recv_wr *refill; /* half of the receives, chained */
    int n_conns;
    struct perf_verbs_conn *conns; /* by rank of the other role */
    int n_used;
    struct perf_verbs_conn **used; /* that take part: all but FFN ranks without a slice */
    struct perf_verbs_message *messages;
};

/* What a rank sends to the peer about its end of a queue pair. */
struct perf_verbs_end {
    union ibv_gid gid;
    uint32_t qpn;
    uint32_t psn;
    uint32_t rkey;
    uint16_t lid;
    uint8_t mtu;
};

/* Open the device by @a name ("mlx5_0" or "mlx5_0:1") or, if that is "", the first active one.
 * -1 with a sentence; what was opened before stays for perf_verbs_device_close. */
int perf_verbs_device_open(struct perf_verbs *verbs, const char *name);
void perf_verbs_device_close(struct perf_verbs *verbs);

/* Make a queue pair that accepts receives, and post them. -1 with a sentence. */
int perf_verbs_qp_make(struct perf_verbs *verbs, struct perf_verbs_conn *conn);
/* Get the data that the peer needs for the connection. */
void perf_verbs_qp_tell(const struct perf_verbs *verbs, const struct perf_verbs_conn *conn,
                        struct perf_verbs_end *end_p);
/* Make the queue pair ready to send. -1 with a sentence. */
int perf_verbs_qp_connect(struct perf_verbs *verbs, struct perf_verbs_conn *conn,
                          const struct perf_verbs_end *far);

#endif
