/* SPDX-License-Identifier: Apache-2.0 */
/* What members tell each other in other forms: their cards in hellos, and decisions as exchanges have them. */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "boot/talk.h"
#include "boot/talk_inside.h"

void stepaf_talk_card_pack(const struct stepaf_talk_card *card, struct stepaf_pack *pack)
{
    stepaf_accord_addresses_pack(&card->addresses, pack);
    stepaf_pack_bytes(pack, card->drawn, sizeof card->drawn);
}

bool stepaf_talk_card_read(struct stepaf_unpack *unpack, struct stepaf_talk_card *card_p)
{
    struct stepaf_talk_card card;

    if (!stepaf_accord_addresses_read(unpack, &card.addresses))
        return false;
    const void *drawn = stepaf_unpack_bytes(unpack, sizeof card.drawn);
    if (!drawn)
        return false;
    memcpy(card.drawn, drawn, sizeof card.drawn);
    *card_p = card;
    return true;
}

void stepaf_talk_next(struct stepaf_talk *talk)
{
    stepaf_accord_next(&talk->accord);
}

bool stepaf_talk_is_called(const struct stepaf_talk *talk)
{
    return stepaf_accord_is_called(&talk->accord);
}

void stepaf_talk_settle(struct stepaf_talk *talk, const void *all, const size_t *offsets)
{
    size_t size = (size_t)talk->accord.size, bytes = 0;
    struct stepaf_accord_blob *blobs = calloc(size, sizeof *blobs);
    static uint8_t nothing;
    uint8_t *value = NULL;

    for (size_t r = 0; blobs && r < size; r++)
        blobs[r] = (struct stepaf_accord_blob){
            offsets[r + 1] > offsets[r] ? (uint8_t *)(uintptr_t)all + offsets[r] : &nothing,
            offsets[r + 1] - offsets[r]};
    if (blobs)
        value = stepaf_accord_value_make(blobs, (int)size, &bytes);
    stepaf_accord_settle(&talk->accord, value, value ? bytes : 0);
    free(value);
    free(blobs);
}

void stepaf_talk_decide(struct stepaf_talk *talk, const void *own, size_t bytes)
{
    stepaf_accord_open(&talk->accord, own, bytes);
}

static void deal_words(const struct stepaf_accord_blob *blobs, size_t size, uint8_t *all,
                       size_t *offsets_p, uint8_t *present_p)
{
    size_t at = 0;

    for (size_t r = 0; r < size; r++) {
        offsets_p[r] = at;
        present_p[r] = blobs[r].data != NULL;
        if (blobs[r].bytes)
            memcpy(all + at, blobs[r].data, blobs[r].bytes);
        at += blobs[r].bytes;
    }
    offsets_p[size] = at;
}

stepaf_status_t stepaf_talk_decision(struct stepaf_talk *talk, void **all_p, size_t *offsets_p,
                                     uint8_t *present_p)
{
    const struct stepaf_accord_blob *value = &talk->accord.value;
    size_t size = (size_t)talk->accord.size;
    struct stepaf_accord_blob *blobs = calloc(size, sizeof *blobs);
    uint8_t *all = malloc(value->bytes + 1);
    stepaf_status_t status = STEPAF_OK;

    if (!blobs || !all)
        status = stepaf_error_no_memory(STEPAF_PHASE_COMMIT);
    else if (!stepaf_accord_value_read(value->data, value->bytes, blobs, (int)size))
        status = stepaf_error_set(STEPAF_ERR_PROTOCOL, STEPAF_PHASE_COMMIT,
                                  "what the members have agreed on is malformed");
    else
        deal_words(blobs, size, all, offsets_p, present_p);
    free(blobs);
    if (status)
        free(all);
    else
        *all_p = all;
    return status;
}

int stepaf_talk_awaited(const struct stepaf_talk *talk)
{
    return stepaf_accord_awaited(&talk->accord);
}

void stepaf_talk_forget(struct stepaf_talk *talk)
{
    stepaf_accord_forget(&talk->accord);
}

void stepaf_talk_set_members(struct stepaf_talk *talk, const uint8_t *is_member)
{
    stepaf_accord_set_members(&talk->accord, is_member);
}
