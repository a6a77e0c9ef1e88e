/* SPDX-License-Identifier: Apache-2.0 */
/* Sides of transports over fabrics. */
#include <unistd.h>

#include "fabric_side.h"
#include "unit.h"

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
    one->up.initiates = true;
    other->up.initiates = false;
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

void fabric_open_three(struct side *const *sides)
{
    for (unsigned s = 0; s < FABRIC_SIDES; s++)
        fabric_open(sides[s], s ? 1 : FABRIC_SIDES - 1);
    for (uint32_t s = 1; s < FABRIC_SIDES; s++)
        fabric_join(sides[0], s - 1, sides[s], 0);
    fabric_prove(sides, FABRIC_SIDES);
}

void fabric_check_link(struct side *one, uint32_t peer, struct side *other)
{
    unsigned n = other->n_messages, m = one->n_messages;

    CU_ASSERT_EQUAL(side_say(one, peer, 77), STEPAF_POST_SENT);
    CU_ASSERT_TRUE(fabric_until_messages(other, one, n + 1));
    CU_ASSERT_EQUAL(side_say(other, 0, 78), STEPAF_POST_SENT);
    CU_ASSERT_TRUE(fabric_until_messages(one, other, m + 1));
    CU_ASSERT(other->n_messages == n + 1 && one->n_messages == m + 1);
    CU_ASSERT(other->messages[n].seq == 77 && one->messages[m].seq == 78);
}

bool fabric_exchange(struct side *one, struct side *other, uint32_t seq)
{
    unsigned n = other->n_messages, m = one->n_messages;

    while (side_say(one, 0, seq) == STEPAF_POST_QUEUED)
        (void)side_progress(one);
    if (!fabric_until_messages(other, one, n + 1))
        return false;
    while (side_say(other, 0, seq) == STEPAF_POST_QUEUED)
        (void)side_progress(other);
    return fabric_until_messages(one, other, m + 1) && one->messages[m].seq == seq &&
           other->messages[n].seq == seq;
}

void fabric_take_in(struct side *const *sides, unsigned n)
{
    for (int i = 0; i < 300; i++)
        for (unsigned s = 0; s < n; s++)
            (void)side_progress(sides[s]);
}
