/* SPDX-License-Identifier: Apache-2.0 */
/* Packing and reading of values and messages. Data from others are untrusted input: reading never
 * goes beyond the end, and data that do not fit are rejected. */
#include <stdlib.h>
#include <string.h>

#include "base/pack.h"
#include "boot/consensus/consensus.h"

enum { ABSENT = 0, PRESENT = 1 };

uint8_t *stepaf_consensus_value_make(const struct stepaf_consensus_blob *blobs, int size,
                                     size_t *bytes_p)
{
    struct stepaf_pack pack = {0};

    stepaf_pack_u32(&pack, (uint32_t)size);
    for (int r = 0; r < size; r++) {
        stepaf_pack_u32(&pack, blobs[r].data ? PRESENT : ABSENT);
        if (!blobs[r].data)
            continue;
        stepaf_pack_u64(&pack, blobs[r].bytes);
        stepaf_pack_bytes(&pack, blobs[r].data, blobs[r].bytes);
    }
    if (pack.failed) {
        free(pack.data);
        return NULL;
    }
    *bytes_p = pack.bytes;
    return pack.data;
}

/* Return an address that is not NULL, even if there is no data. */
static uint8_t *place_or_none(const void *bytes)
{
    static uint8_t nothing;

    return bytes ? (uint8_t *)(uintptr_t)bytes : &nothing;
}

bool stepaf_consensus_value_read(const void *value, size_t bytes,
                                 struct stepaf_consensus_blob *blobs_p, int size)
{
    struct stepaf_unpack unpack = stepaf_unpack_from(value, bytes);

    if (stepaf_unpack_u32(&unpack) != (uint32_t)size)
        return false;
    for (int r = 0; r < size; r++) {
        uint32_t is_there = stepaf_unpack_u32(&unpack);
        struct stepaf_consensus_blob blob = {0};
        if (unpack.failed || is_there > PRESENT)
            return false;
        if (is_there) {
            blob.bytes = stepaf_unpack_u64(&unpack);
            blob.data = place_or_none(blob.bytes ? stepaf_unpack_bytes(&unpack, blob.bytes) : NULL);
        }
        if (blobs_p)
            blobs_p[r] = blob;
    }
    return !unpack.failed && unpack.at == unpack.end;
}

uint32_t stepaf_consensus_gone_by(const struct stepaf_consensus_message *message, int rank)
{
    uint32_t gone;

    memcpy(&gone, (const uint8_t *)message->gone + (size_t)rank * sizeof gone, sizeof gone);
    return gone;
}

uint8_t *stepaf_consensus_message_pack(const struct stepaf_consensus_message *message, int size,
                                       size_t *bytes_p)
{
    struct stepaf_pack pack = {0};

    stepaf_pack_u32(&pack, message->kind);
    stepaf_pack_u32(&pack, message->number);
    stepaf_pack_u32(&pack, message->ballot);
    stepaf_pack_u32(&pack, message->accepted);
    stepaf_pack_u32(&pack, message->life);
    stepaf_pack_bytes(&pack, message->gone, (size_t)size * sizeof(uint32_t));
    stepaf_pack_u64(&pack, message->own_bytes);
    stepaf_pack_bytes(&pack, message->own, message->own_bytes);
    stepaf_pack_u32(&pack, message->value ? PRESENT : ABSENT);
    stepaf_pack_bytes(&pack, message->value, message->value ? message->value_bytes : 0);
    if (pack.failed) {
        free(pack.data);
        return NULL;
    }
    *bytes_p = pack.bytes;
    return pack.data;
}

bool stepaf_consensus_message_read(const void *data, size_t bytes, int size,
                                   struct stepaf_consensus_message *message_p)
{
    struct stepaf_unpack unpack = stepaf_unpack_from(data, bytes);
    struct stepaf_consensus_message message = {.kind = stepaf_unpack_u32(&unpack)};

    message.number = stepaf_unpack_u32(&unpack);
    message.ballot = stepaf_unpack_u32(&unpack);
    message.accepted = stepaf_unpack_u32(&unpack);
    message.life = stepaf_unpack_u32(&unpack);
    message.gone = stepaf_unpack_bytes(&unpack, (size_t)size * sizeof(uint32_t));
    message.own_bytes = stepaf_unpack_u64(&unpack);
    message.own = message.own_bytes ? stepaf_unpack_bytes(&unpack, message.own_bytes) : NULL;
    uint32_t has_value = stepaf_unpack_u32(&unpack);
    if (unpack.failed || has_value > PRESENT || message.kind < STEPAF_CONSENSUS_CALL ||
        message.kind > STEPAF_CONSENSUS_RESIGN || message.ballot > 2 * (uint32_t)size ||
        message.accepted > 2 * (uint32_t)size)
        return false;
    if (has_value) {
        message.value = unpack.at;
        message.value_bytes = (size_t)(unpack.end - unpack.at);
    } else if (unpack.at != unpack.end) {
        return false;
    }
    *message_p = message;
    return true;
}
