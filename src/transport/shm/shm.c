/* SPDX-License-Identifier: Apache-2.0 */
/* Open and close the transport, and its table of operations. */
#include "transport/shm/shm.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/random.h>
#include <unistd.h>

#include "base/error.h"
#include "base/fd.h"
#include "base/why.h"
#include "transport/shm/attach.h"
#include "transport/shm/copy.h"

enum { CLOSE_US = 1000000 };

static bool shm_probe(const struct stepaf_env *env, char *reason)
{
    struct stepaf_device_mem mem;

    (void)env;
    if (access("/proc/self/fd", X_OK)) {
        snprintf(reason, STEPAF_REASON_MAX, "/proc/self/fd: %s", stepaf_why(errno));
        return false;
    }
    if (stepaf_device_alloc(STEPAF_MEM_HOST, NULL, 1, &mem)) {
        snprintf(reason, STEPAF_REASON_MAX, "%.150s", stepaf_last_error()->text);
        return false;
    }
    stepaf_device_free(&mem);
    return true;
}

static stepaf_status_t shm_open(struct stepaf_upcalls *up, unsigned n_peers,
                                struct stepaf_transport **transport_p)
{
    stepaf_status_t status = STEPAF_ERR_NO_MEMORY;
    struct stepaf_shm *shm = calloc(1, sizeof(*shm));

    if (!shm)
        goto err_none;
    shm->base = (struct stepaf_transport){.ops = &stepaf_shm_ops, .up = up};
    shm->n_peers = n_peers;
    shm->layout = stepaf_shm_layout(up->env, n_peers);
    shm->shared_copy_bytes = up->topo->l2_bytes ? up->topo->l2_bytes / 2 : 1 << 20;
    shm->uncached_bytes =
        stepaf_shm_uncached_bytes(up->topo, (uint64_t)up->env->shm_uncached_bytes);
    shm->kernel_copies = up->env->shm_copy == STEPAF_ENV_SHM_COPY_kernel;
    shm->links = calloc(n_peers, sizeof(shm->links[0]));
    shm->predecessors = calloc(n_peers, sizeof(shm->predecessors[0]));
    if (!shm->links || !shm->predecessors)
        goto err_links;
    status = stepaf_device_alloc(STEPAF_MEM_HOST, NULL, shm->layout.bytes, &shm->control);
    if (status)
        goto err_links;
    stepaf_fd_begin();
    shm->epoll_fd = stepaf_fd_end(epoll_create1(EPOLL_CLOEXEC));
    if (shm->epoll_fd < 0 ||
        getrandom(shm->token, sizeof(shm->token), 0) != (ssize_t)sizeof(shm->token)) {
        status = stepaf_error_set(STEPAF_ERR_TRANSPORT, STEPAF_PHASE_COMMIT, "shm: cannot open: %s",
                                  stepaf_why(errno));
        goto err_control;
    }
    shm->ptrace_scope = stepaf_shm_ptrace_scope("/proc/sys/kernel/yama/ptrace_scope");
    if (up->env->shm_cma != STEPAF_ENV_SHM_CMA_off &&
        up->env->shm_ptracer == STEPAF_ENV_SHM_PTRACER_any)
        shm->attach_allowed = stepaf_shm_attach_allow(shm->ptrace_scope);
    memcpy(((struct stepaf_shm_head *)shm->control.base)->token, shm->token, sizeof(shm->token));
    *transport_p = &shm->base;
    return STEPAF_OK;

err_control:
    if (shm->epoll_fd >= 0)
        close(shm->epoll_fd);
    stepaf_device_free(&shm->control);
err_links:
    free(shm->predecessors);
    free(shm->links);
    free(shm);
err_none:
    return status;
}

static void shm_close(struct stepaf_transport *transport)
{
    struct stepaf_shm *shm = (struct stepaf_shm *)transport;

    stepaf_shm_close_pages(shm, CLOSE_US);
    while (shm->n_links)
        stepaf_shm_disconnect(&shm->links[shm->n_links - 1]->base);
    stepaf_shm_forget(shm);
    if (shm->attach_allowed)
        stepaf_shm_attach_disallow();
    close(shm->epoll_fd);
    stepaf_device_free(&shm->control);
    free(shm->predecessors);
    free(shm->links);
    free(shm);
}

static void shm_query_memory(struct stepaf_transport *transport, size_t *per_link_p,
                             size_t *bounce_p)
{
    const struct stepaf_shm *shm = (const struct stepaf_shm *)transport;

    *per_link_p = sizeof(struct stepaf_shm_link) + sizeof(struct stepaf_shm_link *) +
                  sizeof(struct stepaf_shm_predecessor) + shm->layout.inbox_bytes;
    *bounce_p = 0;
    for (unsigned i = 0; i < shm->n_links; i++)
        if (shm->links[i]->staged)
            *bounce_p += (size_t)shm->layout.slots * shm->layout.fragment_bytes;
}

const struct stepaf_transport_ops stepaf_shm_ops = {
    .name = "shm",
    .caps = STEPAF_TRANSPORT_LOCAL | STEPAF_TRANSPORT_RETURNS,
    .probe = shm_probe,
    .open = shm_open,
    .close = shm_close,
    .is_quiet = stepaf_shm_is_quiet,
    .pack_address = stepaf_shm_pack_address,
    .pack_mem = stepaf_shm_pack_mem,
    .connect = stepaf_shm_connect,
    .disconnect = stepaf_shm_disconnect,
    .fence = stepaf_shm_fence,
    .is_over = stepaf_shm_is_over,
    .import_mem = stepaf_shm_import_mem,
    .release_mem = stepaf_shm_release_mem,
    .post = stepaf_shm_post,
    .progress = stepaf_shm_progress,
    .check_peers = stepaf_shm_check_peers,
    .query_memory = shm_query_memory,
};
