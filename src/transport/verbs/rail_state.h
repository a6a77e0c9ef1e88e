/* SPDX-License-Identifier: Apache-2.0 */
/* A rail: a port of a device, and what this rank has open on it. */
#ifndef STEPAF_TRANSPORT_VERBS_RAIL_STATE_H
#define STEPAF_TRANSPORT_VERBS_RAIL_STATE_H

#include "transport/transport.h"
#include "transport/verbs/provider.h"

enum { STEPAF_VERBS_NAME = IBV_SYSFS_NAME_MAX + 4 };

/* How a rail has taken GPU memory. */
enum stepaf_verbs_gpu {
    STEPAF_VERBS_GPU_UNKNOWN, /* there was none */
    STEPAF_VERBS_GPU_DMABUF,
    STEPAF_VERBS_GPU_PEERMEM, /* by a module of the GPU's driver, as if it were host memory */
    STEPAF_VERBS_GPU_STAGED   /* not at all */
};

struct stepaf_verbs_rail {
    struct ibv_context *context;
    struct ibv_pd *pd;
    struct ibv_comp_channel *channel; /* NULL: nobody sleeps on it */
    struct ibv_cq *cq;
    struct ibv_mr *control_mr;
    struct {
        uint8_t number;
        uint8_t mtu; /* enum ibv_mtu */
        uint8_t link_layer;
        uint16_t lid;
        uint16_t pkey; /* 0: not known */
        uint16_t pkey_index;
        uint32_t gid_index;
        union ibv_gid gid;
    } port;
    struct {
        uint32_t inline_bytes; /* that a work request may hold itself */
        int qp_wr;
        int cqe;
    } max;
    bool imm;    /* notify by 32 bits of a write */
    bool iwarp;  /* its queue pairs are made ready by connecting */
    bool cm;     /* they are connected by librdmacm, and the port's GID is an IP address */
    bool global; /* what comes and goes has a global header, with GIDs */
    bool v2;     /* of RoCE, version 2: its packets are UDP's */
    struct {
        uint8_t ports; /* that queue pairs are put on by turns; 0: they are not */
        uint8_t port;  /* that all are put on; 0: none in particular */
    } lag;             /* of its bond */
    uint16_t listens;  /* on this port; 0: it does not */
    struct rdma_cm_id *listener;
    char name[STEPAF_VERBS_NAME];
    const char *trouble;              /* an event that may explain silence, in words; NULL: none */
    struct stepaf_verbs_flush *flush; /* NULL: no GPU memory asks for it */
    uint8_t gpu;                      /* stepaf_verbs_gpu, of the last region */
    char gpu_why[STEPAF_REASON_MAX];  /* and what spoke against better ways; "": nothing */
};

#endif
