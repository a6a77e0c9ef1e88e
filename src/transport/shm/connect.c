/* SPDX-License-Identifier: Apache-2.0 */
/* Make a link from a peer's announcement: open its control segment, watch its process, test whether
 * its pages can be written. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/error.h"
#include "base/why.h"
#include "device/device.h"
#include "transport/shm/shm.h"

/* The announcement of a rank. */
struct announced {
    int fd;
    uint64_t bytes;
    uint32_t n_peers; /* determines its layout */
    uint64_t token[STEPAF_SHM_TOKEN_WORDS];
    uint64_t token_address; /* in the peer's own memory: to test cross-memory attach */
};

struct stepaf_shm_layout stepaf_shm_layout(const struct stepaf_env *env, unsigned n_peers)
{
    struct stepaf_shm_layout layout = {
        .slots = (uint32_t)env->shm_ring_slots,
        .fragment_bytes = (uint32_t)env->shm_fragment_bytes,
    };
    size_t inbox = (size_t)layout.slots * STEPAF_SHM_LINE + STEPAF_SHM_LINE;

    layout.inbox_bytes = (inbox + STEPAF_SHM_PAIR - 1) / STEPAF_SHM_PAIR * STEPAF_SHM_PAIR;
    layout.staging_at = STEPAF_SHM_PAIR + n_peers * layout.inbox_bytes;
    layout.staging_at = (layout.staging_at + 4095) / 4096 * 4096;
    layout.bytes = layout.staging_at + (size_t)n_peers * layout.slots * layout.fragment_bytes;
    return layout;
}

void stepaf_shm_pack_address(struct stepaf_transport *transport, struct stepaf_pack *pack)
{
    const struct stepaf_shm *shm = (const struct stepaf_shm *)transport;

    stepaf_pack_u32(pack, (uint32_t)shm->control.fd);
    stepaf_pack_u64(pack, shm->control.bytes);
    stepaf_pack_u32(pack, shm->n_peers);
    for (int i = 0; i < STEPAF_SHM_TOKEN_WORDS; i++)
        stepaf_pack_u64(pack, shm->token[i]);
    stepaf_pack_u64(pack, (uintptr_t)shm->token);
}

static bool shm_unpack_address(struct stepaf_unpack *unpack, struct announced *announced_p)
{
    announced_p->fd = (int)stepaf_unpack_u32(unpack);
    announced_p->bytes = stepaf_unpack_u64(unpack);
    announced_p->n_peers = stepaf_unpack_u32(unpack);
    for (int i = 0; i < STEPAF_SHM_TOKEN_WORDS; i++)
        announced_p->token[i] = stepaf_unpack_u64(unpack);
    announced_p->token_address = stepaf_unpack_u64(unpack);
    return !unpack->failed;
}

/* Return whether the kernel lets this process access the peer's pages; if not, @a reason says
 * why. */
static bool try_cma(const struct stepaf_shm *shm, pid_t pid, const struct announced *announced,
                    char *reason)
{
    static const char *const scopes[] = {
        " (kernel.yama.ptrace_scope is 1: the peer has not allowed it, see STEPAF_SHM_PTRACER)",
        " (kernel.yama.ptrace_scope is above 1)"};
    uint64_t token[STEPAF_SHM_TOKEN_WORDS] = {0};
    struct iovec local = {token, sizeof(token)};
    struct iovec remote = {(void *)(uintptr_t)announced->token_address, sizeof(token)};

    if (process_vm_readv(pid, &local, 1, &remote, 1, 0) != (ssize_t)sizeof(token)) {
        snprintf(reason, STEPAF_REASON_MAX, "process_vm_readv: %s%s", stepaf_why(errno),
                 errno == EPERM && shm->ptrace_scope ? scopes[shm->ptrace_scope > 1] : "");
        return false;
    }
    if (memcmp(token, announced->token, sizeof(token))) {
        snprintf(reason, STEPAF_REASON_MAX, "process_vm_readv: another process answers");
        return false;
    }
    return true;
}

/* Set the pointers to the two inboxes of a pair: number @a mine in this rank's segment, number @a
 * its in the peer's segment. The offsets differ if the two ranks have different numbers of
 * peers. */
static void point_rings(const struct stepaf_shm *shm, struct stepaf_shm_link *link, uint32_t mine,
                        uint32_t its, const struct stepaf_shm_layout *its_layout)
{
    const struct stepaf_shm_layout *layout = &shm->layout;
    uint8_t *my_base = shm->control.base, *its_base = link->map;
    uint8_t *my_inbox = my_base + STEPAF_SHM_PAIR + mine * layout->inbox_bytes;
    uint8_t *its_inbox = its_base + STEPAF_SHM_PAIR + its * layout->inbox_bytes;
    size_t ring = (size_t)layout->slots * STEPAF_SHM_LINE;
    size_t staging = (size_t)layout->slots * layout->fragment_bytes;

    link->mask = layout->slots - 1;
    link->fragment_bytes = layout->fragment_bytes;
    link->rx = (struct stepaf_shm_slot *)(void *)my_inbox;
    link->tx = (struct stepaf_shm_slot *)(void *)its_inbox;
    link->rx_words = (struct stepaf_shm_words *)(void *)(my_inbox + ring);
    link->tx_words = (struct stepaf_shm_words *)(void *)(its_inbox + ring);
    link->rx_staging = my_base + layout->staging_at + mine * staging;
    link->tx_staging = its_base + its_layout->staging_at + its * staging;
    memset(my_inbox, 0, layout->inbox_bytes); /* clear what a predecessor has written */
}

/* Open what the peer announced. Returns false, with @a reason, on failure. */
static bool open_peer(struct stepaf_shm *shm, struct stepaf_shm_link *link,
                      const struct announced *announced, const struct stepaf_shm_layout *its_layout,
                      uint32_t its_slot, char *reason)
{
    if (its_slot >= announced->n_peers || announced->bytes < its_layout->bytes) {
        snprintf(reason, STEPAF_REASON_MAX, "its control segment is too small");
        return false;
    }
    if (!stepaf_shm_is_vacant(shm, link->base.peer, link->pid, reason) ||
        !stepaf_shm_watch(shm, link, reason))
        return false;
    link->map_bytes = announced->bytes;
    link->map = stepaf_device_map_peer(link->pid, announced->fd, link->map_bytes, reason);
    if (!link->map)
        goto err_watch;
    if (memcmp(((struct stepaf_shm_head *)link->map)->token, announced->token,
               sizeof(announced->token))) {
        snprintf(reason, STEPAF_REASON_MAX, "process %d is not the announced one", (int)link->pid);
        goto err_map;
    }
    stepaf_shm_identify(link, announced->fd);
    return true;

err_map:
    munmap(link->map, link->map_bytes);
err_watch:
    stepaf_shm_unwatch(shm, link);
    return false;
}

stepaf_status_t stepaf_shm_connect(struct stepaf_transport *transport,
                                   const struct stepaf_peer_facts *facts,
                                   struct stepaf_unpack *unpack, struct stepaf_link **link_p,
                                   char *reason)
{
    struct stepaf_shm *shm = (struct stepaf_shm *)transport;
    const struct stepaf_env *env = transport->up->env;
    struct announced announced;
    char cma_reason[STEPAF_REASON_MAX] = "";

    *link_p = NULL;
    if (!shm_unpack_address(unpack, &announced)) {
        snprintf(reason, STEPAF_REASON_MAX, "its announcement is malformed");
        return STEPAF_OK;
    }
    if (facts->node_id != transport->up->topo->node_id) {
        snprintf(reason, STEPAF_REASON_MAX, "on another node, or in another PID namespace");
        return STEPAF_OK;
    }
    struct stepaf_shm_link *link = calloc(1, sizeof(*link));
    if (!link)
        return stepaf_error_no_memory(STEPAF_PHASE_COMMIT);
    link->base = (struct stepaf_link){
        .ops = transport->ops, .transport = transport, .peer = facts->peer, .name = "shm"};
    link->pid = (pid_t)facts->pid;
    link->own_pid = getpid();
    struct stepaf_shm_layout its_layout = stepaf_shm_layout(env, announced.n_peers);
    if (!open_peer(shm, link, &announced, &its_layout, facts->index_at_peer, reason))
        goto not_reached;
    link->cma =
        env->shm_cma != STEPAF_ENV_SHM_CMA_off && try_cma(shm, link->pid, &announced, cma_reason);
    if (env->shm_cma == STEPAF_ENV_SHM_CMA_on && !link->cma) {
        snprintf(reason, STEPAF_REASON_MAX, "STEPAF_SHM_CMA is on, but %.150s", cma_reason);
        goto not_permitted;
    }
    snprintf(link->base.name, sizeof(link->base.name), "shm;%s", link->cma ? "cma" : "ring");
    if (cma_reason[0])
        snprintf(reason, STEPAF_REASON_MAX, "cma: %.180s", cma_reason);
    point_rings(shm, link, facts->peer, facts->index_at_peer, &its_layout);
    shm->links[shm->n_links++] = link;
    *link_p = &link->base;
    return STEPAF_OK;

not_permitted:
    munmap(link->map, link->map_bytes);
    stepaf_shm_unwatch(shm, link);
not_reached:
    free(link);
    return STEPAF_OK;
}

void stepaf_shm_disconnect(struct stepaf_link *base)
{
    struct stepaf_shm_link *link = (struct stepaf_shm_link *)base;
    struct stepaf_shm *shm = (struct stepaf_shm *)base->transport;

    for (unsigned i = 0; i < shm->n_links; i++)
        if (shm->links[i] == link)
            shm->links[i] = shm->links[--shm->n_links];
    munmap(link->map, link->map_bytes);
    /* The inbox stays as it is: a live process can see there whether it was fenced off. */
    stepaf_shm_vacate(shm, link);
    free(link);
}
