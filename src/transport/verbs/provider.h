/* SPDX-License-Identifier: Apache-2.0 */
/* What the transport asks of libibverbs. One table of functions, so that tests can put a device of
 * their own in its place; provider.c is the only file that calls the library. */
#ifndef STEPAF_TRANSPORT_VERBS_PROVIDER_H
#define STEPAF_TRANSPORT_VERBS_PROVIDER_H

#include <stdbool.h>
#include <stddef.h>

#include <infiniband/verbs.h>

/* As the library's functions of these names. Integers are 0 or an errno, pointers NULL with errno. */
struct stepaf_verbs_provider {
    struct ibv_device **(*device_list)(int *n_p);
    void (*device_list_free)(struct ibv_device **list);
    const char *(*device_name)(struct ibv_device *device);
    /* NUMA node of the device; -1: not known */
    int (*device_numa)(struct ibv_device *device);
    struct ibv_context *(*open)(struct ibv_device *device);
    void (*close)(struct ibv_context *context);
    int (*query_device)(struct ibv_context *context, struct ibv_device_attr *attr_p);
    int (*query_port)(struct ibv_context *context, uint8_t port, struct ibv_port_attr *attr_p);
    int (*query_gid)(struct ibv_context *context, uint8_t port, uint32_t index,
                     struct ibv_gid_entry *entry_p);
    struct ibv_pd *(*alloc_pd)(struct ibv_context *context);
    void (*dealloc_pd)(struct ibv_pd *pd);
    struct ibv_mr *(*reg_mr)(struct ibv_pd *pd, void *base, size_t bytes, int access);
    void (*dereg_mr)(struct ibv_mr *mr);
    /* What becomes readable by completions; its file never blocks. */
    struct ibv_comp_channel *(*create_channel)(struct ibv_context *context);
    void (*destroy_channel)(struct ibv_comp_channel *channel);
    /* @a channel: NULL if nobody is to be told of completions */
    struct ibv_cq *(*create_cq)(struct ibv_context *context, int n_entries,
                                struct ibv_comp_channel *channel);
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
};

/* In force: libibverbs, unless a test has set another. */
extern const struct stepaf_verbs_provider *stepaf_verbs_provider;

#endif
