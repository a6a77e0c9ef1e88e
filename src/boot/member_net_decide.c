/* SPDX-License-Identifier: Apache-2.0 */
/* Conversions of what members tell each other: contacts in hellos, digests of states, and decisions
 * in the form of exchanges. */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/hash.h"
#include "boot/member_net.h"
#include "boot/member_net_inside.h"

void stepaf_member_contact_pack(const struct stepaf_member_contact *contact,
                                struct stepaf_pack *pack)
{
    stepaf_consensus_addresses_pack(&contact->addresses, pack);
    stepaf_pack_bytes(pack, contact->nonce, sizeof contact->nonce);
}

bool stepaf_member_contact_read(struct stepaf_unpack *unpack,
                                struct stepaf_member_contact *contact_p)
{
    struct stepaf_member_contact contact;

    if (!stepaf_consensus_addresses_read(unpack, &contact.addresses))
        return false;
    const void *nonce = stepaf_unpack_bytes(unpack, sizeof contact.nonce);
    if (!nonce)
        return false;
    memcpy(contact.nonce, nonce, sizeof contact.nonce);
    *contact_p = contact;
    return true;
}

uint64_t stepaf_member_digest(const void *state, size_t bytes)
{
    return stepaf_hash(STEPAF_HASH_START, state, bytes);
}

bool stepaf_member_guest_has_state(const struct stepaf_member_net *net, const void *data,
                                   size_t bytes)
{
    struct stepaf_unpack unpack = stepaf_unpack_from(data, bytes);

    return !stepaf_unpack_u32(&unpack) && stepaf_unpack_u64(&unpack) && net->returns->has_state &&
           !unpack.failed && unpack.at == unpack.end;
}

void stepaf_member_net_next(struct stepaf_member_net *net)
{
    stepaf_consensus_next(&net->consensus);
}

bool stepaf_member_net_is_called(const struct stepaf_member_net *net)
{
    return stepaf_consensus_is_called(&net->consensus);
}

void stepaf_member_net_learn(struct stepaf_member_net *net, const void *all, const size_t *offsets)
{
    size_t size = (size_t)net->consensus.size, bytes = 0;
    struct stepaf_consensus_blob *blobs = calloc(size, sizeof *blobs);
    static uint8_t nothing;
    uint8_t *value = NULL;

    for (size_t r = 0; blobs && r < size; r++)
        blobs[r] = (struct stepaf_consensus_blob){
            offsets[r + 1] > offsets[r] ? (uint8_t *)(uintptr_t)all + offsets[r] : &nothing,
            offsets[r + 1] - offsets[r]};
    if (blobs)
        value = stepaf_consensus_value_make(blobs, (int)size, &bytes);
    stepaf_consensus_learn(&net->consensus, value, value ? bytes : 0);
    free(value);
    free(blobs);
}

void stepaf_member_net_decide(struct stepaf_member_net *net, const void *own, size_t bytes)
{
    stepaf_consensus_open(&net->consensus, own, bytes);
}

static void deal_words(const struct stepaf_consensus_blob *blobs, size_t size, uint8_t *all,
                       size_t *offsets_p, uint8_t *present_p)
{
    size_t at = 0;

    for (size_t r = 0; r < size; r++) {
        offsets_p[r] = at;
        if (present_p)
            present_p[r] = blobs[r].data != NULL;
        if (blobs[r].bytes)
            memcpy(all + at, blobs[r].data, blobs[r].bytes);
        at += blobs[r].bytes;
    }
    offsets_p[size] = at;
}

stepaf_status_t stepaf_member_net_deal(const struct stepaf_member_net *net,
                                       const struct stepaf_consensus_blob *value, void **all_p,
                                       size_t *offsets_p, uint8_t *present_p)
{
    size_t size = (size_t)net->consensus.size;
    struct stepaf_consensus_blob *blobs = calloc(size, sizeof *blobs);
    uint8_t *all = malloc(value->bytes + 1);
    stepaf_status_t status = STEPAF_OK;

    if (!blobs || !all)
        status = stepaf_error_no_memory(STEPAF_PHASE_NONE);
    else if (!stepaf_consensus_value_read(value->data, value->bytes, blobs, (int)size))
        status = stepaf_error_set(STEPAF_ERR_PROTOCOL, STEPAF_PHASE_NONE,
                                  "the decision of the members is malformed");
    else
        deal_words(blobs, size, all, offsets_p, present_p);
    free(blobs);
    if (status)
        free(all);
    else
        *all_p = all;
    return status;
}

stepaf_status_t stepaf_member_net_decision(struct stepaf_member_net *net, void **all_p,
                                           size_t *offsets_p, uint8_t *present_p)
{
    return stepaf_error_in(
        stepaf_member_net_deal(net, &net->consensus.value, all_p, offsets_p, present_p),
        STEPAF_PHASE_COMMIT);
}

int stepaf_member_net_awaited(const struct stepaf_member_net *net)
{
    return stepaf_consensus_awaited(&net->consensus);
}

bool stepaf_member_net_is_silent(const struct stepaf_member_net *net, int rank)
{
    return stepaf_consensus_is_silent(&net->consensus, rank);
}

void stepaf_member_net_forget(struct stepaf_member_net *net)
{
    stepaf_consensus_forget(&net->consensus);
}

void stepaf_member_net_set_new(struct stepaf_member_net *net, const uint8_t *is_new)
{
    stepaf_consensus_set_new(&net->consensus, is_new);
}

void stepaf_member_net_set_members(struct stepaf_member_net *net, const uint8_t *is_member)
{
    stepaf_consensus_set_members(&net->consensus, is_member);
}
