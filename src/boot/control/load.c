/* SPDX-License-Identifier: Apache-2.0 */
/* Frames that are sealed as the socket takes them. A member that leads sends all others the words of
 * all: with a copy for each link, one process would need memory for the square of their number. */
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "boot/control/control.h"

_Static_assert(STEPAF_CONTROL_PIECE % STEPAF_PROOF_PIECE_UNIT == 0, "see base/proof.h");

static void part_with_load(struct stepaf_control *control, struct stepaf_control_load *load)
{
    if (--load->n_items)
        return;
    if (control->last.load == load)
        control->last.load = NULL;
    stepaf_proof_forget(load->data, load->bytes); /* a job's key may be in it */
    free(load);
}

/* Return a load with these data for one more item: the last large one, if another link is still to
 * send the same; NULL: no memory. */
static struct stepaf_control_load *share_load(struct stepaf_control *control, const void *data,
                                              size_t bytes)
{
    struct stepaf_control_load *load = control->last.load;

    if (load && load->bytes == bytes && memcmp(load->data, data, bytes) == 0) {
        load->n_items++;
        return load;
    }
    load = malloc(sizeof *load + bytes);
    if (!load)
        return NULL;
    *load = (struct stepaf_control_load){.n_items = 1, .bytes = bytes};
    if (bytes)
        memcpy(load->data, data, bytes);
    if (bytes > STEPAF_CONTROL_PIECE)
        control->last.load = load;
    return load;
}

bool stepaf_control_put_off(struct stepaf_control_link *link,
                            const struct stepaf_control_frame *frame, const void *data)
{
    struct stepaf_control_item *item = malloc(sizeof *item);
    struct stepaf_control_load *load = item ? share_load(link->control, data, frame->bytes) : NULL;

    if (!load) {
        free(item);
        return false;
    }
    *item = (struct stepaf_control_item){.frame = *frame, .load = load};
    if (link->queue.last)
        link->queue.last->next = item;
    else
        link->queue.first = item;
    link->queue.last = item;
    return true;
}

static void drop_first(struct stepaf_control_link *link)
{
    struct stepaf_control_item *item = link->queue.first;

    link->queue.first = item->next;
    if (!item->next)
        link->queue.last = NULL;
    part_with_load(link->control, item->load);
    stepaf_proof_forget(&item->pieces, sizeof item->pieces);
    free(item);
}

void stepaf_control_drop_queue(struct stepaf_control_link *link)
{
    while (link->queue.first)
        drop_first(link);
}

bool stepaf_control_seal_more(struct stepaf_control_link *link)
{
    struct stepaf_control_item *item = link->queue.first;
    uint8_t mark[STEPAF_PROOF_MARK_BYTES];

    link->out.bytes = link->queue.sent = 0;
    if (!item)
        return false;
    size_t left = item->load->bytes - item->at;
    size_t bytes = left < STEPAF_CONTROL_PIECE ? left : STEPAF_CONTROL_PIECE;
    if (item->at == 0) {
        stepaf_proof_pieces_begin(&item->pieces, link->seal_out.key, link->seal_out.n++,
                                  &item->frame, sizeof item->frame);
        stepaf_pack_bytes(&link->out, &item->frame, sizeof item->frame);
    }
    size_t at = link->out.bytes;
    stepaf_pack_bytes(&link->out, item->load->data + item->at, bytes);
    if (!link->out.failed)
        stepaf_proof_pieces_next(&item->pieces, link->out.data + at, bytes);
    item->at += bytes;
    if (bytes == left) {
        stepaf_proof_pieces_end(&item->pieces, mark);
        stepaf_pack_bytes(&link->out, mark, sizeof mark);
        drop_first(link);
    }
    if (!link->out.failed)
        return true;
    stepaf_control_drop_queue(link);
    link->out.bytes = 0;
    (void)shutdown(link->fd, SHUT_RDWR);
    return false;
}
