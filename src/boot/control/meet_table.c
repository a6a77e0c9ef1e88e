/* SPDX-License-Identifier: Apache-2.0 */
/* The table of where all ranks listen: rank 0 sees the address from which each has come, and each
 * has sent its port. */
#include <stdlib.h>
#include <string.h>

#include "boot/control/control.h"
#include "boot/control/socket.h"

static bool see_entry(const struct stepaf_control_link *link, struct stepaf_control_entry *entry_p)
{
    struct stepaf_control_address address;

    if (!stepaf_control_other_end(link->fd, &address))
        return false;
    *entry_p = (struct stepaf_control_entry){.port = link->hello.port,
                                             .is_near = stepaf_control_is_loopback(&address)};
    memcpy(entry_p->address, address.bytes, sizeof entry_p->address);
    return true;
}

bool stepaf_control_give_table(struct stepaf_control *control)
{
    size_t size = (size_t)control->place.size;
    size_t bytes = sizeof control->session + size * sizeof(struct stepaf_control_entry);
    struct stepaf_control_frame frame = {.type = STEPAF_CONTROL_TABLE, .bytes = bytes};
    struct stepaf_control_entry *entries = calloc(size, sizeof *entries);
    uint8_t *table = malloc(bytes);
    bool is_made = entries && table && stepaf_proof_draw(control->session, sizeof control->session);

    for (size_t rank = 1; is_made && rank < size; rank++)
        (void)see_entry(control->links[rank],
                        &entries[rank]); /* the rank has gone: a caller will see that */
    if (is_made) {
        control->entries = entries;
        control->has_met = true;
        memcpy(table, control->session, sizeof control->session);
        memcpy(table + sizeof control->session, entries, size * sizeof *entries);
        for (size_t rank = 1; rank < size; rank++)
            stepaf_control_send(control->links[rank], &frame, table);
    } else {
        free(entries);
    }
    free(table);
    return is_made;
}

bool stepaf_control_take_table(struct stepaf_control *control,
                               const struct stepaf_control_parcel *parcel)
{
    size_t bytes = (size_t)control->place.size * sizeof(struct stepaf_control_entry);

    if (parcel->bytes != sizeof control->session + bytes)
        return false;
    control->entries = malloc(bytes);
    if (!control->entries)
        return false;
    memcpy(control->session, parcel->data, sizeof control->session);
    memcpy(control->entries, parcel->data + sizeof control->session, bytes);
    control->has_met = true;
    return true;
}
