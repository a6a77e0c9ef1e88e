/* SPDX-License-Identifier: Apache-2.0 */
#include "boot/boot_room.h"

#include <stddef.h>

static stepaf_status_t exchange_with_room(void *self, const void *data, size_t bytes, void **all_p,
                                          size_t *offsets_p, int64_t timeout_us)
{
    struct stepaf_boot_room *room = self;
    const stepaf_boot_t *inner = &room->inner;
    stepaf_status_t status =
        inner->allgather(inner->self, data, bytes, all_p, offsets_p, timeout_us);

    for (int r = inner->size; !status && r < room->size; r++)
        offsets_p[r + 1] = offsets_p[inner->size];
    return status;
}

/* Ranks ascend: the ranks that no process has are the last. */
static stepaf_status_t barrier_with_room(void *self, stepaf_group_t group, const int *ranks, int n,
                                         int64_t timeout_us)
{
    const stepaf_boot_t *inner = &((struct stepaf_boot_room *)self)->inner;

    while (n && ranks[n - 1] >= inner->size)
        n--;
    return inner->barrier(inner->self, group, ranks, n, timeout_us);
}

static int lost_with_room(void *self, int *ranks_p, int capacity)
{
    const stepaf_boot_t *inner = &((struct stepaf_boot_room *)self)->inner;

    return inner->lost(inner->self, ranks_p, capacity);
}

static void close_with_room(void *self)
{
    const stepaf_boot_t *inner = &((struct stepaf_boot_room *)self)->inner;

    inner->close(inner->self);
}

void stepaf_boot_room_add(struct stepaf_boot_room *room, int n, stepaf_boot_t *boot)
{
    *room = (struct stepaf_boot_room){.inner = *boot, .size = boot->size + n};
    boot->self = room;
    boot->size = room->size;
    boot->allgather = exchange_with_room;
    boot->barrier = barrier_with_room;
    boot->close = boot->close ? close_with_room : NULL;
    boot->lost = boot->lost ? lost_with_room : NULL;
}
