/* SPDX-License-Identifier: Apache-2.0 */
/* RDMA: what a thread sleeps on. */
#include <errno.h>
#include <poll.h>
#include <stdlib.h>

#include "unit.h"
#include "verbs_side.h"

enum { CAPACITY = 8, BYTES = 4096 };

static struct vside a, b;
static struct stepaf_rmem *at_b;
static struct stepaf_xfer xfers[STEPAF_MAX_TENSORS];
static int fds[CAPACITY];

static void begin(const char *settings)
{
    verbs_device_reset();
    vside_settings = settings;
    vside_open(&a, 1);
    vside_open(&b, 1);
    vside_join(&a, &b);
    vside_memory(&a, BYTES);
    at_b = vside_import(&a, 0, &b, vside_memory(&b, BYTES));
}

static void end(void)
{
    stepaf_verbs_ops.release_mem(a.links[0], at_b);
    vside_close(&a);
    vside_close(&b);
    CU_ASSERT_EQUAL(verbs_device.n_open, 0);
}

static unsigned arm(struct vside *side, unsigned capacity)
{
    return stepaf_verbs_ops.arm(side->transport, fds, capacity);
}

static bool is_readable(int fd)
{
    struct pollfd ready = {.fd = fd, .events = POLLIN};

    return poll(&ready, 1, 0) == 1;
}

static void send_one(uint32_t bytes)
{
    struct stepaf_post post = vside_post(&a, 0, xfers, 1, bytes, at_b);

    CU_ASSERT_NOT_EQUAL(vside_send(&post), STEPAF_POST_QUEUED);
    vside_progress(&a);
}

/* It becomes readable by what comes after it was armed, and stays so until it is armed anew. */
static void completions_wake(void)
{
    begin("VERBS_SLEEP=event");
    CU_ASSERT_EQUAL_FATAL(arm(&b, CAPACITY), 1);
    int fd = fds[0];
    CU_ASSERT_FALSE(is_readable(fd));
    for (unsigned i = 1; i <= 3; i++) {
        send_one(8);
        CU_ASSERT_TRUE(is_readable(fd));
        send_one(8);
        CU_ASSERT_EQUAL(arm(&b, CAPACITY), 1);
        CU_ASSERT_EQUAL(fds[0], fd);
        CU_ASSERT_FALSE(is_readable(fd));
        vside_progress(&b); /* what came before it was armed is not lost */
        CU_ASSERT_EQUAL(b.n_messages, 2 * i);
    }
    vside_progress(&b);
    send_one(BYTES);
    CU_ASSERT_TRUE(is_readable(fd));
    end();
}

static void every_rail_wakes(void)
{
    begin("VERBS_SLEEP=event NET_DEVICES=fake0,fake1 VERBS_STRIPE_BYTES=4096");
    CU_ASSERT_EQUAL_FATAL(arm(&b, CAPACITY), 2);
    CU_ASSERT_FALSE(is_readable(fds[0]) || is_readable(fds[1]));
    send_one(BYTES);
    CU_ASSERT_TRUE(is_readable(fds[0]) && is_readable(fds[1]));
    CU_ASSERT_EQUAL(arm(&b, 1), 0); /* one alone would not do */
    end();
}

/* Then the waiting thread goes on polling. */
static void there_may_be_nothing_to_sleep_on(void)
{
    begin("");
    CU_ASSERT_EQUAL(arm(&a, CAPACITY), 0);
    end();
    begin("VERBS_SLEEP=event");
    verbs_device.refuse_arm = EIO;
    CU_ASSERT_EQUAL(arm(&a, CAPACITY), 0);
    end();
}

static void a_channel_may_be_refused(void)
{
    verbs_device_reset();
    verbs_device.refuse_channel = EMFILE;
    vside_settings = "VERBS_SLEEP=event NET_DEVICES=fake0";
    CU_ASSERT_EQUAL(vside_try(&a, 1), STEPAF_ERR_NO_TRANSPORT);
    CU_ASSERT_PTR_NOT_NULL(strstr(stepaf_last_error()->text, "no completion channel"));
    CU_ASSERT_EQUAL(verbs_device.n_open, 0);
}

int main(void)
{
    CU_TestInfo tests[] = {
        {"completions wake", completions_wake},
        {"every rail wakes", every_rail_wakes},
        {"there may be nothing to sleep on", there_may_be_nothing_to_sleep_on},
        {"a channel may be refused", a_channel_may_be_refused},
        CU_TEST_INFO_NULL,
    };
    return unit_run(tests);
}
