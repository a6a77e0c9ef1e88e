/* SPDX-License-Identifier: Apache-2.0 */
/* Links by sender number: those of the first processes, and of the processes that take their
 * places. */
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>

#include "transport/fabric/link.h"

static void begin_link(struct stepaf_fabric *fabric, struct stepaf_fabric_link *link, uint32_t peer,
                       uint32_t sender)
{
    link->base.transport = &fabric->base;
    link->base.peer = peer;
    link->sender = sender;
    link->control.link = link;
    link->pidfd = -1;
    for (int i = 0; i < STEPAF_FABRIC_RING; i++)
        link->flight[i].link = link;
    fabric->senders[sender] = fabric->links[peer] = link;
}

static void *make_links(size_t n, size_t link_bytes)
{
    size_t bytes = (n * link_bytes + STEPAF_FABRIC_LINE - 1) & -(size_t)STEPAF_FABRIC_LINE;
    void *links = aligned_alloc(STEPAF_FABRIC_LINE, bytes);

    return links ? memset(links, 0, bytes) : NULL;
}

int stepaf_fabric_open(struct stepaf_fabric *fabric, uint32_t n_peers, size_t link_bytes)
{
    struct stat facts;

    fabric->first = make_links(n_peers, link_bytes);
    fabric->links = calloc(n_peers, sizeof(struct stepaf_fabric_link *));
    fabric->senders = calloc(n_peers, sizeof(struct stepaf_fabric_link *));
    if (!fabric->first || !fabric->links || !fabric->senders)
        return ENOMEM;
    fabric->link_bytes = link_bytes;
    fabric->n_peers = fabric->n_senders = n_peers;
    for (uint32_t p = 0; p < n_peers; p++)
        begin_link(fabric, (void *)((char *)fabric->first + p * link_bytes), p, p);
    fabric->pids = stat("/proc/self/ns/pid", &facts) ? 0 : facts.st_ino;
    return getrandom(&fabric->token, sizeof(fabric->token), 0) == sizeof(fabric->token) ? 0
                                                                                        : EAGAIN;
}

void stepaf_fabric_close(struct stepaf_fabric *fabric)
{
    for (uint32_t i = fabric->n_peers; i < fabric->n_senders; i++)
        free(fabric->senders[i]);
    free(fabric->senders);
    free(fabric->links);
    free(fabric->first);
}

bool stepaf_fabric_is_spent(const struct stepaf_fabric_link *link)
{
    return link->base.ops && (link->base.dead || !link->used);
}

struct stepaf_fabric_link *stepaf_fabric_replace(struct stepaf_fabric *fabric, uint32_t peer)
{
    struct stepaf_fabric_link **senders, *link;

    if (fabric->n_senders >= STEPAF_FABRIC_PEERS)
        return NULL;
    senders = realloc(fabric->senders, (fabric->n_senders + 1) * sizeof(*senders));
    if (!senders)
        return NULL;
    fabric->senders = senders;
    link = make_links(1, fabric->link_bytes);
    if (link)
        begin_link(fabric, link, peer, fabric->n_senders++);
    return link;
}

bool stepaf_fabric_has_ended(const struct stepaf_fabric_link *link)
{
    struct pollfd pollfd = {.fd = link->pidfd, .events = POLLIN};

    return link->has_ended || (link->pidfd >= 0 && poll(&pollfd, 1, 0) > 0);
}

bool stepaf_fabric_is_over(struct stepaf_link *base)
{
    const struct stepaf_fabric_link *link = (const struct stepaf_fabric_link *)base;

    return link->pidfd < 0 || stepaf_fabric_has_ended(link);
}
