/* SPDX-License-Identifier: Apache-2.0 */
/* Incoming frames of a proven connection. The other end is a rank of this job, and can be wrong
 * nevertheless: an invalid frame ends the connection. */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "boot/control/control.h"

/* Return the most bytes that a frame of this kind announces; SIZE_MAX: there is no such kind. */
static size_t most_bytes(const struct stepaf_control *control, uint32_t type)
{
    switch (type) {
    case STEPAF_CONTROL_TABLE:
        return STEPAF_CONTROL_NONCE_BYTES +
               (size_t)control->place.size * sizeof(struct stepaf_control_entry);
    case STEPAF_CONTROL_GATHER:
        return STEPAF_CONTROL_GATHER_MAX;
    case STEPAF_CONTROL_FAIL:
        return sizeof(int32_t) + STEPAF_CONTROL_TEXT_MAX;
    case STEPAF_CONTROL_CONSENSUS:
    case STEPAF_CONTROL_STATE:
    case STEPAF_CONTROL_WORDS:
    case STEPAF_CONTROL_ALL_WORDS:
        return control->user.take ? STEPAF_CONTROL_GATHER_MAX : SIZE_MAX;
    case STEPAF_CONTROL_ASK:
        return control->user.take ? STEPAF_CONTROL_ASK_MAX : SIZE_MAX;
    case STEPAF_CONTROL_REFUSE:
        return control->user.take ? STEPAF_CONTROL_TEXT_MAX : SIZE_MAX;
    case STEPAF_CONTROL_LEAVES:
        return control->user.take ? sizeof(uint32_t) : SIZE_MAX;
    case STEPAF_CONTROL_TOKEN:
    case STEPAF_CONTROL_LOST:
    case STEPAF_CONTROL_BYE:
    case STEPAF_CONTROL_WELCOME:
    case STEPAF_CONTROL_WAITS:
        return 0;
    default:
        return SIZE_MAX;
    }
}

static bool keep_parcel(struct stepaf_control_link *link, const struct stepaf_control_frame *frame,
                        const uint8_t *data)
{
    struct stepaf_control_parcel **at = &link->parcels.first;
    struct stepaf_control_parcel *parcel;

    if (link->parcels.n == STEPAF_CONTROL_PARCELS_MAX ||
        !(parcel = malloc(sizeof *parcel + frame->bytes)))
        return false;
    *parcel = (struct stepaf_control_parcel){.type = frame->type,
                                             .number = frame->number,
                                             .detail = frame->detail,
                                             .bytes = frame->bytes};
    memcpy(parcel->data, data, frame->bytes);
    while (*at)
        at = &(*at)->next;
    *at = parcel;
    link->parcels.n++;
    return true;
}

static bool hear_failure(struct stepaf_control *control, const struct stepaf_control_frame *frame,
                         const uint8_t *data)
{
    char text[STEPAF_CONTROL_TEXT_MAX];
    int32_t rank = (int32_t)frame->detail;
    uint32_t number;

    if (frame->number >= STEPAF_CONTROL_CHANNELS || rank < -1 || rank >= control->place.size ||
        frame->bytes != sizeof number + sizeof text)
        return false;
    memcpy(&number, data, sizeof number);
    memcpy(text, data + sizeof number, sizeof text);
    text[sizeof text - 1] = '\0';
    stepaf_status_t status = stepaf_status_from(number);
    if (status == STEPAF_OK)
        return false;
    stepaf_control_note_failure(control, (int)frame->number, status, rank, text);
    return true;
}

/* Take the first frame of the called rank, which is a welcome or says why not. */
static bool take_welcome(struct stepaf_control_link *link, const struct stepaf_control_frame *frame,
                         const uint8_t *data)
{
    if (frame->type == STEPAF_CONTROL_FAIL)
        return hear_failure(link->control, frame, data);
    if (link->state != STEPAF_CONTROL_ANSWERED || frame->type != STEPAF_CONTROL_WELCOME)
        return false;
    link->state = STEPAF_CONTROL_UP;
    link->has_been_up = true;
    return true;
}

/* Returns false if the frame is invalid. */
static bool take_frame(struct stepaf_control_link *link, const struct stepaf_control_frame *frame,
                       const uint8_t *data)
{
    struct stepaf_control *control = link->control;

    bool is_of_guests = frame->type >= STEPAF_CONTROL_ASK && frame->type <= STEPAF_CONTROL_REFUSE;

    if (link->state == STEPAF_CONTROL_ANSWERED || frame->type == STEPAF_CONTROL_WELCOME)
        return take_welcome(link, frame, data);
    if (control->user.take_guest && (is_of_guests || stepaf_control_is_guest(link)))
        return control->user.take_guest(control->user.arg, link, frame, data);
    if (control->user.take && frame->type != STEPAF_CONTROL_BYE)
        return control->user.take(control->user.arg, link->rank, frame, data);
    switch (frame->type) {
    case STEPAF_CONTROL_TABLE:
    case STEPAF_CONTROL_GATHER:
        return keep_parcel(link, frame, data);
    case STEPAF_CONTROL_TOKEN:
        if (frame->number >= STEPAF_CONTROL_CHANNELS || frame->detail >= STEPAF_CONTROL_ROUNDS)
            return false;
        link->channels[frame->number].tokens[frame->detail]++;
        return true;
    case STEPAF_CONTROL_WAITS:
        return stepaf_control_hear_waits(link, frame->number, frame->detail);
    case STEPAF_CONTROL_FAIL:
        return hear_failure(control, frame, data);
    case STEPAF_CONTROL_LOST:
        if (frame->number >= (uint32_t)control->place.size)
            return false;
        stepaf_control_note_lost(control, (int)frame->number);
        return true;
    default:
        link->has_left = true;
        control->fates[link->rank] |= STEPAF_CONTROL_HAS_LEFT;
        if (control->user.ended)
            control->user.ended(control->user.arg, link->rank, true);
        return true;
    }
}

void stepaf_control_parse(struct stepaf_control_link *link)
{
    struct stepaf_control_frame frame;
    size_t at = 0;

    /* A process that has only proved that it knows the secret is not yet the rank that it claims to
     * be. */
    while (stepaf_control_is_proven(link) && stepaf_control_is_placed(link) &&
           link->have - at >= sizeof frame) {
        memcpy(&frame, link->in + at, sizeof frame);
        if (frame.bytes > most_bytes(link->control, frame.type) ||
            most_bytes(link->control, frame.type) == SIZE_MAX) {
            stepaf_control_link_close(link, "the other end has sent malformed data", 0);
            return;
        }
        size_t whole = sizeof frame + frame.bytes + STEPAF_PROOF_MARK_BYTES;
        uint8_t *data = link->in + at + sizeof frame;
        if (link->have - at < whole)
            break;
        if (!stepaf_proof_unseal(link->seal_in.key, link->seal_in.n++, &frame, sizeof frame, data,
                                 frame.bytes, data + frame.bytes) ||
            !take_frame(link, &frame, data)) {
            stepaf_control_link_close(link, "the other end has sent malformed data", 0);
            return;
        }
        at += whole;
    }
    if (at && link->in) {
        link->have -= at;
        memmove(link->in, link->in + at, link->have);
    }
    if (!link->have) { /* the link may be silent for hours */
        free(link->in);
        link->in = NULL;
        link->room = 0;
    }
}
