/* SPDX-License-Identifier: Apache-2.0 */
/* What the transport asks of libibverbs, librdmacm and libmlx5. Tables of functions, so that tests
 * can put devices of their own in their place; the files provider*.c are the only ones that call
 * the libraries. */
#ifndef STEPAF_TRANSPORT_VERBS_PROVIDER_H
#define STEPAF_TRANSPORT_VERBS_PROVIDER_H

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#include <infiniband/verbs.h>

#include "topo/nics.h"

struct rdma_event_channel;
struct rdma_cm_id;

/* What librdmacm has to say, as far as the transport makes a difference. */
enum stepaf_verbs_cm_type {
    STEPAF_VERBS_CM_ADDRESS,      /* resolved */
    STEPAF_VERBS_CM_ROUTE,        /* resolved */
    STEPAF_VERBS_CM_REQUEST,      /* somebody asks for a connection */
    STEPAF_VERBS_CM_RESPONSE,     /* the peer has accepted; its queue pair waits for this one */
    STEPAF_VERBS_CM_ESTABLISHED,  /* both queue pairs are ready */
    STEPAF_VERBS_CM_REJECTED,     /* by the peer, or nobody listens there */
    STEPAF_VERBS_CM_FAILED,       /* an address, a route or a connection that is not to be had */
    STEPAF_VERBS_CM_DISCONNECTED, /* by the peer */
    STEPAF_VERBS_CM_REMOVED,      /* the device is taken away */
    STEPAF_VERBS_CM_TIMEWAIT,     /* long after a connection's end */
    STEPAF_VERBS_CM_OTHER
};

enum {
    STEPAF_VERBS_CM_DATA = 56 /* bytes of private data: no more fit into a request on InfiniBand */
};

/* A copy: the library's own is given back at once. */
struct stepaf_verbs_cm_event {
    enum stepaf_verbs_cm_type type;
    int status;       /* 0, -errno, or for REJECTED a reason of the network's */
    const char *text; /* the event's name */
    struct rdma_cm_id *id;
    struct rdma_cm_id *listener; /* of a REQUEST */
    void *context;               /* of id, as given to create or adopt */
    size_t bytes;                /* of data; networks pad it with zeros */
    uint8_t data[STEPAF_VERBS_CM_DATA];
};

/* What one side says of itself when it connects or accepts. */
struct stepaf_verbs_cm_hello {
    uint32_t qpn;
    uint8_t retry;
    uint8_t rnr_retry;
    const void *data;
    uint8_t bytes;
};

/* librdmacm. Addresses are IPv6, those of IPv4 mapped into it, as in a RoCE v2 GID. Integers are 0
 * or an errno, pointers NULL with errno; nothing here waits for a peer but take_event. */
struct stepaf_verbs_cm_ops {
    /* NULL: this build has no librdmacm, and none of these. The channel never blocks. */
    struct rdma_event_channel *(*open)(void);
    void (*close)(struct rdma_event_channel *channel);
    /* An address by which the port of a device is reached; ENODEV: it has none. */
    int (*address)(struct rdma_event_channel *channel, struct ibv_context *context, uint8_t port,
                   union ibv_gid *address_p);
    struct rdma_cm_id *(*create)(struct rdma_event_channel *channel, void *context,
                                 uint8_t traffic_class);
    void (*destroy)(struct rdma_cm_id *id);
    /* Give the id of a REQUEST its context. */
    void (*adopt)(struct rdma_cm_id *id, void *context);
    /* Take requests; *port_p: the wanted port, or 0 for a free one, which is returned. */
    int (*listen)(struct rdma_cm_id *id, const union ibv_gid *address, uint16_t *port_p);
    int (*resolve_address)(struct rdma_cm_id *id, const union ibv_gid *from,
                           const union ibv_gid *to, uint16_t port, int timeout_ms);
    int (*resolve_route)(struct rdma_cm_id *id, int timeout_ms);
    /* Whether the id goes by this port of this device. */
    bool (*is_on)(const struct rdma_cm_id *id, const struct ibv_context *context, uint8_t port);
    /* What is to be set to bring the id's queue pair into @a attr's state. */
    int (*init_attr)(struct rdma_cm_id *id, struct ibv_qp_attr *attr_p, int *mask_p);
    int (*connect)(struct rdma_cm_id *id, const struct stepaf_verbs_cm_hello *hello);
    int (*accept)(struct rdma_cm_id *id, const struct stepaf_verbs_cm_hello *hello);
    int (*establish)(struct rdma_cm_id *id);
    void (*reject)(struct rdma_cm_id *id, const void *data, uint8_t bytes);
    void (*disconnect)(struct rdma_cm_id *id);
    /* Take an event, waiting for one up to @a timeout_ms. False: there is none. */
    bool (*take_event)(struct rdma_event_channel *channel, int timeout_ms,
                       struct stepaf_verbs_cm_event *event_p);
};

/* libmlx5: ports of a bond. */
struct stepaf_verbs_lag_ops {
    /* NULL: this build has no libmlx5, and none of these. */
    bool (*is_mlx5)(struct ibv_device *device);
    /* How many ports the device bonds; 0: none. */
    unsigned (*ports)(struct ibv_context *context);
    /* Have a queue pair that is ready send by this port. 0 or errno. */
    int (*set_port)(struct ibv_qp *qp, uint8_t port);
};

/* As the library's functions of these names. Integers are 0 or an errno, pointers NULL with
 * errno. */
struct stepaf_verbs_provider {
    /* Have registered memory survive a fork, where the kernel does not see to it. Before all
     * others; may be called again. */
    int (*fork_init)(void);
    struct ibv_device **(*device_list)(int *n_p);
    void (*device_list_free)(struct ibv_device **list);
    const char *(*device_name)(struct ibv_device *device);
    /* A core of this rank's, or -1; what the machine's places say of devices. */
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
    /* Whether packets can be sent so. */
    int (*try_ah)(struct ibv_pd *pd, struct ibv_ah_attr *attr);
    struct ibv_mr *(*reg_mr)(struct ibv_pd *pd, void *base, size_t bytes, int access);
    /* ENOSYS: libibverbs has no such function. */
    struct ibv_mr *(*reg_dmabuf_mr)(struct ibv_pd *pd, uint64_t offset, size_t bytes, uint64_t iova,
                                    int fd, int access);
    void (*dereg_mr)(struct ibv_mr *mr);
    /* What becomes readable by completions; its file never blocks. */
    struct ibv_comp_channel *(*create_channel)(struct ibv_context *context);
    void (*destroy_channel)(struct ibv_comp_channel *channel);
    /* @a channel: NULL if nobody is to be told of completions; @a vector: by which interrupt */
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
    /* Take an event if there is one; never blocks. It is acknowledged at once. */
    bool (*take_event)(struct ibv_context *context, struct ibv_async_event *event_p);
    const char *(*status_text)(enum ibv_wc_status status);
    const char *(*event_text)(enum ibv_event_type type);
    const struct stepaf_verbs_cm_ops *cm;
    const struct stepaf_verbs_lag_ops *lag;
};

/* Whether an address is one of IPv4, in its last four bytes. */
static inline bool stepaf_verbs_is_ipv4(const union ibv_gid *address)
{
    static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};

    return !memcmp(address->raw, mapped, sizeof(mapped));
}

/* Whether it is one of IPv6 that routers do not pass on: fe80::/10. */
static inline bool stepaf_verbs_is_link_local(const union ibv_gid *address)
{
    return address->raw[0] == 0xfe && (address->raw[1] & 0xc0) == 0x80;
}

/* In force: the libraries, unless a test has set another. */
extern const struct stepaf_verbs_provider *stepaf_verbs_provider;

/* provider_cm.c and provider_mlx5.c, or empty where configure has not found the library */
extern const struct stepaf_verbs_cm_ops stepaf_verbs_cm_real;
extern const struct stepaf_verbs_lag_ops stepaf_verbs_lag_real;

#endif
