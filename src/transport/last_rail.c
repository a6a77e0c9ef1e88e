/* SPDX-License-Identifier: Apache-2.0 */
#include "transport/last_rail.h"

void stepaf_tell_last_rail(struct stepaf_link *link, const struct stepaf_msg *msg, uint32_t imm,
                           const uint64_t *came, unsigned n)
{
    struct stepaf_upcalls *up = link->transport->up;
    uint64_t before = 0; /* the last but one */
    unsigned last = 0;

    for (unsigned r = 1; r < n; r++) {
        bool is_later = came[r] > came[last];
        uint64_t earlier = is_later ? came[last] : came[r];
        last = is_later ? r : last;
        before = earlier > before ? earlier : before;
    }
    if (before)
        up->held_up(up, link, msg, imm, last, came[last] - before);
}
