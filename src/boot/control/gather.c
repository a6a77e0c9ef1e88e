/* SPDX-License-Identifier: Apache-2.0 */
/* The exchange. In each round a rank sends the blocks that it holds, its own first, to the rank d
 * places below, and gets as many from the rank d places above; d doubles. So each block arrives at
 * each rank once, and rank 0 transfers no more than any other. */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "boot/control/control.h"

/* The blocks of ranks from this one on, around the circle: for each its length, 8 bytes, and its
 * data. */
struct pile {
    uint8_t *data;
    size_t *ends; /* of the first n blocks */
    int n;
};

static stepaf_status_t refuse_blocks(int rank)
{
    return stepaf_error_set_peer(
        STEPAF_ERR_PROTOCOL, STEPAF_PHASE_NONE, (struct stepaf_who){-1, -1, rank},
        "tcp bootstrap: exchange: world rank %d has sent malformed data", rank);
}

static stepaf_status_t refuse_size(void)
{
    return stepaf_error_set(STEPAF_ERR_LIMIT, STEPAF_PHASE_NONE,
                            "tcp bootstrap: the exchange has more than %d bytes",
                            STEPAF_CONTROL_GATHER_MAX);
}

/* Put @a n blocks on the pile. Returns false if these are not n whole blocks, or there is no
 * memory. */
static bool add_blocks(struct pile *pile, const uint8_t *data, size_t bytes, int n)
{
    size_t held = pile->n ? pile->ends[pile->n - 1] : 0, at = 0;
    uint64_t length;

    for (int i = 0; i < n; i++) {
        if (bytes - at < sizeof length)
            return false;
        memcpy(&length, data + at, sizeof length);
        at += sizeof length;
        if (length > bytes - at)
            return false;
        at += length;
        pile->ends[pile->n + i] = held + at;
    }
    uint8_t *more = at == bytes ? realloc(pile->data, held + bytes) : NULL;
    if (!more)
        return false;
    memcpy(more + held, data, bytes);
    pile->data = more;
    pile->n += n;
    return true;
}

/* Return the blocks that @a rank sends in this round; NULL if the exchange has failed, or after the
 * deadline. */
static struct stepaf_control_parcel *await_blocks(struct stepaf_control *control, int rank,
                                                  int round, int64_t deadline_ns)
{
    struct stepaf_control_try attempt = {.again_ns = 0};

    for (;;) {
        struct stepaf_control_link *link = control->links[rank];
        struct stepaf_control_parcel *parcel =
            link ? stepaf_control_take(link, STEPAF_CONTROL_GATHER, control->n_exchanges,
                                       (uint32_t)round)
                 : NULL;
        if (parcel || !stepaf_control_goes_on(control, STEPAF_CONTROL_EXCHANGE, NULL,
                                              control->place.size, rank))
            return parcel;
        if (!stepaf_control_move_on(control, rank, STEPAF_CONTROL_EXCHANGE, &attempt, deadline_ns))
            return NULL;
    }
}

/* Do one round. */
static stepaf_status_t swap_blocks(struct stepaf_control *control, struct pile *pile, int distance,
                                   int round, int64_t deadline_ns)
{
    int size = control->place.size, rank = control->place.rank;
    int below = (rank - distance + size) % size, above = (rank + distance) % size;
    int n = distance < size - distance ? distance : size - distance;
    struct stepaf_control_frame frame = {.type = STEPAF_CONTROL_GATHER,
                                         .number = control->n_exchanges,
                                         .detail = (uint32_t)round,
                                         .bytes = pile->ends[n - 1]};

    if (frame.bytes > STEPAF_CONTROL_GATHER_MAX)
        return refuse_size();
    struct stepaf_control_link *to =
        stepaf_control_reach(control, below, STEPAF_CONTROL_EXCHANGE, deadline_ns);
    if (to)
        stepaf_control_send(to, &frame, pile->data);
    struct stepaf_control_parcel *parcel =
        to ? await_blocks(control, above, round, deadline_ns) : NULL;
    if (!parcel) {
        stepaf_control_give_up(control, STEPAF_CONTROL_EXCHANGE, to ? above : below, round);
        return stepaf_control_raise(control, STEPAF_CONTROL_EXCHANGE);
    }
    stepaf_status_t status =
        add_blocks(pile, parcel->data, parcel->bytes, n) ? STEPAF_OK : refuse_blocks(above);
    free(parcel);
    return status;
}

/* Copy the pile in rank order, without lengths. */
static stepaf_status_t deal_blocks(const struct stepaf_control *control, const struct pile *pile,
                                   void **all_p, size_t *offsets_p)
{
    int size = control->place.size;
    size_t total = pile->ends[size - 1] - (size_t)size * sizeof(uint64_t), at = 0;
    uint8_t *all = malloc(total ? total : 1);

    if (!all)
        return stepaf_error_set(STEPAF_ERR_NO_MEMORY, STEPAF_PHASE_NONE,
                                "tcp bootstrap: no memory for %zu bytes", total);
    for (int rank = 0; rank < size; rank++) {
        int place = (rank - control->place.rank + size) % size;
        size_t begin = (place ? pile->ends[place - 1] : 0) + sizeof(uint64_t);
        size_t bytes = pile->ends[place] - begin;
        offsets_p[rank] = at;
        memcpy(all + at, pile->data + begin, bytes);
        at += bytes;
    }
    offsets_p[size] = at;
    *all_p = all;
    return STEPAF_OK;
}

/* Begin a pile with this rank's own block. */
static stepaf_status_t begin_pile(const struct stepaf_control *control, const void *data,
                                  size_t bytes, struct pile *pile_p)
{
    uint64_t length = bytes;

    if (bytes > STEPAF_CONTROL_GATHER_MAX - sizeof length)
        return refuse_size();
    pile_p->ends = calloc((size_t)control->place.size, sizeof *pile_p->ends);
    pile_p->data = malloc(sizeof length + bytes);
    if (!pile_p->ends || !pile_p->data)
        return stepaf_error_set(STEPAF_ERR_NO_MEMORY, STEPAF_PHASE_NONE,
                                "tcp bootstrap: no memory for an exchange of %d ranks",
                                control->place.size);
    memcpy(pile_p->data, &length, sizeof length);
    if (bytes)
        memcpy(pile_p->data + sizeof length, data, bytes);
    pile_p->ends[0] = sizeof length + bytes;
    pile_p->n = 1;
    return STEPAF_OK;
}

stepaf_status_t stepaf_control_allgather(struct stepaf_control *control, const void *data,
                                         size_t bytes, void **all_p, size_t *offsets_p,
                                         int64_t deadline_ns)
{
    struct pile pile = {0};
    stepaf_status_t status = begin_pile(control, data, bytes, &pile);

    control->n_exchanges++;
    for (int round = 0, distance = 1; status == STEPAF_OK && distance < control->place.size;
         round++, distance *= 2)
        status = swap_blocks(control, &pile, distance, round, deadline_ns);
    control->waiting[STEPAF_CONTROL_EXCHANGE].is_on = false;
    if (status == STEPAF_OK)
        status = deal_blocks(control, &pile, all_p, offsets_p);
    /* Tell all others of an error that only this rank has found. */
    if (status != STEPAF_OK) {
        int peer = stepaf_last_error()->peer_world_rank;
        stepaf_control_note_failure(control, STEPAF_CONTROL_EXCHANGE, status,
                                    peer >= 0 ? peer : control->place.rank,
                                    stepaf_last_error()->text);
    }
    free(pile.data);
    free(pile.ends);
    return status;
}
