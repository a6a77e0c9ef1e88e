/* SPDX-License-Identifier: Apache-2.0 */
/* Three sides over the made-up libfabric: the first has two peers, and what becomes of one link
 * leaves the other as it is. For one test program each. */
#ifndef STEPAF_TEST_OFI_THREE_H
#define STEPAF_TEST_OFI_THREE_H

#include "ofi_fabric.h"
#include "unit.h"

static struct side a, b, c;
static struct side *const all[] = {&a, &b, &c};

static inline void begin(void)
{
    ofi_fabric_reset(21);
    fabric_open_three(all);
}

static inline void begin_wide(void)
{
    ofi_fabric_reset(24);
    ofi_fabric.cq_data_size = 8;
    fabric_open_three(all);
}

/* A link of the first side is as it was. */
static inline void check_link(struct side *peer, uint32_t index)
{
    fabric_check_link(&a, index, peer);
}

static inline void end(void)
{
    for (int s = 0; s < 3; s++)
        side_close(all[s]);
    CU_ASSERT_EQUAL(ofi_fabric.n_open, 0);
}

static inline void take_in_all(void)
{
    fabric_take_in(all, 3);
}

static inline uint32_t data_of(enum stepaf_fabric_kind kind, uint32_t peer, uint32_t number)
{
    return (uint32_t)kind << STEPAF_OFI_KIND_SHIFT | peer << STEPAF_OFI_SENDER_SHIFT |
           (number & STEPAF_FABRIC_NUMBER);
}

#endif
