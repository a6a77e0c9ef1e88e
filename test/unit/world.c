/* SPDX-License-Identifier: Apache-2.0 */
#include "world.h"

static const stepaf_key_params_t shaped = {.field_mask = STEPAF_KEY_SHAPE | STEPAF_KEY_DTYPE |
                                                         STEPAF_KEY_DEPTH,
                                           .dtype = STEPAF_BF16,
                                           .ndim = 3,
                                           .shape = {4, 3, 2},
                                           .depth = 2};

struct world world_open(void)
{
    struct world world;

    for (int r = 0; r < RANKS; r++)
        world.job[r] = fake_open(r < 2 ? STEPAF_ATTENTION : STEPAF_FFN, 2, 1);
    for (int r = 0; r < 2; r++) {
        fake_key(world.job[r], world.job[2], PUSHED, STEPAF_PUSH, 100, 2);
        fake_key(world.job[r], world.job[2], PULLED, STEPAF_PULL, 100, 2);
        fake_must(stepaf_key_declare(world.job[r]->handle, SHAPED, STEPAF_PUSH, 0, &shaped) ==
                      STEPAF_OK,
                  "key");
    }
    fake_must(stepaf_key_declare(world.job[2]->handle, SHAPED, STEPAF_PUSH, 0, &shaped) ==
                  STEPAF_OK,
              "key");
    return world;
}

void world_close(struct world *world)
{
    for (int r = 0; r < RANKS; r++)
        fake_close(world->job[r]);
}

void world_read(const struct world *world, int rank, const struct stepaf_pack *pack,
                const struct stepaf_advert *before, struct stepaf_advert *advert_p)
{
    int role = (int)world->job[rank]->ctx->role;

    fake_must(stepaf_advert_read(pack->data, pack->bytes, role, rank, before, advert_p) ==
                  STEPAF_OK,
              "declaration");
}
