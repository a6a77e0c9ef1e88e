/* SPDX-License-Identifier: Apache-2.0 */
/* Queue pairs and completion queues of made-up devices, inside. */
#ifndef STEPAF_TEST_VERBS_QUEUE_H
#define STEPAF_TEST_VERBS_QUEUE_H

#include "verbs_device.h"

enum { DEVICES = 8, PAIRS = 256, KEYS = 512, REQUESTS = 1024, ENTRIES = 1 << 16 };

struct request {
    struct ibv_send_wr wr;
    struct ibv_sge sge;
    uint8_t data[256]; /* of an inline one */
};

struct pair {
    struct ibv_qp qp;
    struct ibv_qp_init_attr attr;
    enum ibv_qp_state state;
    uint32_t far;
    uint64_t receives[REQUESTS]; /* wr_id */
    struct ibv_sge places[REQUESTS];
    unsigned first_receive, n_receives;
    unsigned first, n;
    unsigned used; /* of the queue's depth: freed by completions that are asked for */
    struct request requests[REQUESTS]; /* posted, not done: a ring */
};

struct queue {
    struct ibv_cq cq;
    unsigned first, n, size;
    bool armed; /* the next completion makes the channel readable */
    struct ibv_wc wc[];
};

extern struct pair *verbs_pairs[PAIRS];
extern struct ibv_mr *verbs_memories[KEYS];

/* What is posted ends by being flushed. */
void verbs_queue_flush(struct pair *pair);
bool verbs_queue_is_iwarp(const struct ibv_qp *qp);
int verbs_queue_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad_p);
int verbs_queue_receive(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad_p);
int verbs_queue_poll(struct ibv_cq *cq, int n, struct ibv_wc *wc_p);

#endif
