/* SPDX-License-Identifier: Apache-2.0 */
/* What the transport calls in libibverbs, librdmacm and libmlx5, as tables of functions, so that
 * tests can substitute devices of their own. Only the files provider*.c call the libraries. */
#ifndef STEPAF_TRANSPORT_VERBS_PROVIDER_H
#define STEPAF_TRANSPORT_VERBS_PROVIDER_H

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#include <infiniband/verbs.h>

#include "topo/nics.h"

struct rdma_event_channel;
struct rdma_cm_id;

/* Events of librdmacm, as far as the transport distinguishes them. */
enum stepaf_verbs_cm_type {
    STEPAF_VERBS_CM_ADDRESS,      /* address resolved */
    STEPAF_VERBS_CM_ROUTE,        /* route resolved */
    STEPAF_VERBS_CM_REQUEST,      /* a peer requests a connection */
    STEPAF_VERBS_CM_RESPONSE,     /* the peer has accepted; its queue pair waits for this one */
    STEPAF_VERBS_CM_ESTABLISHED,  /* both queue pairs are ready */
    STEPAF_VERBS_CM_REJECTED,     /* by the peer, or nothing listens there */
    STEPAF_VERBS_CM_FAILED,       /* no such address, route or connection is available */
    STEPAF_VERBS_CM_DISCONNECTED, /* by the peer */
    STEPAF_VERBS_CM_REMOVED,      /* the device has been removed */
    STEPAF_VERBS_CM_TIMEWAIT,     /* long after a connection's end */
    STEPAF_VERBS_CM_OTHER
};

enum {
    STEPAF_VERBS_CM_DATA = 56 /* bytes of private data: the maximum in a request on InfiniBand */
};

/* A copy: the library's own event is returned to it immediately. */
struct stepaf_verbs_cm_event {
    enum stepaf_verbs_cm_type type;
    int status;       /* 0, -errno, or for REJECTED a reason that the network gives */
    const char *text; /* the event's name */
    struct rdma_cm_id *id;
    struct rdma_cm_id *listener; /* of a REQUEST */
    void *context;               /* of id, as given to create or adopt */
    size_t bytes;                /* of data; networks pad it with zeros */
    uint8_t data[STEPAF_VERBS_CM_DATA];
};

/* Parameters that a side sends when it connects or accepts. */
struct stepaf_verbs_cm_hello {
    uint32_t qpn;
    uint8_t retry;
    uint8_t rnr_retry;
    const void *data;
    uint8_t bytes;
};

/* librdmacm. Addresses are IPv6; IPv4 addresses are mapped into it, as in a RoCE v2 GID. Integers
 * are 0 or an errno, pointers are NULL with errno set. Only take_event waits for a peer. */
struct stepaf_verbs_cm_ops {
    /* NULL: this build has no librdmacm, and the other functions are missing. The channel never
     * blocks. */
    struct rdma_event_channel *(*open)(void);
    void (*close)(struct rdma_event_channel *channel);
    /* Find an address that reaches the port of a device; ENODEV: it has none. */
    int (*address)(struct rdma_event_channel *channel, struct ibv_context *context, uint8_t port,
                   union ibv_gid *address_p);
    struct rdma_cm_id *(*create)(struct rdma_event_channel *channel, void *context,
                                 uint8_t traffic_class);
    void (*destroy)(struct rdma_cm_id *id);
    /* Give the id of a REQUEST its context. */
    void (*adopt)(struct rdma_cm_id *id, void *context);
    /* Accept requests; *port_p: the wanted port, or 0 for a free one, which is returned. */
    int (*listen)(struct rdma_cm_id *id, const union ibv_gid *address, uint16_t *port_p);
    int (*resolve_address)(struct rdma_cm_id *id, const union ibv_gid *from,
                           const union ibv_gid *to, uint16_t port, int timeout_ms);
    int (*resolve_route)(struct rdma_cm_id *id, int timeout_ms);
    /* Return whether the id uses this port of this device. */
    bool (*is_on)(const struct rdma_cm_id *id, const struct ibv_context *context, uint8_t port);
    /* Find the attributes that bring the id's queue pair into @a attr_p's state. */
    int (*init_attr)(struct rdma_cm_id *id, struct ibv_qp_attr *attr_p, int *mask_p);
    int (*connect)(struct rdma_cm_id *id, const struct stepaf_verbs_cm_hello *hello);
    int (*accept)(struct rdma_cm_id *id, const struct stepaf_verbs_cm_hello *hello);
    int (*establish)(struct rdma_cm_id *id);
    void (*reject)(struct rdma_cm_id *id, const void *data, uint8_t bytes);
    void (*disconnect)(struct rdma_cm_id *id);
    /* Take an event, waiting for one up to @a timeout_ms. Returns false if there is none. */
    bool (*take_event)(struct rdma_event_channel *channel, int timeout_ms,
                       struct stepaf_verbs_cm_event *event_p);
};

/* libmlx5: ports of a bond. */
struct stepaf_verbs_lag_ops {
    /* NULL: this build has no libmlx5, and the other functions are missing. */
    bool (*is_mlx5)(struct ibv_device *device);
    /* Return how many ports the device bonds; 0 if none. */
    unsigned (*ports)(struct ibv_context *context);
    /* Make a queue pair that is ready send through this port. Return 0 or errno. */
    int (*set_port)(struct ibv_qp *qp, uint8_t port);
};

/* The functions of libibverbs with these names. Integers are 0 or an errno, pointers are NULL with
 * errno set. */
struct stepaf_verbs_provider {
    /* Make registered memory survive a fork, where the kernel does not. Call before all others; may
     * be called again. */
    int (*fork_init)(void);
    struct ibv_device **(*device_list)(int *n_p);
    void (*device_list_free)(struct ibv_device **list);
    const char *(*device_name)(struct ibv_device *device);
    /* A core of this rank, or -1; the locality of devices in this machine. */
    int (*core)(void);
    void (*choose)(const struct stepaf_topo_nics_query *query, struct stepaf_topo_nics *nics_p);
    struct ibv_context *(*open)(struct ibv_device *device);
    void (*close)(struct ibv_context *context);
    int (*query_device)(struct ibv_context *context, struct ibv_device_attr *attr_p);
    int (*query_port)(struct ibv_context *context, uint8_t port, struct ibv_port_attr *attr_p);
    int (*query_gid)(struct ibv_context *context, uint8_t port, uint32_t index,
                     struct ibv_gid_entry *entry_p);
    int (*query_pkey)(struct ibv_context *context, uint8_t port, int index, uint16_t *pkey_p);
    struct ibv_pd *(*alloc_pd)(struct ibv_context *context);
    void (*dealloc_pd)(struct ibv_pd *pd);
    /* Return whether packets can be sent with these attributes. */
    int (*try_ah)(struct ibv_pd *pd, struct ibv_ah_attr *attr);
    struct ibv_mr *(*reg_mr)(struct ibv_pd *pd, void *base, size_t bytes, int access);
    /* ENOSYS: libibverbs has no such function. */
    struct ibv_mr *(*reg_dmabuf_mr)(struct ibv_pd *pd, uint64_t offset, size_t bytes, uint64_t iova,
                                    int fd, int access);
    void (*dereg_mr)(struct ibv_mr *mr);
    /* A channel that completions make readable; its file never blocks. */
    struct ibv_comp_channel *(*create_channel)(struct ibv_context *context);
    void (*destroy_channel)(struct ibv_comp_channel *channel);
    /* @a channel: NULL if completions notify nobody; @a vector: the interrupt */
    struct ibv_cq *(*create_cq)(struct ibv_context *context, int n_entries,
                                struct ibv_comp_channel *channel, int vector);
    void (*destroy_cq)(struct ibv_cq *cq);
    /* Make the queue's channel unreadable until the next completion. */
    int (*arm_cq)(struct ibv_cq *cq);
    struct ibv_qp *(*create_qp)(struct ibv_pd *pd, struct ibv_qp_init_attr *attr);
    void (*destroy_qp)(struct ibv_qp *qp);
    int (*modify_qp)(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask);
    int (*post_send)(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad_p);
    int (*post_recv)(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad_p);
    int (*poll_cq)(struct ibv_cq *cq, int n, struct ibv_wc *wc_p);
    /* Take and acknowledge an event if there is one. Never blocks. */
    bool (*take_event)(struct ibv_context *context, struct ibv_async_event *event_p);
    const char *(*status_text)(enum ibv_wc_status status);
    const char *(*event_text)(enum ibv_event_type type);
    const struct stepaf_verbs_cm_ops *cm;
    const struct stepaf_verbs_lag_ops *lag;
};

/* Return whether an address is IPv4, in its last four bytes. */
static inline bool stepaf_verbs_is_ipv4(const union ibv_gid *address)
{
    static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};

    return !memcmp(address->raw, mapped, sizeof(mapped));
}

/* Return whether an address is IPv6 link-local, which routers do not forward: fe80::/10. */
static inline bool stepaf_verbs_is_link_local(const union ibv_gid *address)
{
    return address->raw[0] == 0xfe && (address->raw[1] & 0xc0) == 0x80;
}

/* The table in use: the libraries, unless a test has set another. */
extern const struct stepaf_verbs_provider *stepaf_verbs_provider;

/* provider_cm.c and provider_mlx5.c; empty if configure did not find the library */
extern const struct stepaf_verbs_cm_ops stepaf_verbs_cm_real;
extern const struct stepaf_verbs_lag_ops stepaf_verbs_lag_real;

#endif
