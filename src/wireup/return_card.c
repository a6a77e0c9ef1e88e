/* SPDX-License-Identifier: Apache-2.0 */
/* Cards: writing and reading them. */
#include "wireup/return_card.h"

#include <stdlib.h>

#include "boot/member_net_return.h"

bool stepaf_return_card_keep(struct stepaf_ctx *ctx, int rank, const struct stepaf_hello *hello,
                             const void *blob, size_t bytes, int role)
{
    struct stepaf_pack pack = {0};

    stepaf_member_contact_pack(&hello->contact, &pack);
    stepaf_pack_u32(&pack, (uint32_t)role);
    stepaf_pack_u64(&pack, hello->node_id);
    stepaf_pack_bytes(&pack, blob, bytes);
    bool is_kept = !pack.failed &&
                   stepaf_member_net_set_card(ctx->job.members.net, rank, pack.data, pack.bytes);
    free(pack.data);
    return is_kept;
}

bool stepaf_return_card_read(const void *card, size_t bytes, struct stepaf_unpack *words_p,
                             struct stepaf_hello *hello_p, int *role_p)
{
    struct stepaf_unpack unpack = stepaf_unpack_from(card, bytes);
    struct stepaf_member_contact contact;

    if (!card || !stepaf_member_contact_read(&unpack, &contact))
        return false;
    *role_p = (int)stepaf_unpack_u32(&unpack);
    uint64_t node_id = stepaf_unpack_u64(&unpack);
    *words_p = unpack;
    if (unpack.failed || (*role_p != STEPAF_ATTENTION && *role_p != STEPAF_FFN))
        return false;
    *hello_p = (struct stepaf_hello){.is_vacant = unpack.at == unpack.end, .node_id = node_id};
    return hello_p->is_vacant ||
           stepaf_hello_read(unpack.at, (size_t)(unpack.end - unpack.at), hello_p);
}
