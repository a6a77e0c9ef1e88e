/* SPDX-License-Identifier: Apache-2.0 */
/* Sides of transports over fabrics. */
#include <unistd.h>

#include "fabric_side.h"

enum { TRIES = 1000000 };

struct stepaf_fabric *fabric_of(const struct side *side)
{
    return (struct stepaf_fabric *)side->transport;
}

struct stepaf_fabric_link *fabric_link(const struct side *side, uint32_t peer)
{
    return (struct stepaf_fabric_link *)side->links[peer];
}

void fabric_open(struct side *side, unsigned n_peers)
{
    static const char *settings[] = {"STEPAF_TRANSPORTS", NULL, NULL};

    settings[1] = side_ops->name;
    if (!side_settings)
        side_settings = settings;
    side_open(side, n_peers);
    side->topo.node_id = 2; /* side_connect says 1: peers are on other nodes */
}

void fabric_join(struct side *one, uint32_t peer, struct side *other, uint32_t slot)
{
    side_must(!side_connect(one, peer, other, slot, (uint32_t)getpid(), NULL), "join");
    side_must(!side_connect(other, slot, one, peer, (uint32_t)getpid(), NULL), "join");
}

void fabric_prove(struct side *const *sides, unsigned n)
{
    char reason[STEPAF_REASON_MAX];
    unsigned n_proven = 0;
    uint32_t peer;

    for (int i = 0; i < TRIES && n_proven < n; i++) {
        n_proven = 0;
        for (unsigned s = 0; s < n; s++)
            n_proven += !side_ops->prove_links(sides[s]->transport, true, &peer, reason);
    }
    side_must(n_proven == n, "the links are not proven");
    for (unsigned s = 0; s < n; s++)
        side_ops->shrink(sides[s]->transport);
}

struct stepaf_mem *fabric_memory(struct side *side, size_t bytes)
{
    struct stepaf_mem *mem = side_memory(side, bytes, false);

    side_must(!side_ops->reg_mem(side->transport, mem), "registration");
    return mem;
}

bool fabric_until_messages(struct side *to, struct side *from, unsigned n)
{
    unsigned lost = to->n_lost + from->n_lost;

    for (int i = 0; i < TRIES && to->n_messages < n && to->n_lost + from->n_lost == lost; i++) {
        (void)side_progress(to);
        (void)side_progress(from);
        side_ops->check_peers(to->transport);
        side_ops->check_peers(from->transport);
    }
    return to->n_messages >= n;
}
