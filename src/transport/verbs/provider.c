/* SPDX-License-Identifier: Apache-2.0 */
#include "transport/verbs/provider.h"

#include <arpa/inet.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "base/fork.h"

/* Since Linux 5.12 a fork copies pages that devices use, and the library reports that (rdma-core
 * 35; looked up at run time). On older kernels a child would get the page, or the parent's next
 * write a new one, unknown to the device. */
static int real_fork_init(void)
{
    enum ibv_fork_status (*status)(void) = NULL;
    void *symbol = dlsym(RTLD_DEFAULT, "ibv_is_fork_initialized");
    struct utsname name;
    int major, minor;

    memcpy(&status, &symbol, sizeof(status));
    if (status)
        return status() == IBV_FORK_DISABLED ? ibv_fork_init() : 0;
    if (!uname(&name) && sscanf(name.release, "%d.%d", &major, &minor) == 2 && /* NOLINT */
        (major > 5 || (major == 5 && minor >= 12)))
        return 0;
    return ibv_fork_init();
}

static struct ibv_device **real_device_list(int *n_p)
{
    return ibv_get_device_list(n_p);
}

static void real_device_list_free(struct ibv_device **list)
{
    ibv_free_device_list(list);
}

static const char *real_device_name(struct ibv_device *device)
{
    return ibv_get_device_name(device);
}

static void real_close(struct ibv_context *context)
{
    stepaf_fork_forget(context->cmd_fd);
    stepaf_fork_forget(context->async_fd);
    (void)ibv_close_device(context);
}

/* A child of fork() must keep none of the device's files, and no mapping of them: as long as any is
 * left, the kernel keeps this process's queue pairs, and its peers do not notice that the process
 * has ended. */
static struct ibv_context *real_open(struct ibv_device *device)
{
    stepaf_fork_begin();
    struct ibv_context *context = ibv_open_device(device);
    int error = errno; /* if it has failed */
    int trouble = context ? stepaf_fork_add(context->cmd_fd) : 0;
    if (context && !trouble)
        trouble = stepaf_fork_add(context->async_fd);
    (void)stepaf_fork_end(-1);
    char path[sizeof("/dev/infiniband/") + IBV_SYSFS_NAME_MAX];

    if (!context) { /* the library's errno may be that of its last attempt to find the file */
        snprintf(path, sizeof(path), "/dev/infiniband/%s", device->dev_name);
        errno = access(path, R_OK | W_OK) && errno == EACCES ? EACCES : error;
        return NULL;
    }
    if (trouble) {
        real_close(context);
        errno = trouble;
        return NULL;
    }
    stepaf_fork_unmap("/dev/infiniband/uverbs");
    int flags = fcntl(context->async_fd, F_GETFL);
    (void)fcntl(context->async_fd, F_SETFL, flags | O_NONBLOCK);
    return context;
}

static int real_query_device(struct ibv_context *context, struct ibv_device_attr *attr_p)
{
    return ibv_query_device(context, attr_p);
}

static int real_query_port(struct ibv_context *context, uint8_t port, struct ibv_port_attr *attr_p)
{
    return ibv_query_port(context, port, attr_p);
}

static int real_query_gid(struct ibv_context *context, uint8_t port, uint32_t index,
                          struct ibv_gid_entry *entry_p)
{
    return ibv_query_gid_ex(context, port, index, entry_p, 0);
}

static int real_query_pkey(struct ibv_context *context, uint8_t port, int index, uint16_t *pkey_p)
{
    __be16 pkey;
    int error = ibv_query_pkey(context, port, index, &pkey);

    if (!error)
        *pkey_p = ntohs(pkey);
    return error;
}

static int real_try_ah(struct ibv_pd *pd, struct ibv_ah_attr *attr)
{
    struct ibv_ah *ah = ibv_create_ah(pd, attr);
    int error = errno;

    if (!ah)
        return error;
    (void)ibv_destroy_ah(ah);
    return 0;
}

static struct ibv_pd *real_alloc_pd(struct ibv_context *context)
{
    return ibv_alloc_pd(context);
}

static void real_dealloc_pd(struct ibv_pd *pd)
{
    (void)ibv_dealloc_pd(pd);
}

static struct ibv_mr *real_reg_mr(struct ibv_pd *pd, void *base, size_t bytes, int access)
{
    return ibv_reg_mr(pd, base, bytes, access);
}

/* Looked up at run time: a build with a new libibverbs must run with an older one. */
static struct ibv_mr *real_reg_dmabuf_mr(struct ibv_pd *pd, uint64_t offset, size_t bytes,
                                         uint64_t iova, int fd, int access)
{
    struct ibv_mr *(*function)(struct ibv_pd *, uint64_t, size_t, uint64_t, int, int) = NULL;
    void *symbol = dlsym(RTLD_DEFAULT, "ibv_reg_dmabuf_mr");

    if (!symbol) {
        errno = ENOSYS;
        return NULL;
    }
    memcpy(&function, &symbol, sizeof(function));
    return function(pd, offset, bytes, iova, fd, access);
}

static void real_dereg_mr(struct ibv_mr *mr)
{
    (void)ibv_dereg_mr(mr);
}

static struct ibv_comp_channel *real_create_channel(struct ibv_context *context)
{
    stepaf_fork_begin();
    struct ibv_comp_channel *channel = ibv_create_comp_channel(context);
    int trouble = channel ? stepaf_fork_add(channel->fd) : 0;
    (void)stepaf_fork_end(-1);
    if (trouble) {
        (void)ibv_destroy_comp_channel(channel);
        errno = trouble;
        return NULL;
    }
    if (channel)
        (void)fcntl(channel->fd, F_SETFL, fcntl(channel->fd, F_GETFL) | O_NONBLOCK);
    return channel;
}

static void real_destroy_channel(struct ibv_comp_channel *channel)
{
    stepaf_fork_forget(channel->fd);
    (void)ibv_destroy_comp_channel(channel);
}

static struct ibv_cq *real_create_cq(struct ibv_context *context, int n_entries,
                                     struct ibv_comp_channel *channel, int vector)
{
    return ibv_create_cq(context, n_entries, NULL, channel, vector);
}

static void real_destroy_cq(struct ibv_cq *cq)
{
    (void)ibv_destroy_cq(cq);
}

static int real_arm_cq(struct ibv_cq *cq)
{
    struct ibv_cq *told;
    unsigned n = 0;
    void *context;

    while (!ibv_get_cq_event(cq->channel, &told, &context))
        n++;
    if (n)
        ibv_ack_cq_events(cq, n);
    return ibv_req_notify_cq(cq, 0);
}

static struct ibv_qp *real_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *attr)
{
    return ibv_create_qp(pd, attr);
}

static void real_destroy_qp(struct ibv_qp *qp)
{
    (void)ibv_destroy_qp(qp);
}

static int real_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask)
{
    return ibv_modify_qp(qp, attr, mask);
}

static int real_post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad_p)
{
    return ibv_post_send(qp, wr, bad_p);
}

static int real_post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad_p)
{
    return ibv_post_recv(qp, wr, bad_p);
}

static int real_poll_cq(struct ibv_cq *cq, int n, struct ibv_wc *wc_p)
{
    return ibv_poll_cq(cq, n, wc_p);
}

static bool real_take_event(struct ibv_context *context, struct ibv_async_event *event_p)
{
    struct pollfd ready = {.fd = context->async_fd, .events = POLLIN};

    if (poll(&ready, 1, 0) != 1 || ibv_get_async_event(context, event_p))
        return false;
    ibv_ack_async_event(event_p);
    return true;
}

static const char *real_status_text(enum ibv_wc_status status)
{
    return ibv_wc_status_str(status);
}

static const char *real_event_text(enum ibv_event_type type)
{
    return ibv_event_type_str(type);
}

static const struct stepaf_verbs_provider real = {
    .fork_init = real_fork_init,
    .device_list = real_device_list,
    .device_list_free = real_device_list_free,
    .device_name = real_device_name,
    .core = stepaf_topo_nics_core,
    .choose = stepaf_topo_nics_choose,
    .open = real_open,
    .close = real_close,
    .query_device = real_query_device,
    .query_port = real_query_port,
    .query_gid = real_query_gid,
    .query_pkey = real_query_pkey,
    .alloc_pd = real_alloc_pd,
    .try_ah = real_try_ah,
    .dealloc_pd = real_dealloc_pd,
    .reg_mr = real_reg_mr,
    .reg_dmabuf_mr = real_reg_dmabuf_mr,
    .dereg_mr = real_dereg_mr,
    .create_channel = real_create_channel,
    .destroy_channel = real_destroy_channel,
    .create_cq = real_create_cq,
    .destroy_cq = real_destroy_cq,
    .arm_cq = real_arm_cq,
    .create_qp = real_create_qp,
    .destroy_qp = real_destroy_qp,
    .modify_qp = real_modify_qp,
    .post_send = real_post_send,
    .post_recv = real_post_recv,
    .poll_cq = real_poll_cq,
    .take_event = real_take_event,
    .status_text = real_status_text,
    .event_text = real_event_text,
    .cm = &stepaf_verbs_cm_real,
    .lag = &stepaf_verbs_lag_real,
};

const struct stepaf_verbs_provider *stepaf_verbs_provider = &real;
