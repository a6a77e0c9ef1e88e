/* SPDX-License-Identifier: Apache-2.0 */
/* A rail: a port of a device, and the objects that this rank has open on it. */
#ifndef STEPAF_TRANSPORT_VERBS_RAIL_STATE_H
#define STEPAF_TRANSPORT_VERBS_RAIL_STATE_H

#include "transport/transport.h"
#include "transport/verbs/provider.h"

enum { STEPAF_VERBS_NAME = IBV_SYSFS_NAME_MAX + 4 };

/* How a rail has registered GPU memory. */
enum stepaf_verbs_gpu {
    STEPAF_VERBS_GPU_UNKNOWN, /* there was none */
    STEPAF_VERBS_GPU_DMABUF,
    STEPAF_VERBS_GPU_PEERMEM, /* through a module of the GPU's driver, like host memory */
    STEPAF_VERBS_GPU_STAGED   /* not registered */
};

struct stepaf_verbs_rail {
    struct ibv_context *context;
    struct ibv_pd *pd;
    struct ibv_comp_channel *channel; /* NULL: no thread sleeps on it */
    struct ibv_cq *cq;
    struct ibv_mr *control_mr;
    struct {
        uint8_t number;
        uint8_t mtu; /* enum ibv_mtu */
        uint8_t link_layer;
        uint16_t lid;
        uint16_t pkey; /* 0: unknown */
        uint16_t pkey_index;
        uint32_t gid_index;
        union ibv_gid gid;
    } port;
    struct {
        uint32_t inline_bytes; /* maximum that a work request can hold inline */
        int qp_wr;
        int cqe;
    } max;
    bool imm;    /* notify with the 32-bit immediate of a write */
    bool iwarp;  /* queue pairs become ready by connecting */
    bool cm;     /* librdmacm connects them, and the port's GID is an IP address */
    bool global; /* packets have a global header, with GIDs */
    bool v2;     /* RoCE version 2: packets are UDP */
    bool fatal;  /* the device has said that it does nothing any more */
    struct {
        uint8_t ports; /* queue pairs use them round-robin; 0: they do not */
        uint8_t port;  /* port of all queue pairs; 0: none in particular */
    } lag;             /* of the device's bond */
    uint16_t listens;  /* port; 0: does not listen */
    struct rdma_cm_id *listener;
    char name[STEPAF_VERBS_NAME];
    const char *trouble;              /* an event that may explain silence, as text; NULL: none */
    struct stepaf_verbs_flush *flush; /* NULL: no GPU memory requires it */
    uint8_t gpu;                      /* stepaf_verbs_gpu, of the last region */
    char gpu_why[STEPAF_REASON_MAX];  /* why better ways were not possible; "": nothing */
};

#endif
