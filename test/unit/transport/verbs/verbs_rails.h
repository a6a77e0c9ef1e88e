/* SPDX-License-Identifier: Apache-2.0 */
/* Two ends over several rails, for tests of rails that die. */
#ifndef STEPAF_TEST_VERBS_RAILS_H
#define STEPAF_TEST_VERBS_RAILS_H

#include "transport/verbs/failover.h"
#include "unit.h"
#include "verbs_side.h"

enum { PIECE = 1024, BYTES = 1 << 16 };

static struct vside a, b;
static struct stepaf_rmem *at_a, *at_b;
static struct stepaf_xfer xfers[STEPAF_MAX_TENSORS];

static const char two[] = "NET_DEVICES=fake0,fake1 VERBS_STRIPE_BYTES=4096";

static inline void begin(const char *settings)
{
    verbs_device_reset();
    verbs_device.n_devices = 3;
    vside_settings = settings;
    vside_open(&a, 1);
    vside_open(&b, 1);
    vside_join(&a, &b);
    vside_memory(&a, BYTES);
    vside_memory(&b, BYTES);
    for (int i = 0; i < BYTES; i++)
        a.regions[0].base[i] = (uint8_t)(i * 7 + i / 251);
    at_b = vside_import(&a, 0, &b, &b.regions[0]);
    at_a = vside_import(&b, 0, &a, vside_memory(&a, BYTES));
}

static inline void end(void)
{
    CU_ASSERT_EQUAL(verbs_device.n_unready, 0);
    CU_ASSERT_EQUAL(verbs_device.n_overflow, 0);
    stepaf_verbs_ops.release_mem(a.links[0], at_b);
    stepaf_verbs_ops.release_mem(b.links[0], at_a);
    vside_close(&a);
    vside_close(&b);
    CU_ASSERT_EQUAL(verbs_device.n_open, 0);
}

/* Until nothing happens any more, and both links go on. */
static inline void settle(void)
{
    for (unsigned quiet = 0, looks = 0; quiet < 3 && looks < 100000000; looks++) {
        bool halted = vside_link(&a, 0)->halt > STEPAF_VERBS_REWINDS ||
                      vside_link(&b, 0)->halt > STEPAF_VERBS_REWINDS;
        bool some = vside_progress(&a) + vside_progress(&b) > 0;
        quiet = some || (halted && !a.n_lost && !b.n_lost) ? 0 : quiet + 1;
    }
}

static inline bool is_there(size_t bytes)
{
    return !memcmp(a.regions[0].base, b.regions[0].base, bytes);
}

static inline void look(struct vside *side)
{
    ((struct stepaf_verbs *)side->transport)->looked = 0;
    stepaf_verbs_ops.check_peers(side->transport);
}

#endif
