/* SPDX-License-Identifier: Apache-2.0 */
/* The ops, which bound the writes in flight. All peers share them; but peers that take in nothing
 * must not hold all of them, or other peers would seem silent as well. */
#include <stdlib.h>

#include "transport/ofi/ofi.h"

static void add_ops(struct stepaf_ofi_op **list, struct stepaf_ofi_op *ops, unsigned n)
{
    for (unsigned i = 0; i < n; i++) {
        ops[i].next = *list;
        *list = &ops[i];
    }
}

bool stepaf_ofi_open_room(struct stepaf_ofi *ofi)
{
    struct stepaf_ofi_pool *pool = &ofi->pool;

    pool->ops = calloc(STEPAF_OFI_OPS + STEPAF_OFI_RESERVE, sizeof(*pool->ops));
    if (!pool->ops)
        return false;
    add_ops(&ofi->free_op, pool->ops, STEPAF_OFI_OPS);
    add_ops(&pool->reserve, pool->ops + STEPAF_OFI_OPS, STEPAF_OFI_RESERVE);
    pool->n_reserve = STEPAF_OFI_RESERVE;
    return true;
}

void stepaf_ofi_close_room(struct stepaf_ofi *ofi)
{
    while (ofi->pool.more) {
        struct stepaf_ofi_more_ops *more = ofi->pool.more;
        ofi->pool.more = more->next;
        free(more);
    }
    free(ofi->pool.ops);
}

static uint32_t pending_of(const struct stepaf_fabric_link *link)
{
    uint32_t n = 0;

    for (int i = 0; i < STEPAF_FABRIC_RING; i++)
        n += link->flight[i].pending;
    return n;
}

static bool is_reserve(const struct stepaf_ofi *ofi, const struct stepaf_ofi_op *op)
{
    return op >= ofi->pool.ops + STEPAF_OFI_OPS &&
           op < ofi->pool.ops + STEPAF_OFI_OPS + STEPAF_OFI_RESERVE;
}

static struct stepaf_ofi_op *first_of(struct stepaf_ofi_op **list)
{
    struct stepaf_ofi_op *op = *list;

    *list = op->next;
    return op;
}

void stepaf_ofi_free_op(struct stepaf_ofi *ofi, struct stepaf_ofi_op *op)
{
    struct stepaf_ofi_op **list = is_reserve(ofi, op) ? &ofi->pool.reserve : &ofi->free_op;

    ofi->pool.n_reserve += list == &ofi->pool.reserve;
    op->next = *list;
    *list = op;
}

bool stepaf_ofi_lend(struct stepaf_ofi *ofi, const struct stepaf_fabric_link *link,
                     bool for_control)
{
    struct stepaf_ofi_pool *pool = &ofi->pool;

    if (ofi->free_op || !pool->n_reserve)
        return false;
    if (!for_control &&
        (pool->n_reserve <= STEPAF_OFI_RESERVE / 2 || pending_of(link) >= STEPAF_OFI_FEW))
        return false;
    pool->n_reserve--;
    add_ops(&ofi->free_op, first_of(&pool->reserve), 1);
    return true;
}

void stepaf_ofi_take_back(struct stepaf_ofi *ofi)
{
    if (ofi->free_op && is_reserve(ofi, ofi->free_op))
        stepaf_ofi_free_op(ofi, first_of(&ofi->free_op));
}

bool stepaf_ofi_is_op(const struct stepaf_ofi *ofi, const void *context)
{
    const struct stepaf_ofi_op *op = context;
    bool is = stepaf_ofi_is_usual_op(ofi, op) || is_reserve(ofi, op);

    for (const struct stepaf_ofi_more_ops *more = ofi->pool.more; more && !is; more = more->next)
        is = op >= more->ops && op < more->ops + STEPAF_OFI_OPS;
    return is;
}

/* Add ops if lost peers hold half of all. There is no hurry: if the provider completes writes in
 * flight, lost peers hold their ops only for a while. */
static void make_room(struct stepaf_ofi *ofi)
{
    struct stepaf_ofi_more_ops *more;
    uint32_t n_held = 0;

    for (uint32_t i = 0; i < ofi->shared.n_senders; i++) {
        const struct stepaf_fabric_link *link = ofi->shared.senders[i];
        if (link->base.dead)
            n_held += pending_of(link) + link->control.pending;
    }
    if (n_held < ofi->pool.n_more + STEPAF_OFI_OPS / 2 || !(more = calloc(1, sizeof(*more))))
        return;
    more->next = ofi->pool.more;
    ofi->pool.more = more;
    ofi->pool.n_more += STEPAF_OFI_OPS;
    add_ops(&ofi->free_op, more->ops, STEPAF_OFI_OPS);
}

void stepaf_ofi_check_peers(struct stepaf_transport *transport)
{
    struct stepaf_ofi *ofi = (struct stepaf_ofi *)transport;

    stepaf_ofi_read_events(ofi);
    stepaf_fabric_check_peers(transport);
    if (!ofi->free_op)
        make_room(ofi);
}
