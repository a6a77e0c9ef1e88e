/* SPDX-License-Identifier: Apache-2.0 */
/* TCP: what the kernel says of a connection, and whether that means that nobody answers. */
#include <netinet/in.h>
#include <netinet/tcp.h>

#include "transport/tcp/tcp.h"
#include "unit.h"

enum { SINCE_MS = 100 };

static struct stepaf_tcp_watch watch;

/* A look at a connection with bytes to be acknowledged: the last acknowledgement and the last
 * sending were so many ms ago, and the kernel has tried again so often since the former. */
static bool look(uint32_t ack_ms, uint32_t sent_ms, uint8_t timeouts)
{
    struct tcp_info info = {.tcpi_unacked = 3,
                            .tcpi_last_ack_recv = ack_ms,
                            .tcpi_last_data_sent = sent_ms,
                            .tcpi_retransmits = timeouts};

    return stepaf_tcp_is_unanswered(&info, &watch, SINCE_MS);
}

static void who_owes_nothing_is_not_silent(void)
{
    struct tcp_info info = {.tcpi_last_ack_recv = 90000, .tcpi_last_data_sent = 80000};

    watch = (struct stepaf_tcp_watch){0};
    CU_ASSERT_FALSE(stepaf_tcp_is_unanswered(&info, &watch, SINCE_MS));
    info.tcpi_probes = 1; /* it was asked whether it is there */
    CU_ASSERT_TRUE(stepaf_tcp_is_unanswered(&info, &watch, SINCE_MS));
}

static void what_is_sent_waits_for_its_acknowledgement(void)
{
    watch = (struct stepaf_tcp_watch){0};
    CU_ASSERT_TRUE(look(50, 20, 0));
    CU_ASSERT_FALSE(look(10, 120, 0));
    /* Sent again, and acknowledged, but not taken: its program reads nothing. */
    for (uint8_t again = 1; again < 9; again++) {
        CU_ASSERT_TRUE(look(300, 1, again));
        CU_ASSERT_FALSE(look(60, 61, again));
        CU_ASSERT_FALSE(look(160, 161, again));
    }
}

/* The last that has happened is an acknowledgement of a part; then the interface went down. */
static void what_cannot_be_sent_again_is_unanswered(void)
{
    watch = (struct stepaf_tcp_watch){0};
    CU_ASSERT_FALSE(look(30, 40, 0));
    CU_ASSERT_FALSE(look(130, 140, 0));
    CU_ASSERT_TRUE(look(230, 240, 1));
    CU_ASSERT_TRUE(look(330, 340, 1));
    CU_ASSERT_TRUE(look(700, 710, 2));
    CU_ASSERT_FALSE(look(10, 20, 0)); /* it is up again */
    CU_ASSERT_FALSE(look(120, 120, 0));
    CU_ASSERT_FALSE(watch.stuck);
}

int main(void)
{
    CU_TestInfo tests[] = {
        {"who owes nothing is not silent", who_owes_nothing_is_not_silent},
        {"what is sent waits for its acknowledgement", what_is_sent_waits_for_its_acknowledgement},
        {"what cannot be sent again is unanswered", what_cannot_be_sent_again_is_unanswered},
        CU_TEST_INFO_NULL,
    };
    return unit_run(tests);
}
