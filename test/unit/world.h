/* SPDX-License-Identifier: Apache-2.0 */
/* Three ranks with the same keys, for the tests of adverts and of the check of them. */
#ifndef STEPAF_TEST_WORLD_H
#define STEPAF_TEST_WORLD_H

#include "fake.h"
#include "wireup/advert.h"

enum { RANKS = 3, SHAPED = 3, PULLED = 2, PUSHED = 1 };

/* Two attention ranks and an FFN rank, world ranks 0 to 2, with matching keys. */
struct world {
    struct fake_job *job[RANKS];
};

struct world world_open(void);
void world_close(struct world *world);
/* Read what @a rank has packed; @a before: NULL, or the advert of the other rank of its role. */
void world_read(const struct world *world, int rank, const struct stepaf_pack *pack,
                const struct stepaf_advert *before, struct stepaf_advert *advert_p);

#endif
