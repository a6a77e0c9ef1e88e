/* SPDX-License-Identifier: Apache-2.0 */
/* RDMA: what is registered, how often, with which rights, and that a key covers that and no
 * more. */
#include <errno.h>
#include <stdlib.h>

#include "base/error.h"
#include "unit.h"
#include "verbs_side.h"

enum { BYTES = 8192, STRICT = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE };

static struct vside a, b;
static struct stepaf_xfer xfer;

static void begin(const char *settings)
{
    verbs_device_reset();
    vside_settings = settings;
    vside_open(&a, 1);
}

static void end(void)
{
    vside_close(&a);
    CU_ASSERT_EQUAL(verbs_device.n_open, 0);
}

static void success_leaves_no_failure_behind(void)
{
    stepaf_error_set(STEPAF_ERR_INVALID, STEPAF_PHASE_NONE, "from before");
    begin("");
    (void)vside_memory(&a, BYTES);
    end();
    UNIT_STRING(stepaf_last_error()->text, "from before");
}

static void a_region_is_registered_once_with_each_rail(void)
{
    begin("NET_DEVICES=fake0,fake1");
    CU_ASSERT_EQUAL(verbs_device.n_registered, 2); /* the control memory */
    const struct stepaf_mem *region = vside_memory(&a, BYTES);
    CU_ASSERT_EQUAL(verbs_device.n_registered, 4);
    CU_ASSERT(verbs_device.last_mr.addr == region->base && verbs_device.last_mr.length == BYTES);
    end();
}

/* What is read without a completion must not be overtaken. */
static void only_tensors_are_relaxed(void)
{
    begin("");
    CU_ASSERT_EQUAL(verbs_device.last_access, STRICT);
    (void)vside_memory(&a, BYTES);
    CU_ASSERT_EQUAL(verbs_device.last_access, STRICT | IBV_ACCESS_RELAXED_ORDERING);
    end();
    begin("VERBS_ORDER=strict");
    (void)vside_memory(&a, BYTES);
    CU_ASSERT_EQUAL(verbs_device.last_access, STRICT);
    end();
}

static void a_device_may_not_offer_it(void)
{
    static const int errors[] = {EINVAL, EOPNOTSUPP};

    for (int i = 0; i < 2; i++) {
        begin("");
        verbs_device.refuse_access = IBV_ACCESS_RELAXED_ORDERING;
        verbs_device.refuse_access_by = errors[i];
        (void)vside_memory(&a, BYTES);
        CU_ASSERT_EQUAL(verbs_device.last_access, STRICT);
        end();
    }
}

/* What fails for another reason is not tried again, and what was registered is given back. */
static void a_failure_halfway_leaves_nothing(void)
{
    struct stepaf_mem region = {.base = malloc(BYTES), .bytes = BYTES};

    begin("NET_DEVICES=fake0,fake1");
    int n_open = verbs_device.n_open;
    unsigned n = verbs_device.n_registered;
    verbs_device.refuse_mr = 2;
    CU_ASSERT_EQUAL(stepaf_verbs_ops.reg_mem(a.transport, &region), STEPAF_ERR_TRANSPORT);
    UNIT_CONTAINS(stepaf_last_error()->text, "fake1:1 cannot register 8192 bytes");
    CU_ASSERT_EQUAL(verbs_device.n_registered, n + 1);
    CU_ASSERT_EQUAL(verbs_device.n_open, n_open);
    CU_ASSERT_PTR_NULL(region.registration[STEPAF_TRANSPORT_verbs]);
    end();
    free(region.base);
}

/* A write of @a bytes to @a offset of the peer's region, whatever the engine would say of it. */
static bool is_written(int64_t offset, uint32_t bytes)
{
    struct stepaf_rmem *rmem;

    begin("");
    vside_open(&b, 1);
    vside_join(&a, &b);
    (void)vside_memory(&a, BYTES);
    rmem = vside_import(&a, 0, &b, vside_memory(&b, BYTES));
    struct stepaf_post post = vside_post(&a, 0, &xfer, 1, bytes, rmem);
    xfer.dst_offset = (uint64_t)offset;
    (void)vside_send(&post);
    (void)vside_progress(&b);
    (void)vside_progress(&a);
    bool written = b.n_messages == 1;
    CU_ASSERT_EQUAL(a.n_lost, !written);
    if (a.n_lost)
        UNIT_CONTAINS(a.lost_reason, "remote access error");
    stepaf_verbs_ops.release_mem(a.links[0], rmem);
    vside_close(&b);
    end();
    return written;
}

static void a_key_covers_exactly_its_region(void)
{
    CU_ASSERT_TRUE(is_written(0, BYTES));
    CU_ASSERT_TRUE(is_written(BYTES - 1, 1));
    CU_ASSERT_FALSE(is_written(1, BYTES));
    CU_ASSERT_FALSE(is_written(BYTES, 1));
    CU_ASSERT_FALSE(is_written(-1, 1));
}

static bool is_unsettled(bool begin)
{
    uint32_t peer = 7;
    bool is = !stepaf_verbs_ops.is_quiet(a.transport, begin, &peer);
    CU_ASSERT_EQUAL(peer, is ? 0 : 7);
    return is;
}

/* A device may read again what is not acknowledged, however little nobody asked to hear of. */
static void what_is_sent_settles(void)
{
    begin("");
    CU_ASSERT_FALSE(is_unsettled(true));
    vside_open(&b, 1);
    vside_join(&a, &b);
    CU_ASSERT_FALSE(is_unsettled(true));
    (void)vside_memory(&a, BYTES);
    struct stepaf_rmem *rmem = vside_import(&a, 0, &b, vside_memory(&b, BYTES));
    struct stepaf_post post = vside_post(&a, 0, &xfer, 1, 8, rmem);
    verbs_device.holds = true;
    CU_ASSERT_EQUAL(vside_send(&post), STEPAF_POST_SENT);
    unsigned n_signaled = verbs_device.n_signaled;
    CU_ASSERT_TRUE(is_unsettled(true));
    CU_ASSERT_EQUAL(verbs_device.n_signaled, n_signaled + 1);
    CU_ASSERT_EQUAL(vside_send(&post), STEPAF_POST_SENT); /* later than what is waited for */
    CU_ASSERT_TRUE(verbs_device_go_one(0));
    (void)vside_progress(&a);
    CU_ASSERT_TRUE(is_unsettled(false));
    CU_ASSERT_TRUE(verbs_device_go_one(0));
    (void)vside_progress(&a);
    CU_ASSERT_FALSE(is_unsettled(false));
    CU_ASSERT_TRUE(is_unsettled(true));
    stepaf_verbs_lost(vside_link(&a, 0), "it is over");
    CU_ASSERT_FALSE(is_unsettled(true));
    verbs_device.holds = false;
    verbs_device_go();
    (void)vside_progress(&b);
    stepaf_verbs_ops.release_mem(a.links[0], rmem);
    vside_close(&b);
    end();
}

int main(void)
{
    CU_TestInfo tests[] = {
        {"success leaves no failure behind", success_leaves_no_failure_behind},
        {"a region is registered once with each rail", a_region_is_registered_once_with_each_rail},
        {"only tensors are relaxed", only_tensors_are_relaxed},
        {"a device may not offer it", a_device_may_not_offer_it},
        {"a failure halfway leaves nothing", a_failure_halfway_leaves_nothing},
        {"a key covers exactly its region", a_key_covers_exactly_its_region},
        {"what is sent settles", what_is_sent_settles},
        CU_TEST_INFO_NULL,
    };
    return unit_run(tests);
}
