/* SPDX-License-Identifier: Apache-2.0 */
/* Internals of the floor of libfabric: shared by ofi.c, which plans messages and connects,
 * ofi_fabric.c, which opens libfabric, and ofi_run.c, the loops. */
#ifndef PERF_OFI_STATE_H
#define PERF_OFI_STATE_H

#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>

#include "ofi.h"
#include "parts.h"

enum { PERF_OFI_ADDRESS = 256, PERF_OFI_DEPTH = 512 /* writes in flight, as the library's */ };

/* The writes for one place of the window. */
struct perf_ofi_message {
    struct perf_parts parts;
    uint64_t to[PERF_MAX_PUSH];
};

/* The next message of an endless sequence, in which each stage of each turn has one message for
 * each place. */
struct perf_ofi_turn {
    unsigned place;
    int stage;
};

struct perf_ofi_conn {
    fi_addr_t address;
    uint64_t key, base;
    struct perf_ofi_message *messages; /* by place */
    unsigned *n_in;                    /* writes of incoming messages, by place */
    int in_parts[PERF_MAX_STAGES], out_parts[PERF_MAX_STAGES]; /* else an empty write */
    struct perf_ofi_turn in, out; /* of the incoming message; FFN: of the next answer */
    unsigned landed;              /* writes of it */
    uint64_t arrived, taken;      /* messages of the peer, total; taken: answered, or waited for */
    uint64_t left;                /* FFN: messages to come in this block */
};

struct perf_ofi_op {
    struct fi_context2 context; /* first */
    struct perf_ofi_op *next;   /* while it is free */
};

/* libfabric, looked up as the library does. */
struct perf_ofi_library {
    int (*getinfo)(uint32_t version, const char *node, const char *service, uint64_t flags,
                   const struct fi_info *hints, struct fi_info **info_p);
    void (*freeinfo)(struct fi_info *info);
    struct fi_info *(*dupinfo)(const struct fi_info *info);
    int (*fabric)(struct fi_fabric_attr *attr, struct fid_fabric **fabric_p, void *context);
    const char *(*strerror)(int error);
};

struct perf_ofi {
    const struct perf_case *c;
    const struct perf_place *place;
    const struct perf_buffers *buffers;
    struct perf_ofi_library calls;
    struct fi_info *info, *list;
    struct fid_fabric *fabric;
    struct fid_domain *domain;
    struct fid_av *av;
    struct fid_cq *cq;
    struct fid_ep *ep;
    struct fid_mr *mr;
    int by_writedata; /* cxi: only fi_writedata carries data */
    int recv_each;
    unsigned spins; /* polls before a rank yields */
    unsigned under_way;
    struct perf_ofi_op *ops, *free_op;
    int n_conns;
    struct perf_ofi_conn *conns; /* by rank of the other role */
    int n_used;
    struct perf_ofi_conn **used; /* that take part: all but FFN ranks without a slice */
    struct perf_ofi_message *messages;
    unsigned *n_in;
};

/* What a rank sends to its peers about its endpoint. */
struct perf_ofi_end {
    uint32_t address_bytes;
    uint8_t address[PERF_OFI_ADDRESS];
    uint64_t key, base; /* address of the block of tensors, for writers */
};

/* Open libfabric with @a provider; "": the first one. -1 with a sentence; what was opened stays
 * for perf_ofi_fabric_close. */
int perf_ofi_fabric_open(struct perf_ofi *ofi, const char *provider, struct perf_ofi_end *end_p);
void perf_ofi_fabric_close(struct perf_ofi *ofi);

#endif
